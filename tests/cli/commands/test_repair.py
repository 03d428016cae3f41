"""``veen repair`` as an operator meets it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.storage.stores import A, B, new_store
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.storage.fs import RealFilesystem


def _repair(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "veen.cli.main", "repair", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    store = new_store(RealFilesystem(root))
    for _ in range(6):
        store.append(A, B)
    store.writer.close()
    return root


def test_derived_files_are_made_anew(data_dir: Path) -> None:
    nodes = data_dir / paths.nodes(Domain.DATA, A)
    before = nodes.read_bytes()
    nodes.unlink()
    done = _repair(str(data_dir))
    assert (done.returncode, done.stderr) == (0, "")
    assert "12 entries in 2 labels" in done.stdout
    assert nodes.read_bytes() == before


def test_scripts_get_one_json_object(data_dir: Path) -> None:
    done = _repair(str(data_dir), "--json")
    assert json.loads(done.stdout) == {"ok": True, "labels": 2, "entries": 12, "journal_entries": 0}


def test_a_damaged_log_is_not_touched_and_named(data_dir: Path) -> None:
    chunk = data_dir / paths.chunk(Domain.DATA, A, 1, 4)
    data = bytearray(chunk.read_bytes())
    data[300] ^= 1
    chunk.write_bytes(data)
    done = _repair(str(data_dir))
    assert done.returncode == 4
    assert paths.chunk(Domain.DATA, A, 1, 4) in done.stderr
    assert "veen fsck" in done.stderr
    assert chunk.read_bytes() == data
    assert not json.loads(_repair(str(data_dir), "--json").stdout)["ok"]


def test_another_directory_is_left_alone(tmp_path: Path) -> None:
    done = _repair(str(tmp_path))
    assert done.returncode == 1
    assert str(tmp_path) in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    store = new_store(RealFilesystem(tmp_path / "data"))
    done = _repair(str(tmp_path / "data"))
    store.writer.close()
    assert done.returncode == 1
    assert "in use by a test" in done.stderr
