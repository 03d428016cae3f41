"""CRDT0: a map of registers, an observed-remove set, a grow-only counter (CRD0 lines; C-112)."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from veen.core.crypto.hash import U64_MAX, sha256
from veen.core.encoding.field_types import B32, BYTES, UINT, ListOf, hex_from_json
from veen.core.encoding.shape import Field, Fields
from veen.core.types import JsonValue
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Event
from veen.overlays.keyed_overlay import KeyedOverlay
from veen.overlays.monoid import FIRST, MAX, MIN, SUM, Monoid, first
from veen.overlays.overlay import (
    NOTHING,
    Cell,
    Key,
    Lowered,
    Overlay,
    Tables,
    appended,
    sequence,
    sequence_sizes,
    sequence_tables,
)
from veen.overlays.schema import Schema

LWW: Final = Schema("crdt.lww.v1", Field("key", BYTES), Field("ts", UINT), Field("value", BYTES))


def _add_or_remove(body: Fields) -> None:
    adds = [body.get("id") is not None, body.get("elem") is not None]
    removes = body.get("tomb") is not None
    if all(adds) == removes or any(adds) != all(adds):
        raise InvalidBodyError("CRDT.ADD_OR_REMOVE", "an or-set event has either id and elem, or tomb")


ORSET: Final = Schema(
    "crdt.orset.v1",
    Field("id", B32, optional=True),
    Field("elem", BYTES, optional=True),
    Field("tomb", ListOf(B32), optional=True),
    checks=(_add_or_remove,),
)
COUNTER: Final = Schema("crdt.gcnt.v1", Field("shard", B32), Field("delta", UINT))


def format_value(data: bytes) -> str:
    """Return printable bytes as text, others as hex after ``0x``."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() and not text.startswith("0x") else f"0x{data.hex()}"


def parse_value(text: str) -> bytes:
    """Return the bytes that ``format_value`` formatted."""
    return hex_from_json(text[2:]) if text.startswith("0x") else text.encode()


