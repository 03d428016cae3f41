"""Clones have everything that was acknowledged before, forks end at checkpoints; no source is harmed."""

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from tests import builders
from tests.expect import refused
from tests.storage.checks import (
    Faulty,
    check_receipts,
    chunk_ranges,
    contents,
    entries,
    mixed,
    not_found,
    reading,
    unordered,
    writing,
)
from tests.storage.stores import AUTHORIZE, HUB, HUB_ID, A, B, C, Store, make, message, new_store
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import BZIP2, AuthRecord, ForkRecord, StoreRecord
from veen.core.errors import Code, Detail
from veen.core.limits import Limits
from veen.core.objects import labels
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.receipt import Receipt
from veen.storage.errors import DamagedStoreError, NotAStoreError
from veen.storage.fs import RealFilesystem
from veen.storage.maintain.copy import clone, fork
from veen.storage.maintain.repair import repair
from veen.storage.read.reader import Reader

NEW_HUB = builders.hub_id("another hub")


@pytest.fixture
def store(fs: RealFilesystem) -> Iterator[Store]:
    """Labels in chunks and journal, tokens, a pruned chunk, and a checkpoint that was asked for."""
    made = new_store(fs)
    token = builders.cap_token()
    made.authorize(token)
    made.record(NewEntry.of_msg(message(B, "someone", 1, 5, token.auth_ref)))
    mixed(made)
    made.writer.checkpoint(A, 7)
    made.writer.prune(B, 4)
    yield made
    made.writer.abandon()


def kept(store: Store) -> list[Receipt]:
    """Return the receipts of entries that were not pruned."""
    firsts = {label: store.writer.reader.manifest(label).first_seq for label in store.writer.reader.labels()}
    return [item for item in store.receipts if item.stream_seq >= firsts[item.label]]


# --- clones -------------------------------------------------------------------------------------------------


def test_a_clone_has_everything(fs: RealFilesystem, target: RealFilesystem, store: Store) -> None:
    before = contents(fs)
    done = clone(store.writer.reader, target)
    assert contents(fs) == before
    receipts = kept(store)
    assert (done.labels, done.journal_entries) == (3, 6)
    with reading(target) as reader:
        check_receipts(reader, receipts)
        assert sorted(reader.labels()) == sorted(store.writer.reader.labels())
        assert reader.checkpoint(A, 7) == store.writer.reader.checkpoint(A, 7)
        assert reader.client(B, builders.verify_key("someone")).client_seq == 1
        # Its only use was pruned, so its rate counts as not used.
        assert reader.auth(builders.cap_token().auth_ref) == AuthRecord(1_000, 1)
        with not_found("pruned"):
            reader.entry(B, 1)
    with writing(target, clock=store.clock) as other:
        assert [item.stream_seq for item in other.append(A, B, C)] == [10, 8, 4]
        check_receipts(other.writer.reader, receipts)
        other.writer.close()
    with reading(target) as reader:
        check_receipts(reader, [*receipts, *other.receipts])


def test_clone_and_original_have_the_same_files_when_both_are_stopped(
    fs: RealFilesystem, target: RealFilesystem, store: Store
) -> None:
    clone(store.writer.reader, target)
    store.writer.close()
    with writing(target) as other:
        other.writer.close()
    repair(fs, owner="a test")  # receipts of pruned entries are not copied
    assert unordered(contents(target)) == unordered(contents(fs))


def test_a_clone_of_a_reader_without_a_writer(
    fs: RealFilesystem, target: RealFilesystem, store: Store
) -> None:
    receipts = kept(store)
    store.writer.abandon()
    with reading(fs) as source:
        clone(source, target)
    with reading(target) as reader:
        check_receipts(reader, receipts)


def test_compressed_chunks_are_cloned(fs: RealFilesystem, target: RealFilesystem) -> None:
    make(fs, compression=BZIP2)
    with writing(fs) as store:
        for _ in range(6):
            store.append(A)
        store.writer.close()
    with reading(fs) as source:
        clone(source, target)
    with writing(target) as other:
        check_receipts(other.writer.reader, store.receipts)
        other.append(A)
        other.writer.close()
    assert [name for name in target.names(Domain.DATA) if name.endswith(".bz2")]


def test_identity_anchors_and_fork_record_go_along(
    fs: RealFilesystem, target: RealFilesystem, store: Store
) -> None:
    for name in ("hub-identity.cbor", "hub-key-map.cbor", "anchors/first.cbor"):
        (fs.root / name).write_bytes(name.encode())
    (fs.root / "secret.key").write_bytes(b"stays")
    clone(store.writer.reader, target)
    for name in ("hub-identity.cbor", "hub-key-map.cbor", "anchors/first.cbor"):
        assert target.read(name) == name.encode()
    assert target.size("secret.key") is None


