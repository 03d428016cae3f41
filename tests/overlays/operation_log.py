"""Logs of operations, written one by one, and what folds say of them."""

from random import Random
from typing import Any

from tests.overlays.logs import STREAM, Log
from veen.overlays.engine import Fold, MemoryTables, Summary, fold
from veen.overlays.event import Record, operation_id
from veen.overlays.overlay import Overlay
from veen.overlays.schema import Schema


class Operations(Log):
    """A log to which operations are added."""

    def __init__(self) -> None:
        super().__init__(Random(1))

    def op(self, schema: Schema, client_id: bytes, hub_ts: int | None = None, **values: Any) -> Record:
        """Append an operation; returns its record."""
        more = {} if hub_ts is None else {"hub_ts": hub_ts}
        body = schema.encode(schema.make(**values))
        return self.add(schema, body, client_id=client_id, **more)

    def fold(self, overlay: Overlay) -> tuple[MemoryTables, Summary]:
        """Fold all of it."""
        found = fold(overlay, self.records, STREAM)
        return Fold(overlay).tables_of(found), found

    def codes(self, overlay: Overlay) -> list[tuple[int, str]]:
        """Return what is reported, and where."""
        return [(report.stream_seq, report.code) for report in self.fold(overlay)[1].reports]


def op_id(record: Record) -> bytes:
    """Return the id of the operation that a record carries."""
    return operation_id(record.msg_id)
