"""The work of a checking task: files with the same entries, checked together."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from veen.core.merkle.mmr import Peaks, subtrees
from veen.core.objects.finding import Level
from veen.core.profile import Profile
from veen.core.types import Label, NodeHash, StreamId
from veen.pipeline.errors import DamagedLakeError, InvalidEntryError, LakeError
from veen.pipeline.lake import layout, tables
from veen.pipeline.lake.commits import FileFact
from veen.pipeline.lake.committed_files import open_committed
from veen.pipeline.lake_jobs.check_rows import TableRows, require_opened, require_placed
from veen.pipeline.lake_jobs.restore import frames_of
from veen.pipeline.log.entry_columns import Entries, parse
from veen.pipeline.open.decrypt import open_entries
from veen.pipeline.open.keyring import ReaderKeys
from veen.pipeline.open.records import RECORDS
from veen.pipeline.shared_keys import SharedKeys
from veen.pipeline.task_groups import FILE_COST
from veen.pipeline.verify.kernel import check
from veen.stdx.grammar import counted

if TYPE_CHECKING:
    from pyspark import Broadcast

    from veen.pipeline.log.hub_keys import HubKeys

Trees = list[tuple[int, NodeHash]]


@dataclass(frozen=True, slots=True)
class Slab:
    """The files of all tables with the same entries."""

    label: str
    first: int
    last: int
    stream_id: StreamId | None
    epoch: int
    files: tuple[FileFact, ...]
    # The peaks before the first entry, where known without reading earlier entries.
    peaks: Peaks | None = None

    @property
    def cost(self) -> int:
        """The estimated cost of checking it."""
        return sum(fact.bytes + FILE_COST for fact in self.files)


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of checking a slab."""

    label: str
    first: int
    last: int
    trees: Trees
    root: bytes
    first_ts: int = 0
    last_ts: int = 0
    # Messages that this reader cannot open, and which were not compared.
    closed: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class CheckInputs:
    """The common inputs of tasks."""

    root: str
    level: Level
    # The hub's public keys, which may be many: not part of the code of tasks, which contains a secret.
    keys: "Broadcast[HubKeys | None]"
    profiles: tuple[Profile, ...] = ()
    shared: SharedKeys | None = None


def look_all(slabs: Iterable[Slab], means: CheckInputs) -> Iterator[Seen]:
    """Check the slabs of a group."""
    opening = None if means.shared is None else means.shared.open()
    for slab in slabs:
        yield look(slab, means, opening)


def look(slab: Slab, means: CheckInputs, opening: ReaderKeys | None) -> Seen:
    """Check the files of a slab. Faults are returned, not raised."""
    try:
        return _Look(slab, means, opening).run()
    except (LakeError, InvalidEntryError, OSError, pa.ArrowException) as error:
        text = str(error).splitlines()[0]
        return Seen(slab.label, slab.first, slab.last, [], b"", problem=text)


