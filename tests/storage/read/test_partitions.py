"""Partitions: together every entry once and in order, wherever the entries have got to when they are read."""

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.storage.checks import chunk_ranges, not_found, reading, writing
from tests.storage.stores import AUTHORIZE, A, B, C, Store, make, new_store, open_writer
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import BZIP2
from veen.core.limits import Limits
from veen.core.objects.entry import Entry
from veen.core.objects.receipt import Receipt
from veen.core.types import Label
from veen.storage.errors import DamagedStoreError
from veen.storage.fs import RealFilesystem
from veen.storage.index.index import Index
from veen.storage.read.partitions import Partition, plan, read_from, read_partition


def read_all(fs: RealFilesystem, partitions: Iterable[Partition]) -> list[Entry]:
    """Read partitions as workers do: each from its pickled form, and with files of its own."""
    travelled: list[Partition] = pickle.loads(pickle.dumps(list(partitions)))  # noqa: S301
    return [place.entry for partition in travelled for place in read_partition(fs.root, partition)]


def receipts(partitions: Iterable[Partition], fs: RealFilesystem) -> list[Receipt]:
    return [entry.receipt for entry in read_all(fs, partitions)]


def of(store: Store, *labels: Label) -> list[Receipt]:
    return [item for label in labels for item in store.receipts if item.label == label]


def fill(store: Store) -> Store:
    """Write a log of small chunks, an open one, and entries in the journal."""
    for _ in range(10):
        store.append(A, B)
    store.writer.flush()
    for _ in range(3):
        store.append(A, C)
    return store


@pytest.fixture
def store(fs: RealFilesystem) -> Iterator[Store]:
    made = fill(new_store(fs))
    yield made
    made.writer.abandon()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RealFilesystem, Store]]:
    """A store that is only read, for all examples of a property; its chunks have several blocks."""
    fs = RealFilesystem(tmp_path_factory.mktemp("partitions") / "data")
    make(fs, Limits(max_msg_bytes=2_000, max_chunk_bytes=200_000, max_checkpoint_interval=9))
    with writing(fs) as store:
        for count in (1, 2, 5, 3, 4, 11):  # flushed in portions, so that a chunk has several blocks
            batch = [label for label in (A, B) for _ in range(count)]
            store.append(*batch)
            store.writer.flush()
        store.append(A, A, C)
        yield fs, store
    fs.close()


# --- together they are the log ------------------------------------------------------------------------------


@given(st.integers(0, 30), st.none() | st.integers(0, 30), st.integers(1, 9_000), st.permutations([A, B, C]))
def test_every_entry_of_a_range_is_in_one_partition(
    log: tuple[RealFilesystem, Store], start: int, end: int | None, target_bytes: int, labels: list[Label]
) -> None:
    fs, store = log
    made = plan(store.writer.reader, labels, start_seq=start, end_seq=end, target_bytes=target_bytes)
    last = 2**64 if end is None else end
    expected = [item for item in of(store, *labels) if start <= item.stream_seq <= last]
    assert receipts(made, fs) == expected
    for partition in made:
        assert partition.start_seq <= partition.end_seq
        assert partition.length == sum(len(entry.encode()) for entry in read_all(fs, [partition]))


def test_no_partition_goes_beyond_its_chunk(log: tuple[RealFilesystem, Store]) -> None:
    fs, store = log
    made = plan(store.writer.reader, [A])
    assert [(item.start_seq, item.end_seq) for item in made] == [(1, 9), (10, 18), (19, 26), (27, 28)]
    assert [item.path for item in made[:2]] == [
        paths.chunk(Domain.DATA, A, start, start + 8) for start in (1, 10)
    ]
    assert all(item.frames is None for item in made[:3])
    assert receipts(made, fs) == of(store, A)


def test_a_smaller_target_gives_more_partitions(log: tuple[RealFilesystem, Store]) -> None:
    _, store = log
    counts = [
        len(plan(store.writer.reader, [A, B], target_bytes=target)) for target in (1, 1_000, 3_000, 100_000)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]
    for one, two in pairwise(plan(store.writer.reader, [A], target_bytes=1)):
        assert two.start_seq == one.end_seq + 1


def test_all_labels_are_planned_if_none_is_named(fs: RealFilesystem, store: Store) -> None:
    store.authorize(builders.cap_token())
    made = plan(store.writer.reader)
    assert sorted(receipts(made, fs), key=Receipt.encode) == sorted(store.receipts, key=Receipt.encode)
    assert {item.domain for item in made if item.label == AUTHORIZE} == {Domain.AUTHORIZE}


def test_a_label_that_nobody_has_is_not_found(store: Store) -> None:
    with not_found("label"):
        plan(store.writer.reader, [builders.some_label("nobody's")])


