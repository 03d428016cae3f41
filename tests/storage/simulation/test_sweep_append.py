"""Every fault at every operation of starting a writer and committing batches over several labels."""

from pathlib import Path
from typing import Final

import pytest

from tests.storage.simulation.oracle import AFTERMATHS, Oracle, swept
from tests.storage.simulation.promises import BOUND, Promises, Session, prepared
from tests.storage.simulation.sim_plan import CRASHES, ERRORS, Fault, Op, Operation
from tests.storage.simulation.simdisk import SimFilesystem
from tests.storage.stores import A, B

pytestmark = pytest.mark.sweep

FULL: Final = (Fault.ENOSPC, Fault.SHORT)


def started(session: Session) -> None:
    """Leave a store that was never used, but for its lock."""
    session.close()


def append(fs: SimFilesystem, kept: Promises) -> None:
    session = Session(fs, kept)
    session.append(A, B, A)
    session.authorize()
    session.append(A, size=700)  # so long that sectors can be torn apart
    session.checkpoint(A, 2)
    session.append(BOUND, B)
    session.writer.abandon()


def journal(operation: Operation) -> bool:
    return operation.path.endswith(".wal")


@pytest.mark.parametrize("faults", [CRASHES, ERRORS])
def test_a_batch_is_there_if_it_was_acknowledged(tmp_path: Path, faults: tuple[Fault, ...]) -> None:
    start, kept = prepared(tmp_path, started)
    oracle = Oracle()
    report = swept(tmp_path, start, append, faults, oracle, witness=kept.copy)
    if faults is CRASHES:
        assert report.hit_each(Op.SYNC, Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
        assert report.hit_each(Op.WRITE, Fault.CRASH_INSIDE)
    else:
        assert report.hit_each(Op.SYNC, Fault.FAILED_SYNC)
        assert report.hit_each(Op.WRITE, Fault.SHORT)
        assert oracle.full >= len(AFTERMATHS) * report.hit(Fault.SHORT, Op.WRITE)
        assert oracle.stopped >= len(AFTERMATHS) * report.hit(Fault.FAILED_SYNC, Op.SYNC)
    assert oracle.refusals == 0


def test_a_torn_batch_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    """Many power losses, at the journal alone: the last batch, its mark and what follows, torn in any way."""
    start, kept = prepared(tmp_path, started)
    oracle = Oracle()
    faults = (Fault.CRASH_BEFORE, Fault.CRASH_INSIDE, Fault.FAILED_SYNC)
    report = swept(
        tmp_path, start, append, faults, oracle, witness=kept.copy, aftermaths=range(2, 10), where=journal
    )
    assert report.hit_each(Op.SYNC, Fault.CRASH_BEFORE)
    assert oracle.distinct > report.runs


@pytest.mark.parametrize("fault", FULL)
def test_a_disk_that_stays_full_refuses_commits_until_there_is_space(tmp_path: Path, fault: Fault) -> None:
    start, kept = prepared(tmp_path, started)
    oracle = Oracle()
    report = swept(
        tmp_path, start, append, (fault,), oracle, witness=kept.copy, persistent=True, aftermaths=(None, 2)
    )
    assert report.hit_each(Op.WRITE, fault)
    assert oracle.full >= 2 * report.runs - 10
    assert oracle.stopped == 0
