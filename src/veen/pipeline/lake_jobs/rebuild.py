"""Rebuild tables of a label from the lake alone, when more is known about its entries.

The stream of a label may become known after ingest, and so may keys that open sealed entries. Opened entries
stay open, whichever keys are used later. New files have new names: they are written first, then one commit
adds them and removes the old ones.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from veen.core.types import Label, StreamId
from veen.pipeline.errors import DamagedLakeError
from veen.pipeline.lake import layout, tables
from veen.pipeline.lake.commits import Changes, FileFact, LabelFact, Remade, State
from veen.pipeline.lake.committed_files import open_committed
from veen.pipeline.lake.lake import Lake
from veen.pipeline.lake.table_files import SliceFiles
from veen.pipeline.lake_jobs import gold
from veen.pipeline.lake_jobs.ingest_plan import STEP_ENTRIES
from veen.pipeline.lake_jobs.ingest_task import SliceSettings, count_sealed
from veen.pipeline.lake_jobs.restore import frames_of
from veen.pipeline.log.entry_columns import parse
from veen.pipeline.open.decrypt import SEALED, open_entries
from veen.pipeline.open.keyring import ReaderKeys
from veen.pipeline.task_groups import group_into_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Returns a digest of the keys that would be tried for a stream; None without keys.
Trying = Callable[[StreamId | None], str | None]


@dataclass(frozen=True, slots=True)
class Remake:
    """A label whose tables are to be rebuilt."""

    fact: LabelFact
    stream_id: StreamId | None
    epoch: int
    # The keys to try on sealed entries; None: leave them sealed.
    trying: str | None

    @property
    def binds(self) -> bool:
        """Whether the stream became known, which changes every row."""
        return self.stream_id != self.fact.stream

    def remade(self, sealed: int) -> Remade:
        """Return the label's facts after the rebuild."""
        tried = {*self.fact.tried, *(() if self.trying is None else (self.trying,))}
        stream = None if self.stream_id is None else self.stream_id.hex()
        return Remade(self.fact.label, stream, self.epoch, sealed, tuple(sorted(tried)) if sealed else ())


def find_remakes(state: State, bound: Mapping[str, tuple[StreamId, int]], trying: Trying) -> list[Remake]:
    """Return the labels to rebuild; ``bound`` are those whose streams became known."""
    remakes = []
    for fact in state.labels.values():
        stream, epoch = bound.get(fact.label, (fact.stream, fact.epoch))
        keys = trying(stream) if fact.sealed else None
        if keys in fact.tried:
            keys = None
        if fact.label in bound or keys is not None:
            remakes.append(Remake(fact, stream, epoch, keys))
    return remakes


@dataclass(frozen=True, slots=True)
class RebuildTask:
    """The files of all tables with the same entries, to be rebuilt."""

    remake: Remake
    files: tuple[FileFact, ...]

    def of(self, table: str) -> FileFact:
        """Return the file of a table that has a row for every entry."""
        return next(fact for fact in self.files if fact.table == table)

    @property
    def nbytes(self) -> int:
        """About how much is read."""
        return sum(fact.bytes for fact in self.files)


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """The result for some entries: the numbers of still sealed and newly opened ones, and their files."""

    label: str
    sealed: int
    opened: int = 0
    added: tuple[FileFact, ...] = ()
    removed: tuple[str, ...] = ()
    problem: str | None = None


def make_again(item: RebuildTask, setting: SliceSettings, keys: ReaderKeys) -> RebuildResult:
    """Rebuild files if their content changes. Faults are returned, not raised."""
    try:
        return _Job(item, setting, keys).run()
    except (DamagedLakeError, OSError, pa.ArrowException) as error:
        return RebuildResult(item.remake.fact.label, 0, problem=str(error).splitlines()[0])


