"""What forms of folds in SQL share: records as typed events, and what is the same for all that they give."""

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
    """Return what is at a place or behind it."""
    return rows if since is None else rows.filter(survey.from_place(since))


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Keep rows while they are read several times."""
    rows.persist()
    try:
        yield rows
    finally:
        rows.unpersist()


# --- what comes of them -------------------------------------------------------------------------------------


#: Which rows are events.
GOOD: Final = "code is null"


def refusals(events: DataFrame) -> list[Report]:
    """Return what is said of bodies that were refused, in no order."""
    found = events.filter("code is not null").select(*POSITION, "code", "detail").toArrow()
    return list(map(Report, *lists(found, *POSITION, "code", "detail")))


def lists(table: pa.Table, *names: str) -> list[list[Any]]:
    """Return columns as lists."""
    return [table.column(name).to_pylist() for name in names]


def positions(table: pa.Table) -> list[tuple[int, int, bytes]]:
    """Return where rows stand."""
    return list(zip(*lists(table, *POSITION), strict=True))


def fold_result(
    tables: dict[str, dict[Any, Any]], events: int, refused: list[Report], told: list[Report]
) -> Folded:
    """Return what a fold comes to; ``told`` of one event are in their order."""
    counts = no_counts()
    counts[Outcome.EVENT] = events
    counts[Outcome.REJECTED] = len(refused)
    reports = sorted([*refused, *told], key=_place)
    return Folded(tables, counts, reports)


def _place(report: Report) -> tuple[int, int]:
    return report.epoch, report.stream_seq


def said_of(overlay: Overlay, event: Event) -> list[Report]:
    """Return what an overlay says of an event that it judges without a past."""
    record = event.record
    _, reports = overlay.lower(event, memory_of(overlay))
    return [Report(record.epoch, record.stream_seq, event.canonical_id, *item) for item in reports]


def record_at(position: tuple[int, int, bytes]) -> Record:
    """Return a record that stands somewhere, and of which nothing else is known."""
    epoch, seq, msg_id = position
    return Record(seq, msg_id, b"", 0, 0, None, b"", epoch)
