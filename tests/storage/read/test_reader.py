"""Reading: every acknowledged entry by number, id and time, wherever it is by now."""

import shutil
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import builders
from tests.storage.checks import (
    Faulty,
    check_receipts,
    contents,
    entries,
    in_another_process,
    mixed,
    not_found,
    reading,
    writing,
)
from tests.storage.stores import (
    AUTHORIZE,
    CONTROL,
    A,
    B,
    C,
    Store,
    make,
    message,
    new_store,
    stream,
)
from veen.core.data_dir import paths as layout
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import AuthRecord, StreamEpoch
from veen.core.limits import Limits
from veen.core.objects.new_entry import NewEntry
from veen.core.types import AuthRef, Label, LeafHash
from veen.storage.errors import DamagedStoreError, StaleIndexError
from veen.storage.fs import RealFilesystem
from veen.storage.index.index import Index
from veen.storage.journal.journal import Binding
from veen.storage.journal.tail import Tail
from veen.storage.maintain.repair import repair
from veen.storage.read.reader import Reader


@pytest.fixture
def store(fs: RealFilesystem) -> Iterator[Store]:
    made = new_store(fs)
    mixed(made)
    yield made
    made.writer.abandon()


# --- entries ------------------------------------------------------------------------------------------------


def test_every_receipt_is_found_at_every_stage_of_its_life(fs: RealFilesystem, store: Store) -> None:
    check_receipts(store.writer.reader, store.receipts)
    store.writer.flush()
    check_receipts(store.writer.reader, store.receipts)
    store.writer.close()
    with reading(fs) as reader:
        check_receipts(reader, store.receipts)
    with writing(fs, clock=store.clock) as again:
        again.append(A, B, C)
        check_receipts(again.writer.reader, [*store.receipts, *again.receipts])
    repair(fs, owner="a test")
    with reading(fs) as reader:
        check_receipts(reader, [*store.receipts, *again.receipts])


def test_entries_are_the_very_bytes_that_were_acknowledged(store: Store) -> None:
    messages = [message(A, "client", seq).encode() for seq in range(1, 10)]
    assert [entry.msg_bytes for entry in entries(store.writer.reader, A)] == messages
    store.writer.flush()
    assert [entry.msg_bytes for entry in entries(store.writer.reader, A)] == messages


@pytest.mark.parametrize(("start", "end"), [(1, 9), (1, 1), (4, 5), (5, 8), (6, 7), (9, 9), (3, 100)])
def test_a_range_is_read_across_all_borders(store: Store, start: int, end: int) -> None:
    places = list(store.writer.reader.entries(A, start, end))
    assert [place.entry.receipt.stream_seq for place in places] == list(range(start, min(end, 9) + 1))
    for place in places:
        seq = place.entry.receipt.stream_seq
        if seq > 6:
            assert (place.path[:14], place.offset) == ("state/journal-", None)
            continue
        sealed = layout.chunk(Domain.DATA, A, 1, 4) if seq < 5 else layout.open_chunk(Domain.DATA, A, 5)
        assert place.path == sealed
        assert place.offset is not None
        frame = place.entry.encode()
        assert store.writer.fs.read(place.path, place.offset, len(frame)) == frame


@pytest.mark.parametrize("seq", [0, -1, 10, 2**64])
def test_there_is_no_entry_outside_of_the_log(store: Store, seq: int) -> None:
    with not_found("stream_seq"):
        store.writer.reader.entry(A, seq)
    with not_found("stream_seq"):
        list(store.writer.reader.entries(A, seq, seq + 3))
    with not_found("stream_seq"):
        store.writer.reader.leaf(A, seq)
    assert list(store.writer.reader.entries(A, 5, 4)) == []


