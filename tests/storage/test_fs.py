"""The seam to the disk, as the engine relies on it: the real file system and the simulated one alike."""

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import lmdb
import pytest

from tests.storage.simulation.simdisk import SimDisk
from veen.storage.fs import Filesystem, RealFilesystem, Write


@dataclass(frozen=True)
class World:
    """A data directory with two directories in it, and a way to look at it as another process does."""

    fs: Filesystem
    another: Callable[[], Filesystem]


@pytest.fixture(params=["real", "simulated"])
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A data directory that does not exist yet."""
    if request.param == "simulated":
        with SimDisk(tmp_path) as disk:
            yield World(disk.filesystem(), disk.filesystem)
        return
    opened: list[RealFilesystem] = []

    def another() -> Filesystem:
        opened.append(RealFilesystem(tmp_path / "data"))
        return opened[-1]

    yield World(another(), another)
    for fs in opened:
        fs.close()


@pytest.fixture
def world(bare: World) -> World:
    for path in ("", "log", "state"):
        bare.fs.make_dir(path)
    return bare


@pytest.fixture
def fs(world: World) -> Filesystem:
    return world.fs


def put(fs: Filesystem, path: str, data: bytes) -> None:
    fs.write_all([Write(path, 0, data)])


# --- directories and names ----------------------------------------------------------------------------------


def test_before_the_directory_exists(bare: World) -> None:
    fs = bare.fs
    assert fs.names("") == []
    assert fs.names("log") == []
    assert fs.size("store.cbor") is None
    for call in (
        lambda: fs.read("store.cbor"),
        lambda: put(fs, "store.cbor", b"x"),
        lambda: fs.sync_dir(""),
        lambda: fs.lock("lock", b"me"),
        lambda: fs.make_dir("log"),
    ):
        with pytest.raises(FileNotFoundError):
            call()


def test_making_a_directory_twice_is_fine(fs: Filesystem) -> None:
    put(fs, "log/a", b"1")
    fs.make_dir("log")
    fs.make_dir("")
    assert fs.names("log") == ["a"]


def test_a_directory_needs_its_parent(fs: Filesystem) -> None:
    with pytest.raises(FileNotFoundError):
        fs.make_dir("no/where")
    fs.make_dir("log/inner")
    assert fs.names("log/inner") == []


def test_a_file_is_no_directory(fs: Filesystem) -> None:
    put(fs, "file", b"1")
    with pytest.raises(FileExistsError):
        fs.make_dir("file")
    for call in (
        lambda: fs.names("file"),
        lambda: fs.make_dir("file/x"),
        lambda: fs.sync_dir("file"),
        lambda: fs.read("file/x"),
        lambda: fs.size("file/x"),
        lambda: put(fs, "file/x", b""),
        lambda: fs.rename("file", "file/x"),
    ):
        with pytest.raises(NotADirectoryError):
            call()


def test_a_directory_is_no_file(fs: Filesystem) -> None:
    put(fs, "file", b"1")
    for call in (
        lambda: fs.read("log"),
        lambda: put(fs, "log", b""),
        lambda: fs.truncate("log", 0),
        lambda: fs.open_append("log"),
        lambda: fs.unlink("log"),
        lambda: fs.rename("file", "log"),
    ):
        with pytest.raises(IsADirectoryError):
            call()


def test_names_are_those_of_files_sorted(fs: Filesystem) -> None:
    for name in ("log/b", "log/a", "log/B", "log/10", "log/9", "top"):
        put(fs, name, b"")
    fs.make_dir("log/inner")
    assert fs.names("log") == ["10", "9", "B", "a", "b"]
    assert fs.names("") == ["top"]
    assert fs.names("nowhere") == []


def test_sync_dir(fs: Filesystem) -> None:
    put(fs, "log/a", b"")
    fs.sync_dir("log")
    fs.sync_dir("")
    with pytest.raises(FileNotFoundError):
        fs.sync_dir("nowhere")


# --- contents -----------------------------------------------------------------------------------------------


def test_size_and_read(fs: Filesystem) -> None:
    put(fs, "log/a", b"0123456789")
    assert fs.size("log/a") == 10
    assert fs.read("log/a") == b"0123456789"
    assert fs.read("log/a", 3) == b"3456789"
    assert fs.read("log/a", 3, 4) == b"3456"
    assert fs.read("log/a", length=0) == b""


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [(8, 5, b"89"), (10, 5, b""), (10, None, b""), (99, 5, b""), (99, None, b""), (0, 10**6, b"0123456789")],
)
def test_reads_beyond_the_end_are_short(
    fs: Filesystem, offset: int, length: int | None, expected: bytes
) -> None:
    put(fs, "log/a", b"0123456789")
    assert fs.read("log/a", offset, length) == expected


def test_an_offset_is_not_negative(fs: Filesystem) -> None:
    put(fs, "log/a", b"0123456789")
    with pytest.raises(OSError, match="Invalid argument"):
        fs.read("log/a", -1, 2)


def test_missing_files(fs: Filesystem) -> None:
    assert fs.size("log/a") is None
    for call in (
        lambda: fs.read("log/a"),
        lambda: fs.truncate("log/a", 0),
        lambda: fs.rename("log/a", "log/b"),
        lambda: fs.unlink("log/a"),
        lambda: fs.open_append("log/a"),
    ):
        with pytest.raises(FileNotFoundError):
            call()


def test_write_all_adds_to_files(fs: Filesystem) -> None:
    fs.write_all([])
    fs.write_all([Write("log/a", 0, b"one"), Write("state/b", 0, b"two"), Write("log/empty", 0, b"")])
    fs.write_all([Write("state/b", 3, b"three"), Write("log/a", 3, b"")])
    assert fs.read("log/a") == b"one"
    assert fs.read("state/b") == b"twothree"
    assert fs.size("log/empty") == 0


@pytest.mark.parametrize("offset", [0, 2, 4])
def test_a_write_at_the_wrong_place_is_refused(fs: Filesystem, offset: int) -> None:
    put(fs, "log/a", b"one")
    with pytest.raises(OSError, match=f"3 bytes long instead of {offset}") as caught:
        fs.write_all([Write("log/a", offset, b"x")])
    assert caught.value.errno == errno.EIO
    assert fs.read("log/a") == b"one"


def test_a_write_far_into_a_new_file_leaves_it_empty(fs: Filesystem) -> None:
    with pytest.raises(OSError, match="0 bytes long instead of 1"):
        fs.write_all([Write("log/a", 1, b"x")])
    assert fs.size("log/a") == 0


def test_a_write_to_a_missing_directory_is_refused(fs: Filesystem) -> None:
    with pytest.raises(FileNotFoundError):
        put(fs, "nowhere/a", b"x")


def test_many_writes_at_once(fs: Filesystem) -> None:
    writes = [Write(f"log/{number:03}", 0, b"%d" % number * number) for number in range(200)]
    fs.write_all(writes)
    fs.write_all([Write(write.path, len(write.data), b"!") for write in reversed(writes)])
    assert fs.names("log") == [f"{number:03}" for number in range(200)]
    assert all(fs.read(write.path) == write.data + b"!" for write in writes)


def test_one_bad_write_of_many_is_reported(fs: Filesystem) -> None:
    writes = [Write(f"log/{number:03}", int(number == 77), b"data") for number in range(100)]
    with pytest.raises(OSError, match="0 bytes long instead of 1"):
        fs.write_all(writes)
    assert fs.size("log/077") == 0


def test_truncate(fs: Filesystem) -> None:
    put(fs, "log/a", b"0123456789")
    fs.truncate("log/a", 4)
    assert (fs.size("log/a"), fs.read("log/a")) == (4, b"0123")
    fs.truncate("log/a", 4)
    fs.write_all([Write("log/a", 4, b"xy")])
    assert fs.read("log/a") == b"0123xy"
    with pytest.raises(OSError, match="Invalid argument"):
        fs.truncate("log/a", -1)


# --- names of files -----------------------------------------------------------------------------------------


def test_rename(fs: Filesystem) -> None:
    put(fs, "log/a.tmp", b"one")
    assert fs.read("log/a.tmp") == b"one"
    fs.rename("log/a.tmp", "log/a")
    assert fs.names("log") == ["a"]
    assert fs.read("log/a") == b"one"
    with pytest.raises(FileNotFoundError):
        fs.read("log/a.tmp")


def test_rename_replaces(fs: Filesystem) -> None:
    put(fs, "log/a", b"old and long")
    put(fs, "log/b", b"new")
    assert fs.read("log/a") == b"old and long"
    fs.rename("log/b", "log/a")
    assert fs.read("log/a") == b"new"
    assert fs.size("log/a") == 3
    assert fs.names("log") == ["a"]


def test_rename_to_itself_and_elsewhere(fs: Filesystem) -> None:
    put(fs, "log/a", b"one")
    fs.rename("log/a", "log/a")
    fs.rename("log/a", "state/b")
    assert (fs.names("log"), fs.names("state")) == ([], ["b"])
    with pytest.raises(FileNotFoundError):
        fs.rename("state/b", "nowhere/b")
    assert fs.read("state/b") == b"one"


def test_unlink_and_create_again(fs: Filesystem) -> None:
    put(fs, "log/a", b"one")
    assert fs.read("log/a") == b"one"
    fs.unlink("log/a")
    assert fs.size("log/a") is None
    with pytest.raises(FileNotFoundError):
        fs.read("log/a")
    put(fs, "log/a", b"two")
    assert fs.read("log/a") == b"two"


# --- appending ----------------------------------------------------------------------------------------------


def test_append(fs: Filesystem) -> None:
    put(fs, "state/j", b"head")
    journal = fs.open_append("state/j")
    journal.write(b"one")
    journal.write(b"")
    assert fs.read("state/j") == b"headone"
    journal.sync()
    journal.truncate(5)
    assert fs.read("state/j") == b"heado"
    journal.write(b"two")
    journal.sync()
    journal.close()
    assert fs.read("state/j") == b"headotwo"
    assert fs.size("state/j") == 8


def test_what_is_appended_comes_after_what_others_added(fs: Filesystem) -> None:
    put(fs, "state/j", b"head")
    journal = fs.open_append("state/j")
    fs.write_all([Write("state/j", 4, b"more")])
    journal.write(b"mine")
    journal.close()
    assert fs.read("state/j") == b"headmoremine"


def test_an_open_file_survives_its_name(fs: Filesystem) -> None:
    put(fs, "state/j", b"head")
    journal = fs.open_append("state/j")
    fs.unlink("state/j")
    put(fs, "state/j", b"other")
    journal.write(b"x")
    journal.sync()
    journal.close()
    assert fs.read("state/j") == b"other"


def test_a_closed_file_takes_nothing(fs: Filesystem) -> None:
    put(fs, "state/j", b"head")
    journal = fs.open_append("state/j")
    journal.close()
    journal.close()
    calls: list[Callable[[], object]] = [lambda: journal.write(b"x"), lambda: journal.truncate(0)]
    for call in calls:
        with pytest.raises(OSError, match="Bad file descriptor"):
            call()
    with pytest.raises((OSError, ValueError)):
        journal.sync()
    assert fs.read("state/j") == b"head"


# --- lock ---------------------------------------------------------------------------------------------------


def test_a_lock_is_held_once(world: World) -> None:
    held = world.fs.lock("state/lock", b"first")
    other = world.another()
    for process in (world.fs, other):
        with pytest.raises(BlockingIOError):
            process.lock("state/lock", b"second")
    assert other.read("state/lock") == b"first"
    held.release()
    second = other.lock("state/lock", b"2nd")
    held.release()
    with pytest.raises(BlockingIOError):
        world.fs.lock("state/lock", b"third")
    second.release()
    assert world.fs.read("state/lock") == b"2nd"


# --- index --------------------------------------------------------------------------------------------------


def filled(fs: Filesystem, value: bytes) -> None:
    """Open the index, put a value in, close it."""
    fs.make_dir("state/index")
    env = fs.open_index("state/index", readonly=False, create=True)
    rows = env.open_db(b"rows")
    txn = env.begin(write=True)
    txn.put(b"key", value, db=rows)
    fs.commit(txn)
    env.close()


def value_of(env: lmdb.Environment) -> bytes | None:
    rows = env.open_db(b"rows", create=False)
    with env.begin() as txn:
        value: bytes | None = txn.get(b"key", db=rows)
        return value


def test_the_index_keeps_what_was_committed(world: World) -> None:
    filled(world.fs, b"one")
    filled(world.fs, b"two")
    assert world.fs.names("state/index") == ["data.mdb", "lock.mdb"]
    assert world.fs.size("state/index/data.mdb") == len(world.fs.read("state/index/data.mdb")) > 8192
    assert world.fs.names("state") == []
    env = world.another().open_index("state/index", readonly=True)
    assert value_of(env) == b"two"
    with pytest.raises(lmdb.ReadonlyError):
        env.begin(write=True)
    env.close()


def test_a_transaction_is_seen_when_committed(fs: Filesystem) -> None:
    filled(fs, b"one")
    env = fs.open_index("state/index", readonly=False)
    txn = env.begin(write=True)
    txn.put(b"key", b"two", db=env.open_db(b"rows", txn=txn))
    txn.abort()
    assert value_of(env) == b"one"
    txn = env.begin(write=True)
    txn.put(b"key", b"three", db=env.open_db(b"rows", txn=txn))
    with env.begin() as before:
        fs.commit(txn)
        assert before.get(b"key", db=env.open_db(b"rows", txn=before)) == b"one"
    assert value_of(env) == b"three"
    with pytest.raises(lmdb.Error):
        fs.commit(txn)
    env.close()


def test_what_is_open_when_the_index_closes_is_gone(fs: Filesystem) -> None:
    filled(fs, b"one")
    env = fs.open_index("state/index", readonly=False)
    txn = env.begin(write=True)
    txn.put(b"key", b"two", db=env.open_db(b"rows", txn=txn))
    env.close()
    with pytest.raises(lmdb.Error):
        fs.commit(txn)
    env = fs.open_index("state/index", readonly=True)
    assert value_of(env) == b"one"
    env.close()


def test_the_index_is_open_once_in_a_process(fs: Filesystem) -> None:
    fs.make_dir("state/index")
    env = fs.open_index("state/index", readonly=False, create=True)
    for readonly in (False, True):
        with pytest.raises(lmdb.Error, match="already open"):
            fs.open_index("state/index", readonly=readonly)
    env.close()
    fs.open_index("state/index", readonly=False).close()


@pytest.mark.parametrize("readonly", [True, False])
def test_a_missing_index_is_not_made_unless_told(fs: Filesystem, *, readonly: bool) -> None:
    with pytest.raises(lmdb.Error):
        fs.open_index("state/index", readonly=readonly)
    assert fs.names("state/index") == []
    fs.make_dir("state/index")
    with pytest.raises(lmdb.Error):
        fs.open_index("state/index", readonly=readonly)
    assert fs.names("state/index") == []


def test_an_index_needs_a_place(fs: Filesystem) -> None:
    with pytest.raises(FileNotFoundError):
        fs.open_index("nowhere/index", readonly=False, create=True)
    put(fs, "state/file", b"")
    with pytest.raises(lmdb.Error, match="Not a directory"):
        fs.open_index("state/file", readonly=False, create=True)


def test_an_index_can_be_thrown_away(fs: Filesystem) -> None:
    filled(fs, b"one")
    fs.remove_index("state/index")
    fs.remove_index("state/index")
    assert fs.names("state/index") == []
    with pytest.raises(lmdb.Error):
        fs.open_index("state/index", readonly=False)
    env = fs.open_index("state/index", readonly=False, create=True)
    with pytest.raises(lmdb.NotFoundError):
        env.open_db(b"rows", create=False)
    env.close()
    with pytest.raises(FileNotFoundError):
        fs.remove_index("nowhere")


def test_an_index_that_was_thrown_away_can_still_be_open(fs: Filesystem) -> None:
    filled(fs, b"one")
    old = fs.open_index("state/index", readonly=False)
    fs.remove_index("state/index")
    filled(fs, b"two")
    new = fs.open_index("state/index", readonly=True)
    assert (value_of(old), value_of(new)) == (b"one", b"two")
    old.close()
    new.close()
