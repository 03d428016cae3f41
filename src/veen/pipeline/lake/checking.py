"""Checking a lake: its files against its commits, its tables against each other, and all against the log."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from veen.core.mmr import Peaks, join, subtrees
from veen.core.types import Label, NodeHash
from veen.overlays.registry import schemas
from veen.pipeline.frames import BadEntryError, parse
from veen.pipeline.kernel import Level, check
from veen.pipeline.lake import gold, hub, layout, tables
from veen.pipeline.lake.commits import Commits, FileFact, LabelFact, State
from veen.pipeline.lake.errors import DamagedLakeError, LakeError
from veen.pipeline.lake.frames import frames_of
from veen.pipeline.lake.planning import check_against

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from veen.pipeline.logs import Log

Trees = list[tuple[int, NodeHash]]


class Verdict(NamedTuple):
    """What was found good."""

    commits: int
    files: int
    labels: int
    entries: int
    rows: int
    states: int
    against_log: bool


@dataclass(frozen=True, slots=True)
class Slab:
    """The files of all tables that hold the same entries."""

    label: str
    first: int
    last: int
    files: tuple[FileFact, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a task has found in a slab."""

    label: str
    first: int
    last: int
    trees: Trees
    root: bytes
    problem: str | None = None


def check_lake(spark: "SparkSession", root: Path, log: "Log | None" = None) -> Verdict:
    """Check all of it; raise for the first thing that is wrong."""
    if not (root / layout.META).is_dir():
        raise LakeError(f"{root} is no lake; make one with: veen pipeline ingest LOG --lake {root}")
    state = Commits(root).load(snapshots=False)
    if Commits(root).load().snapshot() != state.snapshot():
        raise DamagedLakeError(f"a file in {layout.SNAPSHOTS} is not what the commits say; remove it")
    for blob in state.hub.values():
        hub.read_blob(root, blob)
    slabs = _slabs(state)
    found: list[Seen] = []
    place = str(root.resolve())
    if slabs:
        found = (
            spark.sparkContext.parallelize(slabs, len(slabs)).map(lambda slab: look(place, slab)).collect()
        )
    begun = _check_seen(state, found)
    if begun:
        pairs = spark.sparkContext.parallelize(list(zip(slabs, begun, strict=True)), len(slabs))
        for problem in pairs.map(lambda pair: check_roots(place, *pair)).collect():
            if problem is not None:
                raise DamagedLakeError(problem)
    for known in state.gold.values():
        _check_state(spark, root, state, known)
    if log is not None:
        check_against(state, log)
    rows = sum(fact.rows for fact in state.files.values())
    entries = sum(fact.rows for fact in state.of_table(layout.ENTRIES))
    return Verdict(
        state.number, len(state.files), len(state.labels), entries, rows, len(state.gold), log is not None
    )


def _check_state(spark: "SparkSession", root: Path, state: State, known: Mapping[str, Any]) -> None:
    """Require that a state is what folding the records again gives, for the roots that it names."""
    for path, digest in known["files"].items():
        if hashlib.sha256((root / path).read_bytes()).hexdigest() != digest:
            raise DamagedLakeError(f"{path} is not the file that was committed: its hash differs")
    overlay, stream = known["overlay"], known["stream_id"]
    reached = {item[1]: gold.Reached(*item) for item in known["reached"]}
    behind = [fact for fact in state.labels.values() if fact.label in reached]
    at = {fact.label: gold.Reached(fact.epoch, fact.label, fact.upto_seq, fact.mmr_root) for fact in behind}
    if at != reached:
        return  # the lake has gone on since; the next run brings the state up to date
    labels = tuple(sorted(behind, key=lambda fact: fact.epoch))
    folded = gold.fold(spark, root, state, gold.Wanted(overlay, stream, labels), None)
    if gold.hash_of(gold.overlay_of(overlay), folded) != known["state_hash"]:
        raise DamagedLakeError(f"the state of {overlay} of stream {stream} is not what its records amount to")


def _slabs(state: State) -> list[Slab]:
    """Return files by the entries that they hold; each of them must belong to entries of the bronze table."""
    found: dict[tuple[str, int, int], list[FileFact]] = {}
    for fact in state.files.values():
        found.setdefault((fact.label, fact.from_seq, fact.upto_seq), []).append(fact)
    for label in state.labels.values():
        spans = sorted(key for key in found if key[0] == label.label)
        _check_cover(label, [(first, last) for _, first, last in spans])
    for key, facts in found.items():
        have = {fact.table for fact in facts}
        if key[0] not in state.labels or not {layout.ENTRIES, layout.RECORDS} <= have:
            raise DamagedLakeError(f"{facts[0].path} does not belong to entries that the lake has")
    return [Slab(*key, tuple(sorted(facts))) for key, facts in sorted(found.items())]


def _check_cover(fact: LabelFact, spans: Sequence[tuple[int, int]]) -> None:
    """Require that files have each entry of a label once, but for those that were pruned before."""
    listed = sorted([*spans, *((item.first, item.last) for item in fact.missing)])
    at = fact.from_seq
    for first, last in listed:
        if first != at:
            raise DamagedLakeError(
                f"entries {at} to {first - 1} of {fact.label} are in no file, or in several"
            )
        at = last + 1
    if at != fact.upto_seq + 1:
        raise DamagedLakeError(f"entries {at} to {fact.upto_seq} of {fact.label} are in no file")


