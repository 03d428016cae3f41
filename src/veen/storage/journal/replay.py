"""Replays the journal into tails: for a writer that starts, and for readers in other processes."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from veen.core.data_dir import paths
from veen.core.data_dir.store_records import StoreRecord
from veen.core.errors import ProtocolError
from veen.core.objects.capability import Bucket, CapToken
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.entry import Entry
from veen.core.objects.new_entry import NewEntry
from veen.core.types import AuthRef, Label
from veen.storage.chunk_lookup import stored_token
from veen.storage.directory import domains_of, reading_limits
from veen.storage.errors import DamagedStoreError, StorageError
from veen.storage.fs import Filesystem
from veen.storage.index.index import Index, Meta, Snapshot
from veen.storage.index.label_state import Head
from veen.storage.journal import journal
from veen.storage.journal.journal import Kind, ReadSegment
from veen.storage.journal.rate_buckets import Buckets
from veen.storage.journal.right_edge import check_moment
from veen.storage.journal.tail import Tail, new_entry_of, stage

# Segments may be flushed while they are read; a retry sees their entries. More retries indicate an error.
_ATTEMPTS: Final = 5


class Replay:
    """Turns segments into tails, in order; entries that are in chunks already are skipped."""

    def __init__(self, fs: Filesystem, view: Snapshot, store: StoreRecord) -> None:
        self._view = view
        self._domain_of = domains_of(store.hub_id)
        self._limits = reading_limits(store)
        self._heads: dict[Label, Head] = {}
        self._read_token = partial(stored_token, fs, view, store)
        self._buckets = Buckets(store, self._stored_token, self._stored_bucket)

    def tail(self, segment: ReadSegment) -> Tail:
        tail = Tail(segment.number)
        for record in segment.records:
            try:
                self._add(tail, record)
            except ProtocolError as error:
                raise DamagedStoreError(segment.path, record.position, str(error)) from error
        return tail

    def _add(self, tail: Tail, record: journal.JournalRecord) -> None:
        if record.kind is Kind.CHECKPOINT:
            tail.add_checkpoint(Checkpoint.decode(record.payload))
            return
        for binding in record.read_bindings():
            tail.bind(binding)
        at = record.entries_at()
        while at < len(record.payload):
            start = at
            entry, at = Entry.decode(record.payload, start)
            self._place(tail, entry, record.payload[start:at])

    def _place(self, tail: Tail, entry: Entry, frame: bytes) -> None:
        label = entry.receipt.label
        head = self._head(label)
        if entry.receipt.stream_seq <= head.seq:
            return
        logged = self._with_bucket(new_entry_of(self._domain_of(label), entry, self._limits), entry)
        staged = stage(logged, head, lambda _seq, _root: entry.receipt, frame)
        self._heads[label] = staged.head
        tail.add(staged)

    def _with_bucket(self, record: NewEntry, entry: Entry) -> NewEntry:
        if record.auth_ref is None:
            return record
        if record.client_id is None:
            self._buckets.learn(record.auth_ref, CapToken.decode(record.content, self._limits))
            return record
        return record._replace(bucket=self._buckets.after(record.auth_ref, entry.receipt.hub_ts))

    def _stored_token(self, auth_ref: AuthRef) -> CapToken | None:
        try:
            return self._read_token(auth_ref)
        except DamagedStoreError as error:
            if error.offset is None:
                raise  # a missing file or the index; for a reader, the file may have been renamed meanwhile
            return None  # reading the token raises the error; other entries are readable

    def _stored_bucket(self, auth_ref: AuthRef) -> Bucket | None:
        record = self._view.auth(auth_ref)
        return None if record is None else record.bucket

    def _head(self, label: Label) -> Head:
        head = self._heads.get(label)
        if head is None:
            state = self._view.label(label)
            head = self._heads[label] = Head.empty() if state is None else state.head
        return head


def unreleased(fs: Filesystem, meta: Meta) -> Iterator[ReadSegment]:
    """Read the segments that are not flushed yet; raise if one is missing."""
    numbers = [number for number in journal.segments(fs) if number >= meta.journal]
    if numbers[:1] != [meta.journal] and (numbers or not meta.clean):
        raise DamagedStoreError(paths.journal(meta.journal), None, "journal segment is missing")
    return journal.read_all(fs, numbers)


def load_tails(fs: Filesystem, index: Index, store: StoreRecord) -> list[Tail]:
    """Read the journal of a directory whose writer may be running in another process."""
    for attempt in range(_ATTEMPTS):
        try:
            with index.view() as view:
                meta = view.meta()
                if meta.clean:  # otherwise a writer may be changing the files
                    check_moment(fs, view, store.hub_id)
                replay = Replay(fs, view, store)
                return [replay.tail(segment) for segment in unreleased(fs, meta)]
        except (StorageError, FileNotFoundError) as error:
            # A segment was flushed meanwhile: the index is newer now.
            if attempt == _ATTEMPTS - 1:
                if isinstance(error, StorageError):
                    raise
                raise DamagedStoreError(
                    paths.STATE_DIR, None, "journal segments disappear while they are read; try again"
                ) from error
    raise AssertionError("unreachable")