def test_a_clone_while_the_writer_commits_and_flushes(fs: RealFilesystem, tmp_path: Path) -> None:
    """Whatever was acknowledged before the call is in it, and it can be opened and written to."""
    store = new_store(fs, segment_bytes=4_000)
    ended = Event()

    def write() -> None:
        while not ended.is_set():
            store.append(A, B)
            store.tick()
            if len(store.receipts) % 6 == 0:
                store.writer.flush()

    thread = Thread(target=write)
    thread.start()
    try:
        for number in range(3):
            before = list(store.receipts)
            made = RealFilesystem(tmp_path / f"clone {number}")
            clone(store.writer.reader, made)
            with writing(made, clock=10**6) as other:
                check_receipts(other.writer.reader, before)
                for _ in range(5):
                    other.append(A, B)
                other.writer.close()
            made.close()
    finally:
        ended.set()
        thread.join()
    store.writer.close()


class Meanwhile(RealFilesystem):
    """Does something after the n-th look for journal segments."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.then: Callable[[], None] = lambda: None
        self.after = 0

    def names(self, directory: str) -> list[str]:
        found = super().names(directory)
        if directory == paths.STATE_DIR:
            self.after -= 1
            if self.after == 0:
                self.then()
        return found


@pytest.mark.parametrize("after", [1, 2])
@pytest.mark.parametrize("more", [1, 2, 6])
def test_a_flush_in_the_middle_of_a_clone(
    tmp_path: Path, target: RealFilesystem, after: int, more: int
) -> None:
    fs = Meanwhile(tmp_path / "data")
    make(fs)
    with writing(fs) as store:
        for _ in range(3):
            store.append(A)
        before = list(store.receipts)

        def go_on() -> None:
            for _ in range(more):
                store.append(A)
            store.writer.flush()
            store.append(A)

        fs.then, fs.after = go_on, after
        clone(store.writer.reader, target)
        assert len(store.receipts) == 3 + more + 1
    with writing(target) as other:
        check_receipts(other.writer.reader, before)
        held = entries(other.writer.reader, A)
        assert [entry.receipt for entry in held] == store.receipts[: len(held)]
        for _ in range(5):
            other.append(A)
        check_receipts(other.writer.reader, other.receipts)
        other.writer.close()
    with reading(target) as reader:
        check_receipts(reader, [*before, *other.receipts])


def test_a_chunk_is_copied_in_the_moment_in_which_it_is_sealed(
    tmp_path: Path, target: RealFilesystem
) -> None:
    """Its file has the new name, and the index does not say so yet."""
    fs = Faulty(tmp_path / "data")
    make(fs)
    with writing(fs) as store:
        for _ in range(3):
            store.append(A)
        store.writer.flush()
        store.append(A)

        def copy(call: str, path: str) -> None:
            if (call, path) == ("sync_dir", "log"):
                clone(store.writer.reader, target)

        fs.fault = copy
        store.writer.flush()
    with writing(target) as other:
        check_receipts(other.writer.reader, store.receipts)
        other.append(A)
        other.writer.close()


def test_what_is_pruned_while_it_is_copied_is_so_by_name(tmp_path: Path, target: RealFilesystem) -> None:
    fs = Meanwhile(tmp_path / "data")
    make(fs)
    with writing(fs) as store:
        for _ in range(9):
            store.append(A)
        store.writer.flush()
        copy = Faulty(target.root)

        def prune(call: str, path: str) -> None:
            if call == "write_all" and path.endswith("4.log"):  # the first chunk is being written
                store.writer.prune(A, 8)

        copy.fault = prune
        with not_found("pruned"):
            clone(store.writer.reader, copy)
        copy.heal()
        clone(store.writer.reader, copy)
    with reading(target) as reader:
        assert reader.manifest(A).first_seq == 9
        check_receipts(reader, store.receipts[8:])


# --- where to -----------------------------------------------------------------------------------------------


def test_a_data_directory_is_not_written_over(
    fs: RealFilesystem, target: RealFilesystem, store: Store
) -> None:
    make(target)
    before = contents(target)
    with pytest.raises(NotAStoreError, match="choose another path"):
        clone(store.writer.reader, target)
    with pytest.raises(NotAStoreError, match="choose another path"):
        fork(store.writer.reader, target, NEW_HUB)
    assert contents(target) == before
    assert fs.root != target.root


def test_a_place_with_a_log_is_not_written_over(
    fs: RealFilesystem, target: RealFilesystem, store: Store
) -> None:
    """A directory that lost its store.cbor is the last copy of somebody's log."""
    other = new_store(target)
    other.append(C)
    other.writer.close()
    target.unlink(paths.STORE)
    before = contents(target)
    with suppress(NotAStoreError, DamagedStoreError):
        clone(store.writer.reader, target)
    assert before.items() <= contents(target).items()
    assert fs.root != target.root


