"""Overlays of one table: each event adds one value under one key.

This form suffices for most overlays; use ``Overlay.lower`` for what it cannot express.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

from veen.core.crypto.hash import U64_MAX
from veen.core.encoding.field_types import hex_from_json
from veen.core.errors import ProtocolError
from veen.core.types import JsonValue
from veen.overlays.errors import OverlayError
from veen.overlays.event import Event
from veen.overlays.monoid import CellMonoid
from veen.overlays.overlay import NOTHING, Key, Lowered, Overlay, Tables
from veen.overlays.schema import Schema

_HEX = "0x"


class KeyedOverlay(Overlay):
    """A fold of one table, declared by its schemas, a monoid and the method ``cell``.

    Example:
        >>> from veen.overlays import SUM, TEXT, Field, KeyedOverlay, Schema
        >>> VOTE = Schema("example.vote.v1", Field("choice", TEXT))
        >>> class Votes(KeyedOverlay):
        ...     name, schemas, monoid = "votes", (VOTE,), SUM
        ...
        ...     def cell(self, event):
        ...         return event.body["choice"], 1

    A class attribute with an annotation is a parameter: with ``weight: int = 1`` in the class,
    ``Votes(weight=2)`` is another fold. Instances are frozen.

    Attributes:
        name: What the overlay is called, on the command line and in certificates.
        schemas: The schemas of the events that it reads.
        monoid: How two values of one key are joined: ``SUM``, ``MAX``, ``FIRST``, ... ``MAX`` and ``MIN``
            compare the first item of tuples, which no two events may share, as ``event.position``.
        version: Raise it when the same log folds to another state.
        about: One line of description.
        table: The name of the table, in stored summaries.
        state_class: The name under which the state is hashed; by default that of the overlay.
    """

    monoid: ClassVar[CellMonoid]
    table: ClassVar[str] = "cells"
    needs_past = False

    def __init_subclass__(cls) -> None:
        """Check the declaration, freeze the class and fill in what follows from the declaration."""
        super().__init_subclass__()
        _check_declaration(cls)
        cls.tables = {cls.table: cls.monoid}
        if "state_class" not in vars(cls) and ("name" in vars(cls) or not hasattr(cls, "state_class")):
            cls.state_class = cls.name

    @abstractmethod
    def cell(self, event: Event) -> tuple[Key, Any] | None:
        """Return the key of an event and the value to merge there; None if the event does not count.

        Use only the event: no clock, files or network, so that every reader of the log computes the same
        state.
        """

    def lower(self, event: Event, before: Tables) -> Lowered:  # noqa: ARG002 - a cell needs no past
        """Return the cell of an event."""
        cell = self.cell(event)
        if cell is None:
            return NOTHING
        if type(cell) is not tuple or len(cell) != 2:
            raise OverlayError(f"{type(self).__name__}.cell returned {cell!r}: return (key, value), or None")
        key, value = cell
        if not _is_key(key):
            raise OverlayError(
                f"{type(self).__name__}.cell returned the key {key!r}:"
                " a key is text, bytes, or a tuple of text, bytes and integers from 0 to 2^64 - 1"
            )
        if not self.monoid.accepts(value):
            raise OverlayError(
                f"{type(self).__name__}.cell returned the value {value!r}:"
                f" {self.monoid.name} joins {self.monoid.expects}"
            )
        if not _is_storable(self.monoid.pack(value)):
            raise OverlayError(
                f"{type(self).__name__}.cell returned the value {value!r}: it may contain null, bool, text,"
                " bytes, integers from 0 to 2^64 - 1, and lists and maps of these"
            )
        return Lowered(((self.table, key, value),))

    def parse_key(self, text: str) -> Key:
        """Return the key that a text stands for: bytes for hex after 0x, else the text itself.

        An overlay whose keys are tuples has to override it.
        """
        try:
            return hex_from_json(text[len(_HEX) :]) if text.startswith(_HEX) else text
        except ProtocolError:
            return text

    def format_key(self, key: Key) -> str:
        """Return a key as text: bytes as hex after 0x, a tuple as its parts with commas between them."""
        return _HEX + key.hex() if isinstance(key, bytes) else _as_text(key)

    def format_summary(self, summary: Any) -> JsonValue:
        """Return the summary of a key as readers of the state see it; bytes as hex."""
        match summary:
            case bytes():
                return summary.hex()
            case Mapping():
                return {_as_text(key): self.format_summary(item) for key, item in summary.items()}
            case tuple() | list():
                return [self.format_summary(item) for item in summary]
        return summary  # type: ignore[no-any-return] # null, bool, int or text

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the state of one key."""
        summary = tables.get(self.table, key)
        if summary is None and isinstance(key, bytes):
            summary = tables.get(self.table, self.format_key(key))  # a text key that looks like hex
        return None if summary is None else self.format_summary(summary)

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the state of every key."""
        return {
            self.format_key(key): self.format_summary(summary) for key, summary in tables.items(self.table)
        }

    def serialized(self, tables: Tables) -> Mapping[Key, Any]:
        """Return keys and summaries."""
        return dict(tables.items(self.table))


def _as_text(key: Any) -> str:
    """Return a key, or an item of a tuple key, as text; bytes as hex."""
    match key:
        case bytes():
            return key.hex()
        case tuple():
            return ",".join(map(_as_text, key))
    return str(key)


def _is_key(key: Any) -> bool:
    """Return whether a value can be a key of a table."""
    kind = type(key)
    if kind is tuple:
        return bool(key) and all(type(part) in (str, bytes, int) and _is_storable(part) for part in key)
    return kind is str or kind is bytes


def _is_storable(value: Any) -> bool:
    """Return whether a packed summary, or an item of a key, can be encoded."""
    match value:
        case None | bool() | bytes() | str():
            return True
        case int():
            return 0 <= value <= U64_MAX
        case tuple() | list():
            return all(map(_is_storable, value))
        case Mapping():
            return all(type(key) in (str, int) and _is_storable(key) for key in value) and all(
                map(_is_storable, value.values())
            )
    return False


def _check_declaration(cls: type[KeyedOverlay]) -> None:
    """Raise OverlayError, with what to write instead, for a class that cannot be used as an overlay."""
    parameters = {item.name for item in fields(cls)}
    annotated = sorted(parameters & {"name", "schemas", "monoid", "version", "about", "table", "state_class"})
    if annotated:
        raise OverlayError(
            f"{cls.__name__}: write {annotated[0]} = ... without an annotation: annotated attributes are"
            " parameters of the overlay"
        )
    name, schemas, monoid = (getattr(cls, attribute, None) for attribute in ("name", "schemas", "monoid"))
    if not isinstance(name, str) or not name:
        raise OverlayError(f'{cls.__name__} has no name: write name = "..." in the class')
    if not isinstance(schemas, tuple) or not schemas or not all(isinstance(one, Schema) for one in schemas):
        raise OverlayError(f"{cls.__name__} has no schemas: write schemas = (Schema(...),), a tuple")
    if isinstance(monoid, type) or not isinstance(monoid, CellMonoid):
        raise OverlayError(
            f"{cls.__name__}: monoid is {monoid!r}, which is not a monoid:"
            " use SUM, MAX, MIN, FIRST, COUNT, SET or LOWEST of veen.overlays"
        )
    if type(cls.version) is not int:
        raise OverlayError(f"{cls.__name__}: version is {cls.version!r}: write an integer")
    for attribute in ("about", "table", "state_class"):
        value = getattr(cls, attribute, "")
        if not isinstance(value, str):
            raise OverlayError(f"{cls.__name__}: {attribute} is {value!r}: write a text")
    if "tables" in vars(cls):
        raise OverlayError(f"{cls.__name__} has one table: set table and monoid, or make it an Overlay")
    if cls.cell is KeyedOverlay.cell:
        raise OverlayError(f"{cls.__name__} has no method cell(self, event) that returns (key, value)")
