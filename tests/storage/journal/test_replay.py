"""Recovery on real files: what was acknowledged is there, what was not is dropped, damage is named."""

import errno
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import builders
from tests.storage.checks import (
    Faulty,
    check_receipts,
    chunk_ranges,
    contents,
    entries,
    reading,
    unordered,
    writing,
)
from tests.storage.stores import (
    AUTHORIZE,
    CONTROL,
    A,
    B,
    C,
    Store,
    after,
    make,
    message,
    new_store,
    open_writer,
    stream,
)
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import AuthRecord, StreamEpoch
from veen.core.objects.new_entry import NewEntry
from veen.storage.errors import DamagedStoreError, WriterStoppedError
from veen.storage.fs import RealFilesystem
from veen.storage.journal import journal
from veen.storage.journal.journal import Binding, Segment
from veen.storage.maintain.repair import repair
from veen.storage.read.reader import Reader

CLIENT = builders.verify_key()


def journal_path(fs: RealFilesystem, nth: int = 0) -> Path:
    return fs.root / paths.journal(journal.segments(fs)[nth])


# --- what comes back ----------------------------------------------------------------------------------------


def test_everything_that_was_acknowledged_comes_back(fs: RealFilesystem) -> None:
    store = new_store(fs)
    token = builders.cap_token()
    for _ in range(6):
        store.append(A)
    store.writer.flush()
    store.append(A, B)
    store.authorize(token)
    store.record(NewEntry.of_msg(message(C, "client", 1, 5, token.auth_ref)), [Binding(stream(), 0, C)])
    store.record(NewEntry.of_control(CONTROL, b"record"))
    checkpoints = [store.writer.checkpoint(A, upto) for upto in (2, 7)]
    store.writer.abandon()

    def check(reader: Reader) -> None:
        check_receipts(reader, store.receipts)
        assert sorted(reader.labels()) == sorted((A, B, C, AUTHORIZE, CONTROL))
        assert [reader.checkpoint(A, upto) for upto in (2, 7)] == checkpoints
        assert reader.auth(token.auth_ref) == AuthRecord(1_000, 1, after(token, 1_000))
        assert reader.binding(C) == StreamEpoch(stream(), 0)
        assert reader.label_of(StreamEpoch(stream(), 0)) == C
        assert reader.client(A, CLIENT).client_seq == 7

    with reading(fs) as reader:  # a reader needs no recovery
        check(reader)
    with writing(fs) as again:
        assert again.writer.recovered.entries == 5
        assert again.writer.recovered.torn_bytes == 0
        check(again.writer.reader)
        assert [item.stream_seq for item in again.append(A, B, C)] == [8, 2, 2]
        again.writer.close()
    with reading(fs) as reader:
        check_receipts(reader, again.receipts)
    assert chunk_ranges(fs, A) == [(1, 4), (5, 8)]


def test_a_start_that_is_interrupted_again_and_again_loses_nothing(tmp_path: Path) -> None:
    fs = Faulty(tmp_path / "data")
    make(fs)
    with writing(fs) as store:
        for _ in range(6):
            store.append(A, B)
    for call, path in (
        ("write_all", "log/"),
        ("rename", ".summary"),
        ("rename", "-00000000000000000004.log"),
        ("sync_dir", "log"),
        ("unlink", ".wal"),
    ):
        fs.fail(call, path, errno.EIO)
        with pytest.raises(WriterStoppedError, match="cannot start"):
            open_writer(fs)
        fs.heal()
        with reading(RealFilesystem(fs.root)) as reader:
            check_receipts(reader, store.receipts)
    with writing(fs) as again:
        check_receipts(again.writer.reader, store.receipts)
        again.writer.close()
    assert chunk_ranges(fs, A) == [(1, 4), (5, None)]
    with reading(fs) as reader:
        assert len(entries(reader, A)) == len(entries(reader, B)) == 6


