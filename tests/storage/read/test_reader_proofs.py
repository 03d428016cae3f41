"""Proofs from the store: every entry at every size, wherever its nodes are; a damaged node is an error."""

from collections.abc import Iterator

import pytest

from tests import builders
from tests.expect import refused
from tests.storage.checks import check_receipts, entries, mixed, not_found, reading
from tests.storage.stores import CONTROL, A, B, Store, make, new_store
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.errors import Detail
from veen.core.merkle.mmr import Peaks, complete_nodes
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.receipt import Receipt
from veen.core.types import Label
from veen.storage.errors import StaleIndexError
from veen.storage.fs import RealFilesystem
from veen.storage.maintain.repair import repair
from veen.storage.read.reader import Reader


def of(store: Store, label: Label) -> list[Receipt]:
    return [receipt for receipt in store.receipts if receipt.label == label]


def check_all_proofs(reader: Reader, receipts: list[Receipt]) -> None:
    """Check inclusion of each entry at each size, and consistency between any two sizes."""
    label = receipts[0].label
    peaks = Peaks.empty()
    for size, last in enumerate(receipts, start=1):
        peaks = peaks.append(last.leaf_hash)
        assert last.mmr_root == peaks.root
        assert reader.peaks(label, size) == peaks
        assert reader.root(label, size) == peaks.root
        assert reader.leaf(label, size) == last.leaf_hash
        for seq, receipt in enumerate(receipts[:size], start=1):
            proof = reader.prove(label, seq, size)
            proof.verify(last.mmr_root, receipt.leaf_hash, stream_seq=seq, mmr_size=size)
            reader.prove_consistency(label, seq, size).verify(
                old_root=receipt.mmr_root, old_size=seq, new_root=last.mmr_root, new_size=size
            )


@pytest.fixture
def store(fs: RealFilesystem) -> Iterator[Store]:
    made = new_store(fs)
    mixed(made)
    yield made
    made.writer.abandon()


def test_proofs_verify_in_files_in_the_journal_and_across_the_border(
    fs: RealFilesystem, store: Store
) -> None:
    for label in (A, B):
        check_all_proofs(store.writer.reader, of(store, label))
    store.writer.flush()
    check_all_proofs(store.writer.reader, of(store, A))
    store.append(A)
    check_all_proofs(store.writer.reader, of(store, A))
    store.writer.abandon()
    with reading(fs) as reader:
        check_all_proofs(reader, of(store, A))


def test_proofs_of_pruned_entries_verify(fs: RealFilesystem, store: Store) -> None:
    store.writer.flush()
    store.writer.prune(A, 8)
    check_all_proofs(store.writer.reader, of(store, A))
    store.writer.close()
    repair(fs, owner="a test")
    with reading(fs) as reader:
        check_all_proofs(reader, of(store, A))
        for receipt in of(store, A):
            assert reader.find(receipt.leaf_hash) == (A, receipt.stream_seq)


