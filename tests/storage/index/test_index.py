"""The index: look-ups against plain dictionaries, transactions, and what is refused."""

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import cap_token, digest, some_label, stream, verify_key
from tests.storage.checks import Faulty, reading, writing
from tests.storage.stores import A, B, Store, make, new_store, open_writer
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import AuthRecord, ClientCursor, StreamEpoch
from veen.core.objects.capability import Bucket
from veen.core.types import AuthRef, LeafHash, NodeHash
from veen.storage.errors import StaleIndexError
from veen.storage.fs import RealFilesystem
from veen.storage.index.index import FORMAT, Changes, Index, Meta, client_key
from veen.storage.index.label_state import LabelState
from veen.storage.index.rows import COMPRESSED, PRUNED, Block, CheckpointRow, ChunkRow, place
from veen.storage.maintain.repair import repair
from veen.storage.read.reader import Reader

u32, u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


@contextmanager
def new_index(fs: RealFilesystem) -> Iterator[Index]:
    fs.make_dir("")
    fs.make_dir(paths.STATE_DIR)
    index = Index.create(fs)
    try:
        yield index
    finally:
        index.close()


@pytest.fixture
def index(fs: RealFilesystem) -> Iterator[Index]:
    with new_index(fs) as made:
        yield made


@contextmanager
def somewhere() -> Iterator[Index]:
    """Yield an index in a directory of its own: for examples of one property."""
    with TemporaryDirectory() as directory, new_index(RealFilesystem(Path(directory) / "data")) as made:
        yield made


# --- rows ---------------------------------------------------------------------------------------------------


def test_the_row_about_the_directory_is_read_back(index: Index) -> None:
    meta = Meta(clean=False, journal=2, last_ts=3, receipts_bytes=4, checkpoints_bytes=2**40, labels=6)
    with index.change() as changes:
        changes.put_meta(meta)
        assert changes.meta() == meta
    with index.view() as view:
        assert view.meta() == meta


def test_labels_are_found_by_name_and_by_number(index: Index) -> None:
    states = [LabelState.new(some_label(f"{number}"), Domain.DATA, number) for number in range(20)]
    bound = states[3].bound_to(StreamEpoch(stream(), 5))
    with index.change() as changes:
        for state in states:
            changes.put_label(state)
        changes.put_label(bound)
    states[3] = bound
    with index.view() as view:
        assert [view.label(state.label) for state in states] == states
        assert [view.ref(state.label) for state in states] == [state.ref for state in states]
        assert list(view.labels()) == sorted(states, key=lambda state: state.label)
        assert [view.label_numbered(number) for number in range(20)] == [state.label for state in states]
        assert view.label(A) is None
        assert view.ref(A) is None
        assert view.stream(StreamEpoch(stream(), 5)) == bound.label
        assert view.stream(StreamEpoch(stream(), 6)) is None
        with pytest.raises(StaleIndexError, match="number 20"):
            view.label_numbered(20)


def test_clients_are_kept_by_label(index: Index) -> None:
    rows = {
        (number, verify_key(name)): ClientCursor(number, len(name))
        for number in (0, 1, 255, 256, 2**32 - 2)
        for name in ("a", "bb", "ccc")
    }
    with index.change() as changes:
        for (number, client), cursor in rows.items():
            changes.put_client(number, client, cursor)
    with index.view() as view:
        for (number, client), cursor in rows.items():
            assert view.client(number, client) == cursor
            assert dict(view.clients(number)) == {
                key: value for (owner, key), value in rows.items() if owner == number
            }
        assert view.client(2, verify_key("a")) is None
        assert dict(view.clients(2)) == {}


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=6))
@settings(max_examples=8)
def test_the_earliest_time_of_a_client_stays(times: list[int]) -> None:
    with somewhere() as index:
        for hub_ts in times:
            with index.change() as changes:
                changes.put_client_since(verify_key("a"), hub_ts)
        with index.view() as view:
            assert view.client_since(verify_key("a")) == min(times)
            assert view.client_since(verify_key("b")) is None


