"""Every fault at every operation of a start that has something to finish, and once more during the next."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.storage.simulation.oracle import AFTERMATHS, SEEDS, Oracle, swept
from tests.storage.simulation.promises import BOUND, Promises, Session, open_writer, prepared, recover
from tests.storage.simulation.sim_plan import CRASHES, ERRORS, Fault, Op, Operation, Plan
from tests.storage.simulation.sim_sweep import Case
from tests.storage.simulation.simdisk import SimFilesystem, Snapshot
from tests.storage.stores import A, B

pytestmark = pytest.mark.sweep

Start = tuple[Snapshot, Promises]


def work(session: Session) -> None:
    """Leave a chunk that the journal seals, a new label, and a checkpoint: all of it only in the journal."""
    for _ in range(3):
        session.append(A, BOUND)
    session.flush()
    session.append(A)
    session.checkpoint(A, 2)
    session.append(A, B)
    session.append(B, size=700)


def work_and_flush(session: Session) -> None:
    work(session)
    session.flush()


def journal_sync(operation: Operation) -> bool:
    return operation.op is Op.SYNC and operation.path.endswith(".wal")


def seal(operation: Operation) -> bool:
    return operation.op is Op.RENAME and operation.path.endswith(".log")


def moved(operation: Operation) -> bool:
    return operation.op is Op.UNLINK and operation.path.endswith(".wal")


def abandoned(scratch: Path) -> Start:
    return prepared(scratch, work)


def unsynced(scratch: Path) -> Start:
    """The last batch is in the page cache, and its process has ended before the sync."""
    return prepared(scratch, work, Plan(Fault.CRASH_BEFORE, 10, where=journal_sync))


def failed(scratch: Path) -> Start:
    """The last batch is in the page cache, and the sync has failed: it counts as written, and is not."""
    return prepared(scratch, work, Plan(Fault.FAILED_SYNC, 10, seed=3, where=journal_sync))


def half_moved(scratch: Path) -> Start:
    """A flush has ended in its middle: the chunk has its sealed name, and the index does not know it."""
    return prepared(scratch, work_and_flush, Plan(Fault.CRASH_AFTER, 1, where=seal))


def unreleased(scratch: Path) -> Start:
    """A flush has ended before its last step: the segment is still there, and all of it is in chunks."""
    return prepared(scratch, work_and_flush, Plan(Fault.CRASH_BEFORE, 2, where=moved))


STARTS: Final = (abandoned, unsynced, failed, half_moved, unreleased)


def begin(fs: SimFilesystem, _: Promises) -> None:
    open_writer(fs).abandon()


class _Start(Oracle):
    """A start works or is refused; that there was no space for it is an error as any other."""

    def judge(self, case: Case[Promises]) -> None:
        assert (case.error is not None) == case.injected, "an error was passed over"


@pytest.mark.parametrize("faults", [CRASHES, ERRORS])
@pytest.mark.parametrize("before", STARTS)
def test_a_start_can_be_interrupted_anywhere(
    tmp_path: Path, before: Callable[[Path], Start], faults: tuple[Fault, ...]
) -> None:
    snapshot, kept = before(tmp_path)
    oracle = _Start()
    report = swept(tmp_path, snapshot, begin, faults, oracle, witness=kept.copy)
    if faults is CRASHES:
        assert report.hit_each(Op.COMMIT, Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
    assert oracle.refusals == 0


@pytest.mark.parametrize("before", STARTS)
def test_two_starts_in_a_row_can_be_interrupted(tmp_path: Path, before: Callable[[Path], Start]) -> None:
    snapshot, kept = before(tmp_path)
    oracle = _Start()
    report = swept(
        tmp_path,
        snapshot,
        begin,
        (Fault.CRASH_BEFORE, Fault.CRASH_INSIDE),
        oracle,
        witness=kept.copy,
        aftermaths=AFTERMATHS[-1:] if SEEDS == 1 else AFTERMATHS[1:],
        recover=recover,
        recovery_faults=(Fault.CRASH_BEFORE, Fault.FAILED_SYNC),
        recovery_points=1,
        rounds=1,
    )
    assert report.recoveries >= 2 * report.runs
    assert oracle.refusals == 0


@pytest.mark.slow
@pytest.mark.parametrize("before", [unsynced, half_moved] if SEEDS == 1 else STARTS)
def test_two_starts_in_a_row_can_be_interrupted_by_anything(
    tmp_path: Path, before: Callable[[Path], Start]
) -> None:
    snapshot, kept = before(tmp_path)
    oracle = _Start()
    report = swept(
        tmp_path,
        snapshot,
        begin,
        (Fault.EIO_AFTER, Fault.FAILED_SYNC),
        oracle,
        witness=kept.copy,
        aftermaths=(None,) if SEEDS == 1 else AFTERMATHS,
        seeds=range(SEEDS),
        recover=recover,
        recovery_faults=(Fault.CRASH_AFTER, Fault.EIO_AFTER, Fault.FAILED_SYNC),
        recovery_points=1,
    )
    assert report.recoveries >= 2 * report.runs
    assert oracle.refusals == 0