def test_two_segments_come_back_in_order(tmp_path: Path) -> None:
    fs = Faulty(tmp_path / "data")
    make(fs)
    with writing(fs) as store:
        store.append(A)
        fs.fail("write_all", "log/", errno.ENOSPC)
        with pytest.raises(Exception, match="space"):
            store.writer.flush()
        store.append(A)
        fs.heal()
    assert len(journal.segments(fs)) == 2
    with writing(fs) as again:
        assert again.writer.recovered.segments == 2
        assert again.writer.recovered.entries == 2
        check_receipts(again.writer.reader, store.receipts)


def test_a_segment_that_was_moved_but_not_deleted_is_passed_over(fs: RealFilesystem) -> None:
    store = new_store(fs)
    store.append(A)
    moved = journal_path(fs)
    data = moved.read_bytes()
    store.writer.flush()
    store.append(A)
    moved.write_bytes(data)  # as after a power failure before the name was gone for good
    store.writer.abandon()
    with reading(fs) as reader:
        check_receipts(reader, store.receipts)
    with writing(fs) as again:
        check_receipts(again.writer.reader, store.receipts)
        assert again.append(A)[0].stream_seq == 3
        again.writer.close()
    assert journal.segments(fs) == []


def test_a_start_without_a_journal_finds_nothing(fs: RealFilesystem) -> None:
    make(fs)
    for _ in range(3):
        with writing(fs) as store:
            assert (store.writer.recovered.entries, store.writer.recovered.torn_bytes) == (0, 0)


@given(st.lists(st.lists(st.sampled_from([A, B, C]), min_size=1, max_size=4), max_size=6), st.data())
@settings(max_examples=10)
def test_chunks_do_not_depend_on_how_entries_came(batches: list[list[bytes]], data: st.DataObject) -> None:
    """The same entries in one batch each, in these batches, with flushes and crashes: the same files."""
    with TemporaryDirectory() as directory:
        plain, other = (RealFilesystem(Path(directory) / name) for name in ("plain", "other"))
        make(other)
        with writing(other) as store:
            for labels in batches:
                store.append(*labels)  # type: ignore[arg-type]
                step = data.draw(st.sampled_from(["nothing", "flush", "crash", "restart"]))
                if step == "flush":
                    store.writer.flush()
                elif step != "nothing":
                    (store.writer.abandon if step == "crash" else store.writer.close)()
                    store.writer = open_writer(other)
            store.writer.close()
        once = new_store(plain)
        for receipt in store.receipts:
            assert once.append(receipt.label) == [receipt]
        once.writer.close()
        assert unordered(contents(other)) == unordered(contents(plain))


# --- a torn end ---------------------------------------------------------------------------------------------


def torn_store(fs: RealFilesystem) -> tuple[Store, int]:
    """Return a store with one batch whose write was interrupted, and how many bytes of that were written."""
    store = new_store(fs)
    store.append(A)
    whole = journal_path(fs).stat().st_size
    store.append(A, B)
    store.receipts = store.receipts[:1]
    store.writer.abandon()
    size = (
        journal_path(fs).stat().st_size - 32 - 100
    )  # without its ``committed`` record, and short of its end
    fs.truncate(paths.journal(1), size)
    return store, size - whole


def test_a_torn_end_is_dropped_and_reported(fs: RealFilesystem) -> None:
    store, torn = torn_store(fs)
    with reading(fs) as reader:
        assert (reader.last_seq(A), reader.last_seq(B)) == (1, 0)
    with writing(fs) as again:
        assert (again.writer.recovered.entries, again.writer.recovered.torn_bytes) == (1, torn)
        check_receipts(again.writer.reader, store.receipts)
        assert [item.stream_seq for item in again.append(A, B)] == [2, 1]
        again.writer.close()
    with reading(fs) as reader:
        check_receipts(reader, [*store.receipts, *again.receipts])


def test_a_segment_that_was_being_created_is_nothing(fs: RealFilesystem) -> None:
    store = new_store(fs)
    store.append(A)
    store.writer.flush()
    store.writer.abandon()
    fs.truncate(paths.journal(journal.segments(fs)[0]), 17)
    with writing(fs) as again:
        assert again.writer.recovered.torn_bytes == 17
        check_receipts(again.writer.reader, store.receipts)


# --- damage -------------------------------------------------------------------------------------------------


