"""Repair: rebuilds index, node stores and other derived files from the log, which is never changed.

The log is read once; frames, hashes, positions, leaves, roots and chunk boundaries are checked, and any error
names the file. The rebuilt index ends where the journal begins: what an interrupted flush wrote to chunk
files is left to the next writer.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import AuthRecord, ForkRecord, StoreRecord, StreamEpoch
from veen.core.errors import ProtocolError
from veen.core.limits import EPOCH_PROBE
from veen.core.objects import labels
from veen.core.objects.capability import CapToken
from veen.core.objects.entry import EntryHeader
from veen.core.types import Label, StreamId
from veen.storage.atomic_file import OutFile, read_file
from veen.storage.directory import make_certain, open_store, reading_limits, take_lock
from veen.storage.errors import DamagedStoreError
from veen.storage.fs import Filesystem
from veen.storage.index.index import Index, Meta
from veen.storage.index.label_state import LabelState
from veen.storage.journal import journal
from veen.storage.journal.journal import Kind
from veen.storage.journal.rate_buckets import Uses
from veen.storage.maintain.rebuild_label import LabelChunks, Relabel, survey
from veen.storage.write.sidecars import write_checkpoint_indexes

# Called periodically with the number of entries read since the last call.
Progress = Callable[[int], None]


def no_progress(_count: int) -> None:
    """Ignore progress."""


_PROGRESS_ENTRIES: Final = 1024


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair has read."""

    labels: int
    entries: int
    journal_entries: int


def repair(fs: Filesystem, *, owner: str, progress: Progress = no_progress) -> Repaired:
    """Rebuild all derived files of a directory, under the writer's lock."""
    open_store(fs)
    lock = take_lock(fs, owner)
    try:
        store = open_store(fs)
        repaired = rebuild(fs, store, progress)
        make_certain(fs, store)
        return repaired
    finally:
        lock.release()


def rebuild(fs: Filesystem, store: StoreRecord, progress: Progress = no_progress) -> Repaired:
    """Rebuild all derived files; the caller has the lock or exclusive access."""
    begins = _journal(fs)
    fs.make_dir(paths.INDEX)
    fs.remove_index(paths.INDEX)
    index = Index.create(fs)
    try:
        return _Rebuild(fs, store, index, begins, progress).run()
    finally:
        index.close()


@dataclass(frozen=True, slots=True)
class _Begins:
    """Where the journal begins: its segments, and its first entry of each label."""

    segments: list[int]
    seqs: dict[Label, int]
    entries: int


def _journal(fs: Filesystem) -> _Begins:
    numbers = journal.segments(fs)
    seqs: dict[Label, int] = {}
    entries = 0
    for segment in journal.read_all(fs, numbers):
        for record in segment.records:
            at = record.entries_at()
            while record.kind is Kind.BATCH and at < len(record.payload):
                try:
                    header = EntryHeader.decode(record.payload, at)
                except ProtocolError as error:
                    raise DamagedStoreError(segment.path, record.position, str(error)) from error
                seqs.setdefault(header.label, header.stream_seq)
                at += header.entry_len
                entries += 1
    return _Begins(numbers, seqs, entries)


