"""Evidence: the events behind an answer, verified from entries signed by the hub (QRY-039 to QRY-042).

Verified for each event: both signatures, the hashes of ciphertext and message, the root stated in the
receipt, and that the tables agree with the entry. Roots are compared over all leaves of a label, so that the
last one is that of the commit.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkContext

from veen.core.errors import ProtocolError
from veen.core.objects import labels as naming
from veen.core.objects.finding import Level
from veen.core.objects.hub_identity import HubIdentity
from veen.core.objects.receipt import Receipt
from veen.core.types import Label
from veen.pipeline.errors import DamagedLakeError, InvalidEntryError
from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import FileFact, State
from veen.pipeline.lake.table_files import create_file
from veen.pipeline.lake_jobs.check import check_seen, slabs_of
from veen.pipeline.lake_jobs.check_rows import known_of
from veen.pipeline.lake_jobs.check_task import check_roots_all, fold_all
from veen.pipeline.lake_jobs.file_hashes import require_committed
from veen.pipeline.lake_jobs.restore import frames_of
from veen.pipeline.log.entry_columns import Bytes, parse
from veen.pipeline.log.hub_keys import HubKeys, verify_receipt
from veen.pipeline.query.backend import Backend
from veen.pipeline.query.columns import PLACES
from veen.pipeline.task_groups import group_into_tasks
from veen.pipeline.verify.kernel import check
from veen.query.digest import EvidenceHasher
from veen.query.errors import QueryError

T = TypeVar("T")

# Entries that a task verifies together; the size of row groups.
_BUCKET: Final = layout.GROUP_ROWS
# Gaps of up to this many entries cost less to verify than to skip.
_GAP: Final = 3
_HASH_BYTES: Final = 32
ROOTS: Final = ".roots"
_TOLD: Final = pa.schema([pa.field("problem", pa.string())])
# Columns of the tables, and the column of the entries that each must equal.
_STATED: Final = {
    "msg_id": "leaf_hash",
    "client_id": "client_id",
    "taken_at": "hub_ts",
    "own_receipt_id": "own_receipt_id",
}


@dataclass(frozen=True, slots=True)
class EvidenceInputs:
    """What all tasks verify with."""

    root: str
    out: str
    keys: HubKeys
    # The hubs that copies may come from.
    origins: Mapping[bytes, HubIdentity]
    # The files with the entries of each label, in order.
    entries: Mapping[str, Sequence[FileFact]]
    # The local name of each label's stream.
    streams: Mapping[str, str]

    def verify(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Verify events, grouped by label and ordered; yield what is wrong."""
        for label, bucket, events in _buckets(batches):
            problem = _Bucket(self, label, bucket, events).problem()
            if problem is not None:
                yield pa.RecordBatch.from_pylist([{"problem": problem}], schema=_TOLD)


def _runs(*columns: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """Return the bounds of runs of rows with equal values in all columns."""
    changes = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()]
    return list(zip(starts, [*starts[1:], len(columns[0])], strict=True))


