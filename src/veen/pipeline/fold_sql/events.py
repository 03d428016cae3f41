"""Shared by SQL folds: records as typed events, and the common parts of results."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from veen.overlays.engine import memory_of
from veen.overlays.event import Event, Outcome, Record, Report
from veen.overlays.overlay import Overlay
from veen.overlays.summary_tree.reader import Place
from veen.pipeline.fold import survey
from veen.pipeline.fold.sql_form import Folded, no_counts
from veen.pipeline.open.typed_columns import EventTable

POSITION: Final = ("epoch", "stream_seq", "msg_id")


def typed_events(records: DataFrame, table: EventTable) -> DataFrame:
    """Return records as typed events."""
    return records.select(*table.reads).mapInArrow(table.batches, from_arrow_schema(table.arrow))


def from_place(rows: DataFrame, since: Place | None) -> DataFrame:
    """Return the rows at or after a position."""
    return rows if since is None else rows.filter(survey.from_place(since))


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Persist rows that are read several times."""
    rows.persist()
    try:
        yield rows
    finally:
        rows.unpersist()


# --- results ------------------------------------------------------------------------------------------------


# The condition for valid events.
GOOD: Final = "code is null"


def refusals(events: DataFrame) -> list[Report]:
    """Return reports on rejected bodies, unordered."""
    rows = events.filter("code is not null").select(*POSITION, "code", "detail").toArrow()
    return list(map(Report, *lists(rows, *POSITION, "code", "detail")))


def lists(table: pa.Table, *names: str) -> list[list[Any]]:
    """Return columns as Python lists."""
    return [table.column(name).to_pylist() for name in names]


def positions(table: pa.Table) -> list[tuple[int, int, bytes]]:
    """Return the positions of rows."""
    return list(zip(*lists(table, *POSITION), strict=True))


def fold_result(
    tables: dict[str, dict[Any, Any]], events: int, refused: list[Report], reports: list[Report]
) -> Folded:
    """Return the result of a fold; ``reports`` on one event must be in order."""
    counts = no_counts()
    counts[Outcome.EVENT] = events
    counts[Outcome.REJECTED] = len(refused)
    listed = sorted([*refused, *reports], key=_place)
    return Folded(tables, counts, listed)


def _place(report: Report) -> tuple[int, int]:
    return report.epoch, report.stream_seq


def said_of(overlay: Overlay, event: Event) -> list[Report]:
    """Return the reports of an overlay on an event that it judges without a past."""
    record = event.record
    _, reports = overlay.lower(event, memory_of(overlay))
    return [Report(record.epoch, record.stream_seq, event.canonical_id, *item) for item in reports]


def record_at(position: tuple[int, int, bytes]) -> Record:
    """Return a record at a position, with all other fields blank."""
    epoch, seq, msg_id = position
    return Record(seq, msg_id, b"", 0, 0, None, b"", epoch)