@pytest.mark.parametrize(
    ("call", "path"), [("make_dir", "index"), ("rename", "store.cbor"), ("write_all", "open")]
)
def test_a_clone_that_was_interrupted_can_be_made_again(
    tmp_path: Path, store: Store, call: str, path: str
) -> None:
    target = Faulty(tmp_path / "copy")
    target.fail(call, path, errno.EIO)
    with pytest.raises(OSError, match="Errno 5"):
        clone(store.writer.reader, target)
    with pytest.raises(NotAStoreError):
        Reader.open(target)
    for _ in range(5):
        store.append(A)
        store.writer.flush()
    store.append(A)
    target.heal()
    clone(store.writer.reader, target)
    with writing(target, clock=store.clock) as other:
        check_receipts(other.writer.reader, kept(store))
        other.append(A, B, C)
        other.writer.close()


# --- forks --------------------------------------------------------------------------------------------------


def stopped(fs: RealFilesystem, limits: Limits | None = None) -> Store:
    made = new_store(fs, limits) if limits else new_store(fs)
    made.authorize(builders.cap_token())
    for _ in range(10):
        made.append(A, B)
        made.tick()
    made.append(C)
    made.writer.close()
    return made


def test_a_fork_ends_at_its_last_checkpoints(fs: RealFilesystem, target: RealFilesystem) -> None:
    store = stopped(fs)
    before = contents(fs)
    with reading(fs) as source:
        done = fork(source, target, NEW_HUB)
        checkpoints = {label: source.checkpoint(label, 8) for label in (A, B)}
    assert contents(fs) == before
    assert done.left_out == (C,)
    assert done.record == ForkRecord.decode(target.read(paths.FORK))
    assert done.record.parent_hub_id == HUB_ID
    assert list(done.record.checkpoints) == [checkpoints[label] for label in sorted((A, B))]
    record = StoreRecord.decode(target.read(paths.STORE))
    assert record.hub_id == NEW_HUB
    assert record.registries == store.writer.store.registries
    with reading(target) as reader:
        assert sorted(reader.labels()) == sorted((A, B))
        for label in (A, B):
            held = entries(reader, label)
            assert [entry.receipt for entry in held] == [
                item for item in store.receipts if item.label == label
            ][:8]
            check_receipts(reader, [entry.receipt for entry in held])
            for checkpoint in done.record.checkpoints:  # signed by the old hub, and still true
                checkpoint.verify_signature(HUB.public_key)
                checkpoint.verify_prefix(reader.peaks(checkpoint.label_curr, 8))


def test_what_a_fork_copied_is_frozen_and_new_labels_are_not(
    fs: RealFilesystem, target: RealFilesystem
) -> None:
    stopped(fs)
    with reading(fs) as source:
        fork(source, target, NEW_HUB)
    with writing(target, clock=5_000) as store:
        for label in (A, B):
            with refused(Detail.VALUE, code=Code.FORBIDDEN):
                store.append(label)
        with refused(Detail.VALUE, code=Code.FORBIDDEN):
            store.writer.checkpoint(A, 3)
        assert store.writer.checkpoint(A, 8).upto_seq == 8  # the parent's own
        fresh = labels.label(labels.routing_key(NEW_HUB), builders.stream(), 0)
        for _ in range(5):
            store.append(fresh)
        store.writer.close()
    repair(target, owner="a test")
    with writing(target, clock=5_000) as store:
        with refused(Detail.VALUE, code=Code.FORBIDDEN):
            store.append(A)
        assert store.append(fresh)[0].stream_seq == 6


def test_the_old_identity_and_its_tokens_are_archived(fs: RealFilesystem, target: RealFilesystem) -> None:
    stopped(fs)
    (fs.root / "hub-identity.cbor").write_bytes(b"identity")
    with reading(fs) as source:
        fork(source, target, NEW_HUB)
    assert target.read("archive/hub-identity.cbor") == b"identity"
    assert target.read("archive/store.cbor") == fs.read(paths.STORE)
    chunk = paths.open_chunk(Domain.AUTHORIZE, AUTHORIZE, 1)
    assert target.read(f"archive/{chunk}") == fs.read(chunk)
    assert (target.names(Domain.AUTHORIZE), target.size("hub-identity.cbor")) == ([], None)


