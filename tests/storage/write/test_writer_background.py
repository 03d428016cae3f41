"""Flushing in a thread: commits go on meanwhile, memory is bounded, and errors are not swallowed."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from tests import builders
from tests.storage.checks import Faulty, check_receipts, reading, writing
from tests.storage.stores import TINY, A, B, C, Store, counting_random, make, message
from veen.core.data_dir.store_records import StreamEpoch
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.new_entry import NewEntry
from veen.core.types import Label, NodeHash
from veen.storage.errors import StorageError, StoreFullError, WriterStoppedError
from veen.storage.journal import journal
from veen.storage.write.writer import BackgroundFlush, Options, Writer

#: No test waits this long: it is the time after which one gives up.
PATIENCE = 30.0
NEVER = 10_000.0
SEGMENT = 2_500


@pytest.fixture
def fs(tmp_path: Path) -> Iterator[Faulty]:
    made = Faulty(tmp_path / "data")
    make(made)
    yield made
    made.close()


@contextmanager
def background(store: Store, interval_sec: float = NEVER) -> Iterator[BackgroundFlush]:
    try:
        yield store.writer.start_background(interval_sec)
    finally:
        store.writer.stop_background()


def signal_of(fs: Faulty, call: str, part: str, *, code: int | None = None) -> Event:
    """Return an event that is set when a call comes by; with ``code``, the call fails as well."""
    seen = Event()

    def fault(name: str, path: str) -> int | None:
        if name != call or part not in path:
            return None
        seen.set()
        return code

    fs.fault = fault
    return seen


def fill(store: Store, size: int) -> None:
    """Commit one batch that is larger than this."""
    batch = store.writer.batch()
    made = []
    while sum(map(len, batch.frames)) <= size:
        client_seq = batch.client(A, builders.verify_key()).client_seq + 1
        record = NewEntry.of_msg(message(A, "client", client_seq))
        made.append(batch.append(record, store.signer(record)))
    store.writer.commit(batch)
    store.receipts += made


def commit_in_thread(store: Store) -> tuple[Thread, list[Exception]]:
    """Commit an entry in another thread; return it, and where its error will be."""
    failed: list[Exception] = []

    def run() -> None:
        try:
            store.append(B)
        except StorageError as error:
            failed.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    return thread, failed


# --- at work ------------------------------------------------------------------------------------------------


def test_a_full_segment_is_moved_while_commits_go_on(fs: Faulty) -> None:
    released = signal_of(fs, "unlink", "journal")
    with writing(fs, SEGMENT) as store, background(store):
        fill(store, SEGMENT)
        store.append(A)  # finds the segment full, and does not wait
        assert released.wait(PATIENCE)
        store.append(A)
        check_receipts(store.writer.reader, store.receipts)


def test_entries_are_in_chunks_after_the_interval(fs: Faulty) -> None:
    released = signal_of(fs, "unlink", "journal")
    with writing(fs) as store, background(store, 0.001):
        store.append(A)
        assert released.wait(PATIENCE)


def test_after_it_has_ended_commits_flush_by_themselves(fs: Faulty) -> None:
    with writing(fs, SEGMENT) as store:
        with background(store):
            fill(store, SEGMENT)
        fill_again = [store.append(A) for _ in range(12)]
        assert len(fill_again) == 12
        assert store.writer.reader.manifest(A).journal_entries < 12
        store.writer.close()
    assert journal.segments(fs) == []


def test_everything_is_found_by_others_as_soon_as_it_is_acknowledged(fs: Faulty) -> None:
    failed: list[BaseException] = []
    done = Event()

    def look(store: Store) -> None:
        try:
            while not done.is_set():
                check_receipts(store.writer.reader, store.receipts[-7:])
        except BaseException as error:  # noqa: BLE001 - reported in the test's own thread
            failed.append(error)

    with writing(fs, SEGMENT) as store:
        with background(store, 0.001):
            others = [Thread(target=look, args=(store,)) for _ in range(2)]
            for other in others:
                other.start()
            for _ in range(40):
                store.append(A, B, C)
                store.tick()
            done.set()
            for other in others:
                other.join()
        assert failed == []
        check_receipts(store.writer.reader, store.receipts)
        store.writer.close()
    with reading(fs) as reader:
        check_receipts(reader, store.receipts)


# --- bounded ------------------------------------------------------------------------------------------------


def test_commits_wait_when_two_segments_are_full(fs: Faulty) -> None:
    reached, go_on = Event(), Event()

    def blocked(call: str, path: str) -> int | None:
        if call == "write_all" and path.startswith("log/"):
            reached.set()
            assert go_on.wait(PATIENCE)
        return None

    fs.fault = blocked
    with writing(fs, SEGMENT) as store, background(store):
        fill(store, SEGMENT)
        store.append(A)
        assert reached.wait(PATIENCE)  # the first segment is being moved, slowly
        while store.writer._active.size < 2 * SEGMENT:
            store.append(A)
        waiting, failed = commit_in_thread(store)
        waiting.join(0.05)
        assert waiting.is_alive()
        assert store.writer.reader.head(B) is None
        go_on.set()
        waiting.join(PATIENCE)
        assert (waiting.is_alive(), failed) == (False, [])
        assert store.writer.reader.last_seq(B) == 1


def test_a_tail_is_never_longer_than_two_segments_and_a_batch(fs: Faulty) -> None:
    with writing(fs, SEGMENT) as store, background(store):
        largest = 0
        for _ in range(80):
            store.append(A)
            largest = max(largest, *(tail.size for tail in store.writer._tails))
            assert len(store.writer._tails) <= 2
        assert largest <= 2 * SEGMENT + 1_000


# --- errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "path"), [("write_all", "log/"), ("write_all", "state/"), ("sync", "journal")]
)
def test_an_error_of_the_disk_stops_the_writer(fs: Faulty, call: str, path: str) -> None:
    with writing(fs, SEGMENT) as store, background(store) as flusher:
        fill(store, 2 * SEGMENT)
        fs.fail(call, path, errno.EIO)
        waiting, failed = commit_in_thread(store)
        waiting.join(PATIENCE)
        assert not waiting.is_alive()
        assert [type(error) for error in failed] == [WriterStoppedError]
        flusher._thread.join(PATIENCE)
        assert isinstance(flusher.error, WriterStoppedError)
        with pytest.raises(WriterStoppedError):
            store.append(B)
        check_receipts(store.writer.reader, store.receipts)
    fs.heal()
    with writing(fs) as again:
        check_receipts(again.writer.reader, store.receipts)


@pytest.mark.parametrize("path", ["log/", "state/"])
def test_a_full_disk_refuses_commits_until_there_is_space(fs: Faulty, path: str) -> None:
    with writing(fs, SEGMENT) as store, background(store) as flusher:
        fill(store, 2 * SEGMENT)
        if path == "log/":
            tried = signal_of(fs, "write_all", path, code=errno.ENOSPC)
            store.writer.request_flush()
            assert tried.wait(PATIENCE)
            fill(store, 2 * SEGMENT)  # into the next segment
        else:
            signal_of(fs, "write_all", path, code=errno.ENOSPC)
        waiting, failed = commit_in_thread(store)
        waiting.join(PATIENCE)
        assert not waiting.is_alive()
        assert [type(error) for error in failed] == [StoreFullError]
        assert isinstance(flusher.error, StoreFullError)
        released = signal_of(fs, "unlink", "journal")
        store.writer.request_flush()
        assert released.wait(PATIENCE)
        store.writer.flush()
        store.append(B)
        check_receipts(store.writer.reader, store.receipts)
        store.writer.request_flush()
    assert flusher.error is None


def test_an_error_of_the_signer_stops_the_writer_and_is_told(fs: Faulty) -> None:
    def refuse(_label: Label, _upto: int, _root: NodeHash, _binding: StreamEpoch | None) -> Checkpoint:
        raise RuntimeError("the key is gone")

    writer = Writer.open(
        fs,
        sign_checkpoint=refuse,
        random=counting_random(),
        owner="a test",
        options=Options(segment_bytes=SEGMENT),
    )
    store = Store(writer)
    with background(store) as flusher:
        for _ in range(TINY.max_checkpoint_interval):
            store.append(A)
        store.writer.request_flush()
        flusher._thread.join(PATIENCE)
        assert str(flusher.error) == "the key is gone"
        with pytest.raises(WriterStoppedError, match="the key is gone"):
            store.append(A)
        check_receipts(writer.reader, store.receipts)
    writer.abandon()
    with writing(fs) as again:
        check_receipts(again.writer.reader, store.receipts)
