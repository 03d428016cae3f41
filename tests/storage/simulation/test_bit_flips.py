"""One flipped bit anywhere in the files of a log: the engine's answers are whole, or an error names the file.

fsck has its own sweep (tests/storage/fsck/test_checker_flips.py). Here the writer starts and everything
promised is read. The index is left out: it is LMDB's, and what it says is checked against the log
(test_index.py).
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.expect import refused
from tests.storage.simulation.promises import BOUND, Promises, Session, open_writer, prepared
from tests.storage.simulation.simdisk import SimDisk, Snapshot
from tests.storage.stores import HUB, A, B
from veen.core.errors import Code, Detail, ProtocolError
from veen.storage.errors import StorageError

pytestmark = pytest.mark.sweep

#: Every byte in long runs (make faults); in others a part of them, because each costs a start.
_STEP: Final = int(os.environ.get("VEEN_FLIP_STEP", "9"))
_LEFT_OUT: Final = ("state/index", "state/lock")


def unclean(session: Session) -> None:
    """Leave sealed and open chunks, tokens, a checkpoint that was asked for, and a journal."""
    for _ in range(5):
        session.append(A, B)
    session.authorize()
    session.checkpoint(A, 2)
    session.flush()
    session.append(A, BOUND)
    session.append(B)


def clean(session: Session) -> None:
    """Leave the same with a pruned chunk, and without a journal."""
    unclean(session)
    session.prune(A, 4)
    session.close()


def outcome(disk: SimDisk, kept: Promises) -> str | None:
    """Start, read all that was promised and stop; return what was refused, if anything was."""
    fs = disk.filesystem()
    try:
        writer = open_writer(fs)
    except StorageError as refusal:
        return str(refusal)
    try:
        for (label, seq), frame in kept.acked.items():
            if seq > kept.pruned.get(label, 0):
                entry = writer.reader.entry(label, seq)
                assert entry.encode() == frame, "an entry that was never written"
                proof = writer.reader.prove(label, seq)
                proof.verify(entry.receipt.mmr_root, entry.receipt.leaf_hash, stream_seq=seq)
        for (label, upto), stored in kept.checkpoints.items():
            checkpoint = writer.reader.checkpoint(label, upto)
            assert checkpoint is not None
            if checkpoint.encode() != stored:  # only the hub's key tells, and everybody who gets one has it
                with refused(Detail.SIG_INVALID):
                    checkpoint.verify_signature(HUB.public_key)
    except StorageError as refusal:
        return str(refusal)
    finally:
        writer.abandon()
    return None


def sweep(
    start: Snapshot, kept: Promises, damage: Callable[[SimDisk, str, int], None], step: int = 1
) -> tuple[int, int]:
    """Damage each file at each place; return how often that was refused, and how often it did not matter."""
    with SimDisk.from_snapshot(start) as disk:
        files = {path: len(data) for path, data in disk.files().items() if not path.startswith(_LEFT_OUT)}
    refusals = whole = 0
    for path, size in files.items():
        for byte in range(0, size, step):
            with SimDisk.from_snapshot(start) as disk:
                damage(disk, path, byte)
                said = outcome(disk, kept)
            if said is None:
                whole += 1
            else:
                refusals += 1
                # hub_id is in store.cbor, and the names of the reserved logs follow from it.
                assert path in said or path == "store.cbor", f"{path} at byte {byte}: {said}"
    return refusals, whole


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "step"), [(unclean, _STEP), (clean, 2 * _STEP)])
def test_a_flipped_bit_is_refused_by_name_or_harmless(
    tmp_path: Path, steps: Callable[[Session], None], step: int
) -> None:
    start, kept = prepared(tmp_path, steps)
    refusals, whole = sweep(start, kept, lambda disk, path, byte: disk.flip(path, byte, byte % 8), step)
    assert refusals > 300
    assert whole


@pytest.mark.slow
def test_a_file_that_is_cut_off_is_refused_by_name_or_harmless(tmp_path: Path) -> None:
    """But for the journal: cut at the end of a record, it is what it was before (data-directory.md)."""
    start, kept = prepared(tmp_path, clean)
    refusals, _ = sweep(start, kept, lambda disk, path, byte: disk.truncate_file(path, byte), step=3 * _STEP)
    assert refusals > 200


def test_a_pruned_entry_stays_pruned(tmp_path: Path) -> None:
    start, kept = prepared(tmp_path, clean)
    assert kept.pruned[A] == 4
    with SimDisk.from_snapshot(start) as disk:
        writer = open_writer(disk.filesystem())
        with pytest.raises(ProtocolError) as refusal:
            writer.reader.entry(A, 4)
        assert (refusal.value.code, refusal.value.fields["field"]) == (Code.NOT_FOUND, "pruned")
        writer.abandon()
