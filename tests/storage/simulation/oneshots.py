"""Running the one-shot writer, and checking afterwards what it was promised."""

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.paths import ROOT
from tests.storage.stores import HUB, open_writer
from veen.core.objects.receipt import Receipt
from veen.storage.errors import NotAStoreError
from veen.storage.fs import RealFilesystem
from veen.storage.fsck import DERIVED, check


def command(root: Path, batches: int) -> list[str]:
    """Return the command that writes to ``root``."""
    return [sys.executable, "-m", "tests.storage.simulation.oneshot", str(root), str(batches)]


def start(words: Sequence[str]) -> subprocess.Popen[str]:
    """Start a command with our modules in reach, and the same hashes in each run."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=env
    )


def receipts(lines: Iterable[str]) -> list[Receipt]:
    """Return the receipts that were printed whole: a line that was cut off was never handed out."""
    return [Receipt.decode(bytes.fromhex(line)) for line in lines if line.endswith("\n") and len(line) > 300]


def check_kept(root: Path, promised: Iterable[Receipt]) -> None:
    """Check that a directory has all that was promised, before and after the next start."""
    promised = list(promised)
    fs = RealFilesystem(root)
    try:
        if not promised and fs.size("store.cbor") is None:
            return
        report = check(fs, hub_keys=[HUB.public_key])
        assert not [found for found in report.findings if found.verdict != DERIVED], report.findings
        writer = open_writer(fs)
        for receipt in promised:
            assert writer.reader.entry(receipt.label, receipt.stream_seq).receipt == receipt
            proof = writer.reader.prove(receipt.label, receipt.stream_seq)
            proof.verify(receipt.mmr_root, receipt.leaf_hash, stream_seq=receipt.stream_seq)
        writer.close()
        after = check(fs, hub_keys=[HUB.public_key])
        assert after.ok, after.findings
    except NotAStoreError:
        assert not promised
    finally:
        fs.close()
