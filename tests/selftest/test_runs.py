"""``veen selftest`` as users and scripts see it: output, exit codes, seeds, and nothing left behind."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hub.hub_process import HubProcess
from tests.paths import ROOT
from tests.selftest.runs import (
    VEEN,
    assert_nothing_left,
    processes_of,
    report_of,
    selftest,
    started,
    surroundings,
    until,
)
from tests.selftest.test_broken_code import MISTAKES as CODE_MISTAKES
from tests.selftest.test_broken_hubs import LOSSES, SETTINGS
from tests.selftest.test_broken_hubs import MISTAKES as HUB_MISTAKES
from tests.selftest.test_broken_roads import LIES
from tests.selftest.test_query_suite import MISTAKES as QUERY_MISTAKES
from veen.selftest import SUITES, step_names

#: Quick, and need no hub.
QUICK = ("--only", "mmr-splits", "--only", "canonical-maps")


@pytest.mark.slow
def test_everything_is_well(tmp_path: Path) -> None:
    done = selftest(tmp_path, "all", "--json")
    found = report_of(done)
    assert done.returncode == 0, [item for item in found["steps"] if not item["ok"]]
    assert (found["ok"], found["suite"], found["seed"]) == (True, "all", 1)
    assert [item["name"] for item in found["steps"]] == step_names("all")
    assert all(set(item) == {"name", "ok", "seconds", "detail", "skipped"} for item in found["steps"])
    assert not any(item["skipped"] for item in found["steps"])
    assert_nothing_left(tmp_path)


def test_all_is_every_suite_that_needs_no_spark() -> None:
    assert set(step_names("all")) == {
        name for suite in SUITES.keys() - {"all", "query"} for name in step_names(suite)
    }


def test_people_see_a_line_a_step(tmp_path: Path) -> None:
    done = selftest(tmp_path, "props", *QUICK)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:-1]] == [["ok", "mmr-splits"], ["ok", "canonical-maps"]]
    assert lines[-1] == "selftest props: 2 steps ok, seed 1"
    assert done.stderr == ""


@pytest.mark.parametrize("whole", [True, False], ids=["terminal", "output in a file"])
def test_a_person_at_a_terminal_sees_a_bar(tmp_path: Path, *, whole: bool) -> None:
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [*VEEN, "selftest", "props", *QUICK],
        stdin=subprocess.DEVNULL,
        stdout=theirs if whole else subprocess.PIPE,
        stderr=theirs,
        env=surroundings(tmp_path, TERM="xterm", COLUMNS="150"),
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # so a terminal says that nobody is there any more
        while piece := os.read(ours, 4096):
            shown += piece
    os.close(ours)
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 0
    assert b"selftest props" in shown
    assert b"2/2" in shown
    if whole:
        assert b"\x1b[2Kok       mmr-splits" in shown  # where the bar was, on a line that was cleared
    else:
        assert b"mmr-splits" not in shown
        assert output.startswith(b"ok       mmr-splits")


def test_quiet_is_quiet(tmp_path: Path) -> None:
    done = selftest(tmp_path, "props", *QUICK, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_failure_names_its_step_and_how_to_repeat_it(tmp_path: Path) -> None:
    done = selftest(tmp_path, "core", "--only", "health", "--seed", "9", VEEN_SELFTEST_HUB="false")
    assert done.returncode == 5
    assert done.stdout.startswith("FAILED   health")
    assert "selftest core failed: health" in done.stderr
    assert "veen selftest core --seed 9" in done.stderr


def test_the_same_seed_does_the_same(tmp_path: Path) -> None:
    def details(seed: str) -> list[str]:
        found = report_of(
            selftest(tmp_path, "props", "--only", "duplicate-rejection", "--seed", seed, "--json")
        )
        assert found["ok"], found
        return [item["detail"] for item in found["steps"]]

    first, again, other = (details(seed) for seed in ("3", "3", "4"))
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ([], 1, "core"),
        (["core", "--only", "nonsense"], 1, "nonsense"),
        (["core", "--hub", "somewhere"], 1, "URL"),
        (["core", "--hub", "http://127.0.0.1:1"], 2, "cannot be reached"),
        (["core", "--seed", "-1"], 1, "--seed"),
        (["nonsense"], 1, "nonsense"),
    ],
    ids=["nothing", "unknown step", "not a URL", "nobody there", "bad seed", "unknown suite"],
)
def test_mistakes(tmp_path: Path, args: list[str], code: int, says: str) -> None:
    done = selftest(tmp_path, *args)
    assert says in done.stdout + done.stderr
    assert done.returncode == code


def test_the_older_name_does_the_same(tmp_path: Path) -> None:
    program = "import sys; from veen.cli.main import selftest_main; selftest_main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "props", *QUICK, "--json"],
        capture_output=True,
        text=True,
        check=False,
        env=surroundings(tmp_path),
        timeout=60,
    )
    assert done.returncode == 0
    assert report_of(done)["suite"] == "props"


@pytest.mark.slow
def test_a_hub_that_wants_tokens_gets_the_steps_that_only_look(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "hub", "--require-cap", "true") as hub:
        done = selftest(tmp_path, "core", "--hub", hub.url, "--json")
    found = report_of(done)
    assert done.returncode == 0, found
    assert [item["name"] for item in found["steps"] if not item["skipped"]] == ["health"]
    (reason,) = {item["detail"] for item in found["steps"] if item["name"] == "send-receive"}
    assert "capability tokens" in reason


@pytest.mark.slow
def test_a_run_in_which_nothing_was_checked_is_no_success(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "hub") as hub:
        done = selftest(tmp_path, "core", "--only", "killed-hub", "--hub", hub.url)
    assert done.returncode == 5
    assert "no step could be run" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_ends_a_run_finds_nothing_left(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, "fuzz") as run:
        scratch = tmp_path / "scratch"
        until(lambda: list(scratch.glob("*/hub-*/state/hub.json")), "no hub was started")
        assert len(processes_of(scratch)) >= 2
        run.send_signal(number)
        run.communicate(timeout=60)
        assert run.returncode not in (0, 5)
    assert_nothing_left(tmp_path)


@pytest.mark.slow
def test_hubs_and_keys_of_the_user_are_not_touched(tmp_path: Path) -> None:
    mine = tmp_path / ".local/share/veen"
    env = {
        "VEEN_DATA_DIR": str(mine / "hub"),
        "VEEN_HUB": str(mine / "hub"),
        "VEEN_CLIENT": str(mine / "client"),
    }
    for place in ("hub", "client"):
        (mine / place).mkdir(parents=True)
        (mine / place / "store.cbor").write_text("precious")
    before = _tree(mine)
    done = selftest(tmp_path, "core", "--only", "offline-read", "--only", "anchor-binding", "--json", **env)
    assert done.returncode == 0, done.stdout
    assert _tree(mine) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [".local", "scratch"]
    assert_nothing_left(tmp_path)


def _tree(place: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(place.rglob("*"))
    }


def test_every_step_can_fail() -> None:
    """A step that nothing breaks might as well not be there."""
    broken = {
        *(step for _, steps in SETTINGS.values() for step in steps),
        *(step for step, _, _ in LOSSES.values()),
        *(step for step, _ in HUB_MISTAKES.values()),
        *(step for step, _ in CODE_MISTAKES.values()),
        *(step for steps in LIES.values() for step in steps),
        *QUERY_MISTAKES,
        "no-plaintext",
    }
    assert {*step_names("all"), *step_names("query")} == broken


def test_every_step_is_documented() -> None:
    page = (ROOT / "docs/reference/selftests.md").read_text(encoding="utf-8")
    for suite in SUITES.keys() - {"all"}:
        assert f"## {suite}" in page
        for item in SUITES[suite]:
            assert f"| `{item.name}` | {item.about} |" in page


def test_the_program_prints_json_for_a_mistake_too() -> None:
    done = subprocess.run(
        [*VEEN, "selftest", "core", "--only", "nonsense", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["ok"] is False