def test_the_age_of_a_client_is_not_a_place_in_a_label(index: Index) -> None:
    with index.change() as changes:
        changes.put_client(2**32 - 2, verify_key("a"), ClientCursor(3, 4))
        changes.put_client_since(verify_key("a"), 77)
    with index.view() as view:
        assert dict(view.clients(2**32 - 2)) == {verify_key("a"): (3, 4)}
        assert view.client(0, verify_key("a")) is None
        assert view.client_since(verify_key("a")) == 77


def test_a_damaged_age_of_a_client_is_refused(index: Index) -> None:
    with index.change() as changes:
        changes.put_client_since(verify_key("a"), 77)
        key = client_key(2**32 - 1, verify_key("a"))
        stored = bytes(changes.txn.get(key, db=changes._tables["clients"]) or b"")
        assert stored
        changes.txn.put(key, b"\x01" + stored[1:], db=changes._tables["clients"])
    with index.view() as view, pytest.raises(StaleIndexError, match="veen repair"):
        view.client_since(verify_key("a"))


def test_a_token_keeps_what_is_known_of_it(index: Index) -> None:
    ref = AuthRef(digest("token"))
    for record, known in (
        (AuthRecord(20, 0), AuthRecord(20, 0)),
        (AuthRecord(30, 4), AuthRecord(20, 4)),
        (AuthRecord(10, 9, Bucket(5, 10)), AuthRecord(10, 4, Bucket(5, 10))),
        (AuthRecord(11, 0), AuthRecord(10, 4, Bucket(5, 10))),
        (AuthRecord(12, 0, Bucket(0, 12)), AuthRecord(10, 4, Bucket(0, 12))),
    ):
        with index.change() as changes:
            changes.put_auth(ref, record)
        with index.view() as view:
            assert view.auth(ref) == known
    with index.view() as view:
        assert view.auth(AuthRef(digest("another"))) is None


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60)), min_size=1, max_size=12, unique=True))
@settings(max_examples=8)
def test_an_entry_is_found_in_the_block_that_holds_it(places: list[tuple[int, int]]) -> None:
    lengths = (10, 20, 30)
    blocks = {(number, 3 * nth): Block(3 * nth, 3 * nth, nth, lengths) for number, nth in places}
    with somewhere() as index:
        with index.change() as changes:
            for number in range(3):
                rows = [block for (owner, _), block in blocks.items() if owner == number]
                changes.put_blocks(number, sorted(rows))
        with index.view() as view:
            for number in range(3):
                for seq in range(190):
                    block = blocks.get((number, seq - seq % 3))
                    span = view.position(number, seq)
                    assert span == (
                        None
                        if block is None
                        else (block.chunk_start, block.offset + sum(lengths[: seq % 3]), lengths[seq % 3])
                    )


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60)), max_size=20, unique=True))
@settings(max_examples=8)
def test_chunks_and_checkpoints_are_found_from_any_entry_on(places: list[tuple[int, int]]) -> None:
    chunks = {(number, at): ChunkRow(at, at + 1, at, 2, 3) for number, at in places}
    checkpoints = {(number, at): CheckpointRow(at, NodeHash(digest(f"{at}")), at) for number, at in places}
    with somewhere() as index:
        with index.change() as changes:
            for (number, _), row in chunks.items():
                changes.put_chunk(number, row)
            for (number, _), stored in checkpoints.items():
                changes.put_checkpoint(number, stored)
        with index.view() as view:
            for number in range(3):
                starts = sorted(at for owner, at in places if owner == number)
                for seq in range(65):
                    before = max((at for at in starts if at <= seq), default=None)
                    expected = None if before is None else (number, before)
                    assert view.chunk_at(number, seq) == (chunks[expected] if expected else None)
                    assert view.checkpoint_at(number, seq) == (checkpoints[expected] if expected else None)
                    rest = [at for at in starts if at >= seq]
                    assert list(view.chunks(number, seq)) == [chunks[number, at] for at in rest]
                    assert list(view.checkpoints(number, seq)) == [checkpoints[number, at] for at in rest]