def test_damage_in_the_journal_is_refused_with_its_place(fs: RealFilesystem) -> None:
    store = new_store(fs)
    store.append(A)
    at = journal_path(fs).stat().st_size
    store.append(B)
    store.append(C)
    store.writer.abandon()
    path = journal_path(fs)
    data = bytearray(path.read_bytes())
    data[at + 200] ^= 1
    path.write_bytes(data)
    before = contents(fs)
    for attempt in (open_writer, Reader.open):
        with pytest.raises(DamagedStoreError, match=r"journal-0{19}1\.wal at byte") as caught:
            attempt(fs)
        assert (caught.value.path, caught.value.offset) == (paths.journal(1), at)
    assert contents(fs) == before
    data[at + 200] ^= 1
    path.write_bytes(data)
    with writing(fs) as again:
        check_receipts(again.writer.reader, store.receipts)


def test_a_record_that_checks_out_but_holds_no_entries_is_refused(fs: RealFilesystem) -> None:
    store = new_store(fs)
    store.writer.abandon()
    journal_path(fs).unlink()
    segment = Segment.create(fs, 1, builders.counted_random())
    segment.append([b"no entry"], [])
    segment.close()
    for attempt in (open_writer, Reader.open, lambda fs: repair(fs, owner="a test")):
        with pytest.raises(DamagedStoreError) as caught:
            attempt(fs)
        assert (caught.value.path, caught.value.offset) == (paths.journal(1), 40)


def test_a_missing_journal_is_refused(fs: RealFilesystem) -> None:
    store = new_store(fs)
    store.append(A)
    store.writer.abandon()
    journal_path(fs).unlink()
    for attempt in (open_writer, Reader.open):
        with pytest.raises(DamagedStoreError, match="journal segment is missing") as caught:
            attempt(fs)
        assert caught.value.path == paths.journal(1)


def test_a_journal_that_does_not_continue_the_log_is_refused(
    fs: RealFilesystem, target: RealFilesystem
) -> None:
    store, other = new_store(fs), new_store(target)
    other.append(A)
    other.append(A)
    other.writer.flush()
    other.append(A)
    other.writer.abandon()
    store.append(A)
    store.writer.flush()
    store.writer.abandon()
    journal_path(fs).write_bytes(journal_path(target).read_bytes())  # begins with entry 3, the log has one
    with pytest.raises(DamagedStoreError, match="receipt is for entry 3, not 2"):
        open_writer(fs)


def test_a_label_in_the_wrong_log_is_refused(fs: RealFilesystem, target: RealFilesystem) -> None:
    """A journal of another hub has another label for tokens: here, they would be messages."""
    make(target)
    foreign = builders.hub_id("another hub")
    store = new_store(fs)
    store.authorize(builders.cap_token())
    store.writer.abandon()
    record = target.read(paths.STORE).replace(store.writer.store.hub_id, foreign)
    (fs.root / paths.STORE).write_bytes(record)
    with pytest.raises(DamagedStoreError, match="journal"):
        open_writer(fs)


# --- leftovers ----------------------------------------------------------------------------------------------


