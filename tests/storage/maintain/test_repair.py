"""Repair: all that is derived comes back as it was, no byte of the log is touched, nothing wrong passes."""

import errno
import shutil
from collections.abc import Callable
from importlib import import_module
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
    in_another_process,
    mixed,
    reading,
    unordered,
    writing,
)
from tests.storage.stores import AUTHORIZE, CONTROL, A, B, C, Store, after, make, message, new_store
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import AuthRecord, StreamEpoch
from veen.core.objects import labels
from veen.core.objects.new_entry import NewEntry
from veen.core.types import Label
from veen.storage.errors import DamagedStoreError, StaleIndexError
from veen.storage.fs import RealFilesystem
from veen.storage.journal.journal import Binding
from veen.storage.maintain.copy import clone
from veen.storage.maintain.repair import repair
from veen.storage.read.reader import Reader

CHUNK = paths.chunk(Domain.DATA, A, 1, 4)


def filled(fs: RealFilesystem) -> Store:
    """Return a stopped store with all kinds of files."""
    store = new_store(fs)
    token = builders.cap_token()
    store.authorize(token)
    store.record(NewEntry.of_control(CONTROL, b"record"))
    for _ in range(10):
        store.append(A, B)
        store.tick()
    store.record(NewEntry.of_msg(message(C, "client", 1, 5, token.auth_ref)))
    for upto in (3, 8):
        store.writer.checkpoint(A, upto)
    store.writer.close()
    return store


def log_of(fs: RealFilesystem) -> dict[str, bytes]:
    return contents(fs, derived=False)


# --- what comes back ----------------------------------------------------------------------------------------


def test_chunks_and_checkpoints_alone_hold_everything(fs: RealFilesystem) -> None:
    store = filled(fs)
    with reading(fs) as reader:
        record = reader.auth(builders.cap_token().auth_ref)
    assert record == AuthRecord(1_000, 1, after(builders.cap_token(), 1_010))
    before = contents(fs)
    shutil.rmtree(fs.root / paths.INDEX)
    for path in before:
        name = paths.parse(path.rpartition("/")[2])
        kinds = (paths.FileKind.CHUNK, paths.FileKind.OPEN_CHUNK, paths.FileKind.CHECKPOINT)
        if path != paths.STORE and (name is None or name.kind not in kinds):
            fs.unlink(path)
    done = repair(fs, owner="a test")
    assert (done.labels, done.entries, done.journal_entries) == (5, 23, 0)
    assert unordered(contents(fs)) == unordered(before)
    with reading(fs) as reader:
        check_receipts(reader, store.receipts)
        assert [item.upto_seq for item in reader.checkpoints(A, 1, 10)] == [3, 4, 8]
        assert reader.auth(builders.cap_token().auth_ref) == record
        assert reader.client(A, builders.verify_key()).client_seq == 10
    with writing(fs, clock=store.clock) as again:
        assert [item.stream_seq for item in again.append(A, B, C)] == [11, 11, 2]


def test_repair_of_a_whole_directory_changes_nothing(fs: RealFilesystem) -> None:
    filled(fs)
    before = contents(fs)
    for _ in range(2):
        repair(fs, owner="a test")
        assert unordered(contents(fs)) == unordered(before)


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.booleans()), max_size=14))
@settings(max_examples=6)
def test_what_is_repaired_or_cloned_goes_on_as_the_original(steps: list[tuple[Label, bool]]) -> None:
    with TemporaryDirectory() as directory:
        fs, other = (RealFilesystem(Path(directory) / name) for name in ("data", "other"))
        make(fs)
        with writing(fs) as store:
            for label, flush in steps:
                store.append(label)
                if flush:
                    store.writer.flush()
            clone(store.writer.reader, other)
        repair(fs, owner="a test")
        for made in (fs, other):
            with writing(made) as again:
                check_receipts(again.writer.reader, store.receipts)
                again.append(A, B)
                again.writer.close()
        assert unordered(contents(fs)) == unordered(contents(other))


def test_what_the_journal_holds_is_left_to_the_next_writer(fs: RealFilesystem) -> None:
    store = new_store(fs)
    mixed(store)
    store.writer.checkpoint(A, 7)
    store.writer.abandon()
    before = log_of(fs)
    done = repair(fs, owner="a test")
    assert (done.entries, done.journal_entries) == (12, 6)
    assert log_of(fs) == before
    with reading(fs) as reader:
        check_receipts(reader, store.receipts)
        assert reader.manifest(A).journal_entries == 3
        assert reader.checkpoint(A, 7) is not None
    with writing(fs, clock=store.clock) as again:
        assert again.writer.recovered.entries == 6
        check_receipts(again.writer.reader, store.receipts)
        again.append(A, B, C)
        again.writer.close()


