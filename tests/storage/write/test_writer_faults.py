"""A writer whose disk fails: a full one is survived, other errors stop it; nothing acknowledged is lost."""

import errno
from pathlib import Path

import lmdb
import pytest

from tests import builders
from tests.storage.checks import Faulty, check_receipts, contents, reading, writing
from tests.storage.stores import A, B, Store, make
from veen.storage.errors import StoreFullError, WriterStoppedError
from veen.storage.fs import RealFilesystem
from veen.storage.journal import journal

CLIENT = builders.verify_key()


@pytest.fixture
def faulty(tmp_path: Path) -> Faulty:
    fs = Faulty(tmp_path / "faulty")
    make(fs)
    return fs


def test_a_full_disk_undoes_the_batch_and_nothing_else(faulty: Faulty) -> None:
    with writing(faulty) as store:
        store.append(A)
        before = contents(faulty)
        faulty.fail("append", "journal", errno.ENOSPC)
        with pytest.raises(StoreFullError):
            store.append(A, B)
        assert contents(faulty) == before
        assert store.writer.reader.client(A, CLIENT).client_seq == 1
        assert store.writer.reader.head(B) is None
        faulty.heal()
        assert [item.stream_seq for item in store.append(A, B)] == [2, 1]
        store.writer.abandon()
    with writing(faulty) as again:
        assert again.writer.recovered.entries == 3
        assert again.writer.recovered.torn_bytes == 0
        check_receipts(again.writer.reader, store.receipts)


@pytest.mark.parametrize("path", ["log/", "receipts", "log/nodes", "summary"])
def test_a_disk_too_full_for_a_flush_loses_nothing(faulty: Faulty, path: str) -> None:
    with writing(faulty) as store:
        for _ in range(5):
            store.append(A)
        faulty.fail("write_all", path, errno.ENOSPC)
        with pytest.raises(StoreFullError):
            store.writer.flush()
        store.append(A)  # the journal has space of its own
        check_receipts(store.writer.reader, store.receipts)
        with pytest.raises(StoreFullError):
            store.writer.flush()
        faulty.heal()
        store.writer.flush()
        check_receipts(store.writer.reader, store.receipts)
        store.writer.close()
    with reading(faulty) as reader:
        check_receipts(reader, store.receipts)
        assert reader.last_seq(A) == 6


def test_a_flush_that_only_could_not_release_its_segment_is_not_done_twice(faulty: Faulty) -> None:
    with writing(faulty) as store:
        for _ in range(5):
            store.append(A)
        faulty.fail("unlink", "journal", errno.ENOSPC)
        with pytest.raises(StoreFullError):
            store.writer.flush()
        check_receipts(store.writer.reader, store.receipts)
        store.append(A)
        faulty.heal()
        store.writer.close()
    assert journal.segments(faulty) == []
    with reading(faulty) as reader:
        check_receipts(reader, store.receipts)
        assert reader.last_seq(A) == 6


def test_a_clean_stop_after_a_flush_that_had_no_space_keeps_everything(faulty: Faulty) -> None:
    with writing(faulty) as store:
        store.append(A)
        faulty.fail("write_all", "log/", errno.ENOSPC)
        with pytest.raises(StoreFullError):
            store.writer.flush()
        store.append(A)
        faulty.heal()
        store.writer.close()
    with reading(faulty) as reader:
        check_receipts(reader, store.receipts)


def test_a_stop_without_space_leaves_everything_to_the_next_start(faulty: Faulty) -> None:
    with writing(faulty) as store:
        store.append(A)
        faulty.fail("write_all", "log/", errno.ENOSPC)
        with pytest.raises(StoreFullError):
            store.writer.close()
        faulty.heal()
    with writing(faulty) as again:
        check_receipts(again.writer.reader, store.receipts)
        again.append(A)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize(
    ("call", "path"),
    [
        ("write_all", "journal"),
        ("open_append", "journal"),
        ("sync_dir", "state"),
        ("write_all", "log/"),
        ("write_all", "receipts"),
        ("write_all", "summary"),
        ("sync_dir", "log"),
    ],
)
def test_a_flush_without_descriptors_is_done_later(faulty: Faulty, call: str, path: str, code: int) -> None:
    with writing(faulty) as store:
        for _ in range(5):
            store.append(A)
        faulty.fail(call, path, code)
        for _ in range(2):
            with pytest.raises(StoreFullError, match="too many open files"):
                store.writer.flush()
            store.append(A)
            check_receipts(store.writer.reader, store.receipts)
        faulty.heal()
        store.writer.flush()
        assert store.writer.journal_bytes == 0
        store.append(A)
        store.writer.abandon()
    with writing(faulty) as again:
        check_receipts(again.writer.reader, store.receipts)
        assert again.writer.reader.last_seq(A) == 8


def append_and_flush(store: Store) -> None:
    store.append(A)
    store.writer.flush()


@pytest.mark.parametrize(
    ("call", "path"),
    [
        ("append", "journal"),
        ("sync", "journal"),
        ("truncate", "journal"),
        ("write_all", "log/"),
        ("rename", ".log"),
        ("sync_dir", "log"),
        ("unlink", "journal"),
    ],
)
def test_any_other_error_stops_the_writer_but_not_reading(faulty: Faulty, call: str, path: str) -> None:
    with writing(faulty) as store:
        for _ in range(3):
            store.append(A)

        def fault(name: str, at: str) -> int | None:
            if call == "truncate" and name == "append":
                return errno.ENOSPC  # so that there is something to undo
            return errno.EIO if name == call and path in at else None

        faulty.fault = fault
        with pytest.raises(WriterStoppedError, match="check the disk"):
            append_and_flush(store)
        faulty.heal()
        for attempt in (store.writer.batch, store.writer.flush, lambda: store.writer.prune(A, 4)):
            with pytest.raises(WriterStoppedError, match="has stopped"):
                attempt()
        with pytest.raises(WriterStoppedError):
            store.writer.checkpoint(A, 2)
        check_receipts(store.writer.reader, store.receipts)
        store.writer.close()
    with writing(faulty) as again:  # an entry whose commit failed may be there or not
        assert again.writer.reader.last_seq(A) in (len(store.receipts), 4)
        check_receipts(again.writer.reader, store.receipts)
        again.append(A)


def test_what_a_segment_could_not_be_begun_for_is_still_there(faulty: Faulty) -> None:
    with writing(faulty) as store:
        store.append(A)
        faulty.fail("append", "journal", errno.ENOSPC)  # the end of the old segment has no space
        with pytest.raises(StoreFullError):
            store.writer.flush()
        assert len(journal.segments(faulty)) == 1
        faulty.heal()
        store.append(A)
        store.writer.flush()
        check_receipts(store.writer.reader, store.receipts)
        store.writer.close()


class FullIndex(RealFilesystem):
    """A disk that has no space for the index."""

    full = False

    def commit(self, txn: lmdb.Transaction) -> None:
        if self.full:
            txn.abort()
            raise lmdb.DiskError("No space left on device")
        super().commit(txn)


def test_a_disk_too_full_for_the_index_loses_nothing(tmp_path: Path) -> None:
    fs = FullIndex(tmp_path / "data")
    make(fs)
    with writing(fs) as store:
        for _ in range(5):
            store.append(A)
        fs.full = True
        for _ in range(2):
            with pytest.raises(StoreFullError, match="index"):
                store.writer.flush()
            store.append(A)
            check_receipts(store.writer.reader, store.receipts)
        fs.full = False
        store.writer.close()
    with reading(fs) as reader:
        check_receipts(reader, store.receipts)
        assert reader.last_seq(A) == 7
