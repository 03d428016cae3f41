"""Operations through the program, with a real hub: every command, what it refuses, and what it shows."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import User
from tests.hub.hub_process import HubProcess
from veen.core.objects import labels
from veen.core.objects.capability import CapToken

A, B, C, D = (f"{digit}" * 64 for digit in "abcd")
FUTURE = 4_102_444_800


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    config = "trust_all_issuers = true\nmax_client_id_lifetime_sec = 1000000\n"
    with HubProcess(tmp_path_factory.mktemp("operations") / "data", config=config) as made:
        yield made


@pytest.fixture
def user(tmp_path: Path, hub: HubProcess) -> User:
    made = User(tmp_path, VEEN_HUB=hub.url)
    made.ok("keygen")
    return made


def _identity(user: User, *client: str | Path) -> str:
    return str(user.ok("id", "show", *client)["id_sign_public"])


def _members(user: User, stream: str, *names: str) -> list[tuple[str | Path, ...]]:
    """Make clients that read a stream together; returns the options that choose each."""
    places = [user.home / name for name in names]
    for place in places:
        user.ok("keygen", "--out", place)
    first = places[0]
    user.ok("reader", "new", "--client", first, "--stream", stream)
    for place in places[1:]:
        gift = user.home / f"for-{place.name}"
        to = place / "identity_card.pub"
        user.ok("reader", "share", "--client", first, "--stream", stream, "--to", to, "--out", gift)
        user.ok("reader", "accept", gift, "--client", place)
    return [("--client", place) for place in places]


def _operation(found: dict[str, Any], name: str) -> dict[str, Any]:
    assert found["schema_name"] == name
    assert found["operation_id"] != found["msg_id"]
    assert found["stream_seq"] >= 1
    return found


# --- sending ------------------------------------------------------------------------------------------------


def test_an_operation_in_json(user: User) -> None:
    body = {"subject_identity": A, "target_capability_reference": None, "reason": "gone"}
    sent = _operation(
        user.ok(
            *("op", "send", "--stream", "json", "--schema-name", "access.revoke.v1"),
            *("--body-json", json.dumps(body), "--expires-at", str(FUTURE), "--parent-id", B),
        ),
        "access.revoke.v1",
    )
    (item,) = user.ok("stream", "--stream", "json")
    assert item["msg_id"] == sent["msg_id"]
    assert (item["header"]["parent_id"], item["header"]["expires_at"]) == (B, FUTURE)
    assert item["header"]["schema"] == labels.schema_id("access.revoke.v1").hex()
    assert item["body"] == {
        "subject_identity": A,
        "target_capability_reference": None,
        "reason": "gone",
        "parent_operation_id": None,
    }, "absent fields are written as null"


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("access.nothing.v1", "{}"),
        ("access.revoke.v1", "{}"),
        ("access.revoke.v1", '{"subject_identity": "short"}'),
        ("access.revoke.v1", '{"subject_identity": 1}'),
        ("access.revoke.v1", f'{{"subject_identity": "{A}", "more": 1}}'),
        ("access.revoke.v1", "[]"),
        ("access.revoke.v1", "{"),
        (
            "agreement.definition.v1",
            json.dumps({"agreement_id": A, "version": 1, "terms_hash": A, "parties": []}),
        ),
        (
            "delegated.execution.v1",
            json.dumps(
                {
                    "principal_identity": A,
                    "agent_identity": A,
                    "delegation_chain": [A],
                    "operation_schema": labels.schema_id("access.revoke.v1").hex(),
                    "operation_body": {"subject_identity": 7},
                }
            ),
        ),
    ],
)
def test_a_body_that_its_schema_refuses_is_not_sent(user: User, name: str, body: str) -> None:
    user.fails(1, "op", "send", "--stream", "refused", "--schema-name", name, "--body-json", body)
    assert user.ok("stream", "--stream", "refused") == []


def test_paying(user: User) -> None:
    paid = _operation(
        user.ok(
            *("op", "paid", "--stream", "paid", "--op-type", "coffee", "--payer", A, "--payee", B),
            *("--amount", "3", "--currency-code", "EUR", "--op-args-json", '{"cups": 1}'),
            *("--ttl-seconds", "60", "--op-ref", C, "--parent-op", D),
        ),
        "paid.operation.v1",
    )
    assert paid["receipt"]
    (item,) = user.ok("stream", "--stream", "paid")
    assert item["body"]["metadata"] is None
    assert item["header"]["expires_at"] >= int(time.time())
    words = ("op", "paid", "--stream", "paid", "--op-type", "x", "--payer", A, "--currency-code", "EUR")
    user.fails(1, *words, "--payee", "short", "--amount", "1")
    user.fails(1, *words, "--payee", B, "--amount", "1", "--op-args-json", '{"a": 1.5}')


# --- permissions --------------------------------------------------------------------------------------------


def test_granting_and_revoking(user: User, tmp_path: Path) -> None:
    subject = user.ok("keygen", "--out", tmp_path / "subject")["client_id"]
    expiry = int(time.time()) + 1000
    words = ("op", "access-grant", "--stream", "guarded", "--subject-identity", subject)
    granted = user.ok(
        *(*words, "--expiry-time", str(expiry), "--max-rate-per-second", "5", "--max-burst", "9"),
        *("--max-amount", "7", "--currency-code", "EUR", "--reason", "new", "--out", tmp_path / "cap"),
    )
    _operation(granted, "access.grant.v1")
    token = CapToken.decode((tmp_path / "cap").read_bytes())
    assert granted["auth_ref"] == token.auth_ref.hex()
    assert granted["cap_token"] == token.encode().hex()
    assert token.subject_pk.hex() == subject
    assert token.issuer_pk.hex() == _identity(user)
    assert token.allow.stream_ids == (labels.stream_id("guarded"),)
    assert 990 <= token.allow.ttl <= 1000
    assert token.allow.rate is not None
    assert (token.allow.rate.per_sec, token.allow.rate.burst) == (5, 9)
    status = user.ok("cap", "status", "--cap", tmp_path / "cap")
    assert status["hub_known"], "the hub was told"
    user.ok("cap", "add", "--cap", tmp_path / "cap", "--client", tmp_path / "subject")
    revoked = user.ok(
        "op", "access-revoke", "--subject-identity", subject, "--target-cap-ref", granted["auth_ref"]
    )
    assert [item["stream"] for item in revoked["operations"]] == ["guarded"], "found by what the admin knows"
    other = user.ok(*words, "--expiry-time", str(expiry), "--allowed-stream", C, "--allowed-stream", B)
    assert CapToken.decode(bytes.fromhex(other["cap_token"])).allow.stream_ids == (
        bytes.fromhex(B),
        bytes.fromhex(C),
    )
    assert (
        user.run("op", "access-revoke", "--subject-identity", subject, "--stream", "guarded").exit_code == 0
    )


def test_grants_that_can_not_be(user: User) -> None:
    words = ("op", "access-grant", "--stream", "no", "--subject-identity", A, "--expiry-time")
    assert user.fails(1, *words, "5")["code"] == "E.CLIENT"
    assert "maximum_rate" in user.fails(1, *words, str(FUTURE), "--max-burst", "3")["detail"]
    assert "--stream" in user.fails(1, "op", "access-revoke", "--subject-identity", A)["detail"]
    assert user.ok("stream", "--stream", "no") == []


def test_a_hub_that_does_not_trust_the_issuer_gets_no_grant(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "hub") as strict:
        user = User(tmp_path, VEEN_HUB=strict.url)
        user.ok("keygen")
        words = ("op", "access-grant", "--stream", "s", "--subject-identity", A, "--expiry-time", str(FUTURE))
        assert user.fails(4, *words)["code"] == "E.CAP"
        assert user.ok("stream", "--stream", "s") == []


# --- delegation ---------------------------------------------------------------------------------------------


def test_delegating(user: User) -> None:
    words = ("op", "delegated", "--stream", "delegated", "--principal", A, "--agent", _identity(user))
    operation = ("--operation-body-json", json.dumps({"subject_identity": C}))
    schema = ("--operation-schema-id", labels.schema_id("access.revoke.v1").hex())
    _operation(user.ok(*words, "--delegation-cap", f"{B},{C}", *schema, *operation), "delegated.execution.v1")
    user.ok(*words, "--delegation-cap", B, "--operation-schema-id", "access.revoke.v1", *operation)
    user.fails(1, *words, "--delegation-cap", ",", *schema, *operation)
    user.fails(1, *words, "--delegation-cap", "short", *schema, *operation)
    user.fails(1, *words, "--delegation-cap", B, *schema, "--operation-body-json", "{}")
    user.fails(1, *words, "--delegation-cap", B, "--operation-schema-id", A, *operation)
    nested = labels.schema_id("delegated.execution.v1").hex()
    user.fails(1, *words, "--delegation-cap", B, "--operation-schema-id", nested, *operation)
    first, _ = user.ok("stream", "--stream", "delegated")
    assert first["client_id"] == _identity(user), "the agent's own key has signed"


def test_a_carried_operation_in_json(user: User) -> None:
    send = ("op", "send", "--stream", "carried", "--schema-name", "delegated.execution.v1", "--body-json")
    body = {"principal_identity": A, "agent_identity": B, "delegation_chain": [C]}
    known = {
        "operation_schema": labels.schema_id("crdt.lww.v1").hex(),
        "operation_body": {"value": "76", "ts": 1, "key": "6b"},
    }
    user.ok(*send, json.dumps({**body, **known}))
    user.ok(*send, json.dumps({**body, "operation_schema": D, "operation_body": {"b": 1, "a": [2]}}))
    first, second = user.ok("stream", "--stream", "carried")
    assert list(first["body"]["operation_body"].items()) == [("key", "6b"), ("ts", 1), ("value", "76")]
    assert second["body"]["operation_body"] == {"a": [2], "b": 1}


# --- agreements ---------------------------------------------------------------------------------------------


def test_an_agreement(user: User, tmp_path: Path) -> None:
    alice, bob = _members(user, "contract", "alice", "bob")
    ids = [_identity(user, *who) for who in (alice, bob)]
    terms = tmp_path / "terms.txt"
    terms.write_text("Both sides do as they have said.")
    words = ("--stream", "contract", "--agreement-id", A)
    parties = [word for one in ids for word in ("--party", one)]
    user.ok("op", "agreement-define", *words, *alice, "--version", "1", *parties, "--terms-file", terms)
    user.ok("op", "agreement-confirm", *words, *alice, "--version", "1")
    status = user.ok("agreement", "status", *words, *alice)
    assert (status["active"], status["version"]) == (False, 1)
    assert [party["decision"] for party in status["parties"]] == ["accept", None]
    user.ok("op", "agreement-confirm", *words, *bob, "--version", "1", "--decision-time", "5")
    status = user.ok("agreement", "status", *words, *bob)
    assert status["active"] is True
    assert [(party["identity"], party["decision_time"]) for party in status["parties"]] == [
        (ids[0], None),
        (ids[1], 5),
    ]
    forged = ("--version", "1", "--party-identity", ids[0], "--decision", "reject")
    user.ok("op", "agreement-confirm", *words, *bob, *forged)
    assert user.ok("agreement", "status", *words, *bob)["active"], "nobody speaks for another"
    user.ok(
        *("op", "agreement-define", *words, *alice, "--version", "2", *parties, "--terms-hash", B),
        *("--effective-time", "5", "--expiry-time", "10"),
    )
    assert user.ok("agreement", "status", *words, *bob)["version"] == 1
    second = user.ok("agreement", "status", *words, *bob, "--version", "2", "--at", "7")
    assert (second["active"], second["current_version"]) == (False, 1)
    assert user.ok("agreement", "status", *words, *bob, "--upto", "2")["active"] is False
    user.ok("op", "agreement-confirm", *words, *bob, "--version", "1", "--decision", "withdraw")
    assert user.ok("agreement", "status", *words, *bob)["active"] is False
    told = user.run("agreement", "status", *words, *bob, "--version", "1").stdout
    assert f"party: {ids[1]} withdraw" in told
    user.fails(1, "agreement", "status", *words, *bob, "--version", "9")
    user.fails(1, "op", "agreement-confirm", *words, *bob, "--version", "1", "--decision", "perhaps")
    user.fails(1, "op", "agreement-define", *words, *bob, "--version", "3", *parties)
    twice = ("--party", A, "--party", A, "--terms-hash", B)
    user.fails(1, "op", "agreement-define", *words, *bob, "--version", "3", *twice)


# --- publications, snapshots --------------------------------------------------------------------------------


def test_publishing_and_checking(user: User, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "inner").mkdir(parents=True)
    (data / "a.csv").write_text("1,2\n")
    (data / "inner" / "b.csv").write_text("3,4\n")
    words = ("op", "publish", data, "--stream", "open-data", "--publication-id", A, "--version")
    user.fails(4, *words, "1.0", "--check")
    published = user.ok(*words, "1.0", "--label", "x", "--source-uri", "https://example.org/d")
    assert published["files"] == 2
    checked = user.ok(*words, "1.0", "--check")
    assert checked["content_root"] == published["content_root"]
    assert (checked["signed_by_publisher"], checked["conflict"]) == (True, None)
    (data / "inner" / "b.csv").write_text("3,5\n")
    assert published["content_root"] in user.fails(4, *words, "1.0", "--check")["detail"]
    (data / "inner" / "b.csv").write_text("3,4\n")
    (data / "inner" / "b.csv").rename(data / "inner" / "c.csv")
    user.fails(4, *words, "1.0", "--check")
    user.fails(1, "op", "publish", tmp_path / "none", *words[3:], "1.0")
    (tmp_path / "empty").mkdir()
    user.fails(1, "op", "publish", tmp_path / "empty", *words[3:], "1.0")


def test_snapshots(user: User) -> None:
    for key in ("a", "b"):
        user.ok("crdt", "lww", "set", "--stream", "registers", "--key", key, "--value", "1")
    taken = user.ok("op", "snapshot", "--stream", "registers", "--state-class", "lww.map")
    assert (taken["upto_stream_seq"], taken["stream_seq"]) == (2, 3)
    state_id = labels.stream_id("registers").hex()
    words = (
        "snapshot",
        "verify",
        "--stream",
        "registers",
        "--state-id",
        state_id,
        "--state-class",
        "lww.map",
    )
    found = user.ok(*words, "--upto-stream-seq", "2", "--expected-root", taken["mmr_root"])
    assert (found["consistent"], found["first_mismatch"]) == (True, None)
    assert (found["state_hash"], found["mmr_root"]) == (taken["state_hash"], taken["mmr_root"])
    wrong = user.fails(4, *words, "--upto-stream-seq", "2", "--expected-root", A)
    assert (wrong["consistent"], wrong["first_mismatch"]["field"]) == (False, "expected_root")
    assert user.fails(4, *words, "--upto-stream-seq", "1")["first_mismatch"]["field"] == "snapshot"
    assert user.fails(4, *words, "--upto-stream-seq", "99")["first_mismatch"]["field"] == "upto_stream_seq"
    for name in ("mmr_root", "state_hash"):
        body = {
            "state_id": state_id,
            "upto_stream_seq": 2,
            "mmr_root": taken["mmr_root"],
            "state_hash": taken["state_hash"],
            "state_class": "lww.map",
            name: A,
        }
        send = ("op", "send", "--stream", "registers", "--schema-name", "state.checkpoint.v1")
        user.ok(*send, "--body-json", json.dumps(body))
        assert user.fails(4, *words, "--upto-stream-seq", "2")["first_mismatch"]["field"] == name
    user.fails(1, "op", "snapshot", "--stream", "registers", "--state-class", "nothing")
    user.fails(1, "op", "snapshot", "--stream", "registers", "--state-class", "lww.map", "--state-id", A)
    user.fails(
        1, "op", "snapshot", "--stream", "registers", "--state-class", "lww.map", "--upto-stream-seq", "99"
    )
    user.fails(1, "op", "snapshot", "--stream", "empty", "--state-class", "lww.map")
    same = user.ok(
        "op",
        "snapshot",
        "--stream",
        "registers",
        "--state-class",
        "configuration.map",
        "--upto-stream-seq",
        "2",
    )
    assert same["state_hash"] != taken["state_hash"], "the class is part of the hash"


def test_snapshots_of_accounts(user: User) -> None:
    pay = ("op", "paid", "--stream", "ledger", "--op-type", "x", "--payer", A, "--payee", B)
    user.ok(*pay, "--amount", "3", "--currency-code", "EUR")
    words = ("--stream", "ledger", "--state-class", "wallet.ledger")
    user.fails(1, "op", "snapshot", *words)
    taken = user.ok("op", "snapshot", *words, "--state-id", A)
    assert taken["upto_stream_seq"] == 1
    found = user.ok("snapshot", "verify", *words, "--state-id", A, "--upto-stream-seq", "1")
    assert found["state_hash"] == taken["state_hash"]


# --- recovery -----------------------------------------------------------------------------------------------


def test_a_recovery(user: User) -> None:
    people = _members(user, "recovery", "one", "two", "three")
    ids = [_identity(user, *who) for who in people]
    about = ("--stream", "recovery", "--target-identity", A, "--requested-new-identity", B)
    user.ok("op", "recovery-request", *about, *people[0], "--reason", "lost", "--time", "5")
    refs = [user.ok("op", "recovery-approval", *about, *who, "--policy-group", D) for who in people[:2]]
    user.ok("op", "recovery-approval", *about, *people[2], "--decision", "reject")
    references = [word for ref in refs for word in ("--approval-ref", ref["operation_id"])]
    execute = (
        "op",
        "recovery-execution",
        "--stream",
        "recovery",
        "--target-identity",
        A,
        "--new-identity",
        B,
    )
    user.ok(*execute, *people[0], *references)
    show = ("recovery", "timeline", "--stream", "recovery", "--target-identity", A, *people[2])
    blind = user.ok(*show)
    assert blind["identity"] == A
    assert blind["timeline"][-1]["code"] == "OP.RECOVERY_NO_POLICY"
    guardians = [word for one in ids for word in ("--guardian", one)]
    found = user.ok(*show, *guardians, "--threshold", "2")
    assert found["identity"] == B
    kinds = [row["type"] for row in found["timeline"]]
    assert kinds == ["request", "approval", "approval", "approval", "execution"]
    assert [row["stream_seq"] for row in found["timeline"]] == [1, 2, 3, 4, 5]
    assert [row.get("approver_identity") for row in found["timeline"][1:4]] == ids
    assert [row.get("decision") for row in found["timeline"][1:4]] == ["approve", "approve", "reject"]
    assert user.ok(*show, *guardians)["identity"] == A, "all three were wanted"
    assert "execution" in user.run(*show, *guardians, "--threshold", "2").stdout
    nobody = ("recovery", "timeline", "--stream", "recovery", "--target-identity", D, *people[2])
    assert "no recovery events" in user.run(*nobody).stderr
    user.fails(1, *show, "--threshold", "2")
    user.fails(1, *show, *guardians, "--threshold", "4")
    user.fails(1, *execute, *people[0], "--approval-ref", "short")


# --- by any fold --------------------------------------------------------------------------------------------


def test_every_fold_can_be_asked_for_by_name(user: User, tmp_path: Path) -> None:
    subject = user.ok("keygen", "--out", tmp_path / "subject")["client_id"]
    expiry = int(time.time()) + 1000
    grant = ("op", "access-grant", "--stream", "all", "--subject-identity", subject)
    granted = user.ok(*grant, "--expiry-time", str(expiry))
    me = _identity(user)
    chain = ("--delegation-cap", granted["auth_ref"], "--principal", subject, "--agent", subject)
    registers = ("--operation-schema-id", "crdt.lww.v1")
    body = ("--operation-body-json", json.dumps({"key": "6b", "ts": 1, "value": "76"}))
    executed = user.ok("op", "delegated", "--stream", "all", *chain, *registers, *body)
    tokens = f"tokens={granted['cap_token']}@{granted['issued_at']}"
    for _ in range(2):  # the second time from what was kept
        access = user.ok("interpret", "access", "--stream", "all", "--param", tokens, "--key", subject)
        (row,) = access["state"]["grants"]
        assert (row["auth_ref"], row["effective"], row["issuer"]) == (granted["auth_ref"], True, me)
        found = user.ok(
            *("interpret", "delegated", "--stream", "all", "--param", tokens, "--param", "inner=crdt.lww")
        )["state"]
        assert [item["outcome"] for item in found["executions"]] == ["applied"]
        assert found["executions"][0]["msg_id"] == executed["msg_id"]
        assert found["operations"] == {"k": "v"}
    blind = user.ok("interpret", "delegated", "--stream", "all", "--reports")
    assert [item["code"] for item in blind["reports"]] == ["OP.DELEGATION_UNKNOWN"]