def test_a_label_that_nobody_has_written_to_is_empty(store: Store) -> None:
    nobody = builders.some_label("nobody's")
    reader = store.writer.reader
    assert (reader.head(nobody), reader.last_seq(nobody), reader.seq_at(nobody, 0)) == (None, 0, 1)
    assert reader.client(nobody, builders.verify_key()) == (0, 0)
    assert (reader.binding(nobody), reader.latest_checkpoint(nobody)) == (None, None)
    assert reader.checkpoints(nobody, 1, 9) == []
    with not_found("label"):
        reader.manifest(nobody)
    with not_found("stream_seq"):
        reader.entry(nobody, 1)


def test_a_message_that_is_not_there_is_not_found(store: Store) -> None:
    known = store.receipts[0].leaf_hash
    assert store.writer.reader.find(builders.leaf(1)) is None
    store.writer.flush()
    assert store.writer.reader.find(builders.leaf(1)) is None
    same_beginning = LeafHash(known[:-1] + bytes([known[-1] ^ 1]))
    assert store.writer.reader.find(same_beginning) is None
    assert store.writer.reader.find(known) == (A, 1)


def test_labels_are_listed_once(store: Store) -> None:
    store.append(A, B, C)
    store.authorize(builders.cap_token())
    assert sorted(store.writer.reader.labels()) == sorted((A, B, C, AUTHORIZE))
    store.writer.flush()
    assert list(store.writer.reader.labels()) == sorted((A, B, C, AUTHORIZE))


def test_a_manifest_says_where_everything_is(store: Store) -> None:
    manifest = store.writer.reader.manifest(A)
    assert (manifest.head.seq, manifest.first_seq, manifest.journal_entries) == (9, 1, 3)
    assert [(row.start_seq, row.end_seq) for row in manifest.chunks] == [(1, 4), (5, 0)]
    assert [(row.first_ts, row.last_ts) for row in manifest.chunks] == [(1_000, 1_003), (1_004, 1_005)]
    for row, name in zip(
        manifest.chunks,
        (layout.chunk(Domain.DATA, A, 1, 4), layout.open_chunk(Domain.DATA, A, 5)),
        strict=True,
    ):
        assert store.writer.fs.size(name) == row.total_bytes
    assert store.writer.reader.manifest(C).chunks == ()
    assert store.writer.reader.manifest(B).journal_entries == 0


def test_checkpoints_are_found_in_journal_and_files(store: Store) -> None:
    asked = {upto: store.writer.checkpoint(A, upto) for upto in (2, 8)}
    reader = store.writer.reader
    for _ in range(2):
        sealed = reader.checkpoint(A, 4)
        assert sealed is not None
        assert reader.checkpoints(A, 1, 9) == [asked[2], sealed, asked[8]]
        assert reader.checkpoints(A, 3, 7) == [sealed]
        assert [reader.latest_checkpoint(A, upto) for upto in (1, 2, 3, 4, 7, 8, 9)] == [
            None,
            asked[2],
            asked[2],
            sealed,
            sealed,
            asked[8],
            asked[8],
        ]
        assert reader.latest_checkpoint(A) == asked[8]
        assert reader.checkpoint(A, 5) is None
        store.writer.flush()  # now 8 is the end of a chunk too


# --- time ---------------------------------------------------------------------------------------------------


@contextmanager
def somewhere() -> Iterator[RealFilesystem]:
    with TemporaryDirectory() as directory:
        fs = RealFilesystem(Path(directory) / "data")
        yield fs
        fs.close()


pauses = st.sampled_from([0, 0, 1, 2, 59, 60, 61, 120, 3_600])


@given(st.lists(st.tuples(pauses, st.booleans()), min_size=1, max_size=18), st.integers(0, 12))
@settings(max_examples=10)
def test_the_first_entry_of_a_time_is_that_of_a_plain_list(made: list[tuple[int, bool]], pruned: int) -> None:
    with somewhere() as fs:
        store = new_store(fs)
        times = []
        for pause, flush in made:
            store.tick(pause)
            times.append(store.clock)
            store.append(A)
            if flush:
                store.writer.flush()
        asked = sorted({moment + shift for moment in times for shift in (-60, -1, 0, 1, 60)} | {0, 2**40})

        def check(reader: Reader, first: int) -> None:
            for moment in asked:
                assert reader.seq_at(A, moment) == max(bisect_left(times, moment) + 1, first)

        check(store.writer.reader, 1)
        store.writer.flush()
        check(store.writer.reader, 1)
        store.writer.prune(A, pruned)
        first = store.writer.reader.manifest(A).first_seq
        check(store.writer.reader, first)
        store.writer.close()
        with reading(fs) as reader:
            check(reader, first)
        repair(fs, owner="a test")
        with reading(fs) as reader:
            check(reader, first)


