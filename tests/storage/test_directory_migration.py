"""Limits change on purpose and on the record, or not at all."""

from dataclasses import replace

import pytest

from tests.storage.checks import check_receipts, chunk_ranges, contents, reading, unordered, writing
from tests.storage.stores import TINY, A, B, counting_random, make, new_store, sign_checkpoint
from veen.core.data_dir.store_records import BZIP2, NO_COMPRESSION
from veen.core.limits import Limits
from veen.storage.directory import change_registry, open_store
from veen.storage.errors import NotAStoreError, StaleIndexError, StoreBusyError
from veen.storage.fs import RealFilesystem
from veen.storage.maintain.repair import repair
from veen.storage.write.writer import Writer

THREE = replace(TINY, max_checkpoint_interval=3)


def change(fs: RealFilesystem, limits: Limits, compression: str = NO_COMPRESSION) -> int:
    return change_registry(fs, limits, compression, owner="a test").effective_from


def test_new_limits_hold_for_new_entries_only(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for _ in range(6):
        store.append(A)
    store.writer.close()
    assert change(fs, THREE) == 1_001
    with writing(fs, clock=1_001) as again:
        for _ in range(5):
            again.append(A)
        again.writer.close()
    assert chunk_ranges(fs, A) == [(1, 4), (5, 7), (8, 10), (11, None)]
    before = contents(fs)
    repair(fs, owner="a test")
    assert unordered(contents(fs)) == unordered(before)
    with reading(fs) as reader:
        check_receipts(reader, [*store.receipts, *again.receipts])
        assert [item.limits for item in reader.store.registries] == [TINY, THREE]


def test_limits_that_are_in_force_are_not_put_down_again(fs: RealFilesystem) -> None:
    make(fs)
    before = contents(fs)
    assert change(fs, TINY) == 0
    assert contents(fs) == before


def test_a_change_that_no_entry_has_obeyed_leaves_no_trace(fs: RealFilesystem) -> None:
    store = new_store(fs)
    store.append(A)
    store.writer.close()
    for limits, compression in ((THREE, NO_COMPRESSION), (TINY, BZIP2)):
        assert change(fs, limits, compression) == 1_001
    registries = open_store(fs).registries
    assert [(item.limits, item.compression) for item in registries] == [(TINY, NO_COMPRESSION), (TINY, BZIP2)]


def test_limits_do_not_change_under_a_writer(fs: RealFilesystem) -> None:
    store = new_store(fs)
    with pytest.raises(StoreBusyError, match="a test"):
        change(RealFilesystem(fs.root), THREE)
    store.append(A)
    store.writer.abandon()
    with pytest.raises(NotAStoreError, match="not stopped cleanly"):
        change(fs, THREE)
    assert len(open_store(fs).registries) == 1


def test_limits_do_not_change_without_an_index(fs: RealFilesystem) -> None:
    make(fs)
    fs.remove_index("state/index")
    with pytest.raises(StaleIndexError, match="veen repair"):
        change(fs, THREE)


def test_a_writer_that_expects_other_limits_is_refused(fs: RealFilesystem) -> None:
    make(fs)

    def open_with(limits: Limits) -> Writer:
        return Writer.open(
            fs, sign_checkpoint=sign_checkpoint, random=counting_random(), owner="a test", limits=limits
        )

    with pytest.raises(NotAStoreError, match=r"other limits \(max_checkpoint_interval\)"):
        open_with(THREE)
    open_with(TINY).close()
    change(fs, THREE)
    with pytest.raises(NotAStoreError, match="other limits"):
        open_with(TINY)
    open_with(THREE).close()


def test_time_goes_on_from_where_the_new_limits_begin(fs: RealFilesystem) -> None:
    store = new_store(fs)
    store.append(A)
    store.writer.close()
    change(fs, THREE)
    with writing(fs) as again:
        assert again.writer.floor_ts == 1_001
        again.clock = 1_001
        again.append(A, B)
