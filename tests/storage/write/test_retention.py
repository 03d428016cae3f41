"""Pruning: chunks go, everything that is signed or counted stays."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import builders
from tests.expect import refused
from tests.storage.checks import (
    Faulty,
    check_receipts,
    chunk_ranges,
    contents,
    entries,
    not_found,
    reading,
    writing,
)
from tests.storage.stores import AUTHORIZE, CONTROL, HUB, A, B, Store, make, message, new_store, open_writer
from veen.core.data_dir import paths
from veen.core.data_dir.chunk_artifacts import ChunkSummary, PeakSnapshot
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import BZIP2, AuthRecord, StreamEpoch, Tombstone
from veen.core.errors import Code, Detail
from veen.core.objects import labels
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.new_entry import NewEntry
from veen.core.types import AuthRef, Label
from veen.storage.errors import DamagedStoreError, WriterStoppedError
from veen.storage.fs import RealFilesystem
from veen.storage.journal.journal import Binding
from veen.storage.maintain.repair import repair
from veen.storage.read.reader import Reader

TOKENS = [builders.cap_token(ttl=ttl) for ttl in (10, 20)]


def use(store: Store, label: Label, client: str, client_seq: int, auth: AuthRef | None) -> None:
    store.record(NewEntry.of_msg(message(label, client, client_seq, 5, auth)))
    store.tick()


@pytest.fixture
def store(fs: RealFilesystem) -> Iterator[Store]:
    """Ten entries in chunks of four, of two clients with tokens; the last two are in the journal."""
    made = new_store(fs)
    first, second = (token.auth_ref for token in TOKENS)
    for client, client_seq, auth in (
        ("x", 1, None),
        ("x", 2, first),
        ("y", 1, second),
        ("x", 3, first),
        ("x", 4, second),
        ("y", 2, second),
        ("z", 1, None),
        ("x", 5, first),
    ):
        use(made, A, client, client_seq, auth)
    made.writer.flush()
    for client_seq in (1, 2):
        use(made, A, "w", client_seq, None)
    yield made
    made.writer.abandon()


# --- what is kept -------------------------------------------------------------------------------------------


def test_whole_sealed_chunks_go_from_the_beginning(fs: RealFilesystem, store: Store) -> None:
    for upto, ranges in ((0, []), (3, []), (4, [(1, 4)]), (7, []), (100, [(5, 8)]), (100, [])):
        pruned = store.writer.prune(A, upto)
        assert [(row.start_seq, row.end_seq) for row in pruned] == ranges
        assert (1, 4) not in chunk_ranges(fs, A) or upto < 4
        manifest = store.writer.reader.manifest(A)
        assert manifest.first_seq == max([0, *(row.end_seq for row in manifest.chunks if row.pruned)]) + 1
    assert chunk_ranges(fs, A) == []
    assert [entry.receipt.stream_seq for entry in entries(store.writer.reader, A)] == [9, 10]


def test_a_pruned_entry_is_so_by_name_and_the_next_one_is_told(store: Store) -> None:
    store.writer.prune(A, 4)
    for seq in (1, 4):
        with not_found("pruned") as caught:
            store.writer.reader.entry(A, seq)
        assert "5 is the next one stored" in str(caught.value)
    with not_found("pruned"):
        list(store.writer.reader.entries(A, 1, 10))
    check_receipts(store.writer.reader, store.receipts[4:])


def test_summary_peaks_checkpoint_and_nodes_stay_and_fit(fs: RealFilesystem, store: Store) -> None:
    before = contents(fs)
    store.writer.prune(A, 4)
    after = contents(fs)
    gone = paths.chunk(Domain.DATA, A, 1, 4)
    assert {path: data for path, data in before.items() if path != gone} == {
        path: data for path, data in after.items() if not path.startswith("log/pruned")
    }
    summary = ChunkSummary.decode(after[paths.summary(Domain.DATA, A, 1, 4)])
    peaks = PeakSnapshot.decode(after[paths.peaks(Domain.DATA, A, 4)]).at(4)
    checkpoint = Checkpoint.decode(after[paths.checkpoint(Domain.DATA, A, 4)])
    checkpoint.verify_signature(HUB.public_key)
    checkpoint.verify_prefix(peaks)
    assert summary.mmr_root_end == peaks.root == store.receipts[3].mmr_root
    for seq, receipt in enumerate(store.receipts[:4], start=1):
        proof = store.writer.reader.prove(A, seq, 4)
        proof.verify(checkpoint.mmr_root, receipt.leaf_hash, stream_seq=seq, mmr_size=4)


def test_a_tombstone_says_how_far_clients_and_tokens_had_come(fs: RealFilesystem, store: Store) -> None:
    size = fs.size(paths.chunk(Domain.DATA, A, 1, 4))
    store.writer.prune(A, 8)
    first, second = (
        Tombstone.decode(fs.read(paths.tombstone(Domain.DATA, A, start, start + 3))) for start in (1, 5)
    )
    assert (first.label, first.start_seq, first.end_seq, first.total_bytes) == (A, 1, 4, size)
    assert (first.first_ts, first.last_ts, first.mmr_root_end) == (1_000, 1_003, store.receipts[3].mmr_root)

    def positions(tombstone: Tombstone) -> dict[bytes, int]:
        return {item.client_id: item.client_seq for item in tombstone.clients}

    def uses(tombstone: Tombstone) -> dict[bytes, int]:
        return {item.auth_ref: item.hub_ts for item in tombstone.first_uses}

    x, y, z = (builders.verify_key(name) for name in "xyz")
    assert (positions(first), positions(second)) == ({x: 3, y: 1}, {x: 5, y: 2, z: 1})
    one, two = (token.auth_ref for token in TOKENS)
    assert (uses(first), uses(second)) == ({one: 1_001, two: 1_002}, {two: 1_004, one: 1_007})


def test_clients_tokens_and_time_survive_pruning_and_repair(fs: RealFilesystem, store: Store) -> None:
    def check(reader: Reader) -> None:
        assert [reader.client(A, builders.verify_key(name)).client_seq for name in "wxyz"] == [2, 5, 2, 1]
        known = [reader.auth(token.auth_ref) for token in TOKENS]
        assert known == [AuthRecord(1_001, 0), AuthRecord(1_002, 0)]
        assert [reader.seq_at(A, moment) for moment in (0, 1_003, 1_004, 1_005, 1_009, 1_010)] == [
            5,
            5,
            5,
            6,
            10,
            11,
        ]
        assert reader.manifest(A).first_seq == 5
        check_receipts(reader, store.receipts[4:])
        with not_found("pruned"):
            reader.entry(A, 4)

    store.writer.prune(A, 4)
    check(store.writer.reader)
    store.writer.close()
    with reading(fs) as reader:
        check(reader)
    repair(fs, owner="a test")
    with reading(fs) as reader:
        check(reader)
    with writing(fs, clock=store.clock) as again:
        use(again, A, "x", 6, None)
        check_receipts(again.writer.reader, again.receipts)


def test_a_label_with_nothing_left_goes_on_after_repair(fs: RealFilesystem, store: Store) -> None:
    store.writer.prune(A, 8)
    store.writer.flush()
    use(store, A, "w", 3, None)
    use(store, A, "w", 4, None)
    store.writer.flush()
    store.writer.prune(A, 12)
    assert store.writer.reader.seq_at(A, 0) == 13
    store.writer.close()
    before = contents(fs)
    repair(fs, owner="a test")
    assert contents(fs) == before | {paths.RECEIPTS: b""}
    with writing(fs, clock=store.clock) as again:
        assert again.writer.reader.last_seq(A) == 12
        assert again.writer.reader.seq_at(A, 0) == 13
        use(again, A, "w", 5, None)
        receipt = again.receipts[0]
        assert receipt.stream_seq == 13
        again.writer.reader.prove(A, 1, 13).verify(
            receipt.mmr_root, store.receipts[0].leaf_hash, stream_seq=1, mmr_size=13
        )


def test_the_stream_of_a_label_is_found_again_after_pruning_and_repair(fs: RealFilesystem) -> None:
    store = new_store(fs)
    label = labels.label(labels.routing_key(store.writer.store.hub_id), builders.stream(), 0)
    store.authorize(TOKENS[0])
    store.record(NewEntry.of_msg(message(label, "client", 1)), [Binding(builders.stream(), 0, label)])
    for _ in range(3):
        store.append(label)
    store.writer.flush()
    store.writer.prune(label, 4)
    store.writer.close()
    repair(fs, owner="a test")
    with reading(fs) as reader:
        assert reader.binding(label) == StreamEpoch(builders.stream(), 0)
        assert reader.label_of(StreamEpoch(builders.stream(), 0)) == label
        assert reader.auth(TOKENS[0].auth_ref) == AuthRecord(1_000, 1)


def test_a_checkpoint_of_pruned_entries_can_still_be_asked_for(fs: RealFilesystem, store: Store) -> None:
    store.writer.prune(A, 4)
    made = store.writer.checkpoint(A, 2)
    made.verify_signature(HUB.public_key)
    assert made.mmr_root == store.receipts[1].mmr_root
    store.writer.close()
    repair(fs, owner="a test")
    with reading(fs) as reader:
        assert [item.upto_seq for item in reader.checkpoints(A, 1, 10)] == [2, 4, 8]


# --- what is refused ----------------------------------------------------------------------------------------


def test_tokens_and_control_records_are_kept_for_ever(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for token in TOKENS * 2:
        store.record(NewEntry.of_control(CONTROL, token.encode()))
    store.authorize(TOKENS[0])
    store.writer.flush()
    for label in (AUTHORIZE, CONTROL):
        with refused(Detail.VALUE, field="label", code=Code.FORBIDDEN):
            store.writer.prune(label, 100)
    store.writer.close()


def test_a_label_that_nobody_has_can_not_be_pruned(store: Store) -> None:
    with not_found("label"):
        store.writer.prune(B, 1)


@pytest.mark.parametrize(
    "path",
    [
        paths.summary(Domain.DATA, A, 1, 4),
        paths.peaks(Domain.DATA, A, 4),
        paths.checkpoint(Domain.DATA, A, 4),
    ],
)
def test_what_could_not_be_proved_afterwards_is_not_pruned(
    fs: RealFilesystem, store: Store, path: str
) -> None:
    fs.unlink(path)
    with pytest.raises(WriterStoppedError) as caught:
        store.writer.prune(A, 4)
    assert path in str(caught.value)
    assert (1, 4) in chunk_ranges(fs, A)


def test_a_damaged_chunk_is_not_pruned(fs: RealFilesystem, store: Store) -> None:
    path = fs.root / paths.chunk(Domain.DATA, A, 1, 4)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(WriterStoppedError):
        store.writer.prune(A, 4)
    assert path.exists()


def test_a_foreign_tombstone_is_not_overwritten(fs: RealFilesystem, store: Store) -> None:
    path = paths.tombstone(Domain.DATA, A, 1, 4)
    (fs.root / path).write_bytes(b"something else")
    with pytest.raises(WriterStoppedError, match="other content"):
        store.writer.prune(A, 4)
    assert fs.read(path) == b"something else"


@pytest.mark.parametrize("damage", ["tombstone", "nodes", "range"])
def test_repair_refuses_what_is_left_of_a_pruned_chunk_if_it_does_not_fit(
    fs: RealFilesystem, store: Store, damage: str
) -> None:
    store.writer.prune(A, 4)
    store.writer.close()
    path = fs.root / paths.tombstone(Domain.DATA, A, 1, 4)
    if damage == "tombstone":
        path.write_bytes(b"\x80")
    elif damage == "range":
        path.rename(fs.root / paths.tombstone(Domain.DATA, A, 2, 4))
    else:
        nodes = fs.root / paths.nodes(Domain.DATA, A)
        data = bytearray(nodes.read_bytes())
        data[0] ^= 1
        nodes.write_bytes(data)
    with pytest.raises(DamagedStoreError):
        repair(fs, owner="a test")


# --- interruptions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "path"),
    [("write_all", "pruned"), ("rename", "pruned"), ("sync_dir", "log"), ("unlink", ".log")],
)
@pytest.mark.parametrize("repaired", [False, True])
def test_an_interrupted_pruning_is_finished_by_the_next(
    tmp_path: Path, call: str, path: str, *, repaired: bool
) -> None:
    fs = Faulty(tmp_path / "data")
    make(fs)
    with writing(fs) as store:
        for _ in range(9):
            store.append(A)
        store.writer.flush()
        fs.fail(call, path, errno.EIO)
        with pytest.raises(WriterStoppedError):
            store.writer.prune(A, 8)
        fs.heal()
    if repaired:
        repair(fs, owner="a test")
    with writing(fs) as again:
        check_receipts(again.writer.reader, store.receipts[8:])
        again.writer.prune(A, 8)
        assert chunk_ranges(fs, A) == [(9, None)]
        assert again.writer.reader.manifest(A).first_seq == 9
        again.writer.close()


def test_pruning_removes_both_forms_of_a_chunk(tmp_path: Path) -> None:
    """Compression was interrupted before the plain file was gone: neither may stay, or come back."""
    fs = Faulty(tmp_path / "data")
    make(fs, compression=BZIP2)
    with writing(fs) as store:
        for _ in range(5):
            store.append(A)
        fs.fail("unlink", ".log", errno.EIO)
        with pytest.raises(WriterStoppedError):
            store.writer.flush()
        fs.heal()
    writer = open_writer(fs)
    writer.prune(A, 4)
    writer.close()
    assert chunk_ranges(fs, A) == [(5, None)]
    repair(fs, owner="a test")
    with reading(fs) as reader:
        assert reader.manifest(A).first_seq == 5
