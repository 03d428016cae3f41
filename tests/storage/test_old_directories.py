"""Directories of earlier releases: each opens, for ever, with everything that was acknowledged.

They are made by ``old_directories`` and never changed. If one of these tests fails, the release is wrong
and not the directory.
"""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests import builders
from tests.storage.checks import check_receipts, not_found, reading, writing
from tests.storage.old_directories import DATA, MAKERS, write
from tests.storage.stores import HUB, A, B
from veen.core.data_dir import paths
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.receipt import Receipt
from veen.core.types import AuthRef, Label
from veen.storage.errors import StaleIndexError
from veen.storage.fs import RealFilesystem
from veen.storage.journal import journal
from veen.storage.maintain.repair import repair
from veen.storage.read.reader import Reader

LATER = 10**9
OLD = sorted(path.stem for path in DATA.glob("*.json"))


def check(reader: Reader, expected: dict[str, Any]) -> None:
    """Check that a reader finds all that was described when the directory was made."""
    for item in expected["receipts"]:
        receipt = Receipt.decode(bytes.fromhex(item["receipt"]))
        receipt.verify_signature(HUB.public_key)
        label, seq = receipt.label, receipt.stream_seq
        if item["content"] is None:
            with not_found("pruned"):
                reader.entry(label, seq)
            reader.prove(label, seq).verify(receipt.mmr_root, receipt.leaf_hash, stream_seq=seq)
        else:
            check_receipts(reader, [receipt])
            assert sha256(reader.entry(label, seq).msg_bytes).hexdigest() == item["content"]
    assert {label.hex() for label in reader.labels()} == set(expected["labels"])
    for text, known in expected["labels"].items():
        label = Label(bytes.fromhex(text))
        assert reader.manifest(label).first_seq == known["first"]
        assert reader.last_seq(label) >= known["last"]
        for checkpoint in (Checkpoint.decode(bytes.fromhex(item)) for item in known["checkpoints"]):
            assert reader.checkpoint(label, checkpoint.upto_seq) == checkpoint
            checkpoint.verify_prefix(reader.peaks(label, checkpoint.upto_seq))
        for name, client_seq in known["clients"].items():
            assert reader.client(label, builders.verify_key(name)).client_seq >= client_seq
        assert (reader.binding(label) is not None) == known["bound"]
    for text, (issued_at, authorize_seq) in expected["tokens"].items():
        record = reader.auth(AuthRef(bytes.fromhex(text)))
        assert record is not None
        assert record[:2] == (issued_at, authorize_seq)
        assert record.bucket is not None  # both were used, and their uses are not pruned


def lead_a_life(fs: RealFilesystem, expected: dict[str, Any]) -> None:
    """Repair a directory, read it, write to it, stop it, and read it again."""
    with pytest.raises(StaleIndexError, match="veen repair"):
        Reader.open(fs)
    repair(fs, owner="a test")
    with reading(fs) as reader:
        check(reader, expected)
    with writing(fs, clock=LATER) as store:
        check(store.writer.reader, expected)
        for _ in range(5):
            store.append(A, B)
        store.writer.close()
    assert journal.segments(fs) == []
    with reading(fs) as reader:
        check(reader, expected)
        check_receipts(reader, store.receipts)


def copied(name: str, tmp_path: Path) -> tuple[RealFilesystem, dict[str, Any]]:
    """Return a copy of an old directory, and what must be in it."""
    shutil.copytree(DATA / name, tmp_path / "data")
    return RealFilesystem(tmp_path / "data"), json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def test_there_are_old_directories() -> None:
    assert {"v1-clean", "v1-journal"} <= set(OLD)
    assert sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file()) < 100_000


@pytest.mark.parametrize("name", OLD)
def test_an_old_directory_opens_with_everything(name: str, tmp_path: Path) -> None:
    fs, expected = copied(name, tmp_path)
    lead_a_life(fs, expected)
    fs.close()


@pytest.mark.parametrize("name", OLD)
def test_an_old_directory_can_be_pruned_and_repaired_again(name: str, tmp_path: Path) -> None:
    fs, expected = copied(name, tmp_path)
    repair(fs, owner="a test")
    with writing(fs, clock=LATER) as store:
        assert store.writer.recovered.torn_bytes == (300 if name.endswith("journal") else 0)
        assert store.writer.prune(A, 8)
        store.writer.close()
    repair(fs, owner="a test")
    with reading(fs) as reader:
        assert reader.manifest(A).first_seq == 9
        assert reader.last_seq(A) == expected["labels"][A.hex()]["last"]
    fs.close()


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_a_directory_made_today_is_as_good(kind: str, tmp_path: Path) -> None:
    write(kind, tmp_path / "made")
    fs = RealFilesystem(tmp_path / "made")
    assert fs.size(paths.STORE)
    lead_a_life(fs, json.loads((tmp_path / "made.json").read_text(encoding="utf-8")))
    fs.close()
