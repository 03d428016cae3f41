"""Every fault at every operation of moving entries into chunks: sealed by count, by bytes, compressed."""

from pathlib import Path
from typing import Final

import pytest

from tests.storage.simulation.oracle import AFTERMATHS, Oracle, swept
from tests.storage.simulation.promises import Promises, Session, prepared
from tests.storage.simulation.sim_plan import CRASHES, ERRORS, Fault, Op, Operation
from tests.storage.simulation.simdisk import SimFilesystem
from tests.storage.stores import TINY, A, B
from veen.core.data_dir.store_records import BZIP2, NO_COMPRESSION
from veen.core.limits import Limits

pytestmark = pytest.mark.sweep

FULL: Final = (Fault.ENOSPC, Fault.SHORT)
BY_BYTES: Final = Limits(max_msg_bytes=2_000, max_chunk_bytes=2_300, max_checkpoint_interval=100)


def half_full(session: Session) -> None:
    """Leave a chunk that one more entry seals, and one that does not end yet."""
    for _ in range(3):
        session.append(A)
    session.append(B)
    session.close()


def roll(fs: SimFilesystem, kept: Promises) -> None:
    session = Session(fs, kept)
    session.append(A, B)
    session.append(A)
    session.flush()
    session.append(A)
    session.writer.abandon()


def moving(operation: Operation) -> bool:
    """Accept what a flush does; how writers start and commit is swept elsewhere."""
    if operation.path.endswith(".wal"):
        return operation.op is Op.UNLINK
    return not operation.path.startswith(("state/lock", "store."))


@pytest.mark.parametrize("faults", [CRASHES, ERRORS])
@pytest.mark.parametrize(
    ("limits", "compression"),
    [(TINY, NO_COMPRESSION), (BY_BYTES, NO_COMPRESSION), (TINY, BZIP2)],
    ids=["count", "bytes", "compressed"],
)
def test_entries_are_moved_as_if_at_once(
    tmp_path: Path, limits: Limits, compression: str, faults: tuple[Fault, ...]
) -> None:
    start, kept = prepared(tmp_path, half_full, limits=limits, compression=compression)
    oracle = Oracle()
    report = swept(tmp_path, start, roll, faults, oracle, witness=kept.copy, where=moving)
    if faults is CRASHES:
        assert report.hit_each(Op.RENAME, Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
        assert report.hit_each(Op.UNLINK, Fault.CRASH_BEFORE)
        assert report.hit(Fault.CRASH_INSIDE, Op.WRITE) > report.operations[Op.RENAME]
    else:
        assert report.hit(Fault.FAILED_SYNC, Op.SYNC) > report.operations[Op.RENAME]
        assert report.hit_each(Op.SYNC_DIR, Fault.FAILED_SYNC)
        assert report.hit_each(Op.COMMIT, Fault.ENOSPC)
        assert report.hit_each(Op.WRITE, Fault.SHORT)
        assert report.hit_each(Op.SYNC, Fault.FAILED_SYNC)
        assert oracle.full >= len(AFTERMATHS) * report.hit(Fault.SHORT, Op.WRITE)
        assert oracle.stopped >= len(AFTERMATHS) * report.hit(Fault.FAILED_SYNC, Op.SYNC)
    assert oracle.refusals == 0


@pytest.mark.parametrize("fault", FULL)
def test_a_disk_that_stays_full_delays_a_flush_until_there_is_space(tmp_path: Path, fault: Fault) -> None:
    start, kept = prepared(tmp_path, half_full, compression=BZIP2)
    oracle = Oracle()
    report = swept(
        tmp_path,
        start,
        roll,
        (fault,),
        oracle,
        witness=kept.copy,
        where=lambda operation: not operation.path.startswith("state/lock"),
        aftermaths=(None, 2),
        persistent=True,
    )
    assert oracle.full >= report.hit(fault, Op.WRITE) > report.operations[Op.RENAME]
    assert oracle.stopped == 0
