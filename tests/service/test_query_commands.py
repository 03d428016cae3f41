"""``veen query``: commands that ask a service, and those that say who may."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.cli.running import User
from tests.hub.process import HubProcess
from tests.service.plain import ROWS
from tests.service.world import APP, Service, make_place
from tests.service.world import ROWS as COUNT
from veen.cli.printing import plain_json
from veen.core import canonical_json, labels
from veen.core.ed25519 import SigningKey
from veen.core.identity import HubIdentity, HubKey
from veen.service.grants import load_policy
from veen.service.server import STORE


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
        assert "do not use them" in found["detail"]


def test_what_is_refused_ends_with_4_and_what_is_not_there_with_2(service: Service, tmp_path: Path) -> None:
    asked = tmp_path / "asked.json"
    asked.write_text("{")
    assert ask(service, "submit", str(asked), code=4)["code"] == "invalid_json"
    assert ask(service, "result", "r-none", code=4)["code"] == "query_not_found"
    assert "no id" in ask(service, "status", "a/b", code=1)["detail"]
    found = run("query", "status", "r-none", "--url", service.url, "--json", VEEN_QUERY_TOKEN="wrong")
    assert (found.exit_code, json.loads(found.stdout)["code"]) == (4, "unauthorized")
    found = run("query", "status", "r-none", "--url", "http://127.0.0.1:1")
    assert found.exit_code == 2
    found = run("query", "status", "r-none")
    assert found.exit_code == 1
    assert "--url" in found.stderr


def grant(policy: Path, *words: str) -> Result:
    return run("query", "grant", *words, "--policy", str(policy), "--json")


def test_grants_are_written_and_wrong_ones_are_not(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    made = json.loads(grant(policy, "alice", "--scope", "a/*", "--scope", "b", "--auditor").stdout)
    principal = load_policy(policy).by_token(made["token"])
    assert principal is not None
    assert (principal.scopes, principal.auditor) == (("a/*", "b"), True)
    for words in (
        ("alice", "--scope", "c"),
        ("bob", "--scope", "a*b"),
        ("bob", "--scope", "a", "--identity", "12"),
    ):
        assert grant(policy, *words).exit_code == 1
    assert len(load_policy(policy).principals) == 1


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
    assert f"{STORE} can not be used" in found.stderr


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("run", "asked.json", "--lake", "lake"), "--unrecorded"),
        (
            ("run", "asked.json", "--lake", "lake", "--unrecorded", "--hub", "http://127.0.0.1:1"),
            "--unrecorded",
        ),
        (("verify", "--descriptor", "asked.json", "--digest", "digest.json"), "LOG or --lake"),
        (("verify", "log", "--lake", "lake", "--result-id", "r-1"), "LOG or --lake"),
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
        (("--map", "a=b", "--map", "a=c"), 1, "each stream once"),
        (("--origin", "nothing"), 1, "no hub-identity.cbor"),
        (("--origin", "hub-identity.cbor"), 1, "can not be read"),
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
