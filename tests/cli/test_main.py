"""The ``veen`` program as a newcomer meets it: a real process, its output and its exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import veen

#: Runs the program where the extra for Spark is not installed.
WITHOUT_SPARK = "import sys; sys.modules['pyspark'] = None; from veen.cli.main import main; main()"


def _veen(*args: str, stdin: str = "", without: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(("-c", without) if without else ("-m", "veen.cli.main")), *args]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, env={**os.environ, **env}
    )


def test_version() -> None:
    done = _veen("--version")
    assert (done.returncode, done.stdout) == (0, f"veen {veen.__version__}\n")


def test_help_lists_the_commands() -> None:
    done = _veen("--help")
    assert done.returncode == 0
    assert "demo" in done.stdout
    assert "conformance" in done.stdout


def test_an_unknown_command_is_refused() -> None:
    done = _veen("nonsense")
    assert done.returncode != 0
    assert "nonsense" in done.stderr


@pytest.mark.slow
def test_demo_tells_the_whole_story(tmp_path: Path) -> None:
    done = _veen("demo", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    told = (
        "Two people",
        "A shared stream",
        "Bob reads",
        "A rejection",
        "E.CAP",
        "killed",
        "on Spark",
        "Tampering",
    )
    for word in told:
        assert word in done.stdout
    assert done.stdout.endswith("The demo succeeded.\n")
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


@pytest.mark.slow
def test_demo_for_scripts_is_one_document_and_can_be_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    done = _veen("demo", "--json", "--keep", str(kept), without=WITHOUT_SPARK)
    assert done.returncode == 0, done.stderr
    steps = {step["title"]: step for step in json.loads(done.stdout)["steps"]}
    assert "The whole log on Spark" not in steps, "it is an extra"
    codes = {title: [item["exit_code"] for item in step["commands"]] for title, step in steps.items()}
    assert codes["A rejection"] == [4]
    assert codes["Tampering"] == [4]
    assert "ENTRY_HASH" in steps["Tampering"]["commands"][0]["output"]
    read = steps["The hub is killed"]["commands"][2]["output"]
    assert "meet at nine" in read
    assert "I will" in read
    again = _veen(
        "stream", "--hub", str(kept / "hub"), "--client", str(kept / "bob"), "--stream", "team/plan"
    )
    assert "meet at nine" in again.stdout, again.stderr
    assert _veen("demo", "--keep", str(kept)).returncode == 1, "what is there is not touched"


def test_optimised_python_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-m", "veen.cli.main", "demo"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "python -O" in done.stderr
