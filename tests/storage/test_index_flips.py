"""One flipped bit anywhere in the index: what it says is right, or it is refused and can be repaired.

LMDB has no checksums. Rows carry their own, and what rows that are gone would hide is compared with the
log. Two things can not be: that a message is not found by its id, and that a client has never sent.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.storage.checks import check_receipts, reading, writing
from tests.storage.stores import A, B, Store, make, open_writer
from veen.core import layout
from veen.core.receipt import Receipt
from veen.storage.errors import StorageError
from veen.storage.fs import RealFilesystem
from veen.storage.reader import Reader
from veen.storage.repair import repair

#: Of the bytes on pages in use; each costs two starts. Long runs (make faults) take five times as many.
_STEP: Final = 40 * int(os.environ.get("VEEN_FLIP_STEP", "5"))
_PAGE: Final = 4096


def filled(root: Path) -> list[Receipt]:
    """Make a store with sealed and open chunks, and stop it."""
    fs = RealFilesystem(root)
    make(fs)
    store = Store(open_writer(fs))
    for _ in range(10):
        store.append(A, B)
        store.tick()
    store.writer.checkpoint(A, 6)
    store.writer.flush()
    store.append(A)
    store.writer.close()
    fs.close()
    return store.receipts


def read_all(reader: Reader, receipts: list[Receipt]) -> None:
    """Check that everything is there, by number and by time; and by id, or not at all."""
    assert set(reader.labels()) == {A, B}
    for label in (A, B):
        assert reader.last_seq(label) == sum(receipt.label == label for receipt in receipts)
    for receipt in receipts:
        label, seq = receipt.label, receipt.stream_seq
        assert reader.entry(label, seq).receipt == receipt
        assert reader.seq_at(label, receipt.hub_ts) == seq
        assert reader.find(receipt.leaf_hash) in ((label, seq), None)
        reader.prove(label, seq).verify(receipt.mmr_root, receipt.leaf_hash, stream_seq=seq)


def read(fs: RealFilesystem, receipts: list[Receipt]) -> None:
    """Read as an auditor does."""
    with reading(fs) as reader:
        read_all(reader, receipts)


def write(fs: RealFilesystem, receipts: list[Receipt]) -> None:
    """Go on as a hub does."""
    with writing(fs, clock=5_000) as store:
        added = store.append(A, B, client="another")
        assert [item.stream_seq for item in added] == [12, 11]
        store.writer.flush()
        read_all(store.writer.reader, [*receipts, *added])


@pytest.mark.slow
@pytest.mark.parametrize("use", [read, write])
def test_a_flipped_bit_in_the_index_is_refused_or_harmless(
    tmp_path: Path, use: Callable[[RealFilesystem, list[Receipt]], None]
) -> None:
    good, root = tmp_path / "good", tmp_path / "data"
    receipts = filled(good)
    pages = (good / layout.INDEX / "data.mdb").read_bytes()
    used = [at for at in range(0, len(pages), _PAGE) if any(pages[at : at + _PAGE])]
    refusals = whole = 0
    for nth in range(0, len(used) * _PAGE, _STEP):
        at = used[nth // _PAGE] + nth % _PAGE
        shutil.copytree(good, root)
        flipped = bytearray(pages)
        flipped[at] ^= 1 << nth % 8
        (root / layout.INDEX / "data.mdb").write_bytes(flipped)
        fs = RealFilesystem(root)
        try:
            use(fs, receipts)
            whole += 1
        except StorageError as refusal:
            refusals += 1
            assert "veen repair" in str(refusal), f"byte {at}: {refusal}"  # noqa: PT017 - most are harmless
            repair(fs, owner="a test")
            with reading(fs) as reader:
                check_receipts(reader, receipts)
        fs.close()
        shutil.rmtree(root)
    assert refusals >= 5
    assert whole
