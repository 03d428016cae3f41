"""Every fault at every operation of a repair, and of the next one: the log is never touched."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.storage.simulation.oracle import Oracle, swept
from tests.storage.simulation.promises import BOUND, Promises, Session, prepared
from tests.storage.simulation.sim_loss import KEEP_ALL
from tests.storage.simulation.sim_plan import CRASHES, ERRORS, Fault, Op, Operation, Plan
from tests.storage.simulation.sim_sweep import Case
from tests.storage.simulation.simdisk import SimDisk, SimFilesystem, Snapshot
from tests.storage.stores import A, B
from veen.core.data_dir import paths
from veen.core.data_dir.store_records import BZIP2
from veen.storage.maintain.repair import repair

pytestmark = pytest.mark.sweep

#: What is in the log and can not be made again.
TRUTH: Final = (".log", ".bz2", ".wal")


def rich(session: Session) -> None:
    """Leave something of everything: reserved logs, pruned, compressed, open and unmoved entries."""
    session.authorize()
    for _ in range(3):
        session.append(A, A, BOUND)
    session.checkpoint(A, 5)
    session.flush()
    session.prune(A, 4)
    session.append(A, B)
    session.append(A, A)


def small(session: Session) -> None:
    session.append(A, B)
    session.append(A, A, A)
    session.flush()


def seal(operation: Operation) -> bool:
    return operation.op is Op.RENAME and operation.path.endswith(".log")


def mend(fs: SimFilesystem, _: Promises) -> None:
    mend_again(fs)


def mend_again(fs: SimFilesystem) -> None:
    repair(fs, owner="a test")


class _Repair(Oracle):
    """A repair that was not finished is done again; the log is the same all the time."""

    def __init__(self, before: Snapshot) -> None:
        super().__init__(lambda case: case.error is not None or case.recovery != "undisturbed")
        with SimDisk.from_snapshot(before) as disk:
            self._log = _truth(disk)

    def judge(self, case: Case[Promises]) -> None:
        assert (case.error is not None) == case.injected, "an error was passed over"

    def start(self, fs: SimFilesystem, kept: Promises, case: Case[Promises]) -> Session:
        assert case.round > 1 or _truth(fs._disk) == self._log, "the log has changed"
        return super().start(fs, kept, case)


def settled(scratch: Path, steps: Callable[[Session], None], *plans: Plan) -> tuple[Snapshot, Promises]:
    """Prepare a store of which nothing is pending: then the log must stay as it is whatever happens."""
    start, kept = prepared(scratch, steps, *plans, compression=BZIP2)
    with SimDisk.from_snapshot(start) as disk:
        disk.power_loss(KEEP_ALL)
        return disk.snapshot(), kept


def _truth(disk: SimDisk) -> dict[str, bytes]:
    return {path: data for path, data in disk.files().items() if path.endswith(TRUTH)}


@pytest.mark.parametrize("faults", [CRASHES, ERRORS])
def test_a_repair_can_be_interrupted_anywhere(tmp_path: Path, faults: tuple[Fault, ...]) -> None:
    start, kept = settled(tmp_path, rich)
    oracle = _Repair(start)
    report = swept(tmp_path, start, mend, faults, oracle, witness=kept.copy, rounds=1)
    if faults is CRASHES:
        for op in (Op.COMMIT, Op.RENAME):
            assert report.hit_each(op, Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
    else:
        assert report.hit_each(Op.READ, Fault.READ_EIO)
    assert oracle.refusals > report.operations[Op.COMMIT]


@pytest.mark.parametrize("derived", ["index", paths.RECEIPTS, paths.CHECKPOINTS, "nodes"])
def test_a_repair_of_a_derived_file_that_is_gone(tmp_path: Path, derived: str) -> None:
    start, kept = settled(tmp_path, small)
    with SimDisk.from_snapshot(start) as disk:
        fs = disk.filesystem()
        if derived == "index":
            fs.remove_index(paths.INDEX)
        else:
            for path in [path for path in disk.files() if derived in path]:
                fs.unlink(path)
        disk.power_loss(KEEP_ALL)
        start = disk.snapshot()
    oracle = _Repair(start)
    faults = (Fault.CRASH_BEFORE, Fault.EIO_AFTER)
    report = swept(tmp_path, start, mend, faults, oracle, witness=kept.copy, aftermaths=(None, 2), rounds=1)
    assert report.hit_each(Op.RENAME, Fault.CRASH_BEFORE)
    assert oracle.refusals > report.operations[Op.COMMIT]


def test_a_repair_behind_a_flush_that_was_interrupted(tmp_path: Path) -> None:
    start, kept = settled(tmp_path, small, Plan(Fault.CRASH_AFTER, 1, where=seal))
    oracle = _Repair(start)
    faults = (Fault.CRASH_BEFORE, Fault.CRASH_INSIDE, Fault.FAILED_SYNC)
    report = swept(tmp_path, start, mend, faults, oracle, witness=kept.copy)
    assert report.hit_each(Op.COMMIT, Fault.CRASH_BEFORE)


def test_two_repairs_in_a_row_can_be_interrupted(tmp_path: Path) -> None:
    start, kept = settled(tmp_path, rich)
    oracle = _Repair(start)
    report = swept(
        tmp_path,
        start,
        mend,
        (Fault.CRASH_BEFORE,),
        oracle,
        witness=kept.copy,
        aftermaths=(None, 2),
        recover=mend_again,
        recovery_faults=(Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.FAILED_SYNC),
        recovery_points=1,
        rounds=1,
    )
    assert report.recoveries >= 5 * report.runs - 20
