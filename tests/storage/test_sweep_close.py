"""Every fault at every operation of a clean stop, of checkpoints that are asked for, and of pruning."""

from pathlib import Path

import pytest

from tests.storage.oracle import Oracle, swept
from tests.storage.promises import BOUND, Promises, Session, prepared
from tests.storage.sim_plan import CRASHES, ERRORS, Fault, Op, Operation
from tests.storage.simdisk import SimFilesystem
from tests.storage.stores import A, B
from veen.core.datadir import BZIP2, NO_COMPRESSION


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
    # Three checkpoints with their peaks, a summary, the chunk's name and the checkpoint index.
    if faults is CRASHES:
        assert report.hit(Fault.CRASH_BEFORE, Op.RENAME) == report.hit(Fault.CRASH_AFTER, Op.RENAME) == 9
        assert report.hit(Fault.CRASH_BEFORE, Op.UNLINK) == 2
    else:
        assert report.hit(Fault.EIO_AFTER, Op.RENAME) == report.hit(Fault.ENOSPC, Op.RENAME) == 9
        assert report.hit(Fault.FAILED_SYNC, Op.SYNC_DIR) >= 4
        assert oracle.full >= 30
        assert oracle.stopped >= 30
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
        assert report.hit(Fault.CRASH_BEFORE, Op.RENAME) == report.hit(Fault.CRASH_AFTER, Op.RENAME) == 2
        assert report.hit(Fault.CRASH_BEFORE, Op.UNLINK) == report.hit(Fault.CRASH_AFTER, Op.UNLINK) == 2
    else:
        assert report.hit(Fault.EIO_AFTER, Op.UNLINK) == 2
        assert report.hit(Fault.FAILED_SYNC, Op.SYNC_DIR) >= 4
        assert oracle.full >= 10
        assert oracle.stopped >= 20
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
    assert report.runs > 30
    assert oracle.refusals == 0
