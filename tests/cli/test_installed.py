"""The program as ``pip install`` gives it to a stranger: with the newest versions that it allows."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.hub.hub_process import ending, environment
from tests.paths import ROOT
from veen.core.data_dir import paths

#: A package registry may be slow, and a machine may be busy.
TIMEOUT = 280
PYTHONS = (sys.executable, "python3.13")

pytestmark = pytest.mark.slow


def run(*words: str | Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a program as somebody else, who has not set anything."""
    return subprocess.run(
        list(map(str, words)),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
        stdin=subprocess.DEVNULL,
        cwd=home,
        env=environment(HOME=str(home), XDG_DATA_HOME="", PYTHONPATH=""),
    )


def done(*words: str | Path, home: Path) -> str:
    """Run a program that succeeds."""
    ended = run(*words, home=home)
    assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
    return ended.stdout


def pip(python: str | Path, words: Sequence[str | Path], home: Path) -> subprocess.CompletedProcess[str]:
    return run(python, "-m", "pip", "--disable-pip-version-check", *words, home=home)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What would be published."""
    place = tmp_path_factory.mktemp("wheel")
    asked = pip(
        sys.executable, ("download", "--quiet", "--no-deps", "--dest", place / "asked", "typer"), place
    )
    if asked.returncode != 0:
        pytest.skip("pip finds no package registry here")
    made = pip(sys.executable, ("wheel", "--no-deps", "--no-build-isolation", "-w", place, ROOT), place)
    assert made.returncode == 0, made.stderr
    return next(place.glob("veen-*.whl"))


@pytest.mark.parametrize("python", PYTHONS, ids=("this Python", "3.13"))
@pytest.mark.timeout(2 * TIMEOUT)
def test_an_installed_hub_takes_a_message(wheel: Path, tmp_path: Path, python: str) -> None:
    found = shutil.which(python)
    if found is None or run(found, "--version", home=tmp_path).returncode != 0:
        pytest.skip(f"there is no {python} here")
    done(found, "-m", "venv", tmp_path / "venv", home=tmp_path)
    installed = pip(tmp_path / "venv/bin/python", ("install", "--quiet", f"{wheel}[hub]"), tmp_path)
    assert installed.returncode == 0, installed.stderr
    veen = tmp_path / "venv/bin/veen"
    hub = tmp_path / "hub"
    with ending(hub):
        start = (veen, "hub", "start", "--data-dir", hub, "--listen", "127.0.0.1:0", "--json")
        url = json.loads(done(*start, home=tmp_path))["listen"][0]
        done(veen, "keygen", home=tmp_path)
        send = (
            veen,
            "send",
            "--hub",
            url,
            "--trust-first-use",
            "--stream",
            "s",
            "--body",
            '{"n": 1}',
            "--json",
        )
        assert json.loads(done(*send, home=tmp_path))["stream_seq"] == 1
        # The operator's socket is there, works, and is removed in the end.
        assert (hub / paths.ADMIN_SOCKET).is_socket()
        done(veen, "hub", "stop", "--data-dir", hub, home=tmp_path)
        assert not (hub / paths.ADMIN_SOCKET).exists()