# --- while a writer is at work ------------------------------------------------------------------------------


def flushing(store: Store, when: str) -> Reader:
    """Return a reader for whom a flush ends just before, or just after, it looks into memory."""
    writer = store.writer

    def tails() -> tuple[Tail, ...]:
        if when == "before":
            writer.flush()
        seen = writer._tails
        if when == "after":
            writer.flush()
        return seen

    return Reader(writer.fs, writer._index, writer.store, tails)


TOKEN = builders.cap_token()
LOOK_UPS: dict[str, Callable[[Reader, Store], object]] = {
    "head": lambda reader, _: (reader.last_seq(A), getattr(reader.head(A), "seq", None)),
    "labels": lambda reader, _: sorted(reader.labels()) == sorted({A, AUTHORIZE}),
    "client": lambda reader, _: reader.client(A, builders.verify_key()).client_seq,
    "auth": lambda reader, _: reader.auth(TOKEN.auth_ref),
    "binding": lambda reader, _: reader.binding(A),
    "label_of": lambda reader, _: reader.label_of(StreamEpoch(stream(), 0)),
    "labels_of": lambda reader, _: reader.labels_of(stream()),
    "entry": lambda reader, _: reader.entry(A, 5).receipt.stream_seq,
    "entries": lambda reader, _: [place.entry.receipt.stream_seq for place in reader.entries(A, 1, 5)],
    "find": lambda reader, store: reader.find(store.receipts[0].leaf_hash),
    "seq_at": lambda reader, _: reader.seq_at(A, 1_000),
    "prove": lambda reader, _: reader.prove(A, 2, 5).path,
    "checkpoint": lambda reader, _: reader.checkpoint(A, 2),
    "latest": lambda reader, _: getattr(reader.latest_checkpoint(A, 2), "upto_seq", None),
    "checkpoints": lambda reader, _: [item.upto_seq for item in reader.checkpoints(A, 2, 3)],
}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", sorted(LOOK_UPS))
def test_a_flush_in_the_middle_of_a_look_up_hides_nothing(fs: RealFilesystem, name: str, when: str) -> None:
    store = new_store(fs)
    store.record(NewEntry.of_msg(message(A, "client", 1)), [Binding(stream(), 0, A)])
    for _ in range(4):
        store.append(A)
    store.writer.checkpoint(A, 2)
    store.authorize(TOKEN)
    expected = LOOK_UPS[name](store.writer.reader, store)
    assert LOOK_UPS[name](flushing(store, when), store) == expected
    store.writer.close()


def test_a_chunk_that_is_sealed_while_it_is_read_is_read_once(fs: RealFilesystem) -> None:
    """Long chunks take several reads, and lose their name between two of them."""
    make(fs, Limits(max_msg_bytes=200_000, max_chunk_bytes=900_000, max_checkpoint_interval=8))
    with writing(fs) as store:
        for _ in range(7):
            store.append(A, body_size=90_000)
        store.writer.flush()
        found = store.writer.reader.entries(A, 1, 7)
        got = [next(found).entry.receipt.stream_seq]
        store.append(A)
        store.writer.flush()
        got += [place.entry.receipt.stream_seq for place in found]
        assert got == list(range(1, 8))


