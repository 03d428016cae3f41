"""The ledger on a disk that crashes, fails and loses: what was acknowledged holds, and it goes on."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import builders
from tests.storage.simulation.sim_plan import CRASHES, ERRORS, LIES, Fault
from tests.storage.simulation.sim_sweep import Case, sweep
from tests.storage.simulation.simdisk import SimFilesystem
from veen.core.types import NodeHash
from veen.storage.anchors import FileLedger
from veen.storage.errors import DamagedStoreError, StorageError

pytestmark = pytest.mark.sweep

LEDGER = "anchors/ledger.cborseq"


@dataclass
class Witness:
    """What was acknowledged."""

    refs: dict[int, bytes] = field(default_factory=dict)
    tried: int = 0


def root(number: int) -> NodeHash:
    return NodeHash(builders.digest(f"root {number}"))


def publish(ledger: FileLedger, number: int) -> bytes:
    return ledger.publish(root(number), number, number, builders.digest(f"nonce {number}")[:16])


def prepare(fs: SimFilesystem) -> None:
    fs.make_dir("")
    fs.make_dir("anchors")


def action(fs: SimFilesystem, seen: Witness) -> None:
    """Publish some, and go on after an error as the hub does."""
    ledger = FileLedger(fs, LEDGER)
    for number in range(3):
        for _ in range(2):
            seen.tried += 1
            try:
                seen.refs[number] = publish(ledger, number)
            except StorageError:
                continue
            break
    ledger.close()


def check(fs: SimFilesystem, case: Case[Witness]) -> None:
    if case.fault in ERRORS:
        assert set(case.witness.refs) == {0, 1, 2}, f"the second attempt works: {case}"
    ledger = FileLedger(fs, LEDGER)
    for number, ref in case.witness.refs.items():
        assert ledger.verify(root(number), ref), (case, number)
    fresh = publish(ledger, 7)
    for number, ref in {**case.witness.refs, 7: fresh}.items():
        assert ledger.verify(root(number), ref), (case, number)
    ledger.close()


@pytest.mark.parametrize("fault", [*CRASHES, *ERRORS])
def test_what_was_acknowledged_holds(fault: Fault, tmp_path: Path) -> None:
    report = sweep(prepare, action, [fault], check, witness=Witness, scratch=tmp_path, seeds=(0, 1, 2))
    assert report.checks > 0


@pytest.mark.parametrize("fault", LIES)
def test_a_disk_that_lies_is_found_out_or_did_no_harm(fault: Fault, tmp_path: Path) -> None:
    def honest(fs: SimFilesystem, case: Case[Witness]) -> None:
        ledger = FileLedger(fs, LEDGER)
        try:
            fresh = publish(ledger, 7)
        except DamagedStoreError:
            return
        # Whatever it lost, it did not make up anything.
        for number, ref in {**case.witness.refs, 7: fresh}.items():
            assert not ledger.verify(root(number + 1), ref)

    sweep(prepare, action, [fault], honest, witness=Witness, scratch=tmp_path)
