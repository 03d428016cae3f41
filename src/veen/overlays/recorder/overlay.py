"""The recorder's streams: events by author, and the declarations of streams (SDR lines).

A fold sees one stream. Rules across streams, such as that each type of event is in one stream only (SDR-005),
are checked where the states of all streams are compared: in ``veen.recorder``.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from veen.core.crypto.hash import tagged_hash
from veen.core.types import JsonValue
from veen.overlays.engine import encode_state
from veen.overlays.event import Event
from veen.overlays.monoid import COUNT, MAX, Monoid
from veen.overlays.overlay import Cell, Key, Lowered, Overlay, Tables
from veen.overlays.recorder.schemas import CHANGE, CHECKPOINT, EVENT, IMPORTED
from veen.overlays.schema import Schema

# Event of a change -> the resulting state of its stream.
_BECOMES: Final = {"declare": "declared", "rename": "renamed", "split": "split", "retire": "retired"}
# The only key of a table with one row.
_ALL: Final = "all"


class Recorder(Overlay):
    """Events by type and principal, copies by origin, streams as declared."""

    name: ClassVar[str] = "recorder"
    about: ClassVar[str] = "The recorder: events by type and principal, checkpoints, declared streams."
    schemas: ClassVar[tuple[Schema, ...]] = (EVENT, IMPORTED, CHECKPOINT, CHANGE)
    tables: ClassVar[Mapping[str, Monoid]] = {
        # For each epoch the number of events, and their first and last number.
        "covered": COUNT,
        # For each type and principal the number of events, and time and position of the first and the last.
        "types": COUNT,
        "principals": COUNT,
        # The same for keys that have changed streams.
        "admins": COUNT,
        # For each source label the number of copies, and the first and last number there.
        "imported": COUNT,
        "checkpoints": COUNT,
        "checkpoint": MAX,
        "streams": MAX,
    }
    state_class: ClassVar[str] = "recorder"
    needs_past: ClassVar[bool] = False

    # Keys that may change streams; if empty, every key.
    admins: frozenset[bytes] = frozenset()

    def lower(self, event: Event, before: Tables) -> Lowered:  # noqa: ARG002 - an event counts by itself
        """Apply an event, a copy, a checkpoint or a change of streams."""
        if event.schema is EVENT:
            return _event(event)
        if event.schema is IMPORTED:
            return _imported(event)
        if event.schema is CHECKPOINT:
            return _checkpoint(event)
        client_id = event.record.client_id
        if self.admins and client_id not in self.admins:
            return Lowered((), (("SDR.NOT_AN_ADMIN", f"{client_id.hex()} is not an admin of the recorder"),))
        return _change(event)

    def parse_key(self, text: str) -> Key:
        """Parse a type of events, a principal in hex, or the name of a stream."""
        return text

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the entries of a type, a principal and a stream with this name."""
        row = tables.get("streams", key)
        state: dict[str, JsonValue] = {} if row is None else {"stream": _stream(row)}
        for table, name in (("types", "type"), ("principals", "principal")):
            counted = tables.get(table, key)
            state |= {} if counted is None else {name: _counted(counted)}
        return state or None

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the whole state, with the types that several streams declare (SDR-005)."""
        return {
            "covered": [
                {"epoch": key[0], "events": row[0], "first_seq": row[1], "last_seq": row[2]}
                for key, row in tables.items("covered")
            ],
            "types": {str(key): _counted(row) for key, row in tables.items("types")},
            "principals": {str(key): _counted(row) for key, row in tables.items("principals")},
            "admins": {str(key): _counted(row) for key, row in tables.items("admins")},
            "imported": [_copied(key, row) for key, row in tables.items("imported")],
            "checkpoints": _checkpoints(tables),
            "streams": {str(key): _stream(row) for key, row in tables.items("streams")},
            "shared_types": _shared(tables),
        }

    def serialized(self, tables: Tables) -> list[Any]:
        """Return counts, the last checkpoint and the streams."""
        counted = ("covered", "types", "principals", "admins", "imported", "checkpoints")
        return [
            *([[key, list(row)] for key, row in tables.items(name)] for name in counted),
            [list(row[1:]) for _, row in tables.items("checkpoint")],
            _configuration(tables),
        ]


def _place_of(event: Event) -> tuple[int, int, int]:
    record = event.record
    return (record.hub_ts, record.epoch, record.stream_seq)


def _event(event: Event) -> Lowered:
    body, record = event.body, event.record
    if body["principal_id"] != record.client_id.hex():  # SDR-002, SDR-023
        text = f"principal_id {body['principal_id']!r} is not {record.client_id.hex()}, the key that signed"
        return Lowered((), (("SDR.PRINCIPAL_MISMATCH", text),))
    place = _place_of(event)
    cells: tuple[Cell, ...] = (
        ("covered", (record.epoch,), (1, record.stream_seq, record.stream_seq)),
        ("types", body["event_type"], (1, place, place)),
        ("principals", body["principal_id"], (1, place, place)),
    )
    return Lowered(cells)


def _imported(event: Event) -> Lowered:
    body = event.body
    label = (body["origin_hub_id"], body["origin_stream"], body["origin_epoch"])
    seq = body["origin_stream_seq"]
    return Lowered((("imported", label, (1, seq, seq)),))


def _checkpoint(event: Event) -> Lowered:
    body = event.body
    created, events = body["created_at"], sum(entry["upto_seq"] for entry in body["streams"])
    return Lowered(
        (
            ("checkpoints", _ALL, (1, created, created)),
            ("checkpoint", _ALL, (event.position, created, body["log_root"], body["profile_id"], events)),
        )
    )


def _change(event: Event) -> Lowered:
    body = event.body
    kind, into = body["change"], tuple(body.get("into") or ())
    types, retention = tuple(sorted(set(body.get("event_types") or ()))), body.get("retention_hint")
    place = _place_of(event)
    cells: list[Cell] = [("admins", event.record.client_id.hex(), (1, place, place))]
    if kind == "declare":
        cells.append(("streams", body["stream"], (event.position, "declared", (), types, retention)))
        return Lowered(cells)
    cells.append(("streams", body["stream"], (event.position, _BECOMES[kind], into, (), None)))
    if kind == "rename":  # a rename replaces the old name; a split is followed by declarations
        cells.append(("streams", into[0], (event.position, "declared", (), types, retention)))
    return Lowered(cells)


def shared_types(declared: Iterable[tuple[str, Iterable[str]]]) -> dict[str, list[str]]:
    """Return the event types that more than one stream declares, with these streams (SDR-005)."""
    streams_of: dict[str, list[str]] = {}
    for stream, types in declared:
        for event_type in types:
            streams_of.setdefault(event_type, []).append(stream)
    return {name: streams for name, streams in sorted(streams_of.items()) if len(streams) > 1}


def _shared(tables: Tables) -> JsonValue:
    shared = shared_types((str(stream), row[3]) for stream, row in tables.items("streams"))
    return {name: list(streams) for name, streams in shared.items()}


def profile_id(tables: Tables) -> bytes:
    """Return the hash that identifies a recorder configuration: its declared streams (SDR-012)."""
    return tagged_hash("veen/recorder-profile", encode_state(_configuration(tables)))


def _configuration(tables: Tables) -> list[Any]:
    return [[stream, *row[1:]] for stream, row in tables.items("streams")]


def _place(place: Any) -> JsonValue:
    return {"hub_ts": place[0], "epoch": place[1], "stream_seq": place[2]}


def _counted(row: Any) -> JsonValue:
    return {"events": row[0], "first": _place(row[1]), "last": _place(row[2])}


def _copied(key: Any, row: Any) -> JsonValue:
    hub, stream, epoch = key
    return {
        "origin_hub_id": hub.hex(),
        "origin_stream": stream,
        "origin_epoch": epoch,
        "copies": row[0],
        "first_seq": row[1],
        "last_seq": row[2],
    }


def _checkpoints(tables: Tables) -> JsonValue:
    counted, last = tables.get("checkpoints", _ALL), tables.get("checkpoint", _ALL)
    if last is None:
        return {"count": 0}
    return {
        "count": counted[0],
        "last": {
            "stream_seq": last[0][1],
            "created_at": last[1],
            "log_root": last[2].hex(),
            "profile_id": last[3].hex(),
            "events": last[4],
        },
    }


def _stream(row: Any) -> JsonValue:
    return {
        "state": row[1],
        "into": list(row[2]),
        "event_types": list(row[3]),
        "retention_hint": row[4],
    }
