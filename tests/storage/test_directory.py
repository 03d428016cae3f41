"""Data directories as a whole: made once, recognised, private, and with one writer at a time."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tests import builders
from tests.storage.checks import in_another_process, reading, writing
from tests.storage.stores import (
    AUTHORIZE,
    CONTROL,
    HUB_ID,
    TINY,
    A,
    B,
    Store,
    make,
    new_store,
    open_writer,
)
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import BZIP2, Registry, StoreRecord
from veen.core.objects import labels
from veen.core.objects.new_entry import NewEntry
from veen.storage.directory import create_store, domains_of, open_store
from veen.storage.errors import DamagedStoreError, NotAStoreError, StoreBusyError
from veen.storage.fs import RealFilesystem
from veen.storage.maintain.repair import repair
from veen.storage.read.reader import Reader


def test_a_new_directory_says_whose_it_is_and_is_empty(fs: RealFilesystem) -> None:
    made = create_store(fs, HUB_ID, TINY, epoch_secs=(0, 3_600), compression=BZIP2)
    registry = Registry.of(TINY, compression=BZIP2)
    assert made == StoreRecord(hub_id=HUB_ID, registries=(registry,), epoch_secs=(0, 3_600))
    assert open_store(fs) == made
    assert fs.read(paths.STORE) == made.encode()
    assert {path.name for path in fs.root.iterdir()} == {
        "store.cbor",
        "receipts.cborseq",
        "checkpoints.cborseq",
        "log",
        "authorize",
        "control",
        "state",
        "anchors",
    }
    with reading(fs) as reader:
        assert list(reader.labels()) == []
        assert reader.head(A) is None


def test_a_directory_is_made_once(fs: RealFilesystem) -> None:
    make(fs)
    before = fs.read(paths.STORE)
    with pytest.raises(NotAStoreError, match="already"):
        make(fs)
    assert fs.read(paths.STORE) == before


def test_a_directory_that_was_not_finished_is_none_and_can_be_made_again(fs: RealFilesystem) -> None:
    make(fs)
    fs.unlink(paths.STORE)
    with pytest.raises(NotAStoreError, match=r"no store\.cbor"):
        open_store(fs)
    make(fs)
    with writing(fs) as store:
        store.append(A)


def test_a_place_without_a_directory_is_none(fs: RealFilesystem) -> None:
    with pytest.raises(NotAStoreError):
        open_writer(fs)
    assert not fs.root.exists()


@pytest.mark.parametrize("damaged", [b"", b"\xa0", b"garbage"])
def test_a_damaged_store_record_is_named(fs: RealFilesystem, damaged: bytes) -> None:
    make(fs)
    (fs.root / paths.STORE).write_bytes(damaged)
    with pytest.raises(DamagedStoreError, match=r"store\.cbor at byte 0"):
        open_writer(fs)


def test_labels_belong_to_the_log_that_they_are_reserved_for() -> None:
    domain_of = domains_of(HUB_ID)
    assert domain_of(AUTHORIZE) is Domain.AUTHORIZE
    assert domain_of(CONTROL) is Domain.CONTROL
    assert domain_of(A) is Domain.DATA
    assert domain_of(labels.authorize_label(builders.hub_id("another"))) is Domain.DATA


# --- private ------------------------------------------------------------------------------------------------


def modes(root: Path) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {"files": set(), "directories": {stat.S_IMODE(root.stat().st_mode)}}
    for path in root.rglob("*"):
        kind = "directories" if path.is_dir() else "files"
        found[kind].add(stat.S_IMODE(path.stat().st_mode))
    return found


def test_nobody_else_may_read_any_of_it(fs: RealFilesystem) -> None:
    before = os.umask(0)
    try:
        make(fs, compression=BZIP2)
        store = Store(open_writer(fs))
        for _ in range(6):
            store.append(A, B)
        store.authorize(builders.cap_token())
        store.record(NewEntry.of_control(CONTROL, b"record"))
        store.writer.flush()
        store.append(A)
        store.writer.checkpoint(A, 6)
        assert modes(fs.root) == {"files": {0o600}, "directories": {0o700}}
        store.writer.prune(A, 4)
        store.writer.close()
        repair(fs, owner="a test")
        assert modes(fs.root) == {"files": {0o600}, "directories": {0o700}}
    finally:
        os.umask(before)


# --- one writer ---------------------------------------------------------------------------------------------


def test_a_second_writer_is_told_who_the_first_is(fs: RealFilesystem) -> None:
    store = new_store(fs)
    other = RealFilesystem(fs.root)
    with pytest.raises(StoreBusyError, match="in use by a test; stop that process first"):
        open_writer(other)
    with pytest.raises(StoreBusyError, match="in use by a test"):
        repair(other, owner="somebody else")
    store.append(A)  # the first one is not disturbed
    store.writer.close()
    with writing(other, clock=2_000) as second:
        assert second.append(A)[0].stream_seq == 2


OPEN_WRITER = """
import sys
from pathlib import Path
from tests.storage.stores import open_writer
from veen.storage.errors import StoreBusyError
from veen.storage.fs import RealFilesystem
try:
    open_writer(RealFilesystem(Path(sys.argv[1])))