class _Look:
    """The check of one slab."""

    def __init__(self, slab: Slab, means: CheckInputs, opening: ReaderKeys | None) -> None:
        self._root = Path(means.root)
        self._slab = slab
        self._means = means
        self._opening = opening
        self._facts = {fact.table: fact for fact in slab.files}
        self._peaks = slab.peaks
        self._leaves: list[bytes] = []
        self._times: list[int] = []
        self._closed = 0
        # The files of derived tables, read in parallel with the entries.
        self._rows: dict[str, TableRows] = {}

    def run(self) -> Seen:
        """Check all files; entries are read once, and compared with the derived tables on the way."""
        slab, root = self._slab, b""
        for fact in slab.files:
            self._check_file(fact)
            if fact.table != layout.ENTRIES:
                columns = tables.columns_by_table()[fact.table]
                self._rows[fact.table] = TableRows(fact.path, columns, self._batches(fact.table))
        for batch in self._batches(layout.ENTRIES):
            entries = self._check_entries(batch)
            self._check_derived(batch, entries)
            root = entries.mmr_root[-1].tobytes()
        if len(self._leaves) != slab.last - slab.first + 1:
            raise self._wrong(f"contains only {counted(len(self._leaves), 'entry')}")
        for rows in self._rows.values():
            rows.require_end()
        times = self._times[0], self._times[-1]
        for fact in slab.files:
            if (fact.first_ts, fact.last_ts) != times:
                raise DamagedLakeError(f"the times in {fact.path} are not those of its commit")
        trees = subtrees(slab.first, self._leaves)
        return Seen(slab.label, slab.first, slab.last, trees, root, *times, self._closed)

    def _wrong(self, text: str) -> DamagedLakeError:
        return DamagedLakeError(f"{self._facts[layout.ENTRIES].path} {text}")

    def _check_file(self, fact: FileFact) -> None:
        with open_committed(self._root, fact) as file:
            if not file.schema_arrow.equals(tables.columns_by_table()[fact.table]):
                raise DamagedLakeError(f"{fact.path} does not have the columns of its table")

    def _batches(self, table: str) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self._root / self._facts[table].path) as file:
            yield from file.iter_batches(batch_size=layout.GROUP_ROWS)

    def _check_entries(self, batch: pa.RecordBatch) -> Entries:
        """Check entries as in the verification of a log."""
        slab, means = self._slab, self._means
        frames = frames_of(Label(bytes.fromhex(slab.label)), batch, self._facts[layout.ENTRIES].path)
        if frames.first_seq != slab.first + len(self._leaves):
            raise self._wrong("does not hold the entries that it should")
        entries = parse(frames)
        checked = check(entries, means.level, keys=means.keys.value, peaks=self._peaks)
        for fault in checked.faults:
            raise self._wrong(f"entry {fault.seq}: {fault.text} ({fault.detail})")
        if self._times and checked.first_ts < self._times[-1]:
            raise self._wrong(f"entry {frames.first_seq}: hub_ts goes back")
        for name, value in (("stream_id", slab.stream_id), ("epoch", slab.epoch)):
            column = batch.column(name)
            if not column.equals(pa.repeat(pa.scalar(value, column.type), len(batch))):
                raise self._wrong(f"{name} is not the one in the commit")
        self._peaks = checked.peaks
        self._times += [checked.first_ts, checked.last_ts]
        self._leaves += entries.leaves()
        return entries

    def _check_derived(self, batch: pa.RecordBatch, entries: Entries) -> None:
        """Require that derived rows follow from the entries: records, and typed or rejected bodies."""
        rows = self._rows[layout.RECORDS]
        records = rows.take(len(batch))
        require_placed(rows, records, batch.append_column("receipt_id", entries.receipt_ids()))
        if self._opening is not None:
            slab = self._slab
            opened = open_entries(entries, self._opening, self._means.profiles, slab.stream_id, slab.epoch)
            self._closed += require_opened(rows, records, opened, RECORDS.names)
        for part in records.combine_chunks().to_batches():
            for table, made in tables.typed(part):
                if table not in self._rows:
                    seq = made.column("stream_seq")[0].as_py()
                    raise rows.wrong(f"entry {seq} is not in {table}, where it belongs")
                self._rows[table].require(made)


def fold_all(slabs: Iterable[Slab], root: str) -> Iterator[Seen]:
    """Fold the leaves of slabs as stated in receipts, without other checks."""
    for slab in slabs:
        (fact,) = (fact for fact in slab.files if fact.table == layout.ENTRIES)
        leaves: list[bytes] = []
        last: bytes = b""
        try:
            with pq.ParquetFile(Path(root) / fact.path) as file:
                for batch in file.iter_batches(columns=["leaf_hash", "mmr_root"]):
                    leaves += batch.column("leaf_hash").to_pylist()
                    last = batch.column("mmr_root")[-1].as_py()
        except (OSError, pa.ArrowException) as error:
            problem = f"{fact.path} cannot be read: {str(error).splitlines()[0]}"
            yield Seen(slab.label, slab.first, slab.last, [], b"", problem=problem)
        else:
            trees = subtrees(slab.first, leaves)
            yield Seen(slab.label, slab.first, slab.last, trees, last, fact.first_ts, fact.last_ts)


def check_roots_all(pairs: Iterable[tuple[Slab, Peaks]], root: str) -> Iterator[str]:
    """Compare roots in a group of slabs; yield faults."""
    for slab, peaks in pairs:
        problem = check_roots(root, slab, peaks)
        if problem is not None:
            yield problem


def check_roots(root: str, slab: Slab, peaks: Peaks) -> str | None:
    """Compare the root that each receipt states with the one over all entries up to it."""
    (fact,) = (fact for fact in slab.files if fact.table == layout.ENTRIES)
    with pq.ParquetFile(Path(root) / fact.path) as file:
        for batch in file.iter_batches(columns=["stream_seq", "leaf_hash", "mmr_root"]):
            peaks, roots = peaks.extend(batch.column("leaf_hash").to_pylist())
            stated = batch.column("mmr_root").to_pylist()
            for nth, (one, other) in enumerate(zip(roots, stated, strict=True)):
                if one != other:
                    seq = batch.column("stream_seq")[nth].as_py()
                    return f"{fact.path} entry {seq}: mmr_root is not the root over all entries up to here"
    return None