def _portions(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = (batch.column("at").to_numpy() - 1) // _BUCKET
    return numbers


def _buckets(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[bytes, int, pa.RecordBatch]]:
    """Group events that are close to each other in a label."""
    place: tuple[bytes, int] | None = None
    near: list[pa.RecordBatch] = []
    for batch in batches:
        if not len(batch):
            continue
        labels, portions = batch.column("label").dictionary_encode(), _portions(batch)
        for start, end in _runs(labels.indices.to_numpy(), portions):
            here = labels[start].as_py(), int(portions[start])
            if place is not None and here != place:
                yield *place, pa.concat_batches(near)
                near = []
            place = here
            near.append(batch.slice(start, end - start))
    if place is not None:
        yield *place, pa.concat_batches(near)


class _Bucket:
    """The verification of events close to each other."""

    def __init__(self, means: EvidenceInputs, label: bytes, bucket: int, events: pa.RecordBatch) -> None:
        self._means = means
        self._label = Label(label)
        self._bucket = bucket
        self._events = events
        self._ats: npt.NDArray[np.int64] = events.column("at").to_numpy()
        self._own = events.column("origin_receipt").is_null().to_numpy(zero_copy_only=False)

    def problem(self) -> str | None:
        """Return the first fault; without one, write the roots of the events to a file."""
        try:
            self._check_origins()
            roots = self._check_entries()
        except _WrongError as error:
            return str(error)
        except (InvalidEntryError, OSError, pa.ArrowException) as error:
            return str(self._wrong(int(self._ats[0]), str(error).splitlines()[0]))
        # Renamed when complete: a duplicate of this task may be killed, or finish later.
        target = Path(self._means.out) / roots_name(self._label, self._bucket)
        written = target.with_name(f"{layout.UNFINISHED}{uuid4().hex}{ROOTS}")
        with create_file(written) as file:
            file.write(roots[self._own].tobytes())
        written.replace(target)
        return None

    def _wrong(self, at: int, text: str) -> "_WrongError":
        stream = self._means.streams[self._label.hex()]
        return _WrongError(f"evidence: entry {at} of {stream}: {text}")

    def _check_origins(self) -> None:
        """Verify the receipts from the hubs that copies come from."""
        copies = self._events.filter(pa.array(~self._own))
        names = ("at", "stream", "epoch", "origin_receipt", "origin_hub_id")
        for at, stream, epoch, data, hub_id in zip(
            *(copies.column(name).to_pylist() for name in names), strict=True
        ):
            identity = self._means.origins.get(hub_id)
            if identity is None:
                raise self._wrong(
                    at,
                    f"a copy from hub {hub_id.hex()}, whose identity is not known: pass it,"
                    " or query without evidence",
                )
            receipt = Receipt.decode(data)
            if naming.label(identity.routing_key, naming.stream_id(stream), epoch) != receipt.label:
                raise self._wrong(at, f"the receipt of the original is of no label of {stream}")
            try:
                keys = list(identity.hub_keys)
                verify_receipt(keys, receipt.hub_ts, receipt.signing_digest(), receipt.hub_sig)
            except ProtocolError as error:
                raise self._wrong(at, f"the receipt of the original: {error.message}") from None

    def _check_entries(self) -> Bytes:
        """Verify the entries of the events; return the roots that their receipts state."""
        facts = self._means.entries[self._label.hex()]
        roots: list[Bytes] = []
        start = 0
        while start < len(self._ats):
            at = int(self._ats[start])
            nth = bisect_right(facts, at, key=lambda fact: fact.from_seq) - 1
            if nth < 0 or facts[nth].upto_seq < at:
                raise self._wrong(at, "the lake does not have it")
            end = int(np.searchsorted(self._ats, facts[nth].upto_seq, side="right"))
            roots += self._check_file(facts[nth], start, end)
            start = end
        return np.concatenate(roots)

    def _check_file(self, fact: FileFact, start: int, end: int) -> Iterator[Bytes]:
        first, last = int(self._ats[start]), int(self._ats[end - 1])
        span = [("stream_seq", ">=", first), ("stream_seq", "<=", last)]
        path = Path(self._means.root) / fact.path
        table = pq.read_table(path, filters=span, partitioning=None).combine_chunks()
        if len(table) != last - first + 1:
            raise self._wrong(first, f"{fact.path} does not have the entries that it should")
        (batch,) = table.to_batches()
        places = self._ats[start:end] - first
        ends = np.flatnonzero(np.diff(places) > _GAP + 1) + 1
        for run in np.split(places, ends):
            entries = batch.slice(int(run[0]), int(run[-1] - run[0]) + 1)
            yield self._check_run(entries, self._events.slice(start, len(run)), fact)
            start += len(run)

    def _check_run(self, batch: pa.RecordBatch, events: pa.RecordBatch, fact: FileFact) -> Bytes:
        """Verify consecutive entries, and compare those of events with the tables."""
        entries = parse(frames_of(self._label, batch, fact.path))
        for fault in check(entries, Level.FULL, keys=self._means.keys).faults:
            raise self._wrong(fault.seq, f"{fault.text} ({fault.detail})")
        ats = events.column("at").to_numpy()
        nths = ats - ats[0]
        stated = batch.append_column("own_receipt_id", entries.receipt_ids()).take(pa.array(nths))
        for name, other in _STATED.items():
            said, true = events.column(name), stated.column(other).cast(events.schema.field(name).type)
            if not said.equals(true):
                pairs = zip(ats.tolist(), said.to_pylist(), true.to_pylist(), strict=True)
                at = next(at for at, one, two in pairs if one != two)
                raise self._wrong(at, "the table of events does not follow from it")
        roots: Bytes = entries.mmr_root[nths]
        return roots


class _WrongError(Exception):
    """Verification failed; the text says why."""


def roots_name(label: bytes, bucket: int) -> str:
    """Return the file name of the roots of a bucket, which is read when they are summed up."""
    return f"{label.hex()}-{bucket}{ROOTS}"


def _holds(touched: Collection[tuple[str, int]], label: str, first: int, last: int) -> bool:
    """Return whether a range of a label's entries overlaps one with events."""
    return any((label, nth) in touched for nth in range((first - 1) // _BUCKET, (last - 1) // _BUCKET + 1))


class Evidence(Generic[T]):
    """Verifies the events behind an answer."""

    def __init__(
        self,
        work: Backend[T],
        context: SparkContext,
        root: Path,
        state: State,
        *,
        streams: Mapping[str, str],
        origins: Mapping[bytes, HubIdentity],
        keys: Callable[[], HubKeys | None],
    ) -> None:
        """``keys``: the hub's, for a lake that does not store them."""
        self._work = work
        self._context = context
        self._root = root
        self._state = state
        self._streams = streams
        self._origins = origins
        self._keys = keys

    def verify(self, places: Sequence[Path], out: Path, hasher: EvidenceHasher) -> None:
        """Verify events and compute the summary; ``places`` are files with their positions, in order.

        Raises if one fails.
        """
        if not places:
            return
        events = self._work.read(places, PLACES)
        touched = frozenset(self._work.touched(events, _BUCKET))
        if not touched:
            return
        entries = self._entries({label for label, _ in touched})
        files = [fact for facts in entries.values() for fact in facts]
        try:
            require_committed(
                self._context,
                self._root,
                [fact for fact in files if _holds(touched, fact.label, fact.from_seq, fact.upto_seq)],
            )
            self._check_events(events, entries, out)
            self._check_roots(touched)
        except DamagedLakeError as error:
            raise QueryError("execution_failed", f"evidence: {error}") from None
        self._sum_up(places, out, hasher)

    def _entries(self, labels: Collection[str]) -> dict[str, list[FileFact]]:
        """Return the files with the entries of labels, in order."""
        by_label: dict[str, list[FileFact]] = {label: [] for label in labels}
        for fact in self._state.of_table(layout.ENTRIES):
            if fact.label in by_label:
                by_label[fact.label].append(fact)
        return by_label

    def _check_events(self, events: T, entries: Mapping[str, Sequence[FileFact]], out: Path) -> None:
        keys = known_of(self._root, self._state, None).keys or self._keys()
        if keys is None:
            raise DamagedLakeError(
                "the lake has no keys of the hub: pass the log as well, or ingest the hub's data directory"
            )
        places = str(self._root.resolve()), str(out.resolve())
        means = EvidenceInputs(*places, keys, self._origins, entries, self._streams)
        for (problem,) in self._work.by_label(events, _BUCKET, means.verify, _TOLD):
            raise QueryError("execution_failed", problem)

    def _check_roots(self, touched: Collection[tuple[str, int]]) -> None:
        """Compare roots: those of touched slices with the leaves up to them, and the last with the commit."""
        state, place = self._state, str(self._root.resolve())
        labels = {label for label, _ in touched}
        some = replace(
            state,
            labels={name: fact for name, fact in state.labels.items() if name in labels},
            files={path: fact for path, fact in state.files.items() if fact.label in labels},
        )
        slabs = slabs_of(some)
        min_tasks = 2 * self._context.defaultParallelism
        groups = group_into_tasks(slabs, lambda slab: slab.cost, min_tasks)
        seen = self._work.each(groups, lambda group: fold_all(group, place))
        pairs = [
            (slab, peaks)
            for slab, peaks in zip(slabs, check_seen(some, seen), strict=True)
            if _holds(touched, slab.label, slab.first, slab.last)
        ]
        behind = group_into_tasks(pairs, lambda pair: pair[0].cost, min_tasks)
        for problem in self._work.each(behind, lambda group: check_roots_all(group, place)):
            raise DamagedLakeError(problem)

    def _sum_up(self, places: Sequence[Path], out: Path, hasher: EvidenceHasher) -> None:
        """Add all events in order; their roots come from the files written by the tasks."""
        names = ["label", "at", "receipt_id", "origin_receipt", "origin_hub_id"]
        summing = _Summing(out, bytes.fromhex(self._state.hub_id or ""), hasher)
        for path in places:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(columns=names):
                    summing.add(batch)


class _Summing:
    """The summary of events, added in order."""

    def __init__(self, out: Path, hub_id: bytes, hasher: EvidenceHasher) -> None:
        self._out = out
        self._hub_id = hub_id
        self._hasher = hasher
        # The bucket whose roots are loaded, and the index of the next one.
        self._place: tuple[bytes, int] | None = None
        self._roots, self._next = b"", 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next events: copies one by one, runs of others at once."""
        labels, portions = batch.column("label").dictionary_encode(), _portions(batch)
        copies = batch.column("origin_receipt").is_valid().to_numpy(zero_copy_only=False)
        for start, end in _runs(labels.indices.to_numpy(), portions, copies):
            some = batch.slice(start, end - start)
            if copies[start]:
                self._add_copies(some)
            else:
                self._add_own(some, (labels[start].as_py(), int(portions[start])))

    def _add_copies(self, batch: pa.RecordBatch) -> None:
        columns = (
            batch.column(name).to_pylist() for name in ("receipt_id", "origin_receipt", "origin_hub_id")
        )
        for receipt_id, receipt, hub_id in zip(*columns, strict=True):
            self._hasher.add(receipt_id, Receipt.decode(receipt).mmr_root, hub_id)

    def _add_own(self, batch: pa.RecordBatch, place: tuple[bytes, int]) -> None:
        if place != self._place:
            self._place, self._next = place, 0
            self._roots = (self._out / roots_name(*place)).read_bytes()
        end = self._next + len(batch) * _HASH_BYTES
        ids = b"".join(batch.column("receipt_id").to_pylist())
        self._hasher.extend(ids, self._roots[self._next : end], self._hub_id)
        self._next = end
