"""Snapshots of states: what somebody says that a state was, at a place of the log (SNP lines)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from veen.core.hashing import U64_MAX
from veen.core.types import JsonValue
from veen.overlays.events import Event
from veen.overlays.identities import parse_id
from veen.overlays.monoids import MAX, Monoid
from veen.overlays.operation_schemas import SNAPSHOT, said
from veen.overlays.overlay import Key, Lowered, Overlay, Tables
from veen.overlays.schema import Schema

#: Of a key: state, place, class.
_PARTS: Final = 3


class Snapshot(NamedTuple):
    """A snapshot of the log."""

    epoch: int
    stream_seq: int
    client_id: bytes
    mmr_root: bytes
    state_hash: bytes


@dataclass(frozen=True)
class Snapshots(Overlay):
    """Of each state and place the last snapshot (SNP-007)."""

    name: ClassVar[str] = "snapshot"
    about: ClassVar[str] = "Snapshots: the last one of each state and place."
    schemas: ClassVar[tuple[Schema, ...]] = (SNAPSHOT,)
    tables: ClassVar[Mapping[str, Monoid]] = {"snapshots": MAX}
    state_class: ClassVar[str] = "snapshot"

    def lower(self, event: Event, before: Tables) -> Lowered:  # noqa: ARG002 - needs no past
        """Enter a snapshot of what was before it (SNP-008)."""
        body, record = event.body, event.record
        if not 1 <= body["upto_stream_seq"] <= record.stream_seq:
            return Lowered((), (("OP.SNAPSHOT_AHEAD", "a snapshot is of entries up to its own place"),))
        key = (body["state_id"], body["upto_stream_seq"], body["state_class"])
        entry = (event.position, record.client_id, said(event))
        return Lowered((("snapshots", key, entry),))

    def find(self, tables: Tables, state_id: bytes, upto: int, state_class: str) -> Snapshot | None:
        """Return the snapshot of a state at a place."""
        found = tables.get("snapshots", (state_id, upto, state_class))
        if found is None:
            return None
        (epoch, stream_seq, _), client_id, body = found
        decoded = SNAPSHOT.decode(body)
        return Snapshot(epoch, stream_seq, client_id, decoded["mmr_root"], decoded["state_hash"])

    def parse_key(self, text: str) -> Key:
        """Take STATE_ID:UPTO:CLASS."""
        parts = text.split(":", 2)
        if len(parts) != _PARTS:
            raise ValueError(f"a snapshot is named STATE_ID:UPTO:CLASS, not {text!r}")
        state_id, upto, state_class = parts
        if not (upto.isascii() and upto.isdigit() and 1 <= int(upto) <= U64_MAX):
            raise ValueError(f"{upto!r} is no number of an entry")
        return (parse_id(state_id), int(upto), state_class)

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return a snapshot."""
        found = tables.get("snapshots", key)
        return None if found is None else _shown(found)

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return all snapshots, in their order."""
        rows = sorted((found for _, found in tables.items("snapshots")), key=lambda row: row[0])
        return [_shown(found) for found in rows]

    def serialized(self, tables: Tables) -> list[Any]:
        """Return what each snapshot says."""
        return [found[2] for _, found in tables.items("snapshots")]


def _shown(found: Any) -> JsonValue:
    place, client_id, body = found
    return {"stream_seq": place[1], "client_id": client_id.hex(), **SNAPSHOT.to_json(SNAPSHOT.decode(body))}