@pytest.mark.parametrize("target_bytes", [0, -1])
def test_a_target_is_positive(store: Store, target_bytes: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        plan(store.writer.reader, target_bytes=target_bytes)


def test_the_plan_of_a_reader_is_that_of_the_writer(fs: RealFilesystem, store: Store) -> None:
    made = plan(store.writer.reader)
    store.writer.abandon()
    with reading(fs) as reader:
        assert plan(reader) == made


# --- what becomes of chunks after the plan ------------------------------------------------------------------


def test_a_plan_outlives_flush_and_seal(fs: RealFilesystem, store: Store) -> None:
    made = plan(store.writer.reader, [A, B, C], target_bytes=1_500)
    expected = of(store, A, B, C)
    for _ in range(4):
        store.append(A, B, C)
        store.writer.flush()
        assert receipts(made, fs) == expected
    store.writer.close()
    assert receipts(made, fs) == expected
    assert (9, 12) in chunk_ranges(fs, B)


def test_a_plan_outlives_compression(fs: RealFilesystem) -> None:
    make(fs, compression=BZIP2)
    with writing(fs) as store:
        for _ in range(3):
            store.append(A)
        store.writer.flush()
        store.append(A)
        made = plan(store.writer.reader, [A], target_bytes=1)
        store.writer.flush()
        assert [name for name in fs.names(Domain.DATA) if name.endswith(".bz2")]
        assert receipts(made, fs) == store.receipts
        again = plan(store.writer.reader, [A], target_bytes=1)
        assert receipts(again, fs) == store.receipts


def test_a_chunk_that_loses_its_name_between_two_reads_is_read_once(fs: RealFilesystem) -> None:
    make(fs, Limits(max_msg_bytes=200_000, max_chunk_bytes=900_000, max_checkpoint_interval=8))
    with writing(fs) as store:
        for _ in range(7):
            store.append(A, body_size=90_000)
        store.writer.flush()
        (partition,) = plan(store.writer.reader, [A])
        found = read_from(fs, partition)
        got = [next(found).entry.receipt]
        store.append(A)
        store.writer.flush()
        got += [place.entry.receipt for place in found]
        assert got == store.receipts[:7]


def test_entries_that_were_pruned_are_left_out_of_a_plan(fs: RealFilesystem, store: Store) -> None:
    store.writer.prune(A, 8)
    assert receipts(plan(store.writer.reader, [A]), fs) == of(store, A)[8:]
    assert plan(store.writer.reader, [A], end_seq=8) == []
    assert receipts(plan(store.writer.reader, [A], start_seq=3, end_seq=9), fs) == of(store, A)[8:9]


def test_entries_that_are_pruned_after_the_plan_are_so_by_name(fs: RealFilesystem, store: Store) -> None:
    made = plan(store.writer.reader, [A])
    store.writer.prune(A, 4)
    with not_found("pruned"):
        read_all(fs, made[:1])
    assert receipts(made[1:], fs) == of(store, A)[4:]


# --- damage -------------------------------------------------------------------------------------------------


def test_a_chunk_that_is_gone_is_named(fs: RealFilesystem, store: Store) -> None:
    made = plan(store.writer.reader, [A])
    fs.unlink(made[0].path)
    with pytest.raises(DamagedStoreError, match="missing") as caught:
        read_all(fs, made[:1])
    assert caught.value.path == made[0].path
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args  # noqa: S301


def test_a_damaged_chunk_fails_closed(fs: RealFilesystem, store: Store) -> None:
    made = plan(store.writer.reader, [A])
    path = fs.root / made[1].path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    found = read_partition(fs.root, made[1])
    assert [next(found).entry.receipt.stream_seq for _ in range(3)] == [5, 6, 7]
    with pytest.raises(DamagedStoreError) as caught:
        next(found)
    assert caught.value.path == made[1].path


def test_damaged_frames_fail_closed(fs: RealFilesystem, store: Store) -> None:
    (partition,) = plan(store.writer.reader, [C])
    assert partition.frames is not None
    damaged = replace(partition, frames=partition.frames[:-1] + b"\0")
    with pytest.raises(DamagedStoreError):
        read_all(fs, [damaged])


def test_an_index_with_a_hole_gives_no_plan(fs: RealFilesystem) -> None:
    made = fill(new_store(fs))
    made.writer.close()
    index = Index.open(fs)
    with index.change() as changes:
        changes.txn.drop(changes._tables["positions"], delete=False)
    index.close()
    with reading(fs) as reader, pytest.raises(DamagedStoreError, match="veen repair"):
        plan(reader, [A])


def test_labels_without_chunks_are_planned_from_the_journal(fs: RealFilesystem) -> None:
    make(fs)
    store = Store(open_writer(fs))
    store.append(C)
    (partition,) = plan(store.writer.reader)
    store.writer.close()
    assert partition.frames is not None
    assert receipts([partition], fs) == store.receipts
