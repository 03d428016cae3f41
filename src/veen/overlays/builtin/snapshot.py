"""Snapshots of states: claims of what a state was at a position of the log (SNP lines).

A snapshot has a number and the root of the log there, but no epoch. Where the labels of a stream change, the
root determines the label, and only a reader of the log can compare it. So the number alone is the position
only in a stream without epochs (epoch 0, which has none before it); elsewhere the root is part of it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple

from veen.core.crypto.hash import U64_MAX
from veen.core.encoding.hexadecimal import parse_hex32
from veen.core.types import JsonValue
from veen.overlays.errors import ParameterError
from veen.overlays.event import Event
from veen.overlays.monoid import MAX, Monoid
from veen.overlays.operations.schemas import SNAPSHOT, operation_body
from veen.overlays.overlay import Key, Lowered, Overlay, Tables
from veen.overlays.schema import Schema

# Number of items in a key: state, position, class.
_PARTS: Final = 3


class Snapshot(NamedTuple):
    """A snapshot of the log."""

    epoch: int
    stream_seq: int
    client_id: bytes
    mmr_root: bytes
    state_hash: bytes


class Snapshots(Overlay):
    """The last snapshot of each state and position (SNP-007)."""

    name: ClassVar[str] = "snapshot"
    version: ClassVar[int] = 2
    about: ClassVar[str] = "Snapshots: the last one of each state and position."
    schemas: ClassVar[tuple[Schema, ...]] = (SNAPSHOT,)
    tables: ClassVar[Mapping[str, Monoid]] = {
        # (state, number, class) -> (position, root) of the last one; the root is empty where there are no
        # epochs.
        "snapshots": MAX,
        # (state, number, class, root) -> the last one with this root.
        "rooted": MAX,
    }
    state_class: ClassVar[str] = "snapshot"
    needs_past: ClassVar[bool] = False

    def lower(self, event: Event, before: Tables) -> Lowered:  # noqa: ARG002 - needs no past
        """Add a snapshot of a state before it (SNP-008)."""
        body, record = event.body, event.record
        upto = body["upto_stream_seq"]
        if upto < 1 or (upto > record.stream_seq and not record.epoch):
            return Lowered(
                (), (("OP.SNAPSHOT_AHEAD", "a snapshot covers entries up to its own position at most"),)
            )
        key = (body["state_id"], upto, body["state_class"])
        root = body["mmr_root"] if record.epoch else b""
        entry = (event.position, record.client_id, operation_body(event))
        return Lowered((("snapshots", key, (event.position, root)), ("rooted", (*key, root), entry)))

    def _last(self, tables: Tables, key: Key) -> Any:
        newest = tables.get("snapshots", key)
        return None if newest is None else tables.get("rooted", (*key, newest[1]))

    def find(
        self, tables: Tables, state_id: bytes, upto: int, state_class: str, root: bytes | None = None
    ) -> Snapshot | None:
        """Return the last snapshot of a state at a position, preferably one with this root."""
        key = (state_id, upto, state_class)
        snapshot = None if root is None else tables.get("rooted", (*key, root))
        if snapshot is None:
            snapshot = self._last(tables, key)
        if snapshot is None:
            return None
        (epoch, stream_seq, _), client_id, body = snapshot
        decoded = SNAPSHOT.decode(body)
        return Snapshot(epoch, stream_seq, client_id, decoded["mmr_root"], decoded["state_hash"])

    def parse_key(self, text: str) -> Key:
        """Parse STATE_ID:UPTO:CLASS."""
        parts = text.split(":", 2)
        if len(parts) != _PARTS:
            raise ParameterError(f"the key of a snapshot is STATE_ID:UPTO:CLASS, not {text!r}")
        state_id, upto, state_class = parts
        if not (upto.isascii() and upto.isdigit() and 1 <= int(upto) <= U64_MAX):
            raise ParameterError(f"{upto!r} is not the number of an entry")
        return (parse_hex32(state_id.strip()), int(upto), state_class)

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the last snapshot of a state at a position."""
        snapshot = self._last(tables, key)
        return None if snapshot is None else _shown(snapshot)

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return all snapshots, in their order."""
        rows = sorted((snapshot for _, snapshot in tables.items("rooted")), key=lambda row: row[0])
        return [_shown(snapshot) for snapshot in rows]

    def serialized(self, tables: Tables) -> list[Any]:
        """Return the content of each snapshot."""
        return [snapshot[2] for _, snapshot in tables.items("rooted")]


def _shown(snapshot: Any) -> JsonValue:
    place, client_id, body = snapshot
    return {"stream_seq": place[1], "client_id": client_id.hex(), **SNAPSHOT.to_json(SNAPSHOT.decode(body))}
