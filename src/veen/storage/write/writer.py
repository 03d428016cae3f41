"""The writer of a data directory: one process, one committing thread.

    batch = writer.batch()
    receipt = batch.append(record, sign)      # positioned and framed; nothing is written
    writer.commit(batch)                      # durable when this returns: receipts may be sent

While one thread commits a batch, another may fill the next one: ``writer.batch(after=batch)``. That one can
only be committed after its predecessor.

``flush`` moves committed entries into chunk files; it may run in another thread (``start_background``). If
the disk is full, the batch is rolled back. After any other disk error the writer stops until it is opened
again; reads continue.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Condition, Event, Lock, Thread
from typing import Final

import lmdb

from veen.core.data_dir import paths
from veen.core.data_dir.store_records import StoreRecord
from veen.core.errors import Code, Detail, ProtocolError, not_found
from veen.core.limits import Limits
from veen.core.objects.checkpoint import Checkpoint
from veen.core.types import Label, RandomBytes
from veen.stdx.lru import LruCache
from veen.storage.directory import (
    domains_of,
    make_certain,
    open_store,
    reading_limits,
    require_limits,
    take_lock,
)
from veen.storage.errors import DamagedStoreError, StoreFullError, WriterStoppedError
from veen.storage.fs import FileLock, Filesystem
from veen.storage.index.index import Index
from veen.storage.index.label_state import Head
from veen.storage.index.rows import ChunkRow
from veen.storage.journal import right_edge
from veen.storage.journal.journal import Segment, segments, settle
from veen.storage.journal.replay import Replay, unreleased
from veen.storage.journal.tail import Tail
from veen.storage.read.reader import Reader
from veen.storage.write.batch import Batch
from veen.storage.write.compress import pack_next
from veen.storage.write.flush import Flush, SignCheckpoint
from veen.storage.write.retention import prune
from veen.storage.write.sidecars import write_checkpoint_indexes

# Errors that leave the disk unchanged and can be retried.
_NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
# Size of the cache of heads of labels that are not in a tail.
_KEPT_HEADS: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Bounds of the journal, and so of memory and of what a start has to replay."""

    # A segment is flushed at this size, and commits wait at twice this size. Since another one may be flushed
    # meanwhile, the journal has at most four times this size.
    segment_bytes: int = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Recovered:
    """Entries recovered from the journal at a start."""

    segments: int = 0
    entries: int = 0
    # Dropped bytes of batches that were never acknowledged.
    torn_bytes: int = 0


# How long until entries are in chunk files, for readers that do not read the journal.
DEFAULT_INTERVAL_SEC: Final = 2.0