except StoreBusyError as error:
    print(error)
"""


def test_a_second_process_is_told_who_the_first_is(fs: RealFilesystem) -> None:
    store = new_store(fs)
    answer = in_another_process(OPEN_WRITER, fs.root)
    assert answer == "the data directory is in use by a test; stop that process first\n"
    store.writer.close()


def test_a_process_opens_a_directory_once(fs: RealFilesystem) -> None:
    store = new_store(fs)
    store.append(A)
    with pytest.raises(StoreBusyError, match="this process has opened the directory"):
        Reader.open(RealFilesystem(fs.root))
    store.writer.close()
    with reading(fs), pytest.raises(StoreBusyError, match="use that reader"):
        Reader.open(RealFilesystem(fs.root))


DIE = """
import os, sys
from pathlib import Path
from tests.storage.stores import A, Store, open_writer
from veen.storage.fs import RealFilesystem
store = Store(open_writer(RealFilesystem(Path(sys.argv[1]))))
store.append(A)
sys.stdout.write("acknowledged")
sys.stdout.flush()
os._exit(0)
"""


def test_a_process_that_dies_lets_go_and_loses_nothing(fs: RealFilesystem) -> None:
    make(fs)
    assert in_another_process(DIE, fs.root) == "acknowledged"
    with writing(fs) as store:
        assert store.writer.recovered.entries == 1
        assert store.writer.reader.last_seq(A) == 1


def test_a_lock_without_a_name_is_somebodys_all_the_same(fs: RealFilesystem) -> None:
    make(fs)
    held = fs.lock(paths.LOCK, b"")
    with pytest.raises(StoreBusyError, match="another process"):
        open_writer(RealFilesystem(fs.root))
    held.release()
    with writing(fs) as store:
        store.append(A)


def test_a_writer_that_can_not_open_lets_go(fs: RealFilesystem) -> None:
    make(fs)
    fs.remove_index(paths.INDEX)
    for _ in range(2):
        with pytest.raises(DamagedStoreError, match="veen repair"):
            open_writer(fs)
    repair(fs, owner="a test")
    open_writer(fs).close()


def test_a_changed_store_record_takes_effect_at_the_next_opening(fs: RealFilesystem) -> None:
    make(fs)
    store = open_store(fs)
    more = replace(store, registries=(*store.registries, Registry.of(TINY, effective_from=5_000)))
    (fs.root / paths.STORE).write_bytes(more.encode())
    with writing(fs) as opened:
        assert opened.writer.store == more
        assert opened.writer.floor_ts == 5_000
