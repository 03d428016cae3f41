"""Compacting: the files of a slice joined into one, which is the file that one run over all of it writes."""

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

#: Tasks for each core, if there are files enough.
_TASKS_EACH: Final = 2


class Compacted(NamedTuple):
    """What was joined."""

    slices: int
    before: int
    after: int


class Span(NamedTuple):
    """Entries of a slice that lie in several files, one behind the other, and their times."""

    label: str
    first: int
    last: int
    first_ts: int
    last_ts: int
    files: int = 1

    def then(self, fact: FileFact) -> "Span | None":
        """Return the span with one more file; None if it does not continue it."""
        same = (fact.label, layout.slice_of(fact.from_seq)) == (self.label, layout.slice_of(self.first))
        if not same or fact.from_seq != self.last + 1:
            return None
        return self._replace(last=fact.upto_seq, last_ts=fact.last_ts, files=self.files + 1)


@dataclass(frozen=True, slots=True)
class Heap:
    """Files of a table that are to be one, in order."""

    table: str
    span: Span
    files: tuple[FileFact, ...]

    @property
    def cost(self) -> int:
        """About what it takes to join them."""
        return sum(fact.bytes + FILE_COST for fact in self.files)


class Damage(NamedTuple):
    """Why files were not joined."""

    text: str


def compact(spark: "SparkSession", lake: Lake) -> Compacted:
    """Join what lies in several files; what is joined already is left alone."""
    heaps = find_heaps(lake.state)
    if not heaps:
        return Compacted(0, 0, 0)
    root = str(lake.root.resolve())
    with lake.writing():
        context = spark.sparkContext
        groups = group_into_tasks(heaps, lambda heap: heap.cost, _TASKS_EACH * context.defaultParallelism)
        tasks = context.parallelize(groups, len(groups))
        found: list[FileFact | Damage] = tasks.flatMap(lambda group: join_all(Path(root), group)).collect()
        made = [_good(item) for item in found]
        removed = sorted(fact.path for heap in heaps for fact in heap.files)
        added = sorted(made, key=lambda fact: fact.path)
        lake.commit(Changes(kind="compact", added=added, removed=removed))
    return Compacted(len({heap.span for heap in heaps}), len(removed), len(added))


def find_heaps(state: State) -> list[Heap]:
    """Return what lies in several files: by the bronze table, which has all entries."""
    span_at: dict[tuple[str, int], Span] = {}
    for span, facts in _spans(state.of_table(layout.ENTRIES)):
        if span.files > 1:
            span_at |= {(fact.label, fact.from_seq): span for fact in facts}
    heaps: dict[tuple[str, Span], list[FileFact]] = {}
    for fact in sorted(state.files.values()):
        found = span_at.get((fact.label, fact.from_seq))
        if found is not None:
            heaps.setdefault((fact.table, found), []).append(fact)
    return [Heap(table, span, tuple(files)) for (table, span), files in sorted(heaps.items())]


def _spans(facts: Iterable[FileFact]) -> Iterator[tuple[Span, list[FileFact]]]:
    """Yield files that continue each other within a slice."""
    span: Span | None = None
    kept: list[FileFact] = []
    for fact in facts:
        longer = None if span is None else span.then(fact)
        if longer is None:
            if span is not None:
                yield span, kept
            longer = Span(fact.label, fact.from_seq, fact.upto_seq, fact.first_ts, fact.last_ts)
            kept = []
        span = longer
        kept.append(fact)
    if span is not None:
        yield span, kept


def join_all(root: Path, heaps: Iterable[Heap]) -> Iterator[FileFact | Damage]:
    """Join some heaps; whatever is wrong with one is part of the result."""
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
    """Write the rows of files as one file; each must be what its commit says."""
    span = heap.span
    path = layout.table_file(heap.table, Label(bytes.fromhex(span.label)), span.first, span.last)
    out = TableFile(root, path, tables.columns_by_table()[heap.table])
    try:
        for batch in _rows(root, heap.files):
            out.add(batch)
        made = out.finish()
    finally:
        out.discard()
    return FileFact(path, heap.table, *span[:5], made.rows, made.size, made.sha256)


def _rows(root: Path, files: Iterable[FileFact]) -> Iterator[object]:
    for fact in files:
        with open_committed(root, fact) as file:
            yield from file.iter_batches(batch_size=layout.GROUP_ROWS)
