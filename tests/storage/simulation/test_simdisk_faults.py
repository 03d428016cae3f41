"""What a program meets on a simulated disk that fails or lies, and the index on it."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from tests.storage.simulation.sim_plan import Crash, Fault, Op, Operation, Plan
from tests.storage.simulation.simdisk import SimDisk, SimFilesystem
from veen.storage.fs import Filesystem, Write

BIG = bytes(range(1, 251)) * 40


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SimDisk]:
    with SimDisk(tmp_path) as made:
        fs = made.filesystem()
        for path in ("", "log", "state", "state/index"):
            fs.make_dir(path)
        put(fs, "log/a", b"durable")
        yield made
    assert list(tmp_path.iterdir()) == []


def put(fs: Filesystem, path: str, data: bytes) -> None:
    fs.write_all([Write(path, 0, data)])
    fs.sync_dir(path.rpartition("/")[0])


def only(op: Op) -> Callable[[Operation], bool]:
    return lambda operation: operation.op is op


# --- errors -------------------------------------------------------------------------------------------------


def lengths_after(disk: SimDisk, fault: Fault, code: int) -> list[int]:
    """Return how much of a write was done that failed, by seed, and check that the next one works."""
    snapshot = disk.snapshot()
    lengths = []
    for seed in range(40):
        with SimDisk.from_snapshot(snapshot) as copy:
            fs = copy.filesystem(Plan(fault, seed=seed))
            file = fs.open_append("log/a")
            with pytest.raises(OSError, match=r".") as caught:
                file.write(BIG)
            assert caught.value.errno == code
            assert (b"durable" + BIG).startswith(fs.read("log/a"))
            lengths.append(len(fs.read("log/a")) - 7)
            file.truncate(7)
            file.write(BIG)
            file.sync()
            assert copy.durable_files() == {"log/a": b"durable" + BIG}
    return lengths


def test_failed_writes(disk: SimDisk) -> None:
    for fault, code in ((Fault.EIO, errno.EIO), (Fault.ENOSPC, errno.ENOSPC)):
        lengths = lengths_after(disk, fault, code)
        assert 0 in lengths
        assert len(BIG) not in lengths
        assert len(set(lengths)) > 5
    short = lengths_after(disk, Fault.SHORT, errno.ENOSPC)
    assert 0 < min(short) < max(short) < len(BIG)
    assert set(lengths_after(disk, Fault.EIO_AFTER, errno.EIO)) == {len(BIG)}


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.EIO_AFTER])
@pytest.mark.parametrize(
    "op", [Op.CREATE, Op.RENAME, Op.UNLINK, Op.SYNC_DIR, Op.MAKE_DIR, Op.SYNC, Op.TRUNCATE]
)
def test_what_failed_was_done_or_not(disk: SimDisk, fault: Fault, op: Op) -> None:
    calls: dict[Op, Callable[[Filesystem], object]] = {
        Op.CREATE: lambda fs: fs.write_all([Write("log/new", 0, b"")]),
        Op.RENAME: lambda fs: fs.rename("log/a", "log/b"),
        Op.UNLINK: lambda fs: fs.unlink("log/a"),
        Op.SYNC_DIR: lambda fs: fs.sync_dir("log"),
        Op.MAKE_DIR: lambda fs: fs.make_dir("anchors"),
        Op.SYNC: lambda fs: fs.open_append("log/a").sync(),
        Op.TRUNCATE: lambda fs: fs.open_append("log/a").truncate(3),
    }
    fs = disk.filesystem(Plan(fault, where=only(op)))
    fs.open_append("log/a").write(b"+")
    fs.write_all([Write("log/unsynced", 0, b"")]) if op is Op.SYNC_DIR else None

    def state() -> object:
        return disk.files(), disk.durable_files(), list(disk.platter.cached)

    before = state()
    with pytest.raises(OSError, match="Input/output error"):
        calls[op](fs)
    assert (state() != before) == (fault is Fault.EIO_AFTER)
    if fault is Fault.EIO:
        calls[op](fs)
        assert state() != before


def test_failed_reads(disk: SimDisk) -> None:
    calls: list[Callable[[Filesystem], object]] = [
        lambda fs: fs.read("log/a"),
        lambda fs: fs.size("log/a"),
        lambda fs: fs.names("log"),
        lambda fs: fs.open_append("log/a"),
    ]
    for call in calls:
        fs = disk.filesystem(Plan(Fault.READ_EIO))
        with pytest.raises(OSError, match="Input/output error"):
            call(fs)
        assert call(fs)


def test_a_sync_that_failed_is_not_made_good_by_one_that_succeeds(disk: SimDisk) -> None:
    snapshot = disk.snapshot()
    seen: list[bytes] = []
    for seed in range(20):
        with SimDisk.from_snapshot(snapshot) as copy:
            fs = copy.filesystem(Plan(Fault.FAILED_SYNC, seed=seed))
            file = fs.open_append("log/a")
            file.write(b"+one")
            with pytest.raises(OSError, match="Input/output error"):
                file.sync()
            seen.append(fs.read("log/a"))
            file.sync()
            assert copy.durable_files() == {"log/a": b"durable"}
            file.write(b"+two")
            file.sync()
            copy.power_loss(1)
            assert copy.files()["log/a"] in (b"durable\0\0\0\0+two", b"durable+two")
    kept, size, dropped = b"durable+one", b"durable\0\0\0\0", b"durable"
    assert sorted(set(seen)) == sorted({kept, size, dropped})


def test_a_failed_sync_fails_one_file(disk: SimDisk) -> None:
    fs = disk.filesystem(Plan(Fault.FAILED_SYNC))
    files = [fs.open_append("log/a"), fs.open_append("log/a")]
    put(disk.filesystem(), "log/b", b"")
    other = fs.open_append("log/b")
    other.write(b"other")
    files[0].write(b"+")
    with pytest.raises(OSError, match="Input/output error"):
        files[1].sync()
    other.sync()
    assert disk.durable_files() == {"log/a": b"durable", "log/b": b"other"}


def test_a_failed_sync_of_a_directory(disk: SimDisk) -> None:
    snapshot = disk.snapshot()
    durable: list[bool] = []
    for seed in range(20):
        with SimDisk.from_snapshot(snapshot) as copy:
            fs = copy.filesystem(Plan(Fault.FAILED_SYNC, 2, seed=seed))
            fs.write_all([Write("log/new", 0, b"x")])
            with pytest.raises(OSError, match="Input/output error"):
                fs.sync_dir("log")
            assert fs.read("log/new") == b"x"
            fs.sync_dir("log")
            durable.append("log/new" in copy.durable_files())
            after = copy.snapshot()
            copy.power_loss(1)
            assert copy.files() == {"log/a": b"durable"} | ({"log/new": b"x"} if durable[-1] else {})
        with SimDisk.from_snapshot(after) as copy:  # the directory is written again for another reason
            fs = copy.filesystem()
            put(fs, "state/b", b"")
            assert ("log/new" in copy.durable_files()) == durable[-1]
            put(fs, "log/b", b"")
            assert "log/new" in copy.durable_files()
    assert True in durable
    assert False in durable


# --- lies ---------------------------------------------------------------------------------------------------


def test_a_lost_write_is_read_and_synced_and_gone(disk: SimDisk) -> None:
    snapshot = disk.snapshot()
    left: list[bytes] = []
    for seed in range(20):
        with SimDisk.from_snapshot(snapshot) as copy:
            fs = copy.filesystem(Plan(Fault.LOST_WRITE, seed=seed))
            file = fs.open_append("log/a")
            file.write(b"+lost")
            file.sync()
            copy.process_crash()
            assert copy.filesystem().read("log/a") == b"durable+lost"
            copy.power_loss(1)
            left.append(copy.files()["log/a"])
    assert sorted(set(left)) == [b"durable", b"durable" + bytes(5)]


def test_a_misdirected_write_hurts_another_place(disk: SimDisk) -> None:
    put(disk.filesystem(), "log/victim", b"v" * 100)
    snapshot = disk.snapshot()
    hurt = []
    for seed in range(30):
        with SimDisk.from_snapshot(snapshot) as copy:
            fs = copy.filesystem(Plan(Fault.MISDIRECTED, seed=seed))
            fs.write_all([Write("log/a", 7, b"12345")])
            copy.power_loss(0)
            files = copy.files()
            assert len(files["log/victim"]) == 100
            assert files["log/a"][7:] == bytes(5)
            broken = [path for path, whole in disk.files().items() if not files[path].startswith(whole)]
            assert len(broken) == 1
            assert b"1" in files[broken[0]]
            hurt += broken
    assert sorted(set(hurt)) == ["log/a", "log/victim"]


def test_a_misdirected_write_on_an_empty_disk_is_lost(tmp_path: Path) -> None:
    with SimDisk(tmp_path) as empty:
        fs = empty.filesystem(Plan(Fault.MISDIRECTED))
        fs.make_dir("")
        put(fs, "a", b"123")
        assert empty.durable_files() == {"a": bytes(3)}


# --- order --------------------------------------------------------------------------------------------------


def test_write_all_goes_in_any_order(disk: SimDisk) -> None:
    snapshot = disk.snapshot()
    orders = []
    for seed in range(30):
        with SimDisk.from_snapshot(snapshot) as copy:
            fs = copy.filesystem(seed=seed)
            fs.write_all([Write(f"log/{name}", 0, b"1") for name in "xyz"])
            steps = [operation.op for operation in fs.operations]
            assert steps == [Op.CREATE, Op.WRITE, Op.SYNC] * 3
            orders.append("".join(operation.path[-1] for operation in fs.operations[::3]))
    assert len(set(orders)) == 6


# --- index --------------------------------------------------------------------------------------------------


def fill(fs: SimFilesystem, value: bytes) -> lmdb.Environment:
    """Open the index and put a value in; the caller closes it, or crashes."""
    env = fs.open_index("state/index", readonly=False, create=True)
    with env.begin(write=True) as txn:
        txn.put(b"key", value)
        fs.commit(txn)
    fs.sync_dir("state/index")
    return env


def stored(disk: SimDisk) -> bytes | None:
    env = disk.filesystem().open_index("state/index", readonly=True)
    with env.begin() as txn:
        value: bytes | None = txn.get(b"key")
    env.close()
    return value


@pytest.mark.parametrize(
    ("fault", "error", "left"),
    [
        (Fault.CRASH_BEFORE, Crash, b"one"),
        (Fault.CRASH_AFTER, Crash, b"two"),
        (Fault.EIO, lmdb.Error, b"one"),
        (Fault.EIO_AFTER, lmdb.Error, b"two"),
        (Fault.ENOSPC, lmdb.DiskError, b"one"),
    ],
)
@pytest.mark.parametrize("power", [True, False])
def test_a_commit_is_all_or_nothing(
    disk: SimDisk, fault: Fault, error: type[BaseException], left: bytes, *, power: bool
) -> None:
    fill(disk.filesystem(), b"one").close()
    plan = Plan(fault, where=only(Op.COMMIT))
    fs = disk.filesystem(plan)
    with pytest.raises(error):  # and no error of a transaction that is closed already
        fill(fs, b"two")
    if power:
        disk.power_loss(0)
    else:
        disk.process_crash()
    assert stored(disk) == left
    assert plan.injected


def test_the_writer_can_go_on_after_a_failed_commit(disk: SimDisk) -> None:
    fs = disk.filesystem(Plan(Fault.ENOSPC, where=only(Op.COMMIT)))
    env = fs.open_index("state/index", readonly=False, create=True)
    txn = env.begin(write=True)
    with pytest.raises(lmdb.DiskError, match="No space left"):
        fs.commit(txn)
    with pytest.raises(lmdb.Error):
        txn.put(b"key", b"value")
    env.close()
    fill(fs, b"two").close()
    assert stored(disk) == b"two"


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_an_index_that_does_not_open(disk: SimDisk, fault: Fault) -> None:
    fs = disk.filesystem(Plan(fault, where=only(Op.OPEN_INDEX)))
    with pytest.raises(lmdb.Error):
        fs.open_index("state/index", readonly=False, create=True)
    assert fs.names("state/index") == []
    fill(fs, b"one").close()
    reader = disk.filesystem(Plan(Fault.READ_EIO))
    with pytest.raises(lmdb.Error, match="Input/output error"):
        reader.open_index("state/index", readonly=True)


def test_what_a_dead_process_does_to_its_index_does_not_count(disk: SimDisk) -> None:
    fs = disk.filesystem(Plan(Fault.CRASH_BEFORE, 2, where=only(Op.COMMIT)))
    env = fill(fs, b"one")
    txn = env.begin(write=True)
    txn.put(b"key", b"two")
    with pytest.raises(Crash):
        fs.commit(txn)
    txn.commit()
    assert stored(disk) == b"one"
    with pytest.raises(lmdb.Error):
        env.begin()


def test_the_name_of_an_index_is_a_name(disk: SimDisk) -> None:
    fs = disk.filesystem()
    env = fs.open_index("state/index", readonly=False, create=True)
    txn = env.begin(write=True)
    txn.put(b"key", b"one")
    fs.commit(txn)
    snapshot = disk.snapshot()
    left = []
    for seed in range(20):
        with SimDisk.from_snapshot(snapshot) as copy:
            copy.power_loss(seed)
            left.append("data.mdb" in copy.filesystem().names("state/index"))
    assert left[:2] == [False, True]
    fs.sync_dir("state/index")
    disk.power_loss(0)
    assert stored(disk) == b"one"


def test_a_snapshot_has_the_index_as_committed(disk: SimDisk) -> None:
    fs = disk.filesystem()
    env = fill(fs, b"one")
    txn = env.begin(write=True)
    txn.put(b"key", b"two")
    snapshot = disk.snapshot()
    fs.commit(txn)
    with SimDisk.from_snapshot(snapshot) as copy:
        assert stored(copy) == b"one"
        fill(copy.filesystem(), b"three").close()
        assert stored(copy) == b"three"
    assert stored(disk) == b"two"


def test_a_database_made_outside_of_a_transaction_stays(disk: SimDisk) -> None:
    disk.filesystem().open_index("state/index", readonly=False, create=True).open_db(b"rows")
    disk.process_crash()
    env = disk.filesystem().open_index("state/index", readonly=True)
    env.open_db(b"rows", create=False)
    env.close()


def test_a_reader_sees_the_index_as_it_opened_it(disk: SimDisk) -> None:
    writer, reader = disk.filesystem(), disk.filesystem()
    env = fill(writer, b"one")
    seen = reader.open_index("state/index", readonly=True)
    txn = env.begin(write=True)
    txn.put(b"key", b"two")
    writer.commit(txn)
    with seen.begin() as view:
        assert view.get(b"key") == b"one"
    with pytest.raises(AssertionError, match="two processes"):
        disk.filesystem().open_index("state/index", readonly=False)


def test_an_index_can_rot(disk: SimDisk) -> None:
    env = fill(disk.filesystem(), b"one")
    with pytest.raises(AssertionError, match="close the index"):
        disk.flip("state/index/data.mdb", 0, 0)
    env.close()
    size = len(disk.filesystem().read("state/index/data.mdb"))
    disk.truncate_file("state/index/data.mdb", 100)
    disk.power_loss(1)
    assert disk.filesystem().size("state/index/data.mdb") == 100 < size
    with pytest.raises(lmdb.InvalidError):
        disk.filesystem().open_index("state/index", readonly=False)


def test_thousands_of_runs_leave_nothing_behind(disk: SimDisk, tmp_path: Path) -> None:
    env = fill(disk.filesystem(), b"one")
    env.close()
    disk.process_crash()
    snapshot = disk.snapshot()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(500):
        with SimDisk.from_snapshot(snapshot) as copy:
            fault = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.EIO)[number % 3]
            with pytest.raises((Crash, lmdb.Error)):
                fill(copy.filesystem(Plan(fault, where=only(Op.COMMIT))), b"two")
            copy.power_loss(number)
            assert stored(copy) in (b"one", b"two")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert list(tmp_path.iterdir()) == []
