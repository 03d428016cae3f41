"""What holds for all commands: help, exit codes, JSON, defaults, names."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.cli.command_runner import User
from tests.cli.command_tree import LEAVES
from tests.hub.hub_process import HubProcess, veen
from tests.paths import ROOT
from veen.cli import errors
from veen.cli.registry import COMMANDS
from veen.core.errors import Code


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("conventions") / "data") as made:
        yield made


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_has_help_and_takes_the_common_flags(user: User, path: tuple[str, ...]) -> None:
    done = user.run(*path, "--help")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Usage: veen "), done.stdout
    assert len(done.stdout.splitlines()) <= 60
    for flag in ("--json", "--quiet", "--timeout-ms"):
        assert flag in done.stdout
    assert not list(user.home.iterdir()), "help touches nothing"


def test_the_groups_of_the_goals_exist_as_far_as_they_are_built() -> None:
    built = "hub keygen id send stream cap resync rpc crdt anchor selftest"
    assert set(built.split()) <= set(COMMANDS)


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("send",),
        ("send", "--stream"),
        ("stream", "--no-such"),
        ("hub", "nonsense"),
        ("stream", "--from", "x", "--stream", "s"),
    ],
)
def test_mistakes_of_usage_end_with_1_and_say_where_to_look(words: tuple[str, ...]) -> None:
    told = veen(*words)
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith("veen: ")
    assert "--help" in told.stderr
    done = veen(*words, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["ok"] is False


@pytest.mark.parametrize("name", ["veen", "veen-cli"])
def test_both_names_of_the_program(name: str) -> None:
    program = Path(sys.executable).with_name(name)
    done = subprocess.run([program, "explain-error", "E.SEQ"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:6]) == (0, "E.SEQ:")


#: What each program is short for.
SCRIPTS = {"veen": "", "veen-cli": "", "veen-hub": "hub start", "veen-selftest": "selftest"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_program_starts(name: str) -> None:
    program = Path(sys.executable).with_name(name)
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert f"Usage: veen {SCRIPTS[name]}" in done.stdout


def test_no_program_is_forgotten() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert SCRIPTS.keys() == project["scripts"].keys()


def test_every_code_is_explained(user: User) -> None:
    written = {
        code
        for path in Path(errors.__file__).parents[1].rglob("*.py")
        for code in re.findall(r'"(E\.[A-Z_]{2,})"', path.read_text(encoding="utf-8"))
    }
    assert {"E.SPARK", "E.NETWORK"} <= written
    for code in (*(item.value for item in Code), *sorted(written), "DUPLICATE", "ct_hash"):
        done = user.run("explain-error", code)
        assert done.exit_code == 0, code
        assert len(done.stdout.splitlines()) == 1
        assert user.ok("explain-error", code)["meaning"] in done.stdout
    assert "E.SEQ" in user.fails(1, "explain-error", "E.NONSENSE")["detail"]


def test_the_version(user: User) -> None:
    shown = user.run("version").stdout
    assert shown.startswith("veen ")
    assert "(git " in shown


# --- exit codes -----------------------------------------------------------------------------------------


@pytest.fixture
def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_hub_that_is_not_there_is_2(user: User, tmp_path: Path, closed_port: str) -> None:
    user.ok("keygen")
    for words in (
        ("send", "--stream", "s", "--body", "1"),
        ("stream", "--stream", "s"),
        ("resync", "--stream", "s"),
    ):
        assert user.fails(2, *words, "--hub", closed_port)["code"] == "E.NETWORK"
        user.fails(2, *words, "--hub", tmp_path / "nothing")
    user.fails(1, "send", "--stream", "s", "--body", "1", "--hub", "ftp://host")
    user.fails(1, "send", "--stream", "s", "--body", "1", "--hub", "http://")


def test_a_hub_that_does_not_answer_is_2_in_time(user: User) -> None:
    user.ok("keygen")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        done = user.run("--timeout-ms", "100", "send", "--hub", url, "--stream", "s", "--body", "1")
        assert (done.exit_code, time.monotonic() - started < 10) == (2, True), done.output
        assert url in done.stderr
        assert user.run("hub", "status", "--hub", url, "--timeout-ms", "100").exit_code == 2


class _Nonsense(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the library
        """Say nothing."""


def test_what_is_no_hub_is_3(user: User) -> None:
    user.ok("keygen")
    server = HTTPServer(("127.0.0.1", 0), _Nonsense)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        assert user.fails(3, "send", "--hub", url, "--stream", "s", "--body", "1")["code"] == "E.MALFORMED"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_refusal_of_the_hub_is_4(user: User, hub: HubProcess, tmp_path: Path) -> None:
    user.ok("keygen")
    cap = tmp_path / "cap"
    user.ok("cap", "issue", "--subject", "ab" * 32, "--stream", "s", "--ttl", "9", "--out", cap)
    found = user.fails(4, "cap", "authorize", "--hub", hub.url, "--cap", cap)
    assert found["code"] == "E.CAP"


# --- output -----------------------------------------------------------------------------------------


def test_quiet_and_json(user: User, hub: HubProcess) -> None:
    user.ok("keygen")
    words = ("send", "--hub", hub.url, "--stream", "quiet", "--body", "1")
    assert user.run("--quiet", *words).output == ""
    assert user.run(*words, "--quiet").output == ""
    assert json.loads(user.run("--json", "--quiet", *words).stdout)["ok"] is True, "--json wins over --quiet"
    assert "veen: " in user.run("--quiet", "send", "--stream", "s", "--body", "x").stderr, (
        "errors still print"
    )


def test_equal_questions_give_equal_answers(user: User, hub: HubProcess) -> None:
    user.ok("keygen")
    user.ok("send", "--hub", hub.url, "--stream", "same", "--body", '{"b": 1, "a": [null, true]}')
    for words in (
        ("stream", "--stream", "same", "--hub", hub.url),
        ("id", "show"),
        ("explain-error", "E.CAP"),
    ):
        assert len({user.run(*words, *more).output for more in ((), ()) for _ in range(2)}) == 1


def test_no_colour_and_no_bars_where_nobody_looks(user: User, hub: HubProcess) -> None:
    user.ok("keygen")
    done = user.run("bench", "send", "--hub", hub.url, "--stream", "plain", "--count", "3")
    assert done.exit_code == 0
    assert "\x1b" not in done.output


@pytest.mark.parametrize("words", [["--help"], ["explain-error", "E.SEQ"], ["demo", "--help"]])
def test_a_reader_of_our_output_may_leave(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "veen.cli.main", *words]
    with os.fdopen(writing, "wb") as nobody:
        done = subprocess.run(command, stdout=nobody, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b""), "nobody is told, since nobody is there"


@pytest.mark.parametrize("group", [(), ("hub",), ("cap",), ("hub", "trust")])
def test_a_group_alone_shows_its_help(group: tuple[str, ...]) -> None:
    done = veen(*group)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("Usage: veen ")
    assert "see: " not in done.stdout


# --- defaults -----------------------------------------------------------------------------------------


def test_daily_use_needs_no_flags(user: User, hub: HubProcess, tmp_path: Path) -> None:
    unnamed = _after_keygen(user).fails(1, "send", "--stream", "s", "--body", "1")
    assert (unnamed["code"], "--hub" in unnamed["detail"]) == ("E.USAGE", True)
    user.ok("config", "set", "hub", hub.url)
    assert user.ok("send", "--stream", "daily", "--body", "1")["ok"] is True
    user.ok("keygen", "--out", tmp_path / "second")
    user.ok("config", "set", "client", str(tmp_path / "second"))
    sent = user.ok("send", "--stream", "daily", "--body", "2")
    second = user.ok("id", "show", "--client", tmp_path / "second")["client_id"]
    assert user.ok("stream", "--stream", "daily", "--from", str(sent["stream_seq"]))[0]["client_id"] == second
    assert user.ok("config", "show")["hub"] == hub.url
    user.ok("config", "unset", "hub")
    user.fails(1, "send", "--stream", "daily", "--body", "3")
    user.fails(1, "config", "set", "colour", "red")
    (tmp_path / ".config/veen/config.toml").write_text("nonsense = 3\n")
    assert "config.toml" in user.fails(1, "send", "--stream", "daily", "--body", "3")["detail"]


def _after_keygen(user: User) -> User:
    user.ok("keygen")
    return user


def test_a_hub_that_runs_in_the_default_place_is_found(tmp_path: Path) -> None:
    place = tmp_path / ".local/share/veen/hub"
    place.parent.mkdir(parents=True)
    with HubProcess(place) as running:
        user = _after_keygen(User(tmp_path))
        assert user.ok("send", "--stream", "home", "--body", "1")["stream_seq"] == 1
        assert user.ok("hub", "status")["hub_id"] == running.banner["hub_id"]
        running.stop()
    assert [item["body"] for item in user.ok("stream", "--stream", "home")] == [1], "also when it is stopped"
    assert "hub start" in user.fails(2, "send", "--stream", "home", "--body", "2")["detail"]


def test_the_descriptor_of_an_environment_names_hubs(user: User, hub: HubProcess, tmp_path: Path) -> None:
    user.ok("keygen")
    env = tmp_path / "test.env.json"
    env.write_text(
        json.dumps({"version": 1, "hubs": {"main": {"service_url": hub.url, "profile_id": "ab" * 32}}})
    )
    words = ("--env", env, "--hub-name", "main")
    assert user.ok("send", "--stream", "env", "--body", "1", *words)["ok"] is True
    assert user.ok(*words, "hub", "status")["hub_id"] == hub.banner["hub_id"]
    send = ("send", "--stream", "env", "--body", "1")
    assert "main" in user.fails(1, *send, "--env", env, "--hub-name", "x")["detail"]
    assert "--hub-name" in user.fails(1, *send, "--env", env)["detail"]
    env.write_text("[]")
    user.fails(1, "send", "--stream", "env", "--body", "1", *words)
    assert user.ok("send", "--stream", "env", "--body", "1", "--hub", hub.url, *words), "an explicit hub wins"


def test_nothing_but_path_and_home_is_needed(tmp_path: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("veen"), "keygen", "--json"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout)["ok"] is True