class _Rebuild:
    """A repair in progress."""

    def __init__(
        self, fs: Filesystem, store: StoreRecord, index: Index, begins: _Begins, progress: Progress
    ) -> None:
        self._fs = fs
        self._store = store
        self._index = index
        self._begins = begins
        self._progress = progress
        self._receipts = OutFile(fs, paths.RECEIPTS)
        self._checkpoints = OutFile(fs, paths.CHECKPOINTS)
        self._frozen = _frozen_labels(fs)
        self._limits = reading_limits(store)
        self._streams: set[StreamId] = set()
        self._uses = Uses()
        self._bound: list[tuple[LabelState, int]] = []
        self._entries = 0
        self._last_ts = 0

    def run(self) -> Repaired:
        chunks_by_label = survey(self._fs)
        for number, item in enumerate(chunks_by_label):
            self._label(item, number)
        self._receipts.finish()
        self._checkpoints.finish()
        self._fs.sync_dir("")
        for domain in Domain:
            self._remove_leftovers(domain)
            self._fs.sync_dir(domain)
        self._bind()
        self._fill_buckets()
        write_checkpoint_indexes(self._fs, self._index)
        segments = self._begins.segments
        with self._index.change() as changes:
            changes.put_meta(
                Meta(
                    clean=not segments,
                    journal=segments[0] if segments else 1,
                    last_ts=self._last_ts,
                    receipts_bytes=self._receipts.size,
                    checkpoints_bytes=self._checkpoints.size,
                    labels=len(chunks_by_label),
                )
            )
        return Repaired(len(chunks_by_label), self._entries, self._begins.entries)

    def _label(self, chunks: LabelChunks, number: int) -> None:
        state = LabelState.new(chunks.label, chunks.domain, number, frozen=chunks.label in self._frozen)
        relabel = Relabel(self._fs, self._index, self._store, chunks, state)
        data = chunks.domain is Domain.DATA
        for staged in relabel.read_chunks(self._begins.seqs.get(chunks.label)):
            self._entries += 1
            if self._entries % _PROGRESS_ENTRIES == 0:
                self._progress(_PROGRESS_ENTRIES)
            auth_ref = staged.record.auth_ref
            if data:
                self._receipts.add(staged.receipt.encode())
                if auth_ref is not None and not state.frozen:  # otherwise another hub counted it
                    self._uses.used(auth_ref, staged.head.hub_ts)
            elif auth_ref is not None:
                token = CapToken.decode(staged.record.content, self._limits)
                self._streams |= set(token.allow.stream_ids)
                self._uses.authorized(auth_ref, token, staged.head.hub_ts)
        relabel.write_sidecars()
        for checkpoint in relabel.read_checkpoints():
            if data:
                self._checkpoints.add(checkpoint.encode())
        self._last_ts = max(self._last_ts, relabel.state.head.hub_ts)
        if data and relabel.first_ts is not None:
            self._bound.append((relabel.state, relabel.first_ts))

    def _remove_leftovers(self, domain: Domain) -> None:
        for name in self._fs.names(domain):
            if name.endswith(".tmp"):
                self._fs.unlink(f"{domain}/{name}")

    def _bind(self) -> None:
        """Determine the streams of labels as a hub does: by trying those of known tokens (C-31)."""
        routing = labels.routing_key(self._store.hub_id)
        epochs = {epoch for _, first_ts in self._bound for epoch in self._epochs(first_ts)}
        known = {
            labels.label(routing, stream, epoch): StreamEpoch(stream, epoch)
            for stream in sorted(self._streams)
            for epoch in sorted(epochs)
        }
        with self._index.change() as changes:
            for state, _ in self._bound:
                if state.label in known:
                    changes.put_label(state.bound_to(known[state.label]))

    def _fill_buckets(self) -> None:
        with self._index.change() as changes:
            for auth_ref, bucket in self._uses.buckets(self._store).items():
                changes.put_auth(auth_ref, AuthRecord(bucket.last_ts, 0, bucket))

    def _epochs(self, first_ts: int) -> Iterator[int]:
        for epoch_sec in self._store.epoch_secs:
            epoch = labels.epoch_at(first_ts, epoch_sec)
            probe = EPOCH_PROBE if epoch_sec else 0
            yield from range(max(epoch - probe, 0), epoch + probe + 1)


def _frozen_labels(fs: Filesystem) -> frozenset[Label]:
    stored = read_file(fs, paths.FORK)
    if stored is None:
        return frozenset()
    try:
        return frozenset(item.label_curr for item in ForkRecord.decode(stored).checkpoints)
    except ProtocolError as error:
        raise DamagedStoreError(paths.FORK, 0, str(error)) from error