def test_a_chunk_knows_whether_its_file_is_compressed_or_gone() -> None:
    row = ChunkRow(1, 4, 100, 1, 2)
    for flags, expected in (
        (0, (False, False)),
        (COMPRESSED, (True, False)),
        (COMPRESSED | PRUNED, (True, True)),
    ):
        flagged = row._replace(flags=flags)
        assert (flagged.compressed, flagged.pruned) == expected


def test_work_that_waits_is_remembered_until_it_is_done(index: Index) -> None:
    with index.change() as changes:
        for label in (A, B):
            changes.put_stale(label)
            changes.put_unpacked(label, 5)
            changes.put_unpacked(label, 1)
    with index.change() as changes:
        assert changes.stale() == sorted((A, B))
        done = []
        while (waiting := changes.first_unpacked()) is not None:
            done.append(waiting)
            changes.clear_unpacked(*waiting)
        assert done == [(label, start) for label in sorted((A, B)) for start in (1, 5)]
        changes.clear_stale(A)
    with index.view() as view:
        assert view.stale() == [B]
        assert view.first_unpacked() is None


def test_a_leaf_that_is_ahead_of_its_entry_is_not_found_yet(fs: RealFilesystem) -> None:
    """Leaves are written before the row of their label: a reader may come in between."""
    store = new_store(fs)
    store.append(A)
    store.writer.flush()
    early = LeafHash(digest("early"))
    store.writer._index.add_leaves([(early, 0, 2), (early, 99, 1)])
    assert store.writer.reader.find(early) is None
    assert store.writer.reader.find(store.receipts[0].leaf_hash) == (A, 1)
    store.writer.close()


# --- transactions -------------------------------------------------------------------------------------------


def test_a_change_that_fails_changes_nothing(index: Index) -> None:
    with index.change() as changes:
        changes.put_meta(Meta())

    def interrupted(changes: Changes) -> None:
        changes.put_meta(Meta(journal=9))
        raise KeyError

    with pytest.raises(KeyError), index.change() as changes:
        interrupted(changes)
    with index.view() as view:
        assert view.meta() == Meta()


def test_a_view_does_not_see_what_is_committed_after_it_began(index: Index) -> None:
    with index.change() as changes:
        changes.put_meta(Meta())
    with index.view() as view:
        with index.change() as changes:
            changes.put_meta(Meta(journal=2))
        assert view.meta().journal == 1
    with index.view() as view:
        assert view.meta().journal == 2


# --- what is refused ----------------------------------------------------------------------------------------


def refuse(fs: RealFilesystem) -> None:
    """Check that nobody opens the directory, and that all are told what to do about it."""
    with pytest.raises(StaleIndexError, match=r"state/index.*run: veen repair"):
        Reader.open(fs)
    with pytest.raises(StaleIndexError, match=r"state/index.*run: veen repair"):
        open_writer(fs)