def test_proofs_of_reserved_logs_verify(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for number in range(6):
        store.record(NewEntry.of_control(CONTROL, bytes([number])))
    check_all_proofs(store.writer.reader, store.receipts)
    store.writer.close()
    with reading(fs) as reader:
        check_all_proofs(reader, store.receipts)


def test_the_node_store_holds_every_complete_node(fs: RealFilesystem, store: Store) -> None:
    store.writer.flush()
    for label in (A, B):
        nodes = complete_nodes(entry.receipt.leaf_hash for entry in entries(store.writer.reader, label))
        assert fs.read(paths.nodes(Domain.DATA, label)) == b"".join(nodes)


@pytest.mark.parametrize(("seq", "size"), [(1, 0), (1, 10), (0, 0), (10, 10), (1, 2**64)])
def test_there_is_no_proof_at_a_size_that_the_log_has_not(store: Store, seq: int, size: int) -> None:
    with not_found("stream_seq"):
        store.writer.reader.prove(A, seq, size)
    with not_found("stream_seq"):
        store.writer.reader.prove_consistency(A, max(seq, 1), size)


@pytest.mark.parametrize("seq", [0, 6])
def test_there_is_no_proof_of_an_entry_beyond_the_size(store: Store, seq: int) -> None:
    with refused(Detail.PROOF_SEQ, field="stream_seq"):
        store.writer.reader.prove(A, seq, 5)
    with refused(Detail.PROOF_SEQ, field="stream_seq"):
        store.writer.reader.prove_consistency(A, seq, 5)


def test_proofs_that_are_kept_are_the_same_and_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veen.storage.read.reader._KEPT_PROOFS", 2)
    reader = Reader(store.writer.fs, store.writer._index, store.writer.store, lambda: store.writer._tails)
    first = [reader.prove(A, seq) for seq in range(1, 10)]
    assert [reader.prove(A, seq) for seq in range(1, 10)] == first
    assert [seq for seq in range(1, 10) if reader._proofs.get((A, seq))] == [8, 9]


# --- damage -------------------------------------------------------------------------------------------------


@pytest.fixture
def stopped(fs: RealFilesystem) -> Store:
    store = new_store(fs)
    for _ in range(7):
        store.append(A)
    store.writer.close()
    return store


def test_a_damaged_node_is_an_error_and_not_a_proof(fs: RealFilesystem, stopped: Store) -> None:
    path = paths.nodes(Domain.DATA, A)
    good = fs.read(path)
    for position in range(len(good) // 32):
        data = bytearray(good)
        data[32 * position] ^= 1
        (fs.root / path).write_bytes(data)
        with reading(fs) as reader:
            failed = 0
            for seq, receipt in enumerate(stopped.receipts, start=1):
                try:
                    proof = reader.prove(A, seq, 7)
                except StaleIndexError as error:
                    assert error.path == path  # noqa: PT017
                    failed += 1
                else:
                    proof.verify(stopped.receipts[-1].mmr_root, receipt.leaf_hash, stream_seq=seq, mmr_size=7)
            assert failed
    repair(fs, owner="a test")
    assert fs.read(path) == good


def test_a_damaged_node_is_an_error_and_not_a_proof_of_consistency(
    fs: RealFilesystem, stopped: Store
) -> None:
    path = paths.nodes(Domain.DATA, A)
    good = fs.read(path)
    for position in range(len(good) // 32):
        data = bytearray(good)
        data[32 * position] ^= 1
        (fs.root / path).write_bytes(data)
        with reading(fs) as reader:
            for size, receipt in enumerate(stopped.receipts, start=1):
                try:
                    proof = reader.prove_consistency(A, size, 7)
                except StaleIndexError as error:
                    assert error.path == path  # noqa: PT017
                else:
                    proof.verify(
                        old_root=receipt.mmr_root,
                        old_size=size,
                        new_root=stopped.receipts[-1].mmr_root,
                        new_size=7,
                    )


def test_a_damaged_node_does_not_hide_a_message(fs: RealFilesystem, stopped: Store) -> None:
    path = fs.root / paths.nodes(Domain.DATA, A)
    data = bytearray(path.read_bytes())
    data[0] ^= 1  # the leaf of the first entry
    path.write_bytes(data)
    with reading(fs) as reader:
        try:
            found = reader.find(stopped.receipts[0].leaf_hash)
        except StaleIndexError as error:
            assert "veen repair" in str(error)  # noqa: PT017
        else:
            assert found == (A, 1)


def test_a_short_or_missing_node_store_is_named(fs: RealFilesystem, stopped: Store) -> None:
    assert stopped.receipts
    path = paths.nodes(Domain.DATA, A)
    fs.truncate(path, len(fs.read(path)) - 1)
    with reading(fs) as reader, pytest.raises(StaleIndexError, match=r"too short.*veen repair"):
        reader.prove(A, 7)
    fs.unlink(path)
    with reading(fs) as reader, pytest.raises(StaleIndexError, match=r"missing.*veen repair"):
        reader.prove(A, 7)
    repair(fs, owner="a test")
    with reading(fs) as reader:
        check_receipts(reader, stopped.receipts)


def test_the_root_of_a_size_needs_the_entry(fs: RealFilesystem) -> None:
    make(fs)
    with reading(fs) as reader:
        with not_found("stream_seq"):
            reader.root(A, 1)
        with not_found("stream_seq"):
            reader.peaks(builders.some_label(), 1)