def look(root: str, slab: Slab) -> Seen:
    """Read the files of a slab; whatever is wrong with them is part of the result."""
    try:
        trees, last = _Look(Path(root), slab).run()
        return Seen(slab.label, slab.first, slab.last, trees, last)
    except (LakeError, OSError, pa.ArrowException) as error:
        text = str(error).splitlines()[0]
        return Seen(slab.label, slab.first, slab.last, [], b"", problem=text)
    except BadEntryError as error:
        return Seen(slab.label, slab.first, slab.last, [], b"", problem=str(error))


class _Look:
    """One slab being checked."""

    def __init__(self, root: Path, slab: Slab) -> None:
        self._root = root
        self._slab = slab
        self._facts = {fact.table: fact for fact in slab.files}

    def run(self) -> tuple[Trees, bytes]:
        """Return the trees over the leaves of the entries, and the root that the last of them states."""
        for fact in self._slab.files:
            self._check_file(fact)
        leaves: list[bytes] = []
        root = b""
        for batch in self._batches(layout.ENTRIES):
            frames = frames_of(
                Label(bytes.fromhex(self._slab.label)), batch, self._facts[layout.ENTRIES].path
            )
            if frames.first_seq != self._slab.first + len(leaves):
                raise self._wrong(layout.ENTRIES, "does not hold the entries that it should")
            entries = parse(frames)
            for fault in check(entries, Level.ROOTS).faults:
                raise self._wrong(layout.ENTRIES, f"entry {fault.seq}: {fault.text} ({fault.detail})")
            leaves += entries.leaves()
            root = entries.mmr_root[-1].tobytes()
        if len(leaves) != self._slab.last - self._slab.first + 1:
            raise self._wrong(layout.ENTRIES, f"holds {len(leaves)} entries, and not all")
        self._check_derived(leaves)
        return subtrees(self._slab.first, leaves), root

    def _wrong(self, table: str, text: str) -> DamagedLakeError:
        return DamagedLakeError(f"{self._facts[table].path} {text}")

    def _check_file(self, fact: FileFact) -> None:
        path = self._root / fact.path
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != fact.sha256:
            raise DamagedLakeError(f"{fact.path} is not the file that was committed: its hash differs")
        with pq.ParquetFile(path) as file:
            if file.metadata.num_rows != fact.rows:
                raise DamagedLakeError(f"{fact.path} has {file.metadata.num_rows} rows, not {fact.rows}")
            if not file.schema_arrow.equals(tables.columns_by_table()[fact.table]):
                raise DamagedLakeError(f"{fact.path} does not have the columns of its table")

    def _batches(self, table: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self._root / self._facts[table].path) as file:
            yield from file.iter_batches(batch_size=layout.GROUP_ROWS, columns=columns)

    def _check_derived(self, leaves: list[bytes]) -> None:
        """Require that rows above are of the entries below: each record once, each event or refusal once."""
        typed_ids = set(_schema_ids())
        expected: set[int] = set()
        at = self._slab.first
        for batch in self._batches(layout.RECORDS, ["stream_seq", "msg_id", "schema"]):
            for seq, msg_id, schema in _rows(batch):
                if seq != at or msg_id != leaves[at - self._slab.first]:
                    raise self._wrong(layout.RECORDS, f"does not follow from the entries at {at}")
                if schema in typed_ids:
                    expected.add(seq)
                at += 1
        if at != self._slab.last + 1:
            raise self._wrong(layout.RECORDS, f"ends before entry {at}")
        for table in sorted(set(self._facts) - {layout.ENTRIES, layout.RECORDS}):
            for batch in self._batches(table, ["stream_seq", "msg_id"]):
                for seq, msg_id in _rows(batch):
                    if seq not in expected or msg_id != leaves[seq - self._slab.first]:
                        raise self._wrong(table, f"has a row that does not follow from entry {seq}")
                    expected.remove(seq)
        if expected:
            raise self._wrong(layout.RECORDS, f"entry {min(expected)} is in no table of its schema")


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _schema_ids() -> Iterable[bytes]:
    return (schema.schema_id for schema in schemas().values())


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


def _check_seen(state: State, found: Iterable[Seen]) -> list[Peaks]:
    """Put the slabs of each label together: their leaves give the root that was committed.

    Returns the peaks before each slab.
    """
    begun: list[Peaks] = []
    by_label: dict[str, list[Seen]] = {}
    for seen in sorted(found, key=lambda item: (item.label, item.first)):
        if seen.problem is not None:
            raise DamagedLakeError(seen.problem)
        by_label.setdefault(seen.label, []).append(seen)
    for label, fact in sorted(state.labels.items()):
        peaks = Peaks.empty()
        behind = {item.last + 1: item.range for item in fact.missing}
        for seen in by_label.get(label, []):
            begun.append(behind.get(seen.first, peaks))
            peaks = join(begun[-1], seen.trees)
            if peaks.root != seen.root:
                raise DamagedLakeError(f"the entries of {label} up to {seen.last} do not give the root there")
        if (peaks.size, peaks.root.hex()) != (fact.upto_seq, fact.mmr_root):
            raise DamagedLakeError(f"the entries of {label} do not give the root that was committed")
    return begun
