"""Faults come when they are planned: each step is counted, each fault meets each step, a crash is final."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from tests.storage.simulation.sim_plan import (
    CHANGES,
    CRASHES,
    ERRORS,
    LIES,
    Crash,
    Fault,
    Op,
    Operation,
    Plan,
)
from tests.storage.simulation.simdisk import SimDisk, SimFilesystem
from veen.storage.fs import Filesystem, Write

BIG = bytes(range(1, 251)) * 40


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SimDisk]:
    """A disk with a data directory and three directories in it."""
    with SimDisk(tmp_path) as made:
        fs = made.filesystem()
        for path in ("", "log", "state", "state/index"):
            fs.make_dir(path)
        yield made
    assert list(tmp_path.iterdir()) == []


def put(fs: Filesystem, path: str, data: bytes) -> None:
    """Write a file durably, name and all."""
    fs.write_all([Write(path, 0, data)])
    fs.sync_dir(path.rpartition("/")[0])


# --- plans and counting -------------------------------------------------------------------------------------


def everything(fs: SimFilesystem) -> None:
    """Do each operation at least once."""
    fs.make_dir("log")
    fs.lock("state/lock", b"me").release()
    fs.write_all([Write("log/a", 0, b"12345")])
    file = fs.open_append("log/a")
    file.write(b"6789")
    file.sync()
    file.truncate(8)
    file.close()
    fs.truncate("log/a", 7)
    fs.rename("log/a", "log/b")
    fs.sync_dir("log")
    fs.names("log")
    fs.size("log/b")
    fs.read("log/b")
    fs.unlink("log/b")
    env = fs.open_index("state/index", readonly=False, create=True)
    txn = env.begin(write=True)
    txn.put(b"key", b"value")
    fs.commit(txn)
    env.close()


EVERYTHING = [
    (Op.MAKE_DIR, "log", 0),
    *[(Op.CREATE, "state/lock", 0), (Op.LOCK, "state/lock", 0), (Op.TRUNCATE, "state/lock", 0)],
    (Op.WRITE, "state/lock", 2),
    *[(Op.CREATE, "log/a", 0), (Op.WRITE, "log/a", 5), (Op.SYNC, "log/a", 0)],
    *[(Op.OPEN, "log/a", 0), (Op.WRITE, "log/a", 4), (Op.SYNC, "log/a", 0), (Op.TRUNCATE, "log/a", 0)],
    *[(Op.OPEN, "log/a", 0), (Op.TRUNCATE, "log/a", 0), (Op.SYNC, "log/a", 0)],
    *[(Op.RENAME, "log/b", 0), (Op.SYNC_DIR, "log", 0), (Op.NAMES, "log", 0)],
    *[(Op.SIZE, "log/b", 0), (Op.READ, "log/b", 0), (Op.UNLINK, "log/b", 0)],
    *[(Op.OPEN_INDEX, "state/index", 0), (Op.COMMIT, "", 0)],
]


def test_every_step_has_a_number(disk: SimDisk) -> None:
    fs = disk.filesystem()
    everything(fs)
    assert fs.operations == [Operation(number, *step) for number, step in enumerate(EVERYTHING, start=1)]
    assert {step[0] for step in EVERYTHING} == set(Op)


def hits(disk: SimDisk, fault: Fault) -> list[Operation]:
    """Return what a fault hits, by planning it at 1, 2, 3 ... until nothing is injected."""
    snapshot = disk.snapshot()
    found: list[Operation] = []
    while True:
        plan = Plan(fault, len(found) + 1)
        with SimDisk.from_snapshot(snapshot) as copy:
            try:
                everything(copy.filesystem(plan))
            except (OSError, lmdb.Error):
                assert plan.injected
                assert fault not in CRASHES
            except Crash:
                assert plan.injected
                assert fault in CRASHES
        if not plan.injected:
            assert plan.seen.total() == len(found)
            return found
        found += plan.hits


@pytest.mark.parametrize("fault", list(Fault))
def test_a_fault_meets_each_step_that_it_can_hit_once(disk: SimDisk, fault: Fault) -> None:
    found = [(hit.op, hit.path, hit.size) for hit in hits(disk, fault)]
    writes = [step for step in EVERYTHING if step[0] is Op.WRITE]
    expected = {
        Fault.CRASH_BEFORE: [step for step in EVERYTHING if step[0] in CHANGES],
        Fault.CRASH_AFTER: [step for step in EVERYTHING if step[0] in CHANGES],
        Fault.EIO: [step for step in EVERYTHING if step[0] in CHANGES],
        Fault.FAILED_SYNC: [step for step in EVERYTHING if step[0] in (Op.SYNC, Op.SYNC_DIR)],
        Fault.READ_EIO: [step for step in EVERYTHING if step[0] not in CHANGES],
    } | dict.fromkeys((Fault.CRASH_INSIDE, Fault.SHORT, *LIES), writes)
    assert found
    if fault in expected:
        assert found == expected[fault]


def test_every_fault_is_in_one_group() -> None:
    assert sorted((*CRASHES, *ERRORS, *LIES)) == sorted(Fault)


def test_a_plan_can_be_for_some_places(disk: SimDisk) -> None:
    plan = Plan(Fault.EIO, 2, where=lambda operation: operation.op is Op.WRITE and operation.path == "log/b")
    fs = disk.filesystem(plan)
    put(fs, "log/a", b"12")
    put(fs, "log/b", b"34")
    assert not plan.injected
    with pytest.raises(OSError, match="Input/output error"):
        fs.open_append("log/b").write(b"5")
    assert [hit.path for hit in plan.hits] == ["log/b"]


@pytest.mark.parametrize("fault", [Fault.SHORT, Fault.CRASH_INSIDE])
def test_one_byte_has_no_middle(disk: SimDisk, fault: Fault) -> None:
    plan = Plan(fault)
    put(disk.filesystem(plan), "log/a", b"1")
    assert not plan.injected


def test_a_fault_happens_once_or_until_it_is_stopped(disk: SimDisk) -> None:
    once, lasting = Plan(Fault.ENOSPC, 2), Plan(Fault.ENOSPC, 3, persistent=True)
    fs = disk.filesystem(once, lasting)
    put(fs, "log/a", b"")
    with pytest.raises(OSError, match="No space left"):
        put(fs, "log/b", b"")
    for name in "cde":
        with pytest.raises(OSError, match="No space left") as caught:
            put(fs, f"log/{name}", b"")
        assert caught.value.errno == errno.ENOSPC
    lasting.stop()
    put(fs, "log/b", b"")
    assert (len(once.hits), len(lasting.hits)) == (1, 3)
    assert fs.names("log") == ["a", "b"]


# --- crashes ------------------------------------------------------------------------------------------------


def test_no_handler_survives_a_crash(disk: SimDisk) -> None:
    put(disk.filesystem(), "log/a", b"")
    fs = disk.filesystem(Plan(Fault.CRASH_BEFORE))
    file = fs.open_append("log/a")
    assert not issubclass(Crash, Exception)

    def careless() -> None:
        try:
            file.write(b"x")
        except Exception:  # noqa: BLE001 - what an engine might do
            pytest.fail("swallowed")

    with pytest.raises(Crash):
        careless()


def test_after_a_crash_everything_is_a_crash(disk: SimDisk) -> None:
    before = disk.filesystem()
    put(before, "log/a", b"1")
    fs = disk.filesystem(Plan(Fault.CRASH_BEFORE, where=lambda operation: operation.op is Op.SYNC_DIR))
    file, held = fs.open_append("log/a"), fs.lock("state/lock", b"me")
    env = fs.open_index("state/index", readonly=False, create=True)
    state = disk.files()
    calls: list[Callable[[], object]] = [
        lambda: fs.sync_dir("log"),
        lambda: fs.make_dir("log"),
        lambda: fs.names("log"),
        lambda: fs.size("log/a"),
        lambda: fs.read("log/a"),
        lambda: fs.write_all([]),
        lambda: fs.write_all([Write("log/a", 1, b"")]),
        lambda: fs.truncate("log/a", 0),
        lambda: fs.rename("log/a", "log/b"),
        lambda: fs.unlink("log/a"),
        lambda: fs.open_append("log/a"),
        lambda: fs.lock("state/lock", b"me"),
        lambda: fs.open_index("state/index", readonly=True),
        lambda: fs.commit(env.begin(write=True)),
        lambda: file.write(b"x"),
        lambda: file.write(b""),
        lambda: file.truncate(0),
        file.sync,
    ]
    for call in calls:
        with pytest.raises(Crash, match="crash before"):
            call()
    file.close()
    held.release()
    assert disk.files() == state
    assert before.read("log/a") == b"1"  # another process of the same machine


@pytest.mark.parametrize("seed", range(5))
def test_where_a_crash_stands(disk: SimDisk, seed: int) -> None:
    left: dict[Fault, bytes] = {}
    snapshot = disk.snapshot()
    for fault in CRASHES:
        with SimDisk.from_snapshot(snapshot) as copy:
            with pytest.raises(Crash):
                put(copy.filesystem(Plan(fault, seed=seed, where=lambda op: op.op is Op.WRITE)), "log/a", BIG)
            copy.process_crash()
            left[fault] = copy.files()["log/a"]
    assert left[Fault.CRASH_BEFORE] == b""
    assert left[Fault.CRASH_AFTER] == BIG
    assert BIG.startswith(left[Fault.CRASH_INSIDE])
    assert 0 < len(left[Fault.CRASH_INSIDE]) < len(BIG)


def test_a_crash_frees_locks_and_a_dead_process_frees_none(disk: SimDisk) -> None:
    first = disk.filesystem(Plan(Fault.CRASH_BEFORE, where=lambda operation: operation.op is Op.SYNC_DIR))
    held = first.lock("state/lock", b"first")
    with pytest.raises(BlockingIOError):
        disk.filesystem().lock("state/lock", b"second")
    with pytest.raises(Crash):
        first.sync_dir("state")
    second = disk.filesystem()
    second.lock("state/lock", b"second")
    held.release()
    with pytest.raises(BlockingIOError):
        disk.filesystem().lock("state/lock", b"third")
    disk.power_loss(1)
    disk.filesystem().lock("state/lock", b"third")
