"""Compression: the same answers from smaller files, and no answer from a damaged one."""

import bz2
import errno
from pathlib import Path

import pytest

from tests.storage.checks import (
    Faulty,
    check_receipts,
    chunk_ranges,
    contents,
    entries,
    not_found,
    reading,
    unordered,
    writing,
)
from tests.storage.stores import TINY, A, B, Store, make, new_store, open_writer
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import BZIP2
from veen.storage.directory import change_registry
from veen.storage.errors import DamagedStoreError, WriterStoppedError
from veen.storage.fs import RealFilesystem
from veen.storage.maintain.repair import repair

PLAIN = paths.chunk(Domain.DATA, A, 1, 4)
PACKED = PLAIN + paths.COMPRESSED


def fill(store: Store) -> None:
    for _ in range(10):
        store.append(A, B)
        store.tick()
        store.writer.flush()


@pytest.fixture
def packed(fs: RealFilesystem) -> Store:
    """A stopped store whose sealed chunks are compressed."""
    make(fs, compression=BZIP2)
    store = Store(open_writer(fs))
    fill(store)
    store.writer.close()
    return store


def test_sealed_chunks_are_compressed_and_nothing_else_differs(
    fs: RealFilesystem, target: RealFilesystem, packed: Store
) -> None:
    plain = new_store(target)
    fill(plain)
    plain.writer.close()
    assert plain.receipts == packed.receipts
    unpacked = {}
    for path, data in contents(fs).items():
        if path.endswith(paths.COMPRESSED):
            unpacked[path.removesuffix(paths.COMPRESSED)] = bz2.decompress(data)
            assert bz2.compress(bz2.decompress(data), 9) == data
        else:
            unpacked[path] = data
    expected = contents(target)
    del unpacked[paths.STORE], expected[paths.STORE]
    assert unpacked == expected
    assert sorted(path for path in contents(fs) if path.endswith(".log")) == sorted(
        paths.open_chunk(Domain.DATA, label, 9) for label in (A, B)
    )


def test_answers_are_the_same(fs: RealFilesystem, packed: Store) -> None:
    with reading(fs) as reader:
        check_receipts(reader, packed.receipts)
        assert [entry.receipt.stream_seq for entry in entries(reader, A)] == list(range(1, 11))
        manifest = reader.manifest(A)
        assert [row.compressed for row in manifest.chunks] == [True, True, False]
        assert manifest.chunks[0].total_bytes == len(bz2.decompress(fs.read(PACKED)))
    with writing(fs, clock=packed.clock) as again:
        for _ in range(3):
            again.append(A)
        check_receipts(again.writer.reader, [*packed.receipts, *again.receipts])
        again.writer.close()
    assert fs.size(paths.chunk(Domain.DATA, A, 9, 12) + paths.COMPRESSED) is not None


def test_repair_and_pruning_take_compressed_chunks(fs: RealFilesystem, packed: Store) -> None:
    before = contents(fs)
    repair(fs, owner="a test")
    assert unordered(contents(fs)) == unordered(before)
    with writing(fs, clock=packed.clock) as again:
        check_receipts(again.writer.reader, packed.receipts)
        again.writer.prune(A, 4)
        assert chunk_ranges(fs, A) == [(5, 8), (9, None)]
        with not_found("pruned"):
            again.writer.reader.entry(A, 1)


@pytest.mark.parametrize("damage", ["cut", "bit", "more", "empty", "other"])
def test_a_damaged_compressed_chunk_is_refused(fs: RealFilesystem, packed: Store, damage: str) -> None:
    path = fs.root / PACKED
    data = path.read_bytes()
    damaged = {
        "cut": data[:-1],
        "bit": data[:50] + bytes([data[50] ^ 1]) + data[51:],
        "more": data + b"\0",
        "empty": b"",
        "other": bz2.compress(bz2.decompress(data)[:-1]),  # whole, but not the chunk
    }[damage]
    path.write_bytes(damaged)
    with reading(fs) as reader:
        with pytest.raises(DamagedStoreError) as caught:
            entries(reader, A)
        assert caught.value.path == PACKED
        check_receipts(reader, [item for item in packed.receipts if item.label == B])
    with pytest.raises(DamagedStoreError) as caught:
        repair(fs, owner="a test")
    assert caught.value.path == PACKED


def test_a_missing_compressed_chunk_is_named(fs: RealFilesystem, packed: Store) -> None:
    assert packed.receipts
    fs.unlink(PACKED)
    with reading(fs) as reader, pytest.raises(DamagedStoreError, match="missing") as caught:
        reader.entry(A, 1)
    assert caught.value.path == PACKED


@pytest.mark.parametrize(
    ("call", "path"),
    [("write_all", ".bz2"), ("rename", ".bz2"), ("unlink", "4.log"), ("unlink", "8.log")],
)
@pytest.mark.parametrize("repaired", [False, True])
def test_compression_that_was_interrupted_is_done_again(
    tmp_path: Path, call: str, path: str, *, repaired: bool
) -> None:
    fs = Faulty(tmp_path / "data")
    make(fs, compression=BZIP2)
    with writing(fs) as store:
        for _ in range(9):
            store.append(A)
        fs.fail(call, path, errno.EIO)
        with pytest.raises(WriterStoppedError):
            store.writer.flush()
        fs.heal()
    if repaired:
        repair(fs, owner="a test")
    with writing(fs) as again:
        check_receipts(again.writer.reader, store.receipts)
        again.append(A)
        again.writer.close()
    names = [name for name in fs.names(Domain.DATA) if ".log" in name]
    assert [name.endswith(".log.bz2") for name in names] == [True, True, False]
    assert chunk_ranges(fs, A) == [(1, 4), (5, 8), (9, None)]


def test_compression_that_begins_later_takes_new_chunks(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for _ in range(5):
        store.append(A)
    store.writer.close()
    change_registry(fs, TINY, BZIP2, owner="a test")
    with writing(fs, clock=2_000) as again:
        for _ in range(4):
            again.append(A)
        again.writer.close()
    with reading(fs) as reader:
        check_receipts(reader, [*store.receipts, *again.receipts])
        assert reader.manifest(A).chunks[1].compressed