def test_a_chunk_is_read_in_the_moment_in_which_it_is_sealed(tmp_path: Path) -> None:
    """Its file has the new name, and the index does not say so yet."""
    fs = Faulty(tmp_path / "data")
    make(fs)
    with writing(fs) as store:
        for _ in range(3):
            store.append(A)
        store.writer.flush()
        store.append(A)
        got = []

        def look(call: str, path: str) -> None:
            if (call, path) == ("sync_dir", "log"):
                got.extend(entries(store.writer.reader, A))

        fs.fault = look
        store.writer.flush()
        assert [entry.receipt for entry in got] == store.receipts


def test_a_chunk_that_is_pruned_while_it_is_read_is_an_end_by_name(fs: RealFilesystem) -> None:
    make(fs, Limits(max_msg_bytes=200_000, max_chunk_bytes=900_000, max_checkpoint_interval=8))
    with writing(fs) as store:
        for _ in range(8):
            store.append(A, body_size=90_000)
        store.writer.flush()
        found = store.writer.reader.entries(A, 1, 8)
        next(found)
        store.writer.prune(A, 8)
        with not_found("pruned"):
            list(found)


COUNT = """
import sys
from pathlib import Path
from tests.storage.checks import check_receipts, entries, reading
from tests.storage.stores import A, B, C
from veen.storage.fs import RealFilesystem
with reading(RealFilesystem(Path(sys.argv[1]))) as reader:
    for label in reader.labels():
        check_receipts(reader, [entry.receipt for entry in entries(reader, label)])
    print(*(reader.last_seq(label) for label in (A, B, C)))
"""


def test_another_process_reads_while_the_writer_writes(fs: RealFilesystem, store: Store) -> None:
    assert in_another_process(COUNT, fs.root) == "9 6 3\n"
    store.append(A, B, C)
    store.writer.flush()
    assert in_another_process(COUNT, fs.root) == "10 7 4\n"


def test_a_reader_sees_what_was_acknowledged_when_it_looks_again(fs: RealFilesystem, tmp_path: Path) -> None:
    """Entries come by another process; here, its files are put in the place of the older ones."""
    make(fs)
    with writing(fs) as store:
        store.append(A)
        shutil.copytree(fs.root, tmp_path / "copy")
        store.append(A, B)
        newer = fs.read(layout.journal(1))
    with reading(RealFilesystem(tmp_path / "copy")) as reader:
        assert (reader.last_seq(A), reader.last_seq(B)) == (1, 0)
        (tmp_path / "copy" / layout.journal(1)).write_bytes(newer)
        assert reader.last_seq(A) == 1
        reader.refresh()
        assert (reader.last_seq(A), reader.last_seq(B)) == (2, 1)


def test_a_directory_that_may_not_be_written_is_read_and_left_alone(fs: RealFilesystem, store: Store) -> None:
    store.writer.abandon()  # with a journal
    paths = [fs.root, *sorted(fs.root.rglob("*"))]
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    before = contents(fs)
    try:
        with reading(fs) as reader:
            check_receipts(reader, store.receipts)
            assert reader.manifest(A).journal_entries == 3
    finally:
        for path in paths:
            path.chmod(0o700 if path.is_dir() else 0o600)
    assert contents(fs) == before


# --- damage -------------------------------------------------------------------------------------------------


@pytest.fixture
def stopped(fs: RealFilesystem) -> Store:
    store = new_store(fs)
    for _ in range(6):
        store.append(A)
        store.tick()
    store.writer.close()
    return store


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_damaged_entry_is_refused_and_the_others_are_not(fs: RealFilesystem, stopped: Store) -> None:
    path = layout.chunk(Domain.DATA, A, 1, 4)
    length = len(fs.read(path)) // 4
    for offset in (0, 40, 49, 60, 100, length - 1):
        flip(fs.root / path, length + offset)
        with reading(fs) as reader:
            with pytest.raises(DamagedStoreError) as caught:
                reader.entry(A, 2)
            assert (caught.value.path, caught.value.offset) == (path, length)
            check_receipts(reader, [stopped.receipts[0], *stopped.receipts[2:]])
        flip(fs.root / path, length + offset)