def stopped_store(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for _ in range(5):
        store.append(A)
    store.writer.close()


def test_a_deleted_index_is_refused_until_it_is_made_anew(fs: RealFilesystem) -> None:
    stopped_store(fs)
    shutil.rmtree(fs.root / paths.INDEX)
    refuse(fs)
    repair(fs, owner="a test")
    with reading(fs) as reader:
        assert reader.last_seq(A) == 5


def test_an_index_of_garbage_is_refused(fs: RealFilesystem) -> None:
    stopped_store(fs)
    data = fs.root / paths.INDEX / "data.mdb"
    data.write_bytes(b"garbage" * 10_000)
    refuse(fs)


def test_an_empty_database_is_refused(fs: RealFilesystem) -> None:
    stopped_store(fs)
    shutil.rmtree(fs.root / paths.INDEX)
    lmdb.open(str(fs.root / paths.INDEX)).close()
    refuse(fs)


def test_an_index_that_was_being_made_is_refused(fs: RealFilesystem) -> None:
    stopped_store(fs)
    fs.remove_index(paths.INDEX)
    Index.create(fs).close()
    refuse(fs)


def test_an_index_of_another_format_is_refused(fs: RealFilesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_store(fs)
    index = Index.open(fs)
    with monkeypatch.context() as patch:
        patch.setattr("veen.storage.index.index.FORMAT", FORMAT + 1)
        with index.change() as changes:
            changes.put_meta(Meta())
    index.close()
    with pytest.raises(StaleIndexError, match=f"format {FORMAT + 1}, not {FORMAT}"):
        open_writer(fs)
    refuse(fs)


def put_back_the_index(fs: RealFilesystem, tmp_path: Path, change: Callable[[Store], object]) -> None:
    """Make a store, change it, and give it the index from before the change."""
    stopped_store(fs)
    shutil.copytree(fs.root / paths.INDEX, tmp_path / "older")
    with writing(fs, clock=2_000) as store:
        change(store)
        store.writer.close()
    shutil.rmtree(fs.root / paths.INDEX)
    shutil.copytree(tmp_path / "older", fs.root / paths.INDEX)


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.append(A, B),
        lambda store: store.authorize(cap_token()),  # a token that is not known is a client that is refused
    ],
)
def test_an_index_that_is_older_than_the_log_is_refused(
    fs: RealFilesystem, tmp_path: Path, change: Callable[[Store], object]
) -> None:
    put_back_the_index(fs, tmp_path, change)
    with pytest.raises(StaleIndexError, match="veen repair"):
        Reader.open(fs)
    with pytest.raises(StaleIndexError, match="veen repair"):
        open_writer(fs)


def test_an_index_that_was_older_is_repaired(fs: RealFilesystem, tmp_path: Path) -> None:
    put_back_the_index(fs, tmp_path, lambda store: store.append(A, B))
    repair(fs, owner="a test")
    with writing(fs, clock=3_000) as store:
        assert [item.stream_seq for item in store.append(A, B)] == [7, 2]


def test_a_label_that_the_index_has_lost_is_not_called_empty(fs: RealFilesystem) -> None:
    stopped_store(fs)
    index = Index.open(fs)
    with index.change() as changes:
        changes.txn.delete(A, db=changes._tables["labels"])
    index.close()
    with reading(fs) as reader:
        with pytest.raises(StaleIndexError, match="does not know this label"):
            reader.last_seq(A)
        with pytest.raises(StaleIndexError, match="does not know this label"):
            reader.head(A)
        with pytest.raises(StaleIndexError, match="does not know this label"):
            reader.entry(A, 1)


def test_a_second_that_the_index_has_lost_is_not_skipped(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for _ in range(3):
        store.append(A)
        store.tick()
    times = [receipt.hub_ts for receipt in store.receipts]
    store.writer.close()
    index = Index.open(fs)
    with index.change() as changes:
        ref = changes.ref(A)
        assert ref is not None
        changes.txn.delete(place(ref.number, times[1]), db=changes._tables["times"])
    index.close()
    with reading(fs) as reader:
        assert reader.seq_at(A, times[0]) == 1
        with pytest.raises(StaleIndexError, match="missing among the times"):
            reader.seq_at(A, times[1])


def test_a_damaged_row_is_an_error_and_not_an_answer(fs: RealFilesystem) -> None:
    stopped_store(fs)
    index = Index.open(fs)
    with index.change() as changes:
        state = changes.label(A)
        assert state is not None
        stored = bytearray(replace(state, last_checkpoint=9).encode())
        stored[60] ^= 1
        changes._put("labels", A, bytes(stored))
    index.close()
    with reading(fs) as reader, pytest.raises(StaleIndexError, match="is damaged"):
        reader.head(A)


def test_an_index_is_durable_before_it_counts(tmp_path: Path) -> None:
    fs = Faulty(tmp_path / "data")
    fs.fail("sync_dir", paths.INDEX, errno.EIO)
    with pytest.raises(OSError, match="Errno 5"):
        make(fs)
    assert fs.size(paths.STORE) is None
    fs.heal()
    make(fs)
    with writing(fs) as store:
        store.append(A)