class LwwMap(KeyedOverlay):
    """Registers: the value of each key with the greatest time."""

    name, schemas, monoid = "crdt.lww", (LWW,), MAX
    about = "Registers: the last value of each key, by its time."
    table = "registers"
    state_class = "lww.map"

    def cell(self, event: Event) -> tuple[Key, Any]:
        """Return the key, and its value with time and position."""
        body, record = event.body, event.record
        order = (body["ts"], record.epoch, record.stream_seq, record.msg_id)
        return body["key"], (order, body["value"])

    def parse_key(self, text: str) -> Key:
        """Parse a key: text, or hex after 0x."""
        return parse_value(text)

    def format_key(self, key: Key) -> str:
        """Format a key: as text if printable, else as hex after 0x."""
        return format_value(_bytes(key))

    def format_summary(self, summary: Any) -> JsonValue:
        """Return the value of a register."""
        return format_value(summary[1])

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return value, time and position of a register."""
        register = tables.get(self.table, key)
        if register is None:
            return None
        (ts, epoch, stream_seq, _), value = register
        return {"value": format_value(value), "ts": ts, "epoch": epoch, "stream_seq": stream_seq}

    def serialized(self, tables: Tables) -> Mapping[Key, Any]:
        """Return the map of keys and values."""
        return {key: register[1] for key, register in tables.items(self.table)}


def _bytes(key: Key) -> bytes:
    assert isinstance(key, bytes)
    return key


class OrSet(Overlay):
    """A set: an element is present while at least one of its additions is not removed."""

    name: ClassVar[str] = "crdt.orset"
    version: ClassVar[int] = 2
    about: ClassVar[str] = "A set: an element is in it while one of its additions is not removed."
    schemas: ClassVar[tuple[Schema, ...]] = (ORSET,)
    # Additions of each element, tombs by id, and the number of additions of an element that have a tomb.
    # Tombs are never deleted: one may precede the addition that it removes (CRD0-003).
    tables: ClassVar[Mapping[str, Monoid]] = {**sequence_tables("members"), "tombs": MIN, "removed": SUM}
    indexes: ClassVar[Mapping[str, Monoid]] = {"ids": FIRST}
    state_class: ClassVar[str] = "orset"

    def lower(self, event: Event, before: Tables) -> Lowered:
        """Apply an addition with a new id, or the removal of ids."""
        tomb = event.body.get("tomb")
        return self._add(event, before) if tomb is None else _remove(event, tomb, before)

    def _add(self, event: Event, before: Tables) -> Lowered:
        one, elem = event.body["id"], event.body["elem"]
        known = before.get("ids", one)
        if known is not None:
            same = known[0][2] == elem
            text = "the id was used before for another element; the first addition stays"
            return NOTHING if same else Lowered((), (("CRDT.ID_REUSED", text),))
        cells: list[Cell] = [("ids", one, first(event.position, sha256(elem), elem))]
        if before.get("tombs", one) is None:
            cells += appended(before, "members", elem, (event.position, one))
        return Lowered(cells)

    def parse_key(self, text: str) -> Key:
        """Parse an element: text, or hex after 0x."""
        return parse_value(text)

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return whether an element is in the set, and the ids of its additions."""
        ids = self.ids(tables, key)
        return {"present": bool(ids), "ids": [one.hex() for one in ids]}

    def ids(self, tables: Tables, elem: Key) -> tuple[bytes, ...]:
        """Return the additions of an element that are not removed, sorted: a removal has to name them."""
        return tuple(sorted(_living(tables, elem)))

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the elements, sorted."""
        return [format_value(elem) for elem in self.serialized(tables)]

    def serialized(self, tables: Tables) -> list[bytes]:
        """Return the elements, sorted."""
        return sorted(
            _bytes(elem)
            for elem, count, is_whole in sequence_sizes(tables, "members")
            if count > (tables.get("removed", elem) or 0)
            # A range may remove additions that were made before it.
            or (not is_whole and any(True for _ in _living(tables, elem)))
        )


def _living(tables: Tables, elem: Key) -> Iterator[bytes]:
    return (one for _, one in sequence(tables, "members", elem) if tables.get("tombs", one) is None)


def _remove(event: Event, tomb: list[bytes], before: Tables) -> Lowered:
    cells: list[Cell] = []
    for one in sorted(set(tomb)):
        if before.get("tombs", one) is not None:
            continue
        cells.append(("tombs", one, (event.position,)))
        known = before.get("ids", one)
        if known is not None:
            cells.append(("removed", known[0][2], 1))
    return Lowered(cells)


class GCounter(KeyedOverlay):
    """A grow-only counter with one shard per writer."""

    name, schemas, monoid = "crdt.gcnt", (COUNTER,), SUM
    about = "A counter that only grows; every writer has a shard."
    table = "shards"
    state_class = "counter.map"

    def cell(self, event: Event) -> tuple[Key, Any]:
        """Return the shard and its increment."""
        return event.body["shard"], event.body["delta"]

    def parse_key(self, text: str) -> Key:
        """Parse a shard: hex."""
        return hex_from_json(text)

    def format_key(self, key: Key) -> str:
        """Format a shard: hex."""
        return _bytes(key).hex()

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the total, and the value of each shard."""
        shards = {self.format_key(key): value for key, value in tables.items(self.table)}
        return {"total": sum(shards.values()), "shards": shards}

    def serialized(self, tables: Tables) -> Mapping[Key, Any]:
        """Return the shards; a value beyond 64 bits cannot be encoded (C-112)."""
        shards = super().serialized(tables)
        if any(value > U64_MAX for value in shards.values()):
            raise InvalidBodyError("CRDT.OVERFLOW", "a shard is beyond 2^64 - 1 and cannot be encoded")
        return shards
