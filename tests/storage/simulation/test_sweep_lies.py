"""A disk that lies: nothing can survive that, but nobody gets a wrong answer, and somebody is told.

Each write once goes to another place (misdirected), or stays in the cache for ever (lost), and is reported as
done. Afterwards everything acknowledged is there, byte for byte, or an error names a file. What can not be
noticed is in ``EXCUSES``, each with its reason (docs/explanation/durability.md, "What is not promised").
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.storage.simulation.oracle import SEEDS, checked
from tests.storage.simulation.promises import BOUND, Promises, Session, open_writer, prepared
from tests.storage.simulation.sim_plan import LIES, Fault, Op
from tests.storage.simulation.sim_sweep import Case, sweep
from tests.storage.simulation.simdisk import SimFilesystem
from tests.storage.stores import A, B
from veen.core.data_dir.store_records import BZIP2
from veen.core.errors import Code, ProtocolError
from veen.storage.errors import DamagedStoreError, NotAStoreError, WriterStoppedError
from veen.storage.read.reader import Reader

pytestmark = pytest.mark.sweep


class Found(NamedTuple):
    """What is left, and who has said something about it."""

    missing: int
    #: What names a file.
    told: tuple[str, ...]
    #: Notes of the checker about the journal: it tells that it takes a write for a torn one.
    dropped: tuple[str, ...]


def _of_the_journal(case: Case[Promises]) -> bool:
    return case.hit is not None and ".wal" in case.hit.path


def lost_batch(case: Case[Promises], _: Found) -> bool:
    """A disk that says "synced" and lies can lose what was acknowledged: checksums do not find absence."""
    return case.fault is Fault.LOST_WRITE and _of_the_journal(case) and case.aftermath is not None


def damaged_last_batch(_: Case[Promises], found: Found) -> bool:
    """Damage to the very last batch, and to the mark behind it, looks like a batch that was torn.

    The checker says so in a note; it can not know that the batch was acknowledged.
    """
    return bool(found.dropped)


EXCUSES: Final = (lost_batch, damaged_last_batch)


class Detector:
    """Counts how lies came out."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()

    def __call__(self, fs: SimFilesystem, case: Case[Promises]) -> None:
        """Look at everything that was acknowledged; a wrong answer is never excused, a missing one hardly."""
        found = _examine(fs, case.witness)
        if found.told:
            self.outcomes["told"] += 1
        elif not found.missing:
            self.outcomes["harmless"] += 1
        else:
            excuse = next((item.__name__ for item in EXCUSES if item(case, found)), None)
            assert excuse is not None, f"{found.missing} entries are missing, and nobody has noticed"
            self.outcomes[excuse] += 1


def _examine(fs: SimFilesystem, kept: Promises) -> Found:
    report = checked(fs)
    told = [finding.where.file for finding in report.findings]
    dropped = [note for note in report.notes if "never acknowledged" in note]
    missing = 0
    try:
        reader = Reader.open(fs)
        try:
            missing = _read(reader, kept, told)
        finally:
            reader.close()
    except (DamagedStoreError, NotAStoreError) as error:
        told.append(str(error))
    try:
        writer = open_writer(fs)
        missing = max(missing, _read(writer.reader, kept, told))
        writer.close()
    except (DamagedStoreError, NotAStoreError, WriterStoppedError) as error:
        told.append(str(error))
    told += [finding.where.file for finding in checked(fs).findings]
    assert all(told)
    return Found(missing, tuple(told), tuple(dropped))


def _read(reader: Reader, kept: Promises, told: list[str]) -> int:
    """Read everything, note which errors there are, and return how much is missing without an error."""
    missing = 0
    for (label, seq), frame in kept.acked.items():
        if seq <= kept.pruned.get(label, 0):
            continue
        try:
            assert reader.entry(label, seq).encode() == frame, "a wrong answer"
        except DamagedStoreError as error:
            told.append(error.path)
        except ProtocolError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            missing += 1
    for (label, upto), stored in kept.checkpoints.items():
        try:
            made = reader.checkpoint(label, upto)
        except DamagedStoreError as error:
            told.append(error.path)
            continue
        # A checkpoint is signed: who gets a wrong one knows. But the checker has to know, too.
        missing += made is None or made.encode() != stored
    return missing


def some(session: Session) -> None:
    session.append(A, A, B)
    session.close()


def work(fs: SimFilesystem, kept: Promises) -> None:
    """Use everything: chunks that are sealed, packed and open, checkpoints, and a journal at the end."""
    session = Session(fs, kept)
    session.append(A, B, BOUND)
    session.append(A)
    session.checkpoint(B, 2)
    session.writer.flush()
    session.append(A, B)
    session.append(BOUND)
    session.writer.abandon()


def work_and_stop(fs: SimFilesystem, kept: Promises) -> None:
    session = Session(fs, kept)
    session.append(A, A, BOUND)
    session.close()


@pytest.mark.parametrize("action", [work, work_and_stop])
@pytest.mark.parametrize("fault", LIES)
def test_a_lie_is_noticed_or_does_no_harm(
    tmp_path: Path, fault: Fault, action: Callable[[SimFilesystem, Promises], None]
) -> None:
    start, kept = prepared(tmp_path, some, compression=BZIP2)
    detector = Detector()
    report = sweep(
        start,
        action,
        (fault,),
        detector,
        witness=kept.copy,
        scratch=tmp_path,
        aftermaths=(None, 0, 2),
        seeds=range(2 * SEEDS),
        rounds=1,
    )
    assert report.hit_each(Op.WRITE, fault)
    assert detector.outcomes.total() == report.checks
    assert detector.outcomes["told"] > report.runs // 3
    assert detector.outcomes["harmless"] > 0