def test_a_missing_chunk_is_named(fs: RealFilesystem, stopped: Store) -> None:
    path = layout.chunk(Domain.DATA, A, 1, 4)
    fs.unlink(path)
    with reading(fs) as reader:
        with pytest.raises(DamagedStoreError, match="missing") as caught:
            reader.entry(A, 2)
        assert caught.value.path == path
        check_receipts(reader, stopped.receipts[4:])


def test_a_chunk_that_is_too_short_is_named(fs: RealFilesystem, stopped: Store) -> None:
    assert stopped.receipts
    path = layout.open_chunk(Domain.DATA, A, 5)
    fs.truncate(path, len(fs.read(path)) - 1)
    with reading(fs) as reader, pytest.raises(DamagedStoreError, match="ends before entry 6") as caught:
        reader.entry(A, 6)
    assert caught.value.path == path


def test_an_entry_in_the_place_of_another_is_refused(fs: RealFilesystem, stopped: Store) -> None:
    assert stopped.receipts
    path = fs.root / layout.chunk(Domain.DATA, A, 1, 4)
    data = path.read_bytes()
    length = len(data) // 4
    path.write_bytes(data[length : 2 * length] + data[:length] + data[2 * length :])
    with reading(fs) as reader, pytest.raises(DamagedStoreError, match="entry 2 is at the position of 1"):
        reader.entry(A, 1)


def test_a_damaged_checkpoint_is_named(fs: RealFilesystem, stopped: Store) -> None:
    assert stopped.receipts
    path = layout.checkpoint(Domain.DATA, A, 4)
    (fs.root / path).write_bytes(b"\x80")
    with reading(fs) as reader, pytest.raises(DamagedStoreError) as caught:
        reader.checkpoint(A, 4)
    assert caught.value.path == path


@pytest.mark.parametrize("table", ["chunks", "positions"])
def test_an_index_with_a_hole_gives_an_error(fs: RealFilesystem, stopped: Store, table: str) -> None:
    assert stopped.receipts
    index = Index.open(fs)
    with index.change() as changes:
        changes.txn.drop(changes._tables[table], delete=False)
    index.close()
    with reading(fs) as reader, pytest.raises(StaleIndexError, match="veen repair"):
        reader.entry(A, 2)


def test_reserved_logs_are_read_from_their_own_directories(fs: RealFilesystem) -> None:
    store = new_store(fs)
    tokens = [builders.cap_token(ttl=ttl) for ttl in range(1, 7)]
    for token in tokens:
        store.authorize(token)
        store.record(NewEntry.of_control(CONTROL, token.encode()))
    store.writer.close()
    assert fs.names(Domain.DATA) == []
    with reading(fs) as reader:
        check_receipts(reader, store.receipts)
        for label in (AUTHORIZE, CONTROL):
            assert [entry.msg_bytes for entry in entries(reader, label)] == [
                token.encode() for token in tokens
            ]
        for seq, token in enumerate(tokens, start=1):
            assert reader.auth(token.auth_ref) == AuthRecord(1_000, seq)
            assert reader.find(LeafHash(token.auth_ref)) == (AUTHORIZE, seq)
        assert reader.auth(AuthRef(builders.digest("none"))) is None


def test_clients_are_followed_by_label(fs: RealFilesystem) -> None:
    store = new_store(fs)
    where: list[tuple[Label, str]] = [(A, "x"), (B, "x"), (A, "y"), (A, "x"), (B, "x"), (A, "x")]
    for label, client in where:
        store.append(label, client=client)
    expected = {(A, "x"): 3, (A, "y"): 1, (B, "x"): 2, (B, "y"): 0, (C, "x"): 0}

    def check(reader: Reader) -> None:
        for (label, client), seq in expected.items():
            assert reader.client(label, builders.verify_key(client)).client_seq == seq

    check(store.writer.reader)
    store.writer.flush()
    check(store.writer.reader)
    store.append(A, client="y")
    expected[A, "y"] = 2
    check(store.writer.reader)
    store.writer.close()
    repair(fs, owner="a test")
    with reading(fs) as reader:
        check(reader)
