"""What an overlay is: schemas, tables of summaries, how an event is entered in them, and how they are read.

An event is *lowered* to cells: (table, key, summary of this event alone). Folding is joining cells of one key
in the order of the log. Where an event counts or not depending on what was before it (an overdraft, a
recovery), the overlay looks at the tables as they were and lowers it accordingly: the verdict is made once,
and the cells of any range join without it.

A sequence holds events that belong together: all grants of a subject, all that happened about a target. Each
is a row of its own, under its key and its number, and one more row says which numbers there are: over a range
of the log they do not begin with 0. So adding one costs the same however many there are. As one value
they would be copied each time, and whoever may write could make a fold slow.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Protocol, dataclass_transform

from veen.core.crypto.hash import tagged_hash
from veen.core.encoding import cbor
from veen.core.encoding.cbor import Value
from veen.core.encoding.wire_object import Wire
from veen.core.types import JsonValue
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Event
from veen.overlays.monoid import COUNT, MIN, Monoid
from veen.overlays.schema import Schema

#: A key of a table: bytes, text, or a tuple of such and numbers.
Key = bytes | str | tuple[Any, ...]
#: A table's name, a key, and the summary of one event.
Cell = tuple[str, Key, Any]


class Tables(Protocol):
    """The tables at some position, to be read."""

    def get(self, table: str, key: Key) -> Any:
        """Return the summary of a key; None if it has none."""

    def items(self, table: str) -> Iterable[tuple[Key, Any]]:
        """Yield all keys of a table with their summaries, sorted by the encoding of the key."""


class Lowered(NamedTuple):
    """What an event does: cells to join, and what is wrong with it (code and detail)."""

    cells: Sequence[Cell] = ()
    reports: Sequence[tuple[str, str]] = ()


NOTHING = Lowered()


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Overlay(ABC):
    """A fold over a stream. Subclasses become frozen dataclasses; their fields are its parameters."""

    name: ClassVar[str]
    #: Goes up when the same log would fold to another state, or a summary is packed in another way.
    version: ClassVar[int] = 1
    #: What it is, in a line.
    about: ClassVar[str] = ""
    schemas: ClassVar[tuple[Schema, ...]]
    #: What makes up the state.
    tables: ClassVar[Mapping[str, Monoid]]
    #: What only verdicts need: kept for the end of the log, not for positions within it.
    indexes: ClassVar[Mapping[str, Monoid]] = {}
    #: Of these a ``parent_id`` says "copied from" whoever sends it (OVR-014 a); else only from bridges.
    copies_by_parent: ClassVar[tuple[Schema, ...]] = ()
    #: Under what name its state is hashed (SNP-003).
    state_class: ClassVar[str]
    #: Whether ``lower`` looks at the tables before an event; if not, ranges can be folded apart.
    needs_past: ClassVar[bool] = True
    #: Whether ``group`` tells which events can affect each other.
    grouped: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Make a frozen dataclass of each overlay."""
        super().__init_subclass__()
        dataclass(frozen=True)(cls)

    @abstractmethod
    def lower(self, event: Event, before: Tables) -> Lowered:
        """Return what an event does, given the tables before it."""

    def group(self, event: Event) -> Key:
        """Return what an event belongs to: no event of another group changes what it does.

        Keys of tables belong to one group each, or are of tables whose summaries join in any order.
        """
        raise NotImplementedError(f"{self.name} has no groups: {event.name}")

    @abstractmethod
    def parse_key(self, text: str) -> Key:
        """Return the key that a text stands for; raise ValueError or ProtocolError if it is not a key."""

    @abstractmethod
    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:
        """Return the state of one key; None if there is nothing. ``now`` decides what has expired."""

    @abstractmethod
    def view(self, tables: Tables, now: int | None = None) -> JsonValue:
        """Return the whole state."""

    @abstractmethod
    def serialized(self, tables: Tables) -> Value | Mapping[Any, Any]:
        """Return the state as it is hashed: the same for every reader of the log, without ``now``."""

    def serialized_key(self, tables: Tables, key: Key) -> Any:  # noqa: ARG002 - of overlays with such states
        """Return the state of one key as it is hashed, where each key has a state of its own (SNP-004)."""
        raise InvalidBodyError("STATE.WHOLE", f"{self.name} has one state, not one for each key")

    def parameters(self) -> dict[str, JsonValue]:
        """Return what this fold was configured with."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as parameters: what is made of them, and schemas, are there where it arrives."""
        return _made, (type(self), {item.name: getattr(self, item.name) for item in fields(self)})

    @property
    def identity(self) -> bytes:
        """Under what its summaries are kept: another version or other parameters are another fold."""
        named: Value = {"name": self.name, "version": self.version, "parameters": _text(self.parameters())}
        return tagged_hash("veen/overlay", cbor.encode(named))


def _made(cls: type[Overlay], values: Mapping[str, Any]) -> Overlay:
    return cls(**values)


def _plain(value: Any) -> JsonValue:
    match value:
        case bytes():
            return value.hex()
        case Wire():
            return value.encode().hex()
        case Overlay():
            return [value.name, value.version, value.parameters()]
        case frozenset() | set():
            return sorted((_plain(item) for item in value), key=str)
        case list() | tuple():
            return [_plain(item) for item in value]
        case Mapping():
            return {str(_plain(key)): _plain(item) for key, item in sorted(value.items())}
    return value  # type: ignore[no-any-return] # null, bool, int or text


def _text(value: JsonValue) -> Value:
    """Return parameters as CBOR has them: numbers as text, since they may be negative."""
    match value:
        case dict():
            return {key: _text(item) for key, item in value.items()}
        case list():
            return [_text(item) for item in value]
        case bool() | None | str():
            return value
    return str(value)


def sorted_items(table: Mapping[Key, Any]) -> Iterator[tuple[Key, Any]]:
    """Yield keys and summaries in the order of the encoded keys."""
    return iter(sorted(table.items(), key=_encoded_key))


def _encoded_key(item: tuple[Key, Any]) -> bytes:
    return cbor.encode(item[0])


def sequence_tables(name: str) -> Mapping[str, Monoid]:
    """Return the tables of a sequence, to be declared by an overlay."""
    return {name: MIN, _counts(name): COUNT}


def _counts(name: str) -> str:
    return f"{name}.count"


def appended(before: Tables, name: str, key: Key, entry: tuple[Any, ...]) -> tuple[Cell, Cell]:
    """Return the cells that add an entry behind those of a key; it begins with its position."""
    counted = before.get(_counts(name), key)
    number = 0 if counted is None else counted[2] + 1
    return ((name, (key, number), entry), (_counts(name), key, (1, number, number)))


def sequence(tables: Tables, name: str, key: Key) -> Iterator[Any]:
    """Yield the entries of a key, in their order."""
    counted = tables.get(_counts(name), key)
    if counted is None:
        return
    for number in range(counted[1], counted[2] + 1):
        yield tables.get(name, (key, number))


def sequence_sizes(tables: Tables, name: str) -> Iterator[tuple[Key, int, bool]]:
    """Yield the keys that have entries, sorted: how many, and whether the first one ever is among them."""
    return ((key, count, first == 0) for key, (count, first, _) in tables.items(_counts(name)))


def sequence_keys(tables: Tables, name: str) -> list[bytes]:
    """Return the keys that have entries, sorted."""
    return [key for key, _, _ in sequence_sizes(tables, name) if isinstance(key, bytes)]
