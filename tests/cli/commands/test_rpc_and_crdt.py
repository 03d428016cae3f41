"""Calls, registers, sets and counters through the program (E2E-003, E2E-004)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import User
from tests.hub.hub_process import HubProcess
from veen.core.objects import labels

METHODS = """
from pathlib import Path

def add(a, b):
    with Path(__file__).with_name("effects").open("a") as file:
        file.write("added\\n")
    return a + b

def hello(name="you"):
    return f"hello {name}"

def half(x):
    return x / 2
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("rpc") / "data") as made:
        yield made


@pytest.fixture
def user(tmp_path: Path, hub: HubProcess) -> User:
    made = User(tmp_path, VEEN_HUB=hub.url)
    made.ok("keygen")
    return made


class Server:
    """``veen rpc serve`` as a process of its own."""

    def __init__(self, user: User, stream: str, limit: int, *words: str) -> None:
        self.home = user.home / "server"
        if not self.home.exists():
            user.ok("keygen", "--out", self.home)
        self.module = user.home / "methods.py"
        self.module.write_text(METHODS)
        command = [
            sys.executable,
            "-m",
            "veen.cli.main",
            "rpc",
            "serve",
            "--stream",
            stream,
            "--hub",
            user.hub,
        ]
        command += ["--client", str(self.home), "--module", str(self.module), "--limit", str(limit)]
        self.process = subprocess.Popen(
            [*command, "--json", *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "HOME": str(user.home)},
        )

    @property
    def card(self) -> Path:
        return self.home / "identity_card.pub"

    def effects(self) -> int:
        return len(self.module.with_name("effects").read_text().splitlines())

    def told(self) -> Any:
        """Return what it says of the next call that it has answered."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()


@contextmanager
def _serving(user: User, stream: str, limit: int, *words: str) -> Iterator[Server]:
    """Have a server, which ends by itself when it has answered as many calls as it should."""
    made = Server(user, stream, limit, *words)
    with made.process:
        try:
            yield made
            made.process.wait(60)
        finally:
            made.process.kill()
    assert made.process.returncode in (0, -signal.SIGKILL)


def _call(server: Server, stream: str, method: str, args: Any, *words: str) -> Any:
    given = ("--stream", stream, "--method", method, "--args", json.dumps(args), "--to", str(server.card))
    return ("rpc", "call", *given, "--timeout-ms", "30000", *words)


class TestRpc:
    def test_add_is_answered_and_a_repetition_has_one_effect(self, user: User) -> None:
        with _serving(user, "math", 3) as server:
            assert user.ok(*_call(server, "math", "add", [1, 2]))["result"] == 3
            for _ in range(2):
                assert user.ok(*_call(server, "math", "add", [2, 2], "--idem", "5"))["result"] == 4
        assert server.effects() == 2

    def test_a_server_that_was_killed_goes_on(self, user: User) -> None:
        with _serving(user, "killed", 9) as server:
            assert user.ok(*_call(server, "killed", "add", [1, 2], "--idem", "1"))["result"] == 3
            # It has noted then that it has answered; before, it would answer this call once more.
            assert server.told()["ran"] is True
            server.kill()
        with _serving(user, "killed", 2) as again:
            assert user.ok(*_call(again, "killed", "add", [1, 2], "--idem", "1"))["result"] == 3
            assert user.ok(*_call(again, "killed", "hello", {"name": "Ann"}))["result"] == "hello Ann"
            assert [again.told()["ran"] for _ in range(2)] == [False, True]
        assert again.effects() == 1

    def test_errors_of_methods_end_with_4(self, user: User) -> None:
        with _serving(user, "bad", 6) as server:
            refused = user.fails(4, *_call(server, "bad", "nothing", None))
            assert refused["code"] == "E.RPC.UNKNOWN_METHOD"
            assert "add, half, hello" in refused["detail"]
            assert user.fails(4, *_call(server, "bad", "half", [1]))["code"] == "E.RPC.RESULT"
            assert user.fails(4, *_call(server, "bad", "add", [1]))["code"] == "E.RPC.INTERNAL"

    def test_a_program_answers(self, user: User) -> None:
        program = (
            f"double={sys.executable} -c 'import json,sys; json.dump(json.load(sys.stdin)*2, sys.stdout)'"
        )
        wrong = f"wrong={sys.executable} -c 'import sys; sys.exit(\"no such thing\")'"
        with _serving(user, "programs", 3, "--exec", program, "--exec", wrong) as server:
            assert user.ok(*_call(server, "programs", "double", 21))["result"] == 42
            assert "no such thing" in user.fails(4, *_call(server, "programs", "wrong", 1))["detail"]

    def test_nobody_answers_in_time(self, user: User) -> None:
        found = user.fails(2, "rpc", "call", "--stream", "empty", "--method", "add", "--timeout-ms", "20")
        assert found["code"] == "E.TIMEOUT"

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("call", "--method", "add", "--args", "{"), "--args"),
            (("call", "--method", "add", "--args", "1.5"), "--args"),
            (("call", "--method", "add", "--repeats", "1"), "--idem"),
            (("serve",), "--module"),
            (("serve", "--exec", "add"), "METHOD=COMMAND"),
            (("serve", "--module", "/nowhere.py"), "/nowhere.py"),
        ],
    )
    def test_what_is_wrong_is_told(self, user: User, words: tuple[str, ...], says: str) -> None:
        assert says in user.fails(1, "rpc", *words, "--stream", "s")["detail"]


class TestCrdt:
    def test_the_register_with_the_greatest_time_wins(self, user: User) -> None:
        place = ("--stream", "config", "--key", "colour")
        assert user.ok("crdt", "lww", "get", *place) == {"key": "colour", "set": False}
        user.ok("crdt", "lww", "set", *place, "--value", "B", "--ts", "2")
        user.ok("crdt", "lww", "set", *place, "--value", "A", "--ts", "1")
        assert user.ok("crdt", "lww", "get", *place)["value"] == "B"
        assert user.ok("crdt-lww", "get", *place, "--upto", "1")["value"] == "B"
        user.ok("crdt-lww", "set", *place, "--value", "0x00ff")
        assert user.ok("crdt", "lww", "get", *place)["value"] == "0x00ff"
        assert "unset" in user.run("crdt", "lww", "get", "--stream", "config", "--key", "size").stdout

    def test_a_set(self, user: User) -> None:
        place = ("--stream", "set")
        for elem in ("b", "a", "b"):
            user.ok("crdt", "orset", "add", *place, "--elem", elem)
        assert user.ok("crdt", "orset", "list", *place)["elements"] == ["a", "b"]
        assert user.ok("crdt", "orset", "remove", *place, "--elem", "b")["removed"] == 2
        assert user.ok("crdt", "orset", "remove", *place, "--elem", "b")["removed"] == 0
        assert user.ok("crdt-orset", "list", *place)["elements"] == ["a"]
        assert user.ok("crdt", "orset", "list", *place, "--upto", "3")["elements"] == ["a", "b"]

    def test_a_counter_of_two(self, user: User, tmp_path: Path) -> None:
        user.ok("keygen", "--out", tmp_path / "bob")
        user.ok("reader", "new", "--stream", "count")
        shared = tmp_path / "key"
        user.ok("reader", "share", "--stream", "count", "--to", tmp_path / "bob", "--out", shared)
        user.ok("reader", "accept", shared, "--client", tmp_path / "bob")
        user.ok("crdt", "counter", "add", "--stream", "count", "--delta", "40")
        user.ok("crdt", "counter", "add", "--stream", "count", "--client", tmp_path / "bob", "--delta", "2")
        for client in ((), ("--client", tmp_path / "bob")):
            found = user.ok("crdt", "counter", "get", "--stream", "count", *client)
            assert found["total"] == 42
            assert sorted(found["shards"].values()) == [2, 40]

    def test_the_state_is_the_same_from_a_copy_of_the_log(self, user: User, tmp_path: Path) -> None:
        place = ("--stream", "copied", "--key", "k")
        for ts in (1, 3, 2):
            user.ok("crdt", "lww", "set", *place, "--value", f"v{ts}", "--ts", str(ts))
        user.ok("export", "--stream", "copied", "--out", tmp_path / "set")
        live = user.ok("crdt", "lww", "get", *place)
        assert user.ok("crdt", "lww", "get", *place, "--hub", tmp_path / "set") == live

    @pytest.mark.parametrize(
        "words",
        [
            ("lww", "get", "--key", "0xzz"),
            ("counter", "add", "--delta", "-1"),
        ],
    )
    def test_bad_input(self, user: User, words: tuple[str, ...]) -> None:
        done = user.run("crdt", *words, "--stream", "s")
        assert done.exit_code in (1, 2)
        assert "Traceback" not in done.output


def test_schema_ids(user: User) -> None:
    assert user.run("schema-id", "rpc.v1").stdout.strip() == labels.schema_id("rpc.v1").hex()
    known = user.ok("schema-id", "crdt.lww.v1")
    assert [item["name"] for item in known["fields"]] == ["key", "ts", "value"]
    other = user.ok("schema-id", "test.operation.v1")
    assert (other["known"], other["schema_id"]) == (False, labels.schema_id("test.operation.v1").hex())
