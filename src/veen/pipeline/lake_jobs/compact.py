"""Compact a lake: join the files of a slice into one, which equals the file that a single run would write."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from veen.core.types import Label
from veen.pipeline.errors import DamagedLakeError
from veen.pipeline.lake import layout, tables
from veen.pipeline.lake.commits import Changes, FileFact, State
from veen.pipeline.lake.committed_files import open_committed
from veen.pipeline.lake.lake import Lake
from veen.pipeline.lake.table_files import TableFile
from veen.pipeline.task_groups import FILE_COST, group_into_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tasks for each core, if there are enough files.
_TASKS_EACH: Final = 2


class Compacted(NamedTuple):
    """The result of compacting."""

    slices: int
    before: int
    after: int


class Span(NamedTuple):
    """Consecutive entries of a slice in several files, and their times."""

    label: str
    first: int
    last: int
    first_ts: int
    last_ts: int
    files: int = 1

    def then(self, fact: FileFact) -> "Span | None":
        """Return the span extended by a file; None if the file does not continue it."""
        same = (fact.label, layout.slice_of(fact.from_seq)) == (self.label, layout.slice_of(self.first))
        if not same or fact.from_seq != self.last + 1:
            return None
        return self._replace(last=fact.upto_seq, last_ts=fact.last_ts, files=self.files + 1)


@dataclass(frozen=True, slots=True)
class Heap:
    """Files of a table to join, in order."""

    table: str
    span: Span
    files: tuple[FileFact, ...]

    @property
    def cost(self) -> int:
        """The estimated cost of joining them."""
        return sum(fact.bytes + FILE_COST for fact in self.files)


class Damage(NamedTuple):
    """Why files were not joined."""

    text: str


def compact(spark: "SparkSession", lake: Lake) -> Compacted:
    """Join slices that are in several files."""
    heaps = find_heaps(lake.state)
    if not heaps:
        return Compacted(0, 0, 0)
    root = str(lake.root.resolve())
    with lake.writing():
        context = spark.sparkContext
        groups = group_into_tasks(heaps, lambda heap: heap.cost, _TASKS_EACH * context.defaultParallelism)
        tasks = context.parallelize(groups, len(groups))
        results: list[FileFact | Damage] = tasks.flatMap(lambda group: join_all(Path(root), group)).collect()
        joined = [_good(item) for item in results]
        removed = sorted(fact.path for heap in heaps for fact in heap.files)
        added = sorted(joined, key=lambda fact: fact.path)
        lake.commit(Changes(kind="compact", added=added, removed=removed))
    return Compacted(len({heap.span for heap in heaps}), len(removed), len(added))


def find_heaps(state: State) -> list[Heap]:
    """Find slices in several files by the bronze table, which has all entries."""
    span_at: dict[tuple[str, int], Span] = {}
    for span, facts in _spans(state.of_table(layout.ENTRIES)):
        if span.files > 1:
            span_at |= {(fact.label, fact.from_seq): span for fact in facts}
    heaps: dict[tuple[str, Span], list[FileFact]] = {}
    for fact in sorted(state.files.values()):
        divided = span_at.get((fact.label, fact.from_seq))
        if divided is not None:
            heaps.setdefault((fact.table, divided), []).append(fact)
    return [Heap(table, span, tuple(files)) for (table, span), files in sorted(heaps.items())]


def _spans(facts: Iterable[FileFact]) -> Iterator[tuple[Span, list[FileFact]]]:
    """Yield runs of consecutive files within a slice."""
    span: Span | None = None
    run: list[FileFact] = []
    for fact in facts:
        longer = None if span is None else span.then(fact)
        if longer is None:
            if span is not None:
                yield span, run
            longer = Span(fact.label, fact.from_seq, fact.upto_seq, fact.first_ts, fact.last_ts)
            run = []
        span = longer
        run.append(fact)
    if span is not None:
        yield span, run


def join_all(root: Path, heaps: Iterable[Heap]) -> Iterator[FileFact | Damage]:
    """Join some heaps. Damage is returned, not raised."""
    for heap in heaps:
        try:
            yield join(root, heap)
        except DamagedLakeError as error:
            yield Damage(str(error))


def _good(item: FileFact | Damage) -> FileFact:
    if isinstance(item, Damage):
        raise DamagedLakeError(item.text)
    return item


def join(root: Path, heap: Heap) -> FileFact:
    """Write the rows of files as one file; each must match its commit."""
    span = heap.span
    path = layout.table_file(heap.table, Label(bytes.fromhex(span.label)), span.first, span.last)
    out = TableFile(root, path, tables.columns_by_table()[heap.table])
    try:
        for batch in _rows(root, heap.files):
            out.add(batch)
        written = out.finish()
    finally:
        out.discard()
    return FileFact(path, heap.table, *span[:5], written.rows, written.size, written.sha256)


def _rows(root: Path, files: Iterable[FileFact]) -> Iterator[object]:
    for fact in files:
        with open_committed(root, fact) as file:
            yield from file.iter_batches(batch_size=layout.GROUP_ROWS)