class _Job:
    """The rebuild of the files of some entries."""

    def __init__(self, item: RebuildTask, setting: SliceSettings, keys: ReaderKeys) -> None:
        self._item = item
        self._remake = item.remake
        self._setting = setting
        self._keys = keys
        self._root = Path(setting.root)
        # The records are made again every time: behind their name no other table has a file yet.
        ending = layout.again_file(item.of(layout.RECORDS).path).removeprefix(layout.RECORDS)
        self._out = SliceFiles(self._root, lambda table: f"{table}{ending}", tables.columns_by_table())
        self._before = self._after = 0

    def run(self) -> RebuildResult:
        if not self._remake.binds and not self._has_sealed():
            return RebuildResult(self._remake.fact.label, 0)
        try:
            for entries, records in self._rows():
                self._add(entries, records)
            opened = self._before - self._after
            changed = opened or self._remake.binds
            added = tuple(self._written()) if changed else ()
        finally:
            self._out.discard()
        replaced = self._item.files if self._remake.binds else self._derived()
        removed = tuple(fact.path for fact in replaced) if changed else ()
        return RebuildResult(self._remake.fact.label, self._after, opened, added, removed)

    def _has_sealed(self) -> bool:
        with open_committed(self._root, self._item.of(layout.RECORDS)) as file:
            return any(count_sealed(batch) for batch in file.iter_batches(columns=["reason"]))

    def _rows(self) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Yield entries with their records, whose row groups have different bounds."""
        entries, records = self._item.of(layout.ENTRIES), self._item.of(layout.RECORDS)
        with open_committed(self._root, entries) as below, open_committed(self._root, records) as above:
            rest = above.iter_batches(batch_size=layout.GROUP_ROWS)
            have: pa.RecordBatch | None = None
            for batch in below.iter_batches(batch_size=layout.GROUP_ROWS):
                at = 0
                while at < len(batch):
                    have = have if have is not None and len(have) else next(rest)
                    count = min(len(have), len(batch) - at)
                    yield batch.slice(at, count), have.slice(0, count)
                    have, at = have.slice(count), at + count

    def _add(self, entries: pa.RecordBatch, records: pa.RecordBatch) -> None:
        if self._remake.binds:
            self._out.add(layout.ENTRIES, self._named(entries))
        sealed = pc.fill_null(pc.equal(records.column("reason"), SEALED), fill_value=False).to_pylist()
        self._before += sum(sealed)
        at = 0
        for is_sealed, run in groupby(sealed):
            count = len(list(run))
            piece = self._named(records.slice(at, count))
            if is_sealed:
                piece = self._opened(entries.slice(at, count), piece)
                self._after += count_sealed(piece)
            at += count
            self._out.add(layout.RECORDS, piece)
            for table, batch in tables.typed(piece):
                self._out.add(table, batch)

    def _named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the current stream and epoch."""
        known = {
            "stream_id": pa.scalar(self._remake.stream_id, pa.binary()),
            "epoch": pa.scalar(self._remake.epoch, pa.int64()),
        }
        columns = [
            pa.repeat(known[name], len(batch)) if name in known else batch.column(name)
            for name in batch.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def _opened(self, entries: pa.RecordBatch, records: pa.RecordBatch) -> pa.RecordBatch:
        remake = self._remake
        if remake.trying is None:
            return records
        frames = frames_of(
            Label(bytes.fromhex(remake.fact.label)), entries, self._item.of(layout.ENTRIES).path
        )
        return open_entries(parse(frames), self._keys, self._setting.profiles, remake.stream_id, remake.epoch)

    def _derived(self) -> list[FileFact]:
        return [fact for fact in self._item.files if fact.table != layout.ENTRIES]

    def _written(self) -> Iterator[FileFact]:
        known = self._item.of(layout.RECORDS)
        for table, file in self._out.finish().items():
            yield known._replace(
                path=file.path, table=table, rows=file.rows, bytes=file.size, sha256=file.sha256
            )


class Summary(NamedTuple):
    """The result: bound labels, opened entries, invalidated states."""

    commits: int
    files: int
    bound: int
    opened: int
    dropped: list[gold.Key]


def make_all_again(
    spark: "SparkSession", lake: Lake, setting: SliceSettings, remakes: Iterable[Remake]
) -> Summary:
    """Rebuild the tables of labels, several labels per commit."""
    commits = files = bound = opened = 0
    dropped: list[gold.Key] = []
    with lake.writing():
        for group in _in_steps(remakes):
            results = _run(spark, lake.state, setting, group)
            changes = changes_of(lake.state, group, results)
            lake.commit(changes)
            commits += 1
            files += len(changes.added)
            bound += sum(item.binds for item in group)
            opened += sum(item.opened for item in results)
            dropped += changes.dropped
    return Summary(commits, files, bound, opened, dropped)


def _in_steps(remakes: Iterable[Remake]) -> Iterator[list[Remake]]:
    """Yield groups of labels with about the entries of one commit; a label is never divided."""
    step: list[Remake] = []
    entries = 0
    for item in remakes:
        step.append(item)
        entries += item.fact.upto_seq - item.fact.from_seq + 1
        if entries >= STEP_ENTRIES:
            yield step
            step, entries = [], 0
    if step:
        yield step


def files_of(state: State, remakes: Iterable[Remake]) -> list[RebuildTask]:
    """Return the files to rebuild, grouped by their entries."""
    by_label = {item.fact.label: item for item in remakes}
    by_range: dict[tuple[str, int], list[FileFact]] = {}
    for fact in sorted(state.files.values()):
        if fact.label in by_label:
            by_range.setdefault((fact.label, fact.from_seq), []).append(fact)
    return [RebuildTask(by_label[label], tuple(files)) for (label, _), files in sorted(by_range.items())]


def _run(
    spark: "SparkSession", state: State, setting: SliceSettings, remakes: list[Remake]
) -> list[RebuildResult]:
    listed = files_of(state, remakes)
    if not listed:
        return []
    groups = group_into_tasks(listed, lambda item: item.nbytes, spark.sparkContext.defaultParallelism)
    tasks = spark.sparkContext.parallelize(groups, len(groups))
    results: list[RebuildResult] = tasks.flatMap(lambda group: _make_group(group, setting)).collect()
    for item in results:
        if item.problem is not None:
            raise DamagedLakeError(f"tables of {item.label} cannot be rebuilt: {item.problem}")
    return results


def _make_group(group: Iterable[RebuildTask], setting: SliceSettings) -> Iterator[RebuildResult]:
    keys = setting.reader_keys()
    for item in group:
        yield make_again(item, setting, keys)


def changes_of(state: State, remakes: Iterable[Remake], results: Iterable[RebuildResult]) -> Changes:
    """Return the commit of a rebuild; it removes states whose rows have changed."""
    listed = list(results)
    sealed: dict[str, int] = {}
    for item in listed:
        sealed[item.label] = sealed.get(item.label, 0) + item.sealed
    changed = {item.label for item in listed if item.added}
    remade = [item.remade(sealed.get(item.fact.label, 0)) for item in remakes]
    return Changes(
        kind="remake",
        remade=remade,
        added=sorted(fact for item in listed for fact in item.added),
        removed=sorted(path for item in listed for path in item.removed),
        dropped=gold.of_streams(state, [item.stream_id for item in remade if item.label in changed]),
    )