@pytest.mark.parametrize("cut", [2, 4, 8])
def test_a_fork_is_cut_where_it_is_told(fs: RealFilesystem, target: RealFilesystem, cut: int) -> None:
    store = stopped(fs)
    with writing(fs, clock=5_000) as asked:
        asked.writer.checkpoint(A, 2)
        asked.writer.close()
    with reading(fs) as source:
        done = fork(source, target, NEW_HUB, {A: cut})
        with not_found("upto_seq"):
            fork(source, target, builders.hub_id("a third"), {A: 3})
        with not_found("upto_seq"):
            fork(source, target, builders.hub_id("a third"), {builders.some_label("nobody's"): 1})
    assert [item.upto_seq for item in done.record.checkpoints] == [cut]
    with reading(target) as reader:
        assert list(reader.labels()) == [A]
        assert reader.last_seq(A) == cut
        check_receipts(reader, [item for item in store.receipts if item.label == A][:cut])
    ranges = {2: [(1, None)], 4: [(1, 4)], 8: [(1, 4), (5, 8)]}[cut]
    assert chunk_ranges(target, A) == ranges


def test_chunks_that_ended_by_bytes_can_be_forked(fs: RealFilesystem, target: RealFilesystem) -> None:
    store = stopped(fs, Limits(max_msg_bytes=2_000, max_chunk_bytes=2_300, max_checkpoint_interval=100))
    assert chunk_ranges(fs, A) == [(1, 3), (4, 6), (7, 9), (10, None)]
    with reading(fs) as source:
        fork(source, target, NEW_HUB)
    with reading(target) as reader:
        assert reader.last_seq(A) == 9
        check_receipts(reader, [item for item in store.receipts if item.label == A][:9])
    repair(target, owner="a test")
    with reading(target) as reader:
        check_receipts(reader, [item for item in store.receipts if item.label == A][:9])


def test_pruned_labels_can_be_forked_but_not_cut_inside_of_what_is_gone(
    fs: RealFilesystem, target: RealFilesystem
) -> None:
    store = stopped(fs)
    with writing(fs, clock=5_000) as asked:
        asked.writer.checkpoint(A, 2)
        asked.writer.flush()
        asked.writer.prune(A, 4)
        asked.writer.close()
    with reading(fs) as source:
        with not_found("pruned"):
            fork(source, target, NEW_HUB, {A: 2})
        fork(source, target, NEW_HUB)
    receipts = [item for item in store.receipts if item.label == A]
    with reading(target) as reader:
        assert (reader.manifest(A).first_seq, reader.last_seq(A)) == (5, 8)
        reader.prove(A, 1, 8).verify(receipts[7].mmr_root, receipts[0].leaf_hash, stream_seq=1, mmr_size=8)


def test_a_fork_of_a_fork_and_a_clone_of_it(
    fs: RealFilesystem, target: RealFilesystem, tmp_path: Path
) -> None:
    store = stopped(fs)
    (fs.root / "hub-identity.cbor").write_bytes(b"first")
    with reading(fs) as source:
        fork(source, target, NEW_HUB)
    (target.root / "hub-identity.cbor").write_bytes(b"second")
    fresh = labels.label(labels.routing_key(NEW_HUB), builders.stream(), 0)
    with writing(target, clock=5_000) as middle:
        for _ in range(5):
            middle.append(fresh)
        middle.writer.close()
    third, copy = (RealFilesystem(tmp_path / name) for name in ("third", "copy of the third"))
    with reading(target) as source:
        done = fork(source, third, builders.hub_id("a third"))
    assert done.record.parent_hub_id == NEW_HUB
    assert [item.label_curr for item in done.record.checkpoints] == sorted((A, B, fresh))
    with reading(third) as source:
        clone(source, copy)
    for made in (third, copy):
        assert made.read("archive/hub-identity.cbor") == b"second"
        assert made.read("archive/archive/hub-identity.cbor") == b"first"
        assert made.read("archive/fork.cbor") == target.read(paths.FORK)
        with writing(made, clock=6_000) as last:
            check_receipts(last.writer.reader, middle.receipts[:4])
            check_receipts(last.writer.reader, [item for item in store.receipts if item.label == A][:8])
            for label in (A, B, fresh):
                with refused(Detail.VALUE, code=Code.FORBIDDEN):
                    last.append(label)
        made.close()


def test_a_fork_needs_an_identity_of_its_own(target: RealFilesystem, store: Store) -> None:
    with pytest.raises(NotAStoreError, match="clone it"):
        fork(store.writer.reader, target, HUB_ID)
    assert not target.root.exists()
