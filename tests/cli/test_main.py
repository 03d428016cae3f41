"""The ``veen`` program as a newcomer meets it: a real process, its output and its exit code."""

import json
import subprocess
import sys

import veen


def _veen(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "veen.cli.main", *args]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


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


def test_demo_tells_the_whole_story() -> None:
    done = _veen("demo")
    assert done.returncode == 0, done.stderr
    for word in ("Sealed", "receipted", "Proved", "Opened", "Checked", "Tampered", "All checks passed."):
        assert word in done.stdout


def test_demo_for_scripts_is_one_json_object_a_step() -> None:
    done = _veen("demo", "--json")
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert steps[-1]["title"] == "Tampered with"
    assert "ENTRY_HASH" in steps[-1]["values"]["found out"]
    assert steps[-2]["values"]["integrity"] == "ok"
    assert steps[-3]["values"] == {"message 2": "'badge 4711 accepted'"}
    assert all(set(step) == {"title", "says", "values"} for step in steps)


def test_demo_uses_fresh_keys_each_time() -> None:
    first, second = (_veen("demo", "--json").stdout.splitlines()[0] for _ in range(2))
    assert first != second


def test_optimised_python_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-m", "veen.cli.main", "demo"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "python -O" in done.stderr
