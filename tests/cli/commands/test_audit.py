"""The audit through the program, with a real hub: queries on record, streams, rules."""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.cli.command_runner import User
from tests.hub.hub_process import HubProcess, veen

A, B = "a" * 64, "b" * 64


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("audit") / "data") as made:
        yield made


@pytest.fixture
def user(tmp_path: Path, hub: HubProcess) -> User:
    made = User(tmp_path, VEEN_HUB=hub.url)
    made.ok("keygen")
    return made


def test_queries_on_record(user: User) -> None:
    words = ("op", "query-audit", "--stream", "clinic", "--resource-class", "health")
    user.ok(*words, "--resource-identifier", "patients/1", "--purpose-code", "care", "--request-time", "100")
    user.ok(*words, "--resource-identifier", "patients/2", "--request-time", "200", "--requester-identity", A)
    answer = user.home / "answer"
    answer.write_bytes(b"answered")
    more = ("--query-parameters-json", '{"from": 1}', "--result-file", answer)
    user.ok(*words, "--resource-identifier", "bills/1", *more)
    user.fails(1, *words, "--resource-identifier", "bills/1", *more, "--result-digest", A)
    show = ("audit", "queries", "--stream", "clinic")
    rows = user.ok(*show)["queries"]
    assert [row["resource_identifier"] for row in rows] == ["patients/1", "patients/2", "bills/1"]
    assert rows[0]["requester_identity"] == user.ok("id", "show")["id_sign_public"]
    assert rows[2]["result_digest"] == sha256(b"answered").hexdigest()
    assert (rows[0]["purpose_code"], rows[0]["request_time"]) == ("care", 100)
    assert len(user.ok(*show, "--resource-prefix", "patients/")["queries"]) == 2
    assert [row["time"] for row in user.ok(*show, "--since", "150", "--until", "300")["queries"]] == [200]
    assert "patients/1  care" in user.run(*show).stdout


def test_how_far_a_stream_has_come(user: User) -> None:
    sent = user.ok("send", "--stream", "roots", "--body", "1")
    for words in (("audit", "stream", "--stream", "roots"), ("audit", "--stream", "roots")):
        found = user.ok(*words)
        assert (found["stream_seq"], found["mmr_root"]) == (1, sent["mmr_root"])
    assert user.ok("audit", "stream", "--stream", "roots/none")["stream_seq"] == 0
    assert f"mmr_root: {sent['mmr_root']}" in user.run("audit", "--stream", "roots").stdout
    user.fails(1, "audit", "--hub", "x://y", "--stream", "roots")
    assert "--help" in user.fails(1, "audit", "--client", user.home)["detail"]
    told = veen("audit", "--stream", "roots", "stream", "--stream", "roots")
    assert (told.returncode, told.stdout) == (1, "")
    assert "veen audit stream" in told.stderr


def test_a_summary_of_streams(user: User, tmp_path: Path) -> None:
    user.ok(
        "op", "query-audit", "--stream", "t1/files", "--resource-class", "c", "--resource-identifier", "r"
    )
    user.ok("send", "--stream", "t1/mail", "--body", "1")
    user.ok("send", "--stream", "t2/logs", "--body", "1")
    body = json.dumps({"subject_identity": A})
    user.ok("op", "send", "--stream", "t2/logs", "--schema-name", "access.revoke.v1", "--body-json", body)
    env = tmp_path / "env.json"
    tenants = {
        "one": {"stream_prefix": "t1/", "label_class": "user"},
        "two": {"stream_prefix": "t2/", "label_class": "log"},
    }
    env.write_text(json.dumps({"version": 1, "hubs": {}, "tenants": tenants}))
    rows = {
        row["stream"]: row for row in user.ok("audit", "summary", "--hub", user.hub, "--env", env)["streams"]
    }
    assert set(rows) == {"t1/files", "t1/mail", "t2/logs"}
    assert rows["t1/files"]["schemas"] == {"query.audit.v1": 1}
    assert (rows["t1/files"]["sensitive"], rows["t1/files"]["audit_missing"]) == (True, False)
    assert rows["t1/mail"]["audit_missing"] is True
    assert rows["t2/logs"]["schemas"]["access.revoke.v1"] == 1
    assert (rows["t2/logs"]["access_grant"], rows["t2/logs"]["access_revoke"]) == (False, True)
    (row,) = user.ok("audit", "summary", "--stream", "t2/logs", "--sensitive", "t2/logs")["streams"]
    assert (row["sensitive"], row["audit_missing"]) == (True, True)
    told = user.run("audit", "summary", "--stream", "t2/logs").stdout
    assert "access_revoke: yes" in told
    stranger = tmp_path / "stranger"
    user.ok("keygen", "--out", stranger)
    assert "--stream" in user.run("audit", "summary", "--client", stranger).stderr
    assert "t2/logs" in user.run("audit", "queries", "--stream", "t2/logs").stderr
    env.write_text("{}")
    user.fails(1, "audit", "summary", "--hub", user.hub, "--env", env)
    user.fails(1, "audit", "summary", "--hub", user.hub, "--env", tmp_path / "none")


