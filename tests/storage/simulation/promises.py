"""A writer at work on a simulated disk, and an exact record of what it was handed and what it has promised.

``Promises`` is the witness of a sweep: what a check may expect afterwards, whatever has happened to the disk.
``Session`` is the process that works. It knows what an error entitles to: behind a full disk the same step
works as soon as there is space, behind any other error nothing is taken any more, and reading goes on always.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

import lmdb

from tests import builders
from tests.storage.simulation.sim_plan import Crash, Fault, Plan
from tests.storage.simulation.simdisk import SimDisk, SimFilesystem, Snapshot
from tests.storage.stores import (
    AUTHORIZE,
    CONTROL,
    HUB_ID,
    TINY,
    counted,
    make,
    message,
    sign_checkpoint,
    signed_receipt,
)
from veen.core.data_dir.store_records import NO_COMPRESSION, Registry, StreamEpoch
from veen.core.limits import Limits
from veen.core.objects import labels
from veen.core.objects.entry import Entry
from veen.core.objects.new_entry import NewEntry
from veen.core.types import AuthRef, Label, RandomBytes
from veen.storage.errors import StoreFullError, WriterStoppedError
from veen.storage.journal.journal import Binding
from veen.storage.journal.tail import SignReceipt
from veen.storage.read.reader import Reader
from veen.storage.write.batch import Batch
from veen.storage.write.writer import Options, Writer

T = TypeVar("T")

#: An entry by its place.
Place = tuple[Label, int]
#: Entries by their place, each as it is stored.
Frames = dict[Place, bytes]

TOKEN: Final = builders.cap_token()
STREAM: Final = StreamEpoch(builders.stream(), 0)
#: A label whose stream the hub knows: the one that the token is for.
BOUND: Final = labels.label(labels.routing_key(HUB_ID), STREAM.stream_id, STREAM.epoch)
_BINDING: Final = Binding(STREAM.stream_id, STREAM.epoch, BOUND)

_FULL: Final = (Fault.ENOSPC, Fault.SHORT)


@dataclass(slots=True)
class Promises:
    """What a run has handed in, and what it was told."""

    #: Every entry that was ever in a batch: nothing else may turn up.
    offered: set[bytes] = field(default_factory=set)
    #: Entries whose commit has returned.
    acked: Frames = field(default_factory=dict)
    #: Checkpoints that were returned or seen.
    checkpoints: dict[Place, bytes] = field(default_factory=dict)
    bindings: dict[Label, StreamEpoch] = field(default_factory=dict)
    #: The last entry that was to be pruned, and that was.
    to_prune: dict[Label, int] = field(default_factory=dict)
    pruned: dict[Label, int] = field(default_factory=dict)
    #: The limits that were promised or seen last.
    registry: Registry | None = None
    #: How often the disk was full, and how often the writer has stopped.
    full: int = 0
    stopped: int = 0

    def copy(self) -> "Promises":
        """Return the same promises, for a run that makes its own behind them."""
        return replace(
            self,
            offered=set(self.offered),
            acked=dict(self.acked),
            checkpoints=dict(self.checkpoints),
            bindings=dict(self.bindings),
            to_prune=dict(self.to_prune),
            pruned=dict(self.pruned),
        )

    def check_reads(self, reader: Reader) -> None:
        """Check that everything acknowledged can be read."""
        for (label, seq), frame in self.acked.items():
            if seq > self.to_prune.get(label, 0):
                assert reader.entry(label, seq).encode() == frame, "an acknowledged entry reads differently"


def nonces(fs: SimFilesystem) -> RandomBytes:
    """Return random bytes that no other process on this disk gets: as rare as two equal nonces should be."""
    start, numbers = fs._disk.platter.last, count()
    return lambda length: builders.digest(f"nonce {start} {next(numbers)}")[:length]


def open_writer(fs: SimFilesystem, segment_bytes: int = 1 << 20) -> Writer:
    """Open the writer of a store."""
    return Writer.open(
        fs,
        sign_checkpoint=sign_checkpoint,
        random=nonces(fs),
        owner="a test",
        options=Options(segment_bytes=segment_bytes),
    )


def prepared(
    scratch: Path,
    steps: "Callable[[Session], None]",
    *plans: Plan,
    limits: Limits = TINY,
    compression: str = NO_COMPRESSION,
) -> tuple[Snapshot, Promises]:
    """Make a store, work on it until the process ends, by itself or by a plan; return what is left then."""
    kept = Promises()
    with SimDisk(scratch) as disk:
        make(disk.filesystem(), limits, compression=compression)
        disk.process_crash()
        with contextlib.suppress(Crash, WriterStoppedError):
            steps(Session(disk.filesystem(*plans), kept))
        disk.process_crash()
        assert all(plan.injected for plan in plans)
        return disk.snapshot(), kept


def recover(fs: SimFilesystem) -> None:
    """Start and stop."""
    open_writer(fs).close()


class Session:
    """A writer, and what it promises."""

    def __init__(self, fs: SimFilesystem, kept: Promises, segment_bytes: int = 1 << 20) -> None:
        self.fs = fs
        self.kept = kept
        self._segment_bytes = segment_bytes
        self._commits = 0
        self.writer = self._open()

    def _open(self) -> Writer:
        try:
            return open_writer(self.fs, self._segment_bytes)
        except (StoreFullError, WriterStoppedError):
            if not self._is_full():
                raise
            self.kept.full += 1
            self._make_space()
            return open_writer(self.fs, self._segment_bytes)

    # --- what is done ---------------------------------------------------------------------------------------

    def append(
        self, *labels_: Label, size: int = 5, client: str = "client", auth: AuthRef | None = None
    ) -> None:
        """Commit one batch with a message for each label given."""

        def records(batch: Batch) -> Iterator[NewEntry]:
            for label in labels_:
                position = batch.client(label, builders.verify_key(client))
                yield NewEntry.of_msg(message(label, client, position.client_seq + 1, size, auth))

        self._step(lambda: self._commit(records))

    def authorize(self) -> None:
        """Commit a token, a control record, and a message that needs both a token and a binding."""

        def records(batch: Batch) -> Iterator[NewEntry]:
            yield NewEntry.of_token(AUTHORIZE, TOKEN)
            yield NewEntry.of_control(CONTROL, b"\x01" * 40)
            position = batch.client(BOUND, builders.verify_key())
            yield NewEntry.of_msg(message(BOUND, "client", position.client_seq + 1, 5, TOKEN.auth_ref))

        self._step(lambda: self._commit(records, (_BINDING,)))

    def _commit(
        self, records: Callable[[Batch], Iterator[NewEntry]], bindings: Sequence[Binding] = ()
    ) -> None:
        batch = self.writer.batch()
        self._commits += 1
        hub_ts = max(batch.floor_ts, 1_000) + self._commits % 2
        made: Frames = {}
        for record in records(batch):
            receipt = batch.append(counted(batch, record, hub_ts), _signer(record, hub_ts))
            frame = Entry(record.content, receipt).encode()
            made[record.label, receipt.stream_seq] = frame
            self.kept.offered.add(frame)
        for binding in bindings:
            batch.bind(binding)
        self.writer.commit(batch)
        self.kept.acked.update(made)
        for binding in bindings:
            self.kept.bindings[binding.label] = StreamEpoch(binding.stream_id, binding.epoch)

    def checkpoint(self, label: Label, upto_seq: int) -> None:
        """Ask for a checkpoint."""

        def ask() -> None:
            made = self.writer.checkpoint(label, upto_seq)
            assert self.kept.checkpoints.setdefault((label, upto_seq), made.encode()) == made.encode()

        self._step(ask)

    def flush(self) -> None:
        """Move everything into chunk files; what is sealed by that is seen by others."""
        self._step(self.writer.flush)
        self._step(self.look)

    def look(self) -> None:
        """See the checkpoints that there are."""
        reader = self.writer.reader
        for label in reader.labels():
            for made in reader.checkpoints(label, 1, reader.last_seq(label)):
                known = self.kept.checkpoints.setdefault((label, made.upto_seq), made.encode())
                assert known == made.encode(), "a checkpoint has changed"

    def prune(self, label: Label, upto_seq: int) -> None:
        """Drop old chunks."""
        self.kept.to_prune[label] = max(upto_seq, self.kept.to_prune.get(label, 0))
        rows = self._step(lambda: self.writer.prune(label, upto_seq))
        if rows:
            self.kept.pruned[label] = rows[-1].end_seq

    def close(self) -> None:
        """Stop cleanly; if the disk is full for that, the next start does it."""
        try:
            self.writer.close()
        except (StoreFullError, WriterStoppedError):
            if not self._is_full():
                raise
            self.kept.full += 1
            self._make_space()
            self.writer = self._open()
            self.writer.close()

    # --- what errors entitle to -----------------------------------------------------------------------------

    def _step(self, step: Callable[[], T]) -> T:
        try:
            return step()
        except StoreFullError:
            self._while_full()
            return step()
        except WriterStoppedError:
            self._while_stopped()
            raise
        except (OSError, lmdb.Error):
            assert self._is_planned(Fault.READ_EIO), "an error of a change has to stop the writer"
            return step()  # nothing was changed, so nothing is in doubt

    def _while_full(self) -> None:
        assert self._is_full(), "there was space"
        self.kept.full += 1
        self.kept.check_reads(self.writer.reader)
        if any(plan.persistent for plan in self.fs._plans):
            try:
                self._commit(lambda batch: iter([self._probe(batch)]))
            except StoreFullError:
                pass
            else:
                raise AssertionError("a commit without space")
            self.kept.check_reads(self.writer.reader)
        self._make_space()

    def _probe(self, batch: Batch) -> NewEntry:
        position = batch.client(BOUND, builders.verify_key("probe"))
        return NewEntry.of_msg(message(BOUND, "probe", position.client_seq + 1))

    def _while_stopped(self) -> None:
        assert not self._is_full(), "a full disk is no reason to stop"
        self.kept.stopped += 1
        writer = self.writer
        for attempt in (writer.batch, writer.flush, lambda: writer.prune(BOUND, 1)):
            try:
                attempt()
            except WriterStoppedError:
                continue
            raise AssertionError("a writer that has stopped takes something")
        self.kept.check_reads(writer.reader)

    def _is_full(self) -> bool:
        return any(self._is_planned(fault) for fault in _FULL)

    def _is_planned(self, fault: Fault) -> bool:
        return any(plan.fault is fault and plan.injected for plan in self.fs._plans)

    def _make_space(self) -> None:
        for plan in self.fs._plans:
            plan.stop()


def _signer(record: NewEntry, hub_ts: int) -> SignReceipt:
    return lambda seq, root: signed_receipt(record.label, seq, record.leaf_hash, root, hub_ts)
