"""Every fault at every operation of a clean stop, of checkpoints that are asked for, and of pruning."""

from pathlib import Path

import pytest

from tests.storage.simulation.oracle import AFTERMATHS, Oracle, swept
from tests.storage.simulation.promises import BOUND, Promises, Session, prepared
from tests.storage.simulation.sim_plan import CRASHES, ERRORS, Fault, Op, Operation
from tests.storage.simulation.simdisk import SimFilesystem
from tests.storage.stores import A, B
from veen.core.data_dir.store_records import BZIP2, NO_COMPRESSION

pytestmark = pytest.mark.sweep


def not_the_start(operation: Operation) -> bool:
    """Accept all but what a start does before anything else; that is swept elsewhere."""
    return not operation.path.startswith(("state/lock", "store."))


# --- checkpoints and the stop -------------------------------------------------------------------------------


def some(session: Session) -> None:
    session.append(A, B)
    session.append(A, BOUND)
    session.close()


def ask_and_stop(fs: SimFilesystem, kept: Promises) -> None:
    session = Session(fs, kept)
    session.checkpoint(A, 1)  # of an entry that is in a chunk
    session.append(A)
    session.checkpoint(A, 3)  # of one that is in the journal
    session.append(A)
    session.checkpoint(A, 4)  # the same as the one that the chunk gets when it is sealed
    session.close()


@pytest.mark.parametrize("faults", [CRASHES, ERRORS])
def test_a_checkpoint_that_was_returned_stays(tmp_path: Path, faults: tuple[Fault, ...]) -> None:
    start, kept = prepared(tmp_path, some)
    oracle = Oracle()
    report = swept(tmp_path, start, ask_and_stop, faults, oracle, witness=kept.copy, where=not_the_start)
    if faults is CRASHES:
        assert report.hit_each(Op.RENAME, Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
        assert report.hit_each(Op.UNLINK, Fault.CRASH_BEFORE)
    else:
        assert report.hit_each(Op.RENAME, Fault.EIO_AFTER, Fault.ENOSPC)
        assert report.hit_each(Op.SYNC_DIR, Fault.FAILED_SYNC)
        assert report.hit_each(Op.WRITE, Fault.SHORT)
        assert report.hit_each(Op.SYNC, Fault.FAILED_SYNC)
        assert oracle.full >= len(AFTERMATHS) * report.hit(Fault.SHORT, Op.WRITE)
        assert oracle.stopped >= len(AFTERMATHS) * report.hit(Fault.FAILED_SYNC, Op.SYNC)
    assert oracle.refusals == 0


# --- pruning ------------------------------------------------------------------------------------------------


def two_chunks(session: Session) -> None:
    session.authorize()
    for _ in range(4):
        session.append(A, A)
    session.append(A, BOUND)
    session.checkpoint(A, 2)
    session.close()


def prune(fs: SimFilesystem, kept: Promises) -> None:
    session = Session(fs, kept)
    session.prune(A, 7)
    session.append(A)
    session.prune(A, 8)
    session.writer.abandon()


@pytest.mark.parametrize("faults", [CRASHES, ERRORS])
@pytest.mark.parametrize("compression", [NO_COMPRESSION, BZIP2])
def test_a_chunk_is_there_or_pruned_and_everything_stays_provable(
    tmp_path: Path, compression: str, faults: tuple[Fault, ...]
) -> None:
    start, kept = prepared(tmp_path, two_chunks, compression=compression)
    oracle = Oracle()
    report = swept(tmp_path, start, prune, faults, oracle, witness=kept.copy, where=not_the_start)
    if faults is CRASHES:
        for op in (Op.RENAME, Op.UNLINK):
            assert report.hit_each(op, Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
    else:
        assert report.hit_each(Op.UNLINK, Fault.EIO_AFTER)
        assert report.hit_each(Op.SYNC_DIR, Fault.FAILED_SYNC)
        assert report.hit_each(Op.WRITE, Fault.SHORT)
        assert report.hit_each(Op.SYNC, Fault.FAILED_SYNC)
        assert oracle.full >= len(AFTERMATHS) * report.hit(Fault.SHORT, Op.WRITE)
        assert oracle.stopped >= len(AFTERMATHS) * report.hit(Fault.FAILED_SYNC, Op.SYNC)
    assert oracle.refusals == 0


def compressing(operation: Operation) -> bool:
    return ".bz2" in operation.path or operation.op in (Op.UNLINK, Op.SYNC_DIR, Op.COMMIT)


def seal_and_prune(fs: SimFilesystem, kept: Promises) -> None:
    session = Session(fs, kept)
    session.append(A, A, A, A)
    session.flush()
    session.prune(A, 4)
    session.close()


@pytest.mark.slow
@pytest.mark.parametrize("faults", [CRASHES, ERRORS])
def test_a_chunk_that_is_pruned_behind_its_compression(tmp_path: Path, faults: tuple[Fault, ...]) -> None:
    start, kept = prepared(tmp_path, some, compression=BZIP2)
    oracle = Oracle()
    report = swept(tmp_path, start, seal_and_prune, faults, oracle, witness=kept.copy, where=compressing)
    assert {Op.UNLINK, Op.SYNC_DIR, Op.COMMIT} < set(report.operations)
    assert oracle.refusals == 0