@pytest.mark.parametrize(
    ("call", "path"),
    [
        ("write_all", "nodes"),
        ("rename", ".summary"),
        ("rename", "4.log"),
        ("rename", "8.log"),
        ("sync_dir", "log"),
    ],
)
def test_what_an_interrupted_flush_left_does_not_disturb(tmp_path: Path, call: str, path: str) -> None:
    fs = Faulty(tmp_path / "data")
    make(fs)
    with writing(fs) as store:
        for _ in range(3):
            store.append(A, B)
        store.writer.flush()
        for _ in range(7):
            store.append(A, B)
        fs.fail(call, path, errno.EIO)
        with pytest.raises(Exception, match="stopped"):
            store.writer.flush()
        fs.heal()
    before = log_of(fs)
    repair(fs, owner="a test")
    assert log_of(fs) == before
    with reading(fs) as reader:
        check_receipts(reader, store.receipts)
    with writing(fs) as again:
        check_receipts(again.writer.reader, store.receipts)
        again.append(A, B)
        again.writer.close()
    with reading(fs) as reader:
        check_receipts(reader, [*store.receipts, *again.receipts])


def test_streams_of_labels_are_found_again_by_the_tokens(fs: RealFilesystem) -> None:
    make(fs, epoch_secs=(0, 100))
    with writing(fs, clock=100_000) as store:
        routing = labels.routing_key(store.writer.store.hub_id)
        bound = {
            StreamEpoch(builders.stream(name), epoch): labels.label(routing, builders.stream(name), epoch)
            for name, epoch in (("x", 0), ("y", 1_000), ("y", 1_001), ("y", 984), ("y", 1_016))
        }
        store.authorize(builders.cap_token(streams=("x", "y")))
        for stream, label in bound.items():
            binding = Binding(stream.stream_id, stream.epoch, label)
            store.record(NewEntry.of_msg(message(label, "client", 1)), [binding])
        store.append(A)  # of a stream that no token names
        store.writer.close()
    repair(fs, owner="a test")
    with reading(fs) as reader:
        for stream, label in bound.items():
            assert reader.binding(label) == stream
            assert reader.label_of(stream) == label
        assert reader.binding(A) is None


