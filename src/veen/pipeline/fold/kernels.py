"""The work of fold tasks: the annotator of ``veen.overlays`` over the records of a partition."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import Broadcast

from veen.core.crypto.hash import sha256
from veen.core.encoding import cbor
from veen.core.types import StreamId
from veen.overlays.engine import Annotated, Annotator, MemoryTables, memory_of
from veen.overlays.errors import FoldOrderError, InvalidBodyError
from veen.overlays.event import Decoder, Event, Outcome, Record, Report
from veen.overlays.overlay import Overlay
from veen.overlays.summary_tree.reader import Place
from veen.pipeline.fold.portable_overlay import Portable
from veen.pipeline.fold.rows import (
    Row,
    batches,
    chunk_rows,
    chunked,
    counts_row,
    joined,
    reports_row,
    rows_of,
    table_rows,
)
from veen.pipeline.fold.sql_form import no_counts
from veen.pipeline.fold.state import Layered, Packed, PackedTables
from veen.pipeline.open.records import records_of

# Whether a record is a copy or is copied: first positions are stored for these only.
INVOLVED: Final = "veen_involved"
# The group of an event.
GROUP: Final = "veen_group"
_GROUP_BYTES: Final = 8

# A function for ``mapInArrow``.
Kernel = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Job:
    """The settings of a task, pickled with it."""

    portable: Portable
    stream_id: StreamId
    bridges: frozenset[bytes]
    # The first record to summarize; earlier ones only contribute to the past.
    since: Place | None = None
    # Whether indexes are returned too, so that a later fold can resume.
    keeps: bool = False
    # Whether records arrive in log order.
    is_sorted: bool = True
    # 0: one summary per partition; else one per this many positions of a label.
    run: int = 0
    past: Broadcast[Packed] | None = None
    # Whether the driver merges the output, not other tasks.
    is_last: bool = True

    @property
    def overlay(self) -> Overlay:
        return self.portable.overlay

    def names(self) -> list[str]:
        """Return the tables that the task returns."""
        return list(memory_of(self.overlay).kinds if self.keeps else self.overlay.tables)

    def rows(self, memory: MemoryTables, start: Place) -> Iterator[Row]:
        """Yield the summaries of records from a position on."""
        if not (self.is_last and self.portable.is_known):
            yield from table_rows(memory, self.names(), start)
            return
        for name in self.names():
            yield from chunk_rows(name, memory.tables[name].items(), start)

    def head(self) -> Layered:
        """Return the tables before the first record."""
        kinds = memory_of(self.overlay).kinds
        return Layered(kinds, None if self.past is None else PackedTables(kinds, self.past.value))


class _Annotating:
    """Annotates records; stores first positions only for records involved in copies."""

    def __init__(self, job: Job, head: Layered) -> None:
        self._annotator = Annotator(job.overlay, head, job.stream_id, job.bridges)
        self._stream_id = job.stream_id
        self._decoder = Decoder(job.overlay.schemas)

    def annotate(self, record: Record, *, involved: bool) -> Annotated:
        if involved:
            return self._annotator.annotate(record)
        schema = self._decoder.schema_of(record)
        assert schema is not None, "records of other schemas are counted, not folded"
        try:
            body = self._decoder.decode(record, schema)
        except InvalidBodyError as error:
            where = (record.epoch, record.stream_seq)
            report = Report(*where, record.msg_id, error.code, str(error))
            return Annotated(*where, Outcome.REJECTED, (), (report,))
        return self._annotator.enter(Event(record, schema, body, record.msg_id, self._stream_id))


def folding_kernel(job: Job) -> Kernel:
    """Return a kernel that folds records, in log order unless the overlay needs no past."""

    def kernel(batches_in: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches(_fold(job, _marked(batches_in)))

    return kernel


def _marked(batches_in: Iterable[pa.RecordBatch]) -> Iterator[tuple[Record, bool]]:
    for batch in batches_in:
        yield from zip(records_of(batch), batch.column(INVOLVED).to_pylist(), strict=True)


def _fold(job: Job, records: Iterator[tuple[Record, bool]]) -> Iterator[Row]:
    head = job.head()
    annotating = _Annotating(job, head)
    counts = no_counts()
    waits = job.since is not None
    last = start = (-1, 0)
    for record, involved in records:
        place = (record.epoch, record.stream_seq)
        if job.is_sorted and place <= last:
            raise FoldOrderError(f"record {place} after {last}")
        if waits and job.since is not None and place >= job.since:
            head.settle()
            counts, waits = no_counts(), False
        if start[0] < 0:
            start = place
        elif job.run and _run_of(place, job.run) != _run_of(start, job.run):
            yield from job.rows(_taken(head, job), start)
            start = place
        last = place
        item = annotating.annotate(record, involved=involved)
        counts[item.outcome] += 1
        if item.reports and not waits:
            yield reports_row(item.reports)
    if not waits:
        yield counts_row(counts)
        yield from job.rows(head.added, start)


def _run_of(place: Place, size: int) -> Place:
    return place[0], (place[1] - 1) // size


def _taken(head: Layered, job: Job) -> MemoryTables:
    """Return and clear what was added, for an overlay that needs no past."""
    assert not job.overlay.needs_past
    added, head.added = head.added, MemoryTables(head.added.kinds)
    return added


def grouping_kernel(job: Job) -> Kernel:
    """Return a kernel that adds to each record its group."""

    def kernel(batches_in: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = Decoder(job.overlay.schemas)
        for batch in batches_in:
            groups = [_group(job, decoder, record) for record in records_of(batch)]
            yield batch.append_column(GROUP, pa.array(groups, pa.binary()))

    return kernel


def _group(job: Job, decoder: Decoder, record: Record) -> bytes:
    schema = decoder.schema_of(record)
    assert schema is not None
    try:
        body = decoder.decode(record, schema)
        group = job.overlay.group(Event(record, schema, body, record.msg_id, job.stream_id))
    except InvalidBodyError:  # such an event is in no group
        return record.msg_id[:_GROUP_BYTES]
    return sha256(cbor.encode(group, max_items=None))[:_GROUP_BYTES]


def joining_kernel(job: Job) -> Kernel:
    """Return a kernel that merges rows of tables, sorted by key and start."""

    def kernel(batches_in: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kinds = memory_of(job.overlay).kinds
        rows = joined((row for batch in batches_in for row in rows_of(batch)), kinds)
        return batches(chunked(rows, kinds) if job.portable.is_known else rows)

    return kernel
