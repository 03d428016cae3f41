"""``veen query``: commands that ask a service, and those that say who may."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from typer.testing import Result

from tests.cli.command_runner import User
from tests.hub.hub_process import TIMEOUT, HubProcess
from tests.query_service.plain_service import ROWS
from tests.query_service.service_process import APP, Service, make_place, read_policy
from tests.query_service.service_process import ROWS as COUNT
from veen.cli.output import plain_json
from veen.cli.settings import DEFAULT_TIMEOUT_MS
from veen.core.crypto.ed25519 import SigningKey
from veen.core.encoding import canonical_json
from veen.core.objects import labels
from veen.core.objects.hub_identity import HubIdentity, HubKey
from veen.net.host_names import served_names
from veen.query_service.server import STORE, ListenSettings


def run(*words: str, **env: str) -> Result:
    return User(Path("/nowhere"), **env).run(*words)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    place = tmp_path_factory.mktemp("world")
    with HubProcess(place / "hub") as hub:
        tokens = make_place(place / "service")
        (place / "service" / "token").write_text(tokens["alice"] + "\n")
        with Service(place / "service", hub.url) as made:
            yield made


def ask(service: Service, *words: str, code: int = 0) -> Any:
    at = ("--url", service.url, "--token-file", str(service.place / "token"))
    found = run("query", *words, *at, "--json")
    assert found.exit_code == code, found.output
    return json.loads(found.stdout)


def test_a_query_from_the_submit_to_its_rows(service: Service, tmp_path: Path) -> None:
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({"query_id": "mine", "scope": [APP]}))
    accepted = ask(service, "submit", str(asked), "--wait")
    assert accepted["status"] == "completed"
    result_id = accepted["result_id"]
    assert ask(service, "status", result_id)["query_id"] == "mine"
    assert ask(service, "descriptor", "mine")["descriptor"]["scope"] == [APP]
    found = ask(service, "result", result_id, "--all", "--out", str(tmp_path / "rows"))
    assert (found["rows"], found["verified"]) == (COUNT, True)
    assert len((tmp_path / "rows").read_bytes().splitlines()) == COUNT
    page = ask(service, "result", result_id, "--offset", "3", "--limit", "2")
    assert (len(page["rows"]), page["verified"]) == (2, False)
    assert ask(service, "cancel", result_id)["status"] == "completed"
    at = ("--url", service.url, "--token-file", str(service.place / "token"))
    shown = run("query", "status", result_id, *at).stdout
    assert "status: completed" in shown
    assert "unspecified" not in shown
    asked.write_text(json.dumps({"query_id": "other", "scope": [APP]}))
    waited = run("query", "submit", str(asked), "--wait", *at)
    assert "accepted: r-" in waited.stderr
    asked.write_text(json.dumps({"query_id": "mine", "scope": [APP]}))
    again = ask(service, "submit", str(asked), code=4)
    assert again["code"] == "duplicate_query_id"


def test_rows_that_are_not_those_of_the_digest_are_refused(service: Service, tmp_path: Path) -> None:
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({"scope": [APP]}))
    result_id = ask(service, "submit", str(asked), "--wait")["result_id"]
    rows = service.place / "state" / "results" / result_id / ROWS
    before = rows.read_text()
    for changed in (
        before.replace("user-1", "user-9", 1),
        "".join(reversed(before.splitlines(keepends=True))),
    ):
        rows.write_text(changed)
        found = ask(service, "result", result_id, "--all", code=4)
        assert found["code"] == "E.PROOF"


def test_what_is_refused_ends_with_4_and_what_is_not_there_with_2(service: Service, tmp_path: Path) -> None:
    asked = tmp_path / "asked.json"
    asked.write_text("{")
    assert ask(service, "submit", str(asked), code=4)["code"] == "invalid_json"
    assert ask(service, "result", "r-none", code=4)["code"] == "query_not_found"
    assert "'a/b'" in ask(service, "status", "a/b", code=1)["detail"]
    found = run("query", "status", "r-none", "--url", service.url, "--json", VEEN_QUERY_TOKEN="wrong")
    assert (found.exit_code, json.loads(found.stdout)["code"]) == (4, "unauthorized")
    found = run("query", "status", "r-none", "--url", "http://127.0.0.1:1")
    assert found.exit_code == 2
    found = run("query", "status", "r-none")
    assert found.exit_code == 1
    assert "--url" in found.stderr


@pytest.mark.parametrize(
    "data",
    [
        b"vq-secret\nvq-another\n",
        b"vq-secret\r\nx: y",
        b"\xff\xfesecret",
        b"vq-s\xc3\xa9cret",
        b"",
        b"s" * 513,
    ],
)
@pytest.mark.parametrize("from_file", [True, False])
def test_what_is_no_token_is_not_sent_and_not_shown(tmp_path: Path, data: bytes, *, from_file: bool) -> None:
    file = tmp_path / "token"
    file.write_bytes(data)
    words = ["query", "status", "r-1", "--url", "http://127.0.0.1:1", "--verbose"]
    if from_file:
        found = run(*words, "--token-file", str(file))
    elif data:
        found = run(*words, VEEN_QUERY_TOKEN=os.fsdecode(data))
    else:
        return
    assert found.exit_code == 1, found.output
    assert (str(file) if from_file else "VEEN_QUERY_TOKEN") in found.stderr.splitlines()[-1]
    assert "secret" not in found.output
    assert "ssss" not in found.output


class Answers:
    """What stands where a service should: it gives the next answer to each connection, None cuts it."""

    def __init__(self, *answers: tuple[int, dict[str, Any]] | None) -> None:
        self._answers = answers
        self._sock = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._sock.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        for answer in self._answers:
            peer, _ = self._sock.accept()
            with peer, peer.makefile("rb") as lines:
                size = 0
                while (line := lines.readline()).strip():
                    name, _, value = line.partition(b":")
                    size = int(value) if name.lower() == b"content-length" else size
                lines.read(size)
                if answer is not None:
                    status, body = answer
                    data = json.dumps(body).encode()
                    head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n"
                    peer.sendall(head.encode() + data)
        self._sock.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive(), "not all answers were asked for"


ACCEPTED = (202, {"query_id": "q-1", "result_id": "r-1", "status": "pending"})
RUNNING = (200, {"query_id": "q-1", "result_id": "r-1", "status": "running"})
BUSY = (503, {"error_code": "internal_error", "message": "not now"})


def submit(url: str, tmp_path: Path, *words: str) -> Result:
    (tmp_path / "asked.json").write_text("{}")
    return run(*words, "query", "submit", str(tmp_path / "asked.json"), "--wait", "--url", url, "--json")


def test_who_submits_waits_longer_than_the_service_waits_for_its_hub() -> None:
    """Else nobody would hear that the query is kept, and as what."""
    assert 2 * ListenSettings(names=served_names(["queries"])).record_wait_sec <= DEFAULT_TIMEOUT_MS / 1000


def test_who_waits_outlives_a_service_that_is_away_for_a_while(tmp_path: Path) -> None:
    done = (200, {**RUNNING[1], "status": "completed"})
    with Answers(ACCEPTED, RUNNING, None, BUSY, done) as service:
        found = submit(service.url, tmp_path)
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["status"] == "completed"


@pytest.mark.parametrize(
    ("last", "exit_code", "code"),
    [
        (None, 2, "E.NETWORK"),
        ((404, {"error_code": "query_not_found", "message": "none"}), 4, "query_not_found"),
        (
            (200, {**RUNNING[1], "status": "failed", "error_code": "cancelled", "message": "x"}),
            4,
            "cancelled",
        ),
    ],
)
def test_who_waited_in_vain_is_told_for_what(
    tmp_path: Path, last: tuple[int, dict[str, Any]] | None, exit_code: int, code: str
) -> None:
    with Answers(ACCEPTED, RUNNING, last) as service:
        found = submit(service.url, tmp_path, "--timeout-ms", "1000")
    assert found.exit_code == exit_code, found.output
    told = json.loads(found.stdout)
    assert told["code"] == code
    assert "r-1" in told["detail"]


def test_a_file_of_rows_is_replaced_by_whole_and_right_rows_only(service: Service, tmp_path: Path) -> None:
    out = tmp_path / "rows"
    out.write_text("of before")
    out.chmod(0o640)
    wanted = ("--all", "--out", str(out))
    assert ask(service, "result", "r-none", *wanted, code=4)["code"] == "query_not_found"
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({"scope": [APP]}))
    result_id = ask(service, "submit", str(asked), "--wait")["result_id"]
    rows = service.place / "state" / "results" / result_id / ROWS
    before = rows.read_text()
    rows.write_text(before.replace("user-1", "user-9", 1))
    assert ask(service, "result", result_id, *wanted, code=4)["code"] == "E.PROOF"
    assert out.read_text() == "of before"
    rows.write_text(before)
    assert ask(service, "result", result_id, *wanted)["verified"] is True
    assert (len(out.read_text().splitlines()), out.stat().st_mode & 0o777) == (COUNT, 0o640)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["asked.json", "rows"]
    assert ask(service, "result", result_id, "--out", "/dev/null")["rows"] == COUNT
    found = ask(service, "result", result_id, "--out", str(tmp_path / "none" / "rows"), code=1)
    assert str(tmp_path / "none") in found["detail"]


def grant(policy: Path, *words: str) -> Result:
    return run("query", "grant", *words, "--policy", str(policy), "--json")


def test_grants_are_written_and_wrong_ones_are_not(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    made = json.loads(grant(policy, "alice", "--scope", "a/*", "--scope", "b", "--auditor").stdout)
    principal = read_policy(policy).by_token(made["token"])
    assert principal is not None
    assert (principal.scopes, principal.auditor) == (("a/*", "b"), True)
    for words in (
        ("alice", "--scope", "c"),
        ("bob", "--scope", "a*b"),
        ("bob", "--scope", "a", "--identity", "12"),
    ):
        assert grant(policy, *words).exit_code == 1
    assert len(read_policy(policy).principals) == 1


def test_a_service_says_what_is_missing_before_it_starts_spark(tmp_path: Path) -> None:
    base = ("query", "serve", "--lake", str(tmp_path), "--state", str(tmp_path / "s"))
    found = run(*base, "--policy", str(tmp_path / "none"))
    assert found.exit_code == 1
    assert "veen query grant" in found.stderr
    for more, what in (
        (("--client-ca", "x"), "--tls-cert"),
        (("--stream", "x"), "--log"),
        (("--log-level", "x"), "debug"),
    ):
        found = run(*base, "--policy", "p", *more)
        assert found.exit_code == 1
        assert what in found.stderr
    grant(tmp_path / "policy.toml", "alice", "--scope", "a")
    (tmp_path / "s").mkdir(exist_ok=True)
    (tmp_path / "s" / STORE).write_bytes(b"no database" * 100)
    found = run(*base, "--policy", str(tmp_path / "policy.toml"), "--listen", "127.0.0.1:0")
    assert found.exit_code == 1
    assert STORE in found.stderr


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("run", "asked.json", "--lake", "lake"), "--unrecorded"),
        (
            ("run", "asked.json", "--lake", "lake", "--unrecorded", "--hub", "http://127.0.0.1:1"),
            "--unrecorded",
        ),
        (("verify", "--descriptor", "asked.json", "--digest", "digest.json"), "--lake"),
        (("verify", "log", "--lake", "lake", "--result-id", "r-1"), "--lake"),
        (("verify", "log", "--result-id", "r-1"), "--result-id and --lake"),
        (("verify", "log", "--descriptor", "asked.json"), "--descriptor and --digest"),
    ],
)
def test_what_is_asked_for_in_two_ways_or_in_none_is_told_before_spark_starts(
    words: tuple[str, ...], what: str
) -> None:
    found = run("query", *words)
    assert found.exit_code == 1
    assert what in found.stderr


def test_unrecorded_wins_over_the_hub_of_the_environment() -> None:
    found = run("query", "run", "none.json", "--lake", "lake", "--unrecorded", VEEN_HUB="http://127.0.0.1:1")
    assert found.exit_code == 1
    assert "none.json" in found.stderr


def test_rows_do_not_steer_a_terminal_and_are_what_they_were() -> None:
    row = {"subject_id": "a\x9b31m\x7f\u202e é \U0001f600 \u2028"}
    shown = plain_json(canonical_json.encode(row))
    assert not set(shown) & set("\x9b\x7f\u202e\u2028")
    assert json.loads(shown) == row


def test_files_that_are_no_descriptor_or_digest_end_with_3(tmp_path: Path) -> None:
    for name, text in (("none", "{"), ("half", '{"scope": ["a"]}')):
        (tmp_path / name).write_text(text)
        files = ("--descriptor", str(tmp_path / name), "--digest", str(tmp_path / name))
        assert run("query", "verify", "log", *files).exit_code == 3


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (("--map", "their/app"), 1, "NAME=NAME"),
        (("--map", "=here"), 1, "NAME=NAME"),
        (("--map", "a=b", "--map", "a=c"), 1, "NAME=NAME"),
        (("--origin", "nothing"), 1, "hub-identity.cbor"),
        (("--origin", "hub-identity.cbor"), 1, "--origin hub-identity.cbor"),
        (("--origin", "."), 4, "hub-identity.sig"),
    ],
)
def test_other_zones_that_can_not_be_used_are_told_before_spark_starts(
    words: tuple[str, ...], code: int, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    key = SigningKey.from_seed(bytes(32)).public_key
    identity = HubIdentity(
        hub_id=labels.hub_id(key),
        hub_keys=(HubKey.of(key, 0),),
        anchoring="none",
        routing_key=labels.routing_key(labels.hub_id(key)),
    )
    (tmp_path / "hub-identity.cbor").write_bytes(identity.encode())  # and nobody has signed it
    (tmp_path / "asked.json").write_text('{"scope": ["record/app"]}')
    found = run("query", "run", "asked.json", "--lake", "lake", "--unrecorded", *words)
    assert found.exit_code == code, found.stderr
    assert what in found.stderr
