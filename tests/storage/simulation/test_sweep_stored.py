"""Failed, but stored: the disk did what it was asked for, and reported an error nevertheless."""

from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests import builders
from tests.storage.simulation.oracle import Oracle, swept
from tests.storage.simulation.promises import Promises, Session, open_writer, prepared
from tests.storage.simulation.sim_loss import LOSE_ALL
from tests.storage.simulation.sim_plan import Fault, Op, Operation, Plan
from tests.storage.simulation.sim_sweep import Aftermath, befall
from tests.storage.simulation.simdisk import SimDisk, SimFilesystem
from tests.storage.stores import A
from veen.storage.errors import WriterStoppedError

pytestmark = pytest.mark.sweep


class Step(NamedTuple):
    """A step that is done and fails, and what a start makes of it."""

    name: str
    op: Op
    path: str
    #: The how manieth such step it is, and in which part of the work.
    at: int = 1
    committing: bool = False
    #: The newest entry, if only the process ends, and if the power fails as well.
    then: int = 4
    after_loss: int = 4
    #: Entries that the next start moves out of the journal, in these two cases.
    moved: tuple[int, int] = (1, 1)


STEPS: Final = (
    # The entry was not acknowledged. In the page cache it is whole, so it counts; on the disk it is not.
    Step("journal write", Op.WRITE, ".wal", at=2, committing=True, after_loss=3, moved=(1, 0)),
    # Here it is on the disk, too: the sync did its work.
    Step("journal sync", Op.SYNC, ".wal", at=2, committing=True),
    # What was acknowledged is moved again, from the journal.
    Step("chunk write", Op.WRITE, "open.log"),
    Step("chunk sync", Op.SYNC, "open.log"),
    Step("sidecar rename", Op.RENAME, ".summary"),
    Step("seal", Op.RENAME, "04.log"),
    Step("names", Op.SYNC_DIR, "log"),
    # The first transaction has only leaves; the second one says that all is moved.
    Step("leaves", Op.COMMIT, "", at=2),
    Step("index commit", Op.COMMIT, "", at=3, moved=(0, 0)),
    Step("journal unlink", Op.UNLINK, ".wal", moved=(0, 0)),
    Step("release", Op.SYNC_DIR, "state", at=3, moved=(0, 0)),
)


def three(session: Session) -> None:
    for _ in range(3):
        session.append(A)
    session.close()


def work(fs: SimFilesystem, kept: Promises) -> None:
    """Seal a chunk with one more entry."""
    session = Session(fs, kept)
    session.append(A)
    session.flush()
    session.writer.abandon()


def plan_of(step: Step) -> Plan:
    def where(operation: Operation) -> bool:
        return operation.op is step.op and operation.path.endswith(step.path)

    return Plan(Fault.EIO_AFTER, step.at, where=where)


@pytest.mark.parametrize("aftermath", [None, LOSE_ALL])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name.replace(" ", "-"))
def test_what_failed_but_was_stored(tmp_path: Path, step: Step, aftermath: Aftermath) -> None:
    start, kept = prepared(tmp_path, three)
    plan = plan_of(step)
    with SimDisk.from_snapshot(start) as disk:
        with pytest.raises(WriterStoppedError):
            work(disk.filesystem(plan), kept)
        assert plan.injected
        assert (kept.stopped, len(kept.acked)) == (1, 3 if step.committing else 4)
        befall(disk, aftermath)
        writer = open_writer(disk.filesystem())
        newest = step.then if aftermath is None else step.after_loss
        assert writer.reader.last_seq(A) == newest
        assert writer.reader.client(A, builders.verify_key()).client_seq == newest
        assert writer.recovered.entries == step.moved[aftermath is not None]
        assert writer.recovered.torn_bytes == 0
        kept.check_reads(writer.reader)
        writer.abandon()


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name.replace(" ", "-"))
def test_what_failed_but_was_stored_stays_right_whatever_follows(tmp_path: Path, step: Step) -> None:
    """The same steps, with more power losses, a check of everything, and a second interruption."""
    start, kept = prepared(tmp_path, three)
    oracle = Oracle()
    report = swept(
        tmp_path,
        start,
        work,
        (Fault.EIO_AFTER,),
        oracle,
        witness=kept.copy,
        where=lambda operation: operation.op is step.op and operation.path.endswith(step.path),
        aftermaths=(None, LOSE_ALL, 2, 3),
        recover=lambda fs: open_writer(fs).abandon(),
        recovery_faults=(Fault.EIO_AFTER,),
        recovery_points=1,
    )
    assert report.hit(Fault.EIO_AFTER, step.op) >= step.at
    assert oracle.stopped >= 3