class Writer:
    """Appends to a data directory that it has locked. Commits are made by one thread."""

    def __init__(
        self,
        fs: Filesystem,
        lock: FileLock,
        index: Index,
        store: StoreRecord,
        *,
        sign_checkpoint: SignCheckpoint,
        random: RandomBytes,
        options: Options,
    ) -> None:
        self.fs = fs
        self.store = store
        self.domain_of = domains_of(store.hub_id)
        self.reader = Reader(fs, index, store, lambda: self._tails)
        self.recovered = Recovered()
        self._held = lock
        self._index = index
        self._sign = sign_checkpoint
        self._random = random
        self._options = options
        self._limits = reading_limits(store)
        self.limits = store.registries[-1].limits
        self._flush = Flush(fs, index, store, sign_checkpoint, self.domain_of)
        self._commit_lock = Lock()
        self._flush_lock = Lock()
        self._room = Condition(self._commit_lock)
        self._heads: LruCache[Label, Head] = LruCache(_KEPT_HEADS)
        self._commits = 0
        self._stopped: str | None = None
        self._redo = False
        self._full: str | None = None
        self._tails: tuple[Tail, ...] = ()
        self._segment: Segment | None = None
        self._background: BackgroundFlush | None = None

    # --- opening and closing --------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        fs: Filesystem,
        *,
        sign_checkpoint: SignCheckpoint,
        random: RandomBytes,
        owner: str,
        limits: Limits | None = None,
        options: Options | None = None,
    ) -> "Writer":
        """Lock a directory and recover what an earlier writer has not flushed.

        ``limits``, unless None, must be those of the directory.
        """
        lock = index = None
        try:
            open_store(fs)  # before the lock, which would create files in any directory
            lock = take_lock(fs, owner)
            store = open_store(fs)
            if limits is not None:
                require_limits(store, limits)
            index = Index.open(fs)
            make_certain(fs, store)
            writer = cls(
                fs,
                lock,
                index,
                store,
                sign_checkpoint=sign_checkpoint,
                random=random,
                options=options or Options(),
            )
            writer._start()
        except BaseException as error:
            if index is not None:
                index.close()
            if lock is not None:
                lock.release()
            if isinstance(error, OSError | lmdb.Error):
                raise WriterStoppedError(
                    f"the writer cannot start: {error}; check the disk and its free space"
                ) from error
            raise
        return writer

    def _start(self) -> None:
        with self._index.view() as view:
            meta = view.meta()
        for number in segments(self.fs):
            if number < meta.journal:  # flushed, but not deleted
                self.fs.unlink(paths.journal(number))
        for read in list(unreleased(self.fs, meta)):
            settle(self.fs, read)
            with self._index.view() as view:
                tail = Replay(self.fs, view, self.store).tail(read)
            self._flush.run(tail, redo=True, clean=True)
            self.recovered = Recovered(
                self.recovered.segments + 1,
                self.recovered.entries + sum(len(item.entries) for item in tail.labels.values()),
                self.recovered.torn_bytes + read.torn_bytes,
            )
        with self._index.view() as view:
            meta = view.meta()
            right_edge.check_moment(self.fs, view, self.store.hub_id)
        self._segment = Segment.create(self.fs, meta.journal, self._random)
        with self._index.change() as changes:
            changes.put_meta(replace(meta, clean=False))
        self._tails = (Tail(self._segment.number),)

    def close(self) -> None:
        """Flush everything into chunk files, and release the directory. The journal is empty afterwards."""
        try:
            if self._stopped is None:
                self.flush()
                self._finish()
        finally:
            self.abandon()

    def _finish(self) -> None:
        assert self._active.is_empty, "a clean stop leaves nothing in the journal"
        with self._disk():
            write_checkpoint_indexes(self.fs, self._index)
            with self._index.change() as changes:
                changes.put_meta(replace(changes.meta(), clean=True))
            self.fs.unlink(paths.journal(self._active.segment))
            self.fs.sync_dir(paths.STATE_DIR)
        self._stopped = "closed"

    def halt(self, reason: str) -> None:
        """Stop accepting entries; reads continue."""
        with self._room:
            self._stopped = self._stopped or reason
            self._room.notify_all()

    def abandon(self) -> None:
        """Release the directory without a flush; the next writer recovers all acknowledged entries."""
        self._stopped = self._stopped or "closed"
        if self._segment is not None:
            self._segment.close()
            self._segment = None
        self._index.close()
        self._held.release()

    # --- the log that batches continue ----------------------------------------------------------------------

    @property
    def _active(self) -> Tail:
        return self._tails[-1]

    @property
    def journal_bytes(self) -> int:
        """Bytes of entries that are in the journal only."""
        return sum(tail.size for tail in self._tails)

    @property
    def floor_ts(self) -> int:
        """The minimum hub_ts of the next entry (C-15)."""
        return self.reader.floor_ts

    def head(self, label: Label) -> Head:
        """Return the head of a label; its files are checked the first time."""
        for tail in reversed(self._tails):
            label_tail = tail.labels.get(label)
            if label_tail is not None:
                return label_tail.head
        head = self._heads.get(label)
        if head is None:
            head = self._load(label)
            self._heads.put(label, head)
        return head

    def _load(self, label: Label) -> Head:
        with self._index.view() as view:
            state = right_edge.check_label(self.fs, view, self.domain_of(label), label)
        if state is None:
            return Head.empty()
        if state.frozen:
            raise frozen()
        return state.head

    # --- committing -----------------------------------------------------------------------------------------

    def batch(self, after: Batch | None = None) -> Batch:
        """Begin a batch that continues another one, which is being committed, or the log."""
        self._require_running()
        return Batch(self, self._commits if after is None else after.number + 1, after)

    def commit(self, batch: Batch) -> None:
        """Make a batch durable. Its receipts may be sent when this has returned."""
        assert batch.number == self._commits, "a batch is committed once, after everything that it depends on"
        if not batch.is_empty:
            self._make_room()
            with self._commit_lock, self._disk():
                self._writable().append(batch.frames, batch.bindings)
                self._active.absorb(batch.added)
        batch.settle()
        self._commits += 1

    def checkpoint(self, label: Label, upto_seq: int) -> Checkpoint:
        """Return the checkpoint of a prefix; make it if there is none (C-40). Never seals a chunk (C-81)."""
        stored = self.reader.checkpoint(label, upto_seq)
        if stored is not None:
            return stored
        head = self.reader.head(label)
        if head is None or not 1 <= upto_seq <= head.seq:
            raise not_found("upto_seq", f"there is no entry {upto_seq} to make a checkpoint of")
        if self.reader.is_frozen(label):
            raise frozen()
        root = self.reader.root(label, upto_seq)
        checkpoint = self._sign(label, upto_seq, root, self.reader.binding(label))
        with self._commit_lock, self._disk():
            self._writable().append_checkpoint(checkpoint)
            self._active.add_checkpoint(checkpoint)
        return checkpoint

    def _writable(self) -> Segment:
        self._require_running()
        assert self._segment is not None
        return self._segment

    def _require_running(self) -> None:
        if self._stopped is not None:
            raise _has_stopped(self._stopped)

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """Stop the writer on any disk error: only the next start can establish what is on disk."""
        try:
            yield
        except (StoreFullError, WriterStoppedError, ProtocolError):
            raise  # the state of the disk is known
        except (OSError, lmdb.Error, DamagedStoreError) as error:
            self._stopped = str(error)
            raise _has_stopped(self._stopped) from error
        except Exception as error:  # an internal error; after it, memory and disk may differ
            self._stopped = repr(error)
            raise

    @contextmanager
    def _maintenance(self) -> Iterator[None]:
        """As ``_disk``, but a full disk only delays the work, which can be repeated."""
        with self._disk():
            try:
                yield
            except lmdb.DiskError as error:
                raise StoreFullError("no space left for the index; free some space") from error
            except OSError as error:
                if error.errno in _NO_DESCRIPTORS:
                    raise StoreFullError("too many open files to flush the journal into chunks") from error
                if error.errno != errno.ENOSPC:
                    raise
                raise StoreFullError(
                    "no space left to flush the journal into chunks; free some space"
                ) from error

    def _make_room(self) -> None:
        limit = self._options.segment_bytes
        if self._active.size < limit:
            return
        self.request_flush()
        with self._room:
            # Wait for the background flush rather than grow: memory and recovery time stay bounded.
            while self._stopped is None and self._active.size >= 2 * limit:
                if self._full is not None:
                    raise StoreFullError(self._full)
                self._room.wait()

    # --- flushing -------------------------------------------------------------------------------------------

    def start_background(self, interval_sec: float = DEFAULT_INTERVAL_SEC) -> "BackgroundFlush":
        """Flush in a thread when a segment is full and at an interval, instead of in commits."""
        assert self._background is None, "one thread flushes"
        self._background = BackgroundFlush(self, interval_sec)
        return self._background

    def stop_background(self) -> None:
        """End the thread; ``close`` flushes what it has not."""
        background = self._background
        if background is not None:
            background.stop()
            self._background = None

    def request_flush(self) -> None:
        """Flush the journal: in the background thread if there is one, otherwise here."""
        if self._background is None:
            self.flush()
        else:
            self._background.wake()

    def flush(self) -> None:
        """Flush everything committed before the call into chunk files, and delete its journal segments."""
        with self._flush_lock:
            for _ in self._tails:  # two, if an earlier flush failed because the disk was full
                self._require_running()
                with self._flushing():
                    if len(self._tails) == 1 and not self._freeze():
                        return
                    with self._maintenance():
                        self._flush_oldest()

    def _flush_oldest(self) -> None:
        frozen = self._tails[0]
        self._redo, redo = True, self._redo  # until it has succeeded; until then the journal has everything
        self._flush.run(frozen, redo=redo)
        self._redo = False
        # Heads first: a thread that does not see the tail any more must not load an older head.
        for label, label_tail in frozen.labels.items():
            self._heads.put(label, label_tail.head)
        with self._commit_lock:
            self._tails = self._tails[1:]
        while pack_next(self.fs, self._index):
            pass

    def prune(self, label: Label, upto_seq: int) -> list[ChunkRow]:
        """Prune the sealed chunks of a label that end at or before an entry (C-85); return them."""
        with self._flush_lock, self._maintenance():
            self._require_running()
            return prune(self.fs, self._index, self._limits, label, upto_seq)

    @contextmanager
    def _flushing(self) -> Iterator[None]:
        """Wake commits that wait for room, with the outcome."""
        full = None
        try:
            yield
        except StoreFullError as error:
            full = str(error)
            raise
        finally:
            with self._room:
                self._full = full
                self._room.notify_all()

    def _freeze(self) -> bool:
        """Close the active segment and begin another; False if it is empty."""
        with self._commit_lock, self._disk():
            if self._active.is_empty:
                return False
            old = self._writable()
            try:
                following = Segment.create(self.fs, old.number + 1, self._random)
            except OSError as error:
                if error.errno not in _NO_DESCRIPTORS:
                    raise
                begun = paths.journal(old.number + 1)
                if self.fs.size(begun) is not None:
                    self.fs.unlink(begun)  # it would make the next attempt fail
                raise StoreFullError("too many open files to start a journal segment") from error
            try:
                old.end()
            except StoreFullError:
                following.discard(self.fs)
                raise
            self._segment = following
            self._tails = (*self._tails, Tail(following.number))
            return True


def frozen() -> ProtocolError:
    """Return the error for an entry to a label that a fork has copied."""
    return ProtocolError(
        Detail.VALUE, "the label belongs to the parent of this fork", code=Code.FORBIDDEN, field="label"
    )


def _has_stopped(why: str) -> WriterStoppedError:
    return WriterStoppedError(
        f"the writer has stopped: {why}; check the disk and its free space, then start again"
    )


class BackgroundFlush:
    """The thread of ``Writer.start_background``.

    Attributes:
        error: The error of the last flush; None if it succeeded.
    """

    def __init__(self, writer: Writer, interval_sec: float) -> None:
        self._writer = writer
        self._interval = interval_sec
        self._wake = Event()
        self._ending = False
        self.error: Exception | None = None
        self._thread = Thread(target=self._run, name="veen-flush", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Flush soon."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread."""
        self._ending = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending:
            self._wake.wait(self._interval)
            self._wake.clear()
            try:
                self._writer.flush()
                self.error = None
            except StoreFullError as error:
                self.error = error  # retried at the next interval
            except Exception as error:  # noqa: BLE001 - after any error, commits must not wait for this thread
                self.error = error
                self._writer.halt(str(error))
                return