def _policy(path: Path, *rules: object, version: object = 1) -> tuple[str | Path, ...]:
    path.write_text(json.dumps({"version": version, "rules": rules}))
    return ("audit", "enforce-check", "--policy-file", path)


def test_rules_that_are_kept_and_broken(user: User, tmp_path: Path) -> None:
    user.ok(
        "op", "query-audit", "--stream", "ward", "--resource-class", "health", "--resource-identifier", "r"
    )
    audited = {"type": "require_audit", "stream": "ward", "resource_class": "health"}
    missing = {"type": "require_audit", "stream": "ward", "resource_class": "money"}
    enough = {"type": "require_recovery_threshold", "target_identity_prefix": "aa", "min_approvals": 1}
    path = tmp_path / "policy.json"
    stranger = tmp_path / "stranger"
    user.ok("keygen", "--out", stranger)
    user.fails(1, *_policy(path, enough), "--client", stranger)
    sealed = user.fails(4, *_policy(path, audited), "--client", stranger)["violations"]
    assert "; 1 entry sealed to other readers" in sealed[0]["detail"]
    assert user.ok(*_policy(path, audited, enough))["violations"] == []
    (found,) = user.fails(4, *_policy(path, audited, missing))["violations"]
    assert (found["rule"], found["stream"], found["resource_class"]) == ("require_audit", "ward", "money")
    about = ("--stream", "rescue", "--target-identity", A)
    user.ok("op", "recovery-request", *about, "--requested-new-identity", B)
    ref = user.ok("op", "recovery-approval", *about, "--requested-new-identity", B)["msg_id"]
    user.ok("op", "recovery-execution", *about, "--new-identity", B, "--approval-ref", ref)
    assert user.ok(*_policy(path, enough))["violations"] == []
    (found,) = user.fails(4, *_policy(path, {**enough, "min_approvals": 2}))["violations"]
    assert (found["approvals"], found["target_identity"], found["stream"]) == (1, A, "rescue")
    assert user.ok(*_policy(path, {**enough, "min_approvals": 2, "target_identity_prefix": "bb"}))["ok"]
    assert user.ok(*_policy(path, {**enough, "min_approvals": 2, "stream": "ward"}))["ok"]
    assert "violation: " in user.run(*_policy(path, missing)).stdout


@pytest.mark.parametrize(
    ("rules", "version"),
    [
        ([{"type": "require_nothing"}], 1),
        ([], 2),
        ([], True),
        ({}, 1),
        (["rule"], 1),
        ([{"type": "require_audit", "stream": "s"}], 1),
        ([{"type": "require_audit", "stream": "s", "resource_class": "c", "more": 1}], 1),
        ([{"type": "require_audit", "stream": 1, "resource_class": "c"}], 1),
        ([{"type": "require_recovery_threshold", "target_identity_prefix": "XY", "min_approvals": 1}], 1),
        ([{"type": "require_recovery_threshold", "target_identity_prefix": "", "min_approvals": "1"}], 1),
    ],
)
def test_a_policy_that_is_none(user: User, tmp_path: Path, rules: object, version: object) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({"version": version, "rules": rules}))
    user.fails(1, "audit", "enforce-check", "--policy-file", path)
    path.write_text(json.dumps(rules))
    user.fails(1, "audit", "enforce-check", "--policy-file", path)
