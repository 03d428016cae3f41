"""The interface of overlays: schemas, tables of summaries, how an event enters them, and how they are read.

An event is *lowered* to cells: (table, key, summary of this event alone). Folding is merging the cells of
each key in the order of the log. Where it depends on earlier events whether an event counts (an overdraft, a
recovery), the overlay looks at the tables before the event and lowers it accordingly: the verdict is made
once, and the cells of any range merge without it.

A sequence holds events that belong together: all grants of a subject, the history of a target. Each entry is
a row of its own, under its key and its number, and one more row has the range of numbers, which does not
begin with 0 if only a range of the log is folded. So adding an entry has a constant cost. As one value the
entries would be copied each time, and any writer of the stream could make a fold slow.
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

# A key of a table: bytes, text, or a tuple of these and numbers.
Key = bytes | str | tuple[Any, ...]
# A table's name, a key, and the summary of one event.
Cell = tuple[str, Key, Any]


class Tables(Protocol):
    """The tables at some position, for reading."""

    def get(self, table: str, key: Key) -> Any:
        """Return the summary of a key; None if it has none."""

    def items(self, table: str) -> Iterable[tuple[Key, Any]]:
        """Yield all keys of a table with their summaries, sorted by the encoding of the key."""


class Lowered(NamedTuple):
    """The effect of an event: cells to merge, and what is wrong with it (code and detail)."""

    cells: Sequence[Cell] = ()
    reports: Sequence[tuple[str, str]] = ()


NOTHING = Lowered()


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Overlay(ABC):
    """A fold over a stream. Subclasses become frozen dataclasses; their fields are its parameters.

    Attributes:
        version: Raise it when the same log folds to another state, or a summary is packed in another way.
        about: One line of description.
        tables: The tables that make up the state.
        indexes: Tables that only verdicts need: stored for the end of the log, not for positions within it.
        copies_by_parent: Schemas whose ``parent_id`` means "copied from" for every sender (OVR-014 a); else
            it means so for bridges only.
        state_class: The name under which the state is hashed (SNP-003).
        needs_past: Whether ``lower`` looks at the tables before an event; if not, ranges fold in parallel.
        grouped: Whether ``group`` returns which events can affect each other.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    about: ClassVar[str] = ""
    schemas: ClassVar[tuple[Schema, ...]]
    tables: ClassVar[Mapping[str, Monoid]]
    indexes: ClassVar[Mapping[str, Monoid]] = {}
    copies_by_parent: ClassVar[tuple[Schema, ...]] = ()
    state_class: ClassVar[str]
    needs_past: ClassVar[bool] = True
    grouped: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Make each subclass a frozen dataclass."""
        super().__init_subclass__()
        dataclass(frozen=True)(cls)

    @abstractmethod
    def lower(self, event: Event, before: Tables) -> Lowered:
        """Return the effect of an event, given the tables before it."""

    def group(self, event: Event) -> Key:
        """Return the group of an event: no event of another group changes its effect.

        Each key of a table belongs to one group, unless the summaries of the table commute.
        """
        raise NotImplementedError(f"{self.name} has no groups: {event.name}")

    @abstractmethod
    def parse_key(self, text: str) -> Key:
        """Return the key that a text stands for; raise ValueError or ProtocolError if it is not a key."""

    @abstractmethod
    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:
        """Return the state of one key; None if there is none. ``now`` decides what has expired."""

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
        """Return the parameters that this fold was configured with."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the parameters only: schemas and derived values exist where it is unpickled."""
        return _made, (type(self), {item.name: getattr(self, item.name) for item in fields(self)})

    @property
    def identity(self) -> bytes:
        """The id under which summaries are stored; another version or other parameters are another fold."""
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
    """Return parameters as CBOR can encode them: numbers as text, since they may be negative."""
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
    """Return the tables of a sequence, for the declaration of an overlay."""
    return {name: MIN, _counts(name): COUNT}


def _counts(name: str) -> str:
    return f"{name}.count"


def appended(before: Tables, name: str, key: Key, entry: tuple[Any, ...]) -> tuple[Cell, Cell]:
    """Return the cells that append an entry to those of a key; the entry begins with its position."""
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
    """Yield the keys that have entries, sorted: number of entries, and whether they begin with entry 0."""
    return ((key, count, first == 0) for key, (count, first, _) in tables.items(_counts(name)))


def sequence_keys(tables: Tables, name: str) -> list[bytes]:
    """Return the keys that have entries, sorted."""
    return [key for key, _, _ in sequence_sizes(tables, name) if isinstance(key, bytes)]
