"""Every day: keys, messages, attachments, tokens, state; through the program, as a person would."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_runner import User
from tests.hub.hub_process import HubProcess
from veen.core.objects.capability import CapToken
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    config = "trust_all_issuers = true\nmax_client_id_lifetime_sec = 1000000\n"
    with HubProcess(tmp_path_factory.mktemp("everyday") / "data", config=config) as made:
        yield made


@pytest.fixture
def user(tmp_path: Path, hub: HubProcess) -> User:
    made = User(tmp_path, VEEN_HUB=hub.url)
    made.ok("keygen")
    return made


def test_keygen_makes_what_a_client_needs(tmp_path: Path) -> None:
    user = User(tmp_path)
    made = user.ok("keygen", "--out", tmp_path / "alice", "--name", "Alice")
    assert {"keystore.enc", "identity_card.pub", "state.json"} <= set(os.listdir(tmp_path / "alice"))  # noqa: PTH208
    assert json.loads((tmp_path / "alice/state.json").read_text())["labels"] == {}
    shown = user.ok("id", "show", "--client", tmp_path / "alice")
    assert shown["client_id"] == made["client_id"]
    card = user.ok("id", "card", tmp_path / "alice/identity_card.pub")
    assert (card["name"], card["client_id"]) == ("Alice", made["client_id"])
    user.fails(1, "keygen", "--out", tmp_path / "alice")
    assert user.ok("keygen", "--out", tmp_path / "alice", "--force")["client_id"] != made["client_id"]


def test_a_passphrase_protects_the_keys(tmp_path: Path, hub: HubProcess) -> None:
    user = User(tmp_path, VEEN_KEYSTORE_PASSPHRASE="several words", VEEN_HUB=hub.url)
    assert user.ok("keygen")["protected_by"] == "passphrase"
    assert user.ok("send", "--stream", "protected", "--body", "1")["stream_seq"] == 1
    assert "VEEN_KEYSTORE_PASSPHRASE" in User(tmp_path).fails(1, "id", "show")["detail"]
    wrong = User(tmp_path, VEEN_KEYSTORE_PASSPHRASE="other words")
    assert "passphrase" in wrong.fails(1, "id", "show")["detail"]
    user.ok("id", "rotate")
    assert user.ok("id", "show")["name"] is None, "the new keystore opens with the same words"


def test_send_stream_and_verify(user: User, tmp_path: Path, hub: HubProcess) -> None:
    msg, receipt = tmp_path / "m.cbor", tmp_path / "r.cbor"
    sent = user.ok(
        "send",
        "--stream",
        "core/main",
        "--body",
        '{"text": "grüße", "n": [1, 2]}',
        "--dump-raw",
        msg,
        receipt,
    )
    assert Msg.decode(msg.read_bytes()).leaf_hash.hex() == sent["msg_id"]
    assert Receipt.decode(receipt.read_bytes()).stream_seq == sent["stream_seq"]
    for hub_name in (hub.url, str(hub.place), f"file://{hub.place}"):
        items = user.ok("stream", "--stream", "core/main", "--hub", hub_name, "--with-proofs")
        assert items[-1]["body"] == {"text": "grüße", "n": [1, 2]}
        assert items[-1]["msg_id"] == sent["msg_id"]
    shown = user.run("stream", "--stream", "core/main", "--from", "0").stdout
    assert '{"n": [1, 2], "text": "grüße"}' in shown, "keys are in the order of the encoding"
    checked = user.ok("verify-receipt", "--receipt", receipt, "--stream", "core/main", "--msg", msg)
    assert (checked["hub_sig"], checked["message"], checked["mmr_root"]) == (True, True, True)
    user.fails(4, "verify-receipt", "--receipt", receipt, "--stream", "another")
    offline = User(tmp_path)
    remembered = offline.ok("verify-receipt", "--receipt", receipt, "--stream", "core/main", "--msg", msg)
    assert remembered == checked, "what the client has seen is enough"
    offline.fails(4, "verify-receipt", "--receipt", receipt, "--stream", "another")
    data = bytearray(receipt.read_bytes())
    data[-1] ^= 1
    receipt.write_bytes(data)
    user.fails(4, "verify-receipt", "--receipt", receipt, "--stream", "core/main")
    user.fails(4, "verify-receipt", "--receipt", msg, "--stream", "core/main")


def test_bodies_from_files_and_what_is_no_body(user: User, tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text('{"from": "a file"}')
    user.ok("send", "--stream", "bodies", "--body", f"@{tmp_path}/body.json")
    done = user.run("send", "--stream", "bodies", "--body", "@-", stdin='"from standard input"')
    assert done.exit_code == 0, done.output
    for bad in ("hello", "1.5", "-3", "18446744073709551616", '{"a": [1e3]}', f"@{tmp_path}/none", "{"):
        assert user.fails(1, "send", "--stream", "bodies", "--body", bad)["code"] == "E.USAGE"
    assert [item["body"] for item in user.ok("stream", "--stream", "bodies")] == [
        {"from": "a file"},
        "from standard input",
    ]


def test_fields_of_the_header(user: User) -> None:
    first = user.ok("send", "--stream", "headers", "--body", "1", "--schema", "chat.v1")
    user.ok(
        *("send", "--stream", "headers", "--body", "2", "--parent-id", first["msg_id"]),
        *("--schema", "ab" * 32, "--expires-at", "4102444800"),
    )
    header = user.ok("stream", "--stream", "headers", "--from", "2")[0]["header"]
    assert header == {"schema": "ab" * 32, "parent_id": first["msg_id"], "expires_at": 4102444800}
    user.fails(1, "send", "--stream", "headers", "--body", "1", "--parent-id", "short")
    user.fails(4, "send", "--stream", "headers", "--body", "1", "--profile-id", "ab" * 32)


@pytest.mark.parametrize("alias", [False, True])
def test_attachments(user: User, tmp_path: Path, alias: bool) -> None:  # noqa: FBT001 - old names or new
    file, msg, receipt = tmp_path / "f.bin", tmp_path / "m", tmp_path / "r"
    file.write_bytes(os.urandom(10_000))
    stream = f"files/{alias}"
    if alias:
        user.ok("send-with-attachment", "--stream", stream, "--file", file)
        user.ok("send", "--stream", stream, "--body", "null", "--attach", file, "--dump-raw", msg, receipt)
        check: list[str | Path] = ["verify-attachment", "--msg", msg, "--file"]
    else:
        user.ok("send", "--stream", stream, "--body", "{}", "--attach", file, "--dump-raw", msg, receipt)
        check = ["attachment", "verify", "--msg", msg, "--index", "0", "--file"]
    assert user.ok(*check, file)["size"] == 10_000
    out = tmp_path / "out"
    user.ok("attachment", "get", "--stream", stream, "--seq", "1", "--out", out)
    assert out.read_bytes() == file.read_bytes()
    file.write_bytes(b"x" + file.read_bytes()[1:])
    user.fails(4, *check, file)
    user.fails(1, *check, tmp_path / "none")
    user.fails(1, "send", "--stream", stream, "--body", "1", "--attach", tmp_path / "none")
    user.fails(4, "attachment", "get", "--stream", stream, "--seq", "99", "--out", out)


def test_two_people_share_a_stream(user: User, tmp_path: Path) -> None:
    bob = tmp_path / "bob"
    user.ok("keygen", "--out", bob)
    user.fails(1, "reader", "share", "--stream", "team", "--to", bob, "--out", tmp_path / "key")
    user.ok("reader", "new", "--stream", "team")
    user.ok(
        "reader", "share", "--stream", "team", "--to", bob / "identity_card.pub", "--out", tmp_path / "key"
    )
    user.fails(4, "reader", "accept", tmp_path / "key")
    assert user.ok("reader", "accept", tmp_path / "key", "--client", bob)["stream"] == "team"
    user.ok("send", "--stream", "team", "--body", '"for all"')
    assert user.ok("stream", "--stream", "team", "--client", bob)[0]["body"] == "for all"
    assert len(user.ok("reader", "list", "--client", bob)["keys"]) == 1
    user.ok("send", "--stream", "direct", "--body", '"for bob"', "--to", bob)
    assert user.ok("stream", "--stream", "direct")[0]["opened"] is False
    assert user.ok("stream", "--stream", "direct", "--client", bob)[0]["body"] == "for bob"


def test_capabilities_from_issue_to_status(user: User, tmp_path: Path) -> None:
    cap = tmp_path / "cap"
    client_id = user.ok("id", "show")["client_id"]
    made = {}
    for rate, subject in (("5,10", client_id), ("5/s,10", ".local/share/veen/client")):
        where = subject if len(subject) == 64 else user.home / subject
        made = user.ok(
            *(
                "cap",
                "issue",
                "--subject",
                where,
                "--stream",
                "gated",
                "--ttl",
                "600",
                "--rate",
                rate,
                "--out",
                cap,
            )
        )
        assert (made["rate"], made["subject_pk"]) == ("5,10", client_id)
    assert CapToken.decode(cap.read_bytes()).allow.ttl == 600
    assert user.ok("cap", "status", "--cap", cap)["hub_known"] is False
    done = user.ok("cap", "authorize", "--cap", cap)
    assert (done["auth_ref"], done["kept"]) == (made["auth_ref"], True)
    user.ok("send", "--stream", "gated", "--body", "1", "--cap", cap, "--cap", cap)
    user.ok("send", "--stream", "gated", "--body", "2")
    assert [item["auth_ref"] for item in user.ok("stream", "--stream", "gated")] == [made["auth_ref"]] * 2
    status = user.ok("cap", "status", "--cap", cap)
    assert (status["hub_currently_valid"], status["locally_within_ttl"], status["revoked"]) == (
        True,
        True,
        False,
    )
    assert user.ok("cap", "list")["tokens"][0]["auth_ref"] == made["auth_ref"]
    other = tmp_path / "other"
    user.ok("cap", "issue", "--subject", client_id, "--stream", "x", "--ttl", "9", "--out", other)
    user.fails(1, "send", "--stream", "gated", "--body", "1", "--cap", cap, "--cap", other)
    user.fails(
        1,
        "cap",
        "issue",
        "--subject",
        client_id,
        "--stream",
        "x",
        "--ttl",
        "9",
        "--out",
        other,
        "--rate",
        "5",
    )
    user.fails(1, "cap", "authorize", "--cap", tmp_path / "none")
    assert user.fails(4, "send", "--stream", "not gated", "--body", "1", "--cap", other)["code"] == "E.CAP"


def test_usage_and_rotation(user: User) -> None:
    for number in range(3):
        user.ok("send", "--stream", "used", "--body", str(number))
    row = user.ok("id", "usage")["usage"][0]
    assert (row["stream"], row["msgs_sent"], row["exceeds_msg_bound"]) == ("used", 3, None)
    known = user.ok("id", "usage", "--hub", str(user.hub))["usage"][0]
    assert (known["exceeds_lifetime_bound"], known["rotation_recommended"]) == (False, False)
    rotated = user.ok("id", "rotate")
    assert rotated["earlier_client_id"] == row["client_id"]
    again = user.ok("send", "--stream", "used", "--body", "3")
    assert again["client_seq"] == 1, "a new key counts from the beginning"
    assert [item["body"] for item in user.ok("stream", "--stream", "used")] == [0, 1, 2, 3]


def test_a_lost_state_is_made_again(user: User) -> None:
    user.ok("bench", "send", "--stream", "long", "--count", "300")
    (user.home / ".local/share/veen/client/state.json").unlink()
    done = user.ok("resync", "--stream", "long")["labels"][0]
    assert (done["last_stream_seq"], done["entries_read"], done["rebuilt"]) == (300, 300, True)
    assert user.ok("verify-state", "--stream", "long")["consistent"] is True
    assert user.ok("resync", "--stream", "long")["labels"][0]["entries_read"] == 0


def test_resume_and_limit(user: User) -> None:
    user.ok("bench", "send", "--stream", "queue", "--count", "5", "--one-by-one")
    assert len(user.ok("stream", "--stream", "queue", "--limit", "2")) == 2
    assert len(user.ok("stream", "--stream", "queue", "--resume")) == 3
    assert user.ok("stream", "--stream", "queue", "--resume") == []
    assert "nothing here" in user.run("stream", "--stream", "nothing here").stderr


def test_pins(user: User, hub: HubProcess) -> None:
    user.ok("send", "--stream", "pins", "--body", "1")
    pins = user.ok("pin", "list")["pins"]
    assert [item["hub_id"] for item in pins] == [hub.banner["hub_id"]]
    assert user.ok("pin", "remove", hub.banner["hub_id"])["note"] == "removed"
    assert user.ok("pin", "remove", hub.banner["hub_id"])["note"] == "was not pinned"
    assert user.fails(4, "pin", "add", "--hub-id", "ab" * 32)["code"] == "E.PIN"
    assert user.ok("pin", "add", "--hub-id", hub.banner["hub_id"])["how"] == "given"
    user.ok("config", "set", "trust", "never")
    user.ok("send", "--stream", "pins", "--body", "2")
    user.ok("pin", "remove", hub.banner["hub_id"])
    assert user.fails(4, "send", "--stream", "pins", "--body", "3")["code"] == "E.PIN"
    user.ok("send", "--stream", "pins", "--body", "3", "--trust-first-use")


def test_work_by_hand(user: User) -> None:
    asked = user.ok("pow", "request", "--difficulty", "6")
    solved = user.ok("pow", "solve", "--challenge", asked["challenge"], "--difficulty", "6")
    assert int(solved["nonce_hex"], 16) == solved["nonce"]
    words = ("--pow-challenge", asked["challenge"], "--pow-difficulty", "6")
    user.ok("send", "--stream", "work", "--body", "1", *words, "--pow-nonce", str(solved["nonce"]))
    user.ok("send", "--stream", "work", "--body", "1", *words)
    user.ok("send", "--stream", "work", "--body", "1", "--pow-difficulty", "4")
    user.fails(1, "send", "--stream", "work", "--body", "1", "--pow-challenge", "zz", "--pow-difficulty", "6")
    failed = user.fails(1, "send", "--stream", "work", "--body", "1", "--pow-difficulty", "27")
    assert "--pow-difficulty is at most 26" in failed["detail"]
    for bad in (("--pow-difficulty", "-1"), ("--pow-difficulty", "65"), (*words, "--pow-nonce", "-1")):
        done = user.run("send", "--stream", "work", "--body", "1", *bad)
        assert f"'{bad[-2]}': {bad[-1]} is not in the range" in done.stderr
    user.fails(4, "pow", "solve", "--challenge", "00", "--difficulty", "60", "--max-iterations", "10")
