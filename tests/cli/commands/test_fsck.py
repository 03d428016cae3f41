"""``veen fsck`` as an operator meets it: a real process, its output and its exit code."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests import builders
from tests.storage import handmade
from tests.storage.handmade import Hub, Tree
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.types import Label

COMMAND = [sys.executable, "-m", "veen.cli.main", "fsck"]


def fsck(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def a_hub(count: int = 6) -> tuple[Hub, Label]:
    hub = Hub()
    label = hub.label("stream")
    for number in range(count):
        hub.send(label, f"client {number % 2}")
    return hub, label


def a_directory(path: Path, changes: Tree | None = None, *, flushed: int | None = None) -> Path:
    hub, _ = a_hub()
    return handmade.write(path / "data", handmade.directory(hub, flushed=flushed) | (changes or {}))


def verdicts(output: str) -> dict[str, str]:
    """Return the verdict lines by their names."""
    names = ("integrity", "signatures", "completeness", "freshness", "derived files")
    lines = {name: line for line in output.splitlines() for name in names if line.startswith(f"{name} ")}
    return {name: line.removeprefix(name).strip() for name, line in lines.items()}


def test_a_sound_directory(tmp_path: Path) -> None:
    _, label = a_hub()
    done = fsck(a_directory(tmp_path, flushed=5))
    assert (done.returncode, done.stderr) == (0, "")
    assert verdicts(done.stdout) == {
        "integrity": "ok",
        "signatures": "ok",
        "completeness": "ok: 2 clients, no gaps",
        "freshness": "newest entry of 1970-01-01T00:16:45Z; 1 entry only in the journal; "
        "last opened by pid 4711",
        "derived files": "ok",
    }
    assert f"log/{label.hex()}: 6 entries" in done.stdout
    assert "checkpoint 4" in done.stdout


def test_nothing_is_written(tmp_path: Path) -> None:
    root = a_directory(tmp_path)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")}
    directories = [path for path in root.rglob("*") if path.is_dir()]
    for path in directories:
        path.chmod(0o500)
    done = fsck(root)
    for path in directories:
        path.chmod(0o700)
    assert done.returncode == 0
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")} == before


def test_for_scripts(tmp_path: Path) -> None:
    done = fsck(a_directory(tmp_path), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert answer["ok"] is True
    assert answer["findings"] == []
    assert [item["head_seq"] for item in answer["labels"]] == [6]
    assert set(answer) == {
        *("ok", "level", "integrity", "signatures", "completeness", "pruned", "derived", "journal_entries"),
        *("lock", "findings_total", "findings", "notes", "labels"),
    }


def test_damage(tmp_path: Path) -> None:
    _, label = a_hub()
    path = paths.chunk(Domain.DATA, label, 1, 4)
    content = handmade.directory(a_hub()[0])[path]
    root = a_directory(tmp_path, {path: content[:600] + b"?" + content[601:]})
    done = fsck(root)
    assert done.returncode == 4
    assert verdicts(done.stdout)["integrity"] == "damaged"
    assert f"damaged: {path} at byte 513: " in done.stdout
    assert "[ENTRY_HASH]" in done.stdout
    assert "restore" in done.stdout
    answer = json.loads(fsck(root, "--json").stdout)
    assert (answer["findings"][0]["path"], answer["findings"][0]["offset"]) == (path, 513)


def test_stale_files_are_for_repair(tmp_path: Path) -> None:
    done = fsck(a_directory(tmp_path, {paths.RECEIPTS: b""}))
    assert done.returncode == 4
    assert verdicts(done.stdout)["integrity"] == "ok"
    assert verdicts(done.stdout)["derived files"] == "stale: run veen repair"
    assert "stale: receipts.cborseq at byte 0: " in done.stdout
    assert done.stdout.splitlines()[-1].endswith("Run: veen repair DATA_DIR")


def test_levels(tmp_path: Path) -> None:
    root = a_directory(tmp_path, {paths.RECEIPTS: b""})
    done = fsck(root, "--level", "hashes")
    assert done.returncode == 0
    assert verdicts(done.stdout)["derived files"] == "not checked"
    assert verdicts(done.stdout)["signatures"] == "not checked: level hashes"


def test_keys_by_hand(tmp_path: Path) -> None:
    root = a_directory(tmp_path)
    (root / "hub-identity.cbor").unlink()
    assert verdicts(fsck(root).stdout)["signatures"] == "not checked: no hub identity"
    right, wrong = (builders.verify_key(name).hex() for name in ("hub", "somebody"))
    assert fsck(root, "--hub-key", wrong, "--hub-key", right).returncode == 0
    assert fsck(root, "--hub-key", wrong).returncode == 4


def test_one_label(tmp_path: Path) -> None:
    hub, label = a_hub()
    other = hub.label("other")
    hub.send(other)
    tree = handmade.directory(hub)
    path = paths.open_chunk(Domain.DATA, other, 1)
    root = handmade.write(tmp_path, tree | {path: tree[path][:-1]})
    assert fsck(root, "--label", label.hex()).returncode == 0
    assert fsck(root, "--label", label.hex(), "--label", other.hex()).returncode == 4


@pytest.mark.parametrize(
    ("args", "advice"),
    [
        (["--level", "some"], "use one of frames, hashes, roots, full"),
        (["--hub-key", "zz"], "--hub-key takes 64 hex digits"),
        (["--label", "00" * 31], "--label takes 64 hex digits"),
        (["--label", " " + "00" * 32], "--label takes 64 hex digits"),
        (["--label", "00" * 32], "without --label all labels are listed"),
    ],
)
def test_what_can_not_be_asked(tmp_path: Path, args: list[str], advice: str) -> None:
    done = fsck(a_directory(tmp_path), *args)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("veen: ")
    assert advice in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_what_is_no_data_directory(tmp_path: Path) -> None:
    a_file = tmp_path / "file"
    a_file.touch()
    for path, text in (
        (tmp_path, str(tmp_path)),
        (tmp_path / "x", str(tmp_path / "x")),
        (a_file, str(a_file)),
    ):
        done = fsck(path)
        assert (done.returncode, done.stdout) == (1, "")
        assert text in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_many_findings_and_labels_are_counted(tmp_path: Path) -> None:
    hub = Hub()
    for number in range(110):
        hub.send(hub.label(f"stream {number}"))
    tree = handmade.directory(hub)
    tree |= {path: content[:-1] for path, content in tree.items() if path.startswith("log/chunk")}
    done = fsck(handmade.write(tmp_path, tree))
    assert done.returncode == 4
    assert "and 10 more\n" in done.stdout
    assert "and 90 more labels" in done.stdout
    assert done.stdout.count("damaged: ") == 100


@pytest.mark.parametrize(("args", "shown"), [((), True), (("--json",), False)])
def test_a_person_sees_progress(tmp_path: Path, args: tuple[str, ...], shown: bool) -> None:  # noqa: FBT001
    terminal, theirs = pty.openpty()
    command = [*COMMAND, str(a_directory(tmp_path)), *args]
    environment = os.environ | {"TERM": "xterm"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, check=False, env=environment)
    os.write(theirs, b"END")
    seen = os.read(terminal, 100_000)
    os.close(theirs)
    os.close(terminal)
    assert done.returncode == 0
    assert (b"checking" in seen) == shown
    assert (seen == b"END") == (not shown)


def test_whose_log_it_is(tmp_path: Path) -> None:
    root = a_directory(tmp_path)
    done = fsck(root, "--hub-id", "00" * 32)
    assert (done.returncode, done.stdout) == (4, "")
    assert "00" * 32 in done.stderr