def test_long_logs_are_repaired_in_portions(fs: RealFilesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(fs)
    before = contents(fs)
    monkeypatch.setattr("veen.storage.maintain.rebuild_label._PORTION_ENTRIES", 3)
    monkeypatch.setattr("veen.storage.atomic_file._PORTION_BYTES", 500)
    monkeypatch.setattr(import_module("veen.storage.maintain.repair"), "_PROGRESS_ENTRIES", 5)
    seen: list[int] = []
    repair(fs, owner="a test", progress=seen.append)
    assert seen == [5, 5, 5, 5]
    assert unordered(contents(fs)) == unordered(before)
    with reading(fs) as reader:
        check_receipts(reader, store.receipts)


def test_leftovers_are_removed(fs: RealFilesystem) -> None:
    filled(fs)
    before = set(contents(fs))
    for path in (CHUNK, paths.nodes(Domain.DATA, A), paths.RECEIPTS, paths.summary(Domain.DATA, A, 1, 4)):
        (fs.root / f"{path}.tmp").write_bytes(b"half of it")
    repair(fs, owner="a test")
    assert set(contents(fs)) == before


def test_files_that_are_not_ours_are_left_alone(fs: RealFilesystem) -> None:
    filled(fs)
    (fs.root / "log/README").write_bytes(b"mine")
    (fs.root / "log/directory").mkdir()
    repair(fs, owner="a test")
    assert fs.read("log/README") == b"mine"


def test_a_repair_that_was_interrupted_leaves_no_index_that_opens(tmp_path: Path) -> None:
    fs = Faulty(tmp_path / "data")
    store = filled(fs)
    fs.fail("rename", "nodes", errno.EIO)
    with pytest.raises(OSError, match="Errno 5"):
        repair(fs, owner="a test")
    with pytest.raises(StaleIndexError, match="veen repair"):
        Reader.open(fs)
    fs.heal()
    repair(fs, owner="a test")
    with reading(fs) as reader:
        check_receipts(reader, store.receipts)


def test_an_empty_directory_is_repaired_to_an_empty_one(fs: RealFilesystem) -> None:
    make(fs)
    shutil.rmtree(fs.root / paths.INDEX)
    done = repair(fs, owner="a test")
    assert (done.labels, done.entries, done.journal_entries) == (0, 0, 0)
    with writing(fs) as store:
        store.append(A)


REPAIR_AND_WRITE = """
import sys
from pathlib import Path
from tests.storage.stores import A, Store, open_writer
from veen.storage.fs import RealFilesystem
from veen.storage.maintain.repair import repair
fs = RealFilesystem(Path(sys.argv[1]))
repair(fs, owner="another test")
store = Store(open_writer(fs), clock=5_000)
store.append(A)
store.writer.close()
"""


def test_a_reader_that_lives_through_a_repair_is_not_misled(fs: RealFilesystem) -> None:
    """It holds the old index, which nobody writes to any more."""
    store = filled(fs)
    with reading(fs) as reader:
        in_another_process(REPAIR_AND_WRITE, fs.root)
        check_receipts(reader, store.receipts)
        with pytest.raises(StaleIndexError):
            reader.refresh()


# --- what is refused ----------------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_damaged_entry_is_named_with_its_place(fs: RealFilesystem) -> None:
    filled(fs)
    length = len(fs.read(CHUNK)) // 4
    flip(fs.root / CHUNK, 2 * length + 90)
    before = log_of(fs)
    with pytest.raises(DamagedStoreError) as caught:
        repair(fs, owner="a test")
    assert (caught.value.path, caught.value.offset) == (CHUNK, 2 * length)
    assert log_of(fs) == before


def unlink_middle(root: Path) -> None:
    (root / paths.chunk(Domain.DATA, A, 5, 8)).unlink()


def cut_sealed(root: Path) -> None:
    path = root / CHUNK
    path.write_bytes(path.read_bytes()[: len(path.read_bytes()) * 3 // 4])


def rename_shorter(root: Path) -> None:
    (root / CHUNK).rename(root / paths.chunk(Domain.DATA, A, 1, 3))


def merge_chunks(root: Path) -> None:
    second = root / paths.chunk(Domain.DATA, A, 5, 8)
    (root / paths.chunk(Domain.DATA, A, 1, 8)).write_bytes((root / CHUNK).read_bytes() + second.read_bytes())
    (root / CHUNK).unlink()
    second.unlink()


def unseal(root: Path) -> None:
    (root / paths.chunk(Domain.DATA, A, 5, 8)).rename(root / paths.open_chunk(Domain.DATA, A, 5))
    (root / paths.open_chunk(Domain.DATA, A, 9)).unlink()


def seal_early(root: Path) -> None:
    (root / paths.open_chunk(Domain.DATA, A, 9)).rename(root / paths.chunk(Domain.DATA, A, 9, 10))


def twice(root: Path) -> None:
    shutil.copy(root / CHUNK, root / paths.open_chunk(Domain.DATA, A, 1))


def swap_entries(root: Path) -> None:
    data = (root / CHUNK).read_bytes()
    half = len(data) // 2
    (root / CHUNK).write_bytes(data[half:] + data[:half])


def foreign_chunk(root: Path) -> None:
    shutil.copy(root / paths.chunk(Domain.DATA, B, 1, 4), root / CHUNK)


def wrong_log(root: Path) -> None:
    name = paths.open_chunk(Domain.AUTHORIZE, AUTHORIZE, 1).rpartition("/")[2]
    (root / "authorize" / name).rename(root / "log" / name)


def damage_checkpoint(root: Path) -> None:
    (root / paths.checkpoint(Domain.DATA, A, 4)).write_bytes(b"\x80")


def foreign_checkpoint(root: Path) -> None:
    shutil.copy(root / paths.checkpoint(Domain.DATA, A, 8), root / paths.checkpoint(Domain.DATA, A, 4))


def damage_fork(root: Path) -> None:
    (root / paths.FORK).write_bytes(b"\x80")


def damage_store(root: Path) -> None:
    (root / paths.STORE).write_bytes(b"\x80")


def damage_token(root: Path) -> None:
    flip(root / paths.open_chunk(Domain.AUTHORIZE, AUTHORIZE, 1), 100)


@pytest.mark.parametrize(
    "damage",
    [
        unlink_middle,
        cut_sealed,
        rename_shorter,
        merge_chunks,
        unseal,
        seal_early,
        twice,
        swap_entries,
        foreign_chunk,
        wrong_log,
        damage_checkpoint,
        foreign_checkpoint,
        damage_fork,
        damage_store,
        damage_token,
    ],
)
def test_what_does_not_fit_together_is_refused(fs: RealFilesystem, damage: Callable[[Path], None]) -> None:
    filled(fs)
    damage(fs.root)
    before = log_of(fs)
    with pytest.raises(DamagedStoreError):
        repair(RealFilesystem(fs.root), owner="a test")
    assert log_of(fs) == before


def test_a_damaged_journal_is_refused(fs: RealFilesystem) -> None:
    store = new_store(fs)
    store.append(A)
    store.append(A)
    store.writer.abandon()
    flip(fs.root / paths.journal(1), 100)
    with pytest.raises(DamagedStoreError) as caught:
        repair(fs, owner="a test")
    assert (caught.value.path, caught.value.offset) == (paths.journal(1), 40)
