"""Fold a stream on Spark: any overlay, with any partitioning, to the same bytes as in one process.

There are three plans. An overlay that needs no past is summarized per partition, and the summaries are
merged. One whose events belong to groups is folded per group, each in log order. Any other is folded by one
task that reads the records in order: its memory is bounded by the state, not the log. Where records claim to
be copies of others, which of them count is decided over the whole stream.

``merge_task_rows`` merges what tasks return, in any order of arrival.
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from math import ceil
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, StructField, StructType

from veen.core.types import StreamId
from veen.overlays import monoid
from veen.overlays.engine import Summary, memory_of
from veen.overlays.event import Record
from veen.overlays.monoid import Monoid
from veen.overlays.overlay import Key, Overlay
from veen.overlays.summary_tree.reader import Place
from veen.pipeline.fold.kernels import (
    GROUP,
    INVOLVED,
    Job,
    Kernel,
    folding_kernel,
    grouping_kernel,
    joining_kernel,
)
from veen.pipeline.fold.portable_overlay import Portable
from veen.pipeline.fold.rows import (
    CHUNK,
    COUNTS,
    REPORTS,
    ROWS_DDL,
    counts_of,
    joined,
    key_of,
    pairs_of,
    reports_of,
    rows_of,
)
from veen.pipeline.fold.sql_form import Folded, FoldRange, Forms
from veen.pipeline.fold.state import FoldState, whole_fold
from veen.pipeline.fold.survey import Survey, check_begins, from_place, is_copy, is_read, survey, upto_place

__all__ = ["FoldSettings", "FoldState", "Folded", "fold_stream"]

# Brings the rows of one key, and reports, into log order.
_ORDER = [(name, "ascending") for name in ("kind", "name", "key", "epoch", "seq")]


def merge_task_rows(table: pa.Table, overlay: Overlay) -> Summary:
    """Merge rows of tables, counts and reports."""
    summary, kinds = whole_fold(overlay).empty(), memory_of(overlay).kinds
    rows = (row for batch in table.sort_by(_ORDER).to_batches() for row in rows_of(batch))
    for row in joined(rows, kinds):
        if row.kind == COUNTS:
            for outcome, count in counts_of(row):
                summary.counts[outcome] += count
        elif row.kind == REPORTS:
            summary.reports += reports_of(row)
        elif row.kind == CHUNK:
            _add(summary.tables[row.name], kinds[row.name], pairs_of(row))
        else:
            summary.tables[row.name][key_of(row)] = monoid.decode(kinds[row.name], row.value)
    return summary


def _add(table: dict[Key, Any], kind: Monoid, pairs: list[tuple[Key, Any]]) -> None:
    for key, value in pairs:
        known = table.get(key)
        table[key] = value if known is None else kind.merge(known, value)


# The columns of records that folds read (C-105).
_FIELDS: Final = list(Record._fields)
_PLACE: Final = ("epoch", "stream_seq")
# With fewer records, merging in tasks is not worth their overhead.
_SMALL: Final = 100_000


@dataclass(frozen=True, slots=True)
class FoldSettings:
    """How a fold is distributed; no setting changes its result."""

    # Tasks for groups and for merging; 0: as many as slots.
    partitions: int = 0
    # With fewer records than this, the driver merges the output of tasks.
    small: int = _SMALL
    # SQL folds that may be used.
    forms: Forms = field(default_factory=dict)
    # Whether to return the state, from which a later fold can resume.
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class _Work:
    """One fold."""

    spark: SparkSession
    # The records that the overlay reads.
    records: DataFrame
    stretch: FoldRange
    survey: Survey
    job: Job
    resume: FoldState | None = None
    how: FoldSettings = field(default_factory=FoldSettings)

    @property
    def overlay(self) -> Overlay:
        return self.job.overlay

    @property
    def partitions(self) -> int:
        return self.how.partitions or self.spark.sparkContext.defaultParallelism

    @property
    def looks_for_copies(self) -> bool:
        return bool(self.overlay.copies_by_parent or self.job.bridges)

    def copies(self) -> "_Copies":
        """Return for which records it matters whether they are copies."""
        if not self.looks_for_copies:
            return _Copies.NONE
        if self.how.keeps or self.resume is not None:
            return _Copies.ANY  # a later record may be a copy of any
        distinct = self.records.select(sf.count_distinct("msg_id").alias("ids")).first()
        assert distinct is not None
        if distinct["ids"] != self.survey.events:
            return _Copies.ANY  # a duplicate message counts once
        return _Copies.SOME if self.survey.has_copies else _Copies.NONE


class _Copies(Enum):
    """For which records it matters whether they are copies, or are copied."""

    NONE = "none"
    # Those that claim to be copies, and those that these name.
    SOME = "some"
    ANY = "any"


def fold_stream(
    spark: SparkSession,
    records: DataFrame,
    overlay: Overlay,
    stream_id: StreamId,
    *,
    bridges: frozenset[bytes] = frozenset(),
    upto: Place | None = None,
    since: Place | None = None,
    resume: FoldState | None = None,
    how: FoldSettings | None = None,
) -> Folded:
    """Fold the records of one stream, given in any order.

    They must be complete from the start of the stream, or from the end of ``resume``, of whose labels only
    the last may have grown. Records after ``upto`` are ignored. With ``since``, tables, counts and reports
    are those of the records from there on. Records are read several times: persist them if computing them
    includes decryption.
    """
    how = how or FoldSettings()
    if since is not None and (how.keeps or (resume is not None and since <= resume.place)):
        raise ValueError(
            "since: the fold of a part cannot be resumed, and must begin after the state that it resumes"
        )
    selection = _taken(records, upto, resume)
    facts = survey(selection, overlay, bridges=bridges, since=since)
    check_begins(facts.runs, [] if resume is None else resume.summary.runs)
    stretch = FoldRange(stream_id, since, upto, bridges, facts.has_copies)
    past = None
    if resume is not None and facts.events and (overlay.needs_past or overlay.copies_by_parent or bridges):
        past = spark.sparkContext.broadcast(resume.packed())
    job = Job(Portable(overlay), stream_id, bridges, since, how.keeps, past=past)
    work = _Work(spark, selection.where(is_read(overlay)), stretch, facts, job, resume, how)
    try:
        summary = _summary(work)
    finally:
        if past is not None:
            past.destroy()
    return _finished(work, summary)


def _taken(records: DataFrame, upto: Place | None, resume: FoldState | None) -> DataFrame:
    selection = records.select(*_FIELDS)
    if upto is not None:
        selection = selection.where(upto_place(upto))
    if resume is not None:
        selection = selection.where(from_place((resume.place[0], resume.place[1] + 1)))
    return selection


def _summary(work: _Work) -> Summary:
    """Choose the plan, and fold."""
    if not work.survey.events:
        return whole_fold(work.overlay).empty()
    copies = work.copies()
    formed = _formed(work, copies)
    if formed is not None:
        return formed
    marked = _marked(work, copies)
    if copies is _Copies.NONE and not work.overlay.needs_past:
        rows = _in_ranges(work, marked)
    elif copies is _Copies.NONE and work.overlay.grouped:
        rows = _in_groups(work, marked)
    else:
        rows = _in_order(work, marked)
    return merge_task_rows(rows.toArrow(), work.overlay)


def _formed(work: _Work, copies: _Copies) -> Summary | None:
    """Fold in SQL, if the overlay has such a form that is exact here."""
    if work.how.keeps and (work.overlay.indexes or work.looks_for_copies):
        return None
    if work.resume is not None and (work.overlay.needs_past or work.looks_for_copies):
        return None
    form = work.how.forms.get(type(work.overlay))
    stretch = replace(work.stretch, has_copies=copies is not _Copies.NONE)
    folded = None if form is None else form(work.spark, work.records, work.overlay, stretch)
    if folded is None:
        return None
    summary = whole_fold(work.overlay).empty()
    summary.tables |= folded.tables
    summary.reports = folded.reports
    for outcome, count in folded.counts.items():
        summary.counts[outcome] += count
    return summary


def _marked(work: _Work, copies: _Copies) -> DataFrame:
    """Add a column: whether each record is a copy, or is copied."""
    if copies is not _Copies.SOME:
        return work.records.withColumn(INVOLVED, sf.lit(copies is _Copies.ANY))
    claims_copy = is_copy(work.overlay, work.job.bridges)
    parents = work.records.where(claims_copy).select(sf.col("parent_id").alias("of"), sf.lit(1).alias("one"))
    joined_ones = work.records.join(parents.distinct(), sf.col("msg_id") == sf.col("of"), "left")
    return joined_ones.withColumn(INVOLVED, sf.col("one").isNotNull() | claims_copy).drop("of", "one")


def _mapped(records: DataFrame, kernel: Kernel, schema: StructType | str = ROWS_DDL) -> DataFrame:
    return records.mapInArrow(kernel, schema)


def _in_ranges(work: _Work, records: DataFrame) -> DataFrame:
    """Summarize each partition by itself; where order matters, each run of positions."""
    job = replace(work.job, since=None, is_sorted=False)
    if work.stretch.since is not None:
        records = records.where(from_place(work.stretch.since))
    if not all(kind.commutes for kind in work.overlay.tables.values()):
        job = replace(job, is_sorted=True, run=ceil(work.survey.records / work.partitions))
        run = sf.expr(f"(stream_seq - 1) div {job.run}")
        records = records.repartition(work.partitions, "epoch", run).sortWithinPartitions(*_PLACE)
    is_small = work.survey.events < work.how.small
    rows = _mapped(records, folding_kernel(replace(job, is_last=is_small)))
    if is_small:
        return rows
    apart = rows.repartition(work.partitions, "name", "key")
    ordered = apart.sortWithinPartitions("kind", "name", "key", "epoch", "seq")
    return _mapped(ordered, joining_kernel(job))


def _in_groups(work: _Work, records: DataFrame) -> DataFrame:
    """Fold the groups of events, several per task."""
    schema = StructType([*records.schema.fields, StructField(GROUP, BinaryType())])
    grouped = _mapped(records, grouping_kernel(work.job), schema)
    by_group = grouped.repartition(work.partitions, GROUP).sortWithinPartitions(*_PLACE)
    return _mapped(by_group, folding_kernel(work.job))


def _in_order(work: _Work, records: DataFrame) -> DataFrame:
    """Fold all records in one task, in log order."""
    return _mapped(records.repartition(1).sortWithinPartitions(*_PLACE), folding_kernel(work.job))


def _finished(work: _Work, summary: Summary) -> Folded:
    """Add the records that tasks do not read, and the state that was resumed."""
    summary.runs = work.survey.runs
    for outcome, count in work.survey.counts.items():
        summary.counts[outcome] += count
    state = FoldState(work.overlay, summary, work.job.bridges)
    if work.resume is not None and work.stretch.since is None:
        state = work.resume.then(summary)
    whole = state.summary
    return Folded(
        {name: whole.tables[name] for name in work.overlay.tables},
        whole.counts,
        whole.reports,
        whole.runs,
        state if work.how.keeps else None,
    )
