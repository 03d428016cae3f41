"""``veen pipeline verify`` as people and scripts use it: verdicts, exit codes, one line for a mistake."""

import json
import shutil
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from typer.testing import Result

from tests.cli.command_runner import User
from tests.hub.hub_process import HubProcess
from tests.pipeline.commands import veen
from tests.pipeline.log_builder import Hub, varied


def verify(*words: str | Path) -> CompletedProcess[str]:
    """Run the program, from its start to its end."""
    return veen("pipeline", "verify", *words)


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def asked(user: User, *words: str | Path) -> Result:
    """Run the command in this process, with the Spark of the tests if it needs one."""
    return user.run("pipeline", "verify", *words)


def found(done: CompletedProcess[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Hub:
    made = varied(tmp_path_factory.mktemp("verify") / "hub", 80)
    made.close()
    receipts = b"".join(receipt.encode() for receipt in made.receipts)
    (made.root.parent / "receipts.cborseq").write_bytes(receipts)
    return made


def test_a_sound_log_ends_with_0_and_says_so(hub: Hub) -> None:
    held = hub.root.parent / "receipts.cborseq"
    done = verify(hub.root, "--hub-id", hub.hub_id.hex(), "--receipts", held, "--json")
    assert done.returncode == 0, done.stderr
    report = found(done)
    verdicts = {name: report[name] for name in ("ok", "integrity", "signatures", "completeness", "agreement")}
    assert verdicts == {
        "ok": True,
        "integrity": "ok",
        "signatures": "ok",
        "completeness": "ok",
        "agreement": "ok",
    }
    assert report["entries"] == 80
    assert done.stderr == ""


@pytest.mark.usefixtures("spark")
def test_damage_ends_with_4_and_names_the_entry(user: User, hub: Hub, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(hub.root, copy, ignore=shutil.ignore_patterns("*.sock"))
    chunk = min((copy / "log").glob("chunk-*.log"))
    data = bytearray(chunk.read_bytes())
    data[300] ^= 1
    chunk.write_bytes(data)
    done = asked(user, copy)
    assert done.exit_code == 4
    assert "integrity: damaged" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("first bad: ")
    assert "entry 1" in last
    assert f"{chunk.name} at byte 0" in last


@pytest.mark.usefixtures("spark")
def test_a_hub_is_asked_by_its_address(user: User, hub: Hub) -> None:
    with HubProcess(hub.root) as running:
        assert user.ok("pipeline", "verify", running.url, "--stream", "beta")["entries"] == 40


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "nowhere"),
        (("hub", "--level", "some"), "'some'; use one of frames, roots, full"),
        (("hub", "--hub-id", "xyz"), "--hub-id"),
        (("http://127.0.0.1:1", "--stream", "beta"), "127.0.0.1"),
    ],
)
def test_a_mistake_is_told_in_one_line(user: User, words: tuple[str, ...], said: str) -> None:
    _is_told(asked(user, *words), said)


def test_a_setting_that_is_none_is_told_in_one_line(user: User, hub: Hub) -> None:
    _is_told(asked(user, hub.root, "--conf", "novalue"), "novalue")


def _is_told(done: Result, said: str) -> None:
    assert done.exit_code in (1, 2)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
