"""Every fault at every operation of what writes store.cbor: creating a store, and changing its limits."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.storage.simulation.oracle import Oracle, swept
from tests.storage.simulation.promises import BOUND, Promises, Session, prepared
from tests.storage.simulation.sim_plan import CRASHES, ERRORS, Fault, Op
from tests.storage.simulation.sim_sweep import Case
from tests.storage.simulation.simdisk import SimFilesystem
from tests.storage.stores import TINY, A, B, make
from veen.core.data_dir.store_records import BZIP2
from veen.storage.directory import change_registry, open_store
from veen.storage.errors import NotAStoreError

pytestmark = pytest.mark.sweep

ALL: Final = (*CRASHES, *ERRORS)
OTHER: Final = replace(TINY, max_checkpoint_interval=3)


class _Tries(Oracle):
    """What either works or is an error, also when the disk is full: it is for the caller to do it again."""

    def judge(self, case: Case[Promises]) -> None:
        assert (case.error is not None) == case.injected, "an error was passed over"


# --- creating -----------------------------------------------------------------------------------------------


class _Creation(_Tries):
    def start(self, fs: SimFilesystem, kept: Promises, case: Case[Promises]) -> Session:
        try:
            open_store(fs)
        except NotAStoreError:
            # Only what was not finished may be gone, and only as long as nobody has used it.
            assert (case.round, case.injected) == (1, True)
            make(fs)
        return super().start(fs, kept, case)


def create(fs: SimFilesystem, _: Promises) -> None:
    make(fs)


def nothing(_: SimFilesystem) -> None:
    """Begin with an empty disk."""


def test_a_store_is_there_or_can_be_made_again(tmp_path: Path) -> None:
    report = swept(tmp_path, nothing, create, ALL, _Creation())
    for op in (Op.MAKE_DIR, Op.COMMIT, Op.RENAME):
        assert report.hit_each(op, Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.EIO, Fault.EIO_AFTER)
    assert report.hit_each(Op.SYNC_DIR, Fault.FAILED_SYNC)


def test_making_it_again_may_be_interrupted_too(tmp_path: Path) -> None:
    def make_if_needed(fs: SimFilesystem) -> None:
        try:
            open_store(fs)
        except NotAStoreError:
            make(fs)

    report = swept(
        tmp_path,
        nothing,
        create,
        CRASHES,
        _Creation(),
        aftermaths=(None, 2),
        recover=make_if_needed,
        recovery_faults=(Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.FAILED_SYNC),
        recovery_points=2,
    )
    assert report.recoveries > 2 * report.runs


# --- other limits -------------------------------------------------------------------------------------------


def used(session: Session) -> None:
    """Leave a label with three entries in its open chunk: one more seals it now, and would not later."""
    session.append(A, B)
    session.append(A, BOUND)
    session.append(A)
    session.close()


def change(fs: SimFilesystem, kept: Promises) -> None:
    kept.registry = change_registry(fs, OTHER, BZIP2, owner="a test")


@pytest.mark.parametrize("faults", [CRASHES, ERRORS])
def test_limits_are_the_old_or_the_new_ones_and_stay(tmp_path: Path, faults: tuple[Fault, ...]) -> None:
    start, kept = prepared(tmp_path, used)
    oracle = _Tries()
    report = swept(tmp_path, start, change, faults, oracle, witness=kept.copy, seeds=range(2))
    if faults is CRASHES:
        assert report.hit_each(Op.RENAME, Fault.CRASH_AFTER)
        assert report.hit_each(Op.SYNC_DIR, Fault.CRASH_BEFORE)
    else:
        assert report.hit_each(Op.SYNC_DIR, Fault.FAILED_SYNC)
        assert report.hit_each(Op.READ, Fault.READ_EIO)
    assert oracle.refusals == 0