def test_files_that_were_being_written_mean_nothing(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for _ in range(3):
        store.append(A)
    store.writer.flush()
    store.append(A)
    for path in (
        paths.summary(Domain.DATA, A, 1, 4),
        paths.peaks(Domain.DATA, A, 4),
        paths.checkpoint(Domain.DATA, A, 4),
        paths.checkpoint_index(Domain.DATA, A),
        paths.chunk(Domain.DATA, A, 1, 4) + paths.COMPRESSED,
        paths.STORE,
        paths.RECEIPTS,
        paths.journal(1),
    ):
        (fs.root / f"{path}.tmp").write_bytes(b"half of it")
    store.append(B)
    store.writer.close()
    with writing(fs) as again:
        check_receipts(again.writer.reader, store.receipts)
        again.append(A, B)
        again.writer.close()
    assert chunk_ranges(fs, A) == [(1, 4), (5, None)]


def test_a_flush_that_was_interrupted_is_done_again_from_the_start(tmp_path: Path) -> None:
    """What it had added to files is cut off first: the journal has all of it."""
    fs = Faulty(tmp_path / "data")
    make(fs)
    with writing(fs) as store:
        for _ in range(2):
            store.append(A, B)
        store.writer.flush()
        for _ in range(4):
            store.append(A, B)
        fs.fail("rename", "summary", errno.EIO)
        with pytest.raises(WriterStoppedError):
            store.writer.flush()
        fs.heal()
    longer = fs.size(paths.open_chunk(Domain.DATA, A, 1))
    with writing(fs) as again:
        check_receipts(again.writer.reader, store.receipts)
        again.writer.close()
    assert fs.size(paths.chunk(Domain.DATA, A, 1, 4)) == longer
    assert chunk_ranges(fs, A) == chunk_ranges(fs, B) == [(1, 4), (5, None)]


@pytest.mark.parametrize("change", ["longer", "shorter"])
def test_a_file_that_index_and_journal_do_not_explain_is_refused(tmp_path: Path, change: str) -> None:
    fs = RealFilesystem(tmp_path / "data")
    store = new_store(fs)
    store.append(A)
    store.writer.flush()
    store.append(A)
    store.writer.abandon()
    path = fs.root / paths.open_chunk(Domain.DATA, A, 1)
    data = path.read_bytes()
    path.write_bytes(data * 4 if change == "longer" else data[:-1])
    with pytest.raises(DamagedStoreError, match=change) as caught:
        open_writer(fs)
    assert caught.value.path == paths.open_chunk(Domain.DATA, A, 1)


def left_after_the_names(fs: Faulty) -> Store:
    """Leave a flush where every file is there, and the index does not know."""
    make(fs)
    with writing(fs) as store:
        for _ in range(5):
            store.append(A)
        fs.fail("sync_dir", "log", errno.EIO)
        with pytest.raises(WriterStoppedError):
            store.writer.flush()
        fs.heal()
    return store


@pytest.mark.parametrize("bad", [lambda good: good[:-1] + bytes([good[-1] ^ 1]), lambda _: b""])
def test_a_chunk_that_the_journal_has_too_is_written_again(
    tmp_path: Path, bad: Callable[[bytes], bytes]
) -> None:
    fs = Faulty(tmp_path / "data")
    store = left_after_the_names(fs)
    path = paths.chunk(Domain.DATA, A, 1, 4)
    good = fs.read(path)
    (fs.root / path).write_bytes(bad(good))
    with writing(fs) as again:
        check_receipts(again.writer.reader, store.receipts)
    assert fs.read(path) == good


def test_a_chunk_that_is_there_open_and_sealed_is_refused(tmp_path: Path) -> None:
    fs = Faulty(tmp_path / "data")
    left_after_the_names(fs)
    path = paths.chunk(Domain.DATA, A, 1, 4)
    (fs.root / paths.open_chunk(Domain.DATA, A, 1)).write_bytes(fs.read(path))
    with pytest.raises(DamagedStoreError) as caught:
        open_writer(fs)
    assert caught.value.path == path


@pytest.mark.parametrize("which", ["summary", "peaks", "checkpoint"])
def test_other_content_in_a_place_that_the_journal_fills_is_refused(tmp_path: Path, which: str) -> None:
    fs = Faulty(tmp_path / "data")
    store = left_after_the_names(fs)
    path = {
        "summary": paths.summary(Domain.DATA, A, 1, 4),
        "peaks": paths.peaks(Domain.DATA, A, 4),
        "checkpoint": paths.checkpoint(Domain.DATA, A, 4),
    }[which]
    good = fs.read(path)
    for bad in (good[:-1] + bytes([good[-1] ^ 1]), b""):
        if (which, bad) == ("checkpoint", good[:-1] + bytes([good[-1] ^ 1])):
            continue  # a signature is not checked here: any checkpoint of this prefix will do
        (fs.root / path).write_bytes(bad)
        with pytest.raises(DamagedStoreError) as caught:
            open_writer(fs)
        assert caught.value.path == path
    (fs.root / path).write_bytes(good)
    with writing(fs) as again:
        check_receipts(again.writer.reader, store.receipts)
