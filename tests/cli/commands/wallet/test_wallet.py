"""``veen wallet`` through the program and a hub: money moves, and what breaks a rule does not count."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import User
from tests.hub.hub_process import HubProcess
from veen.core.crypto.hash import sha256, tagged_hash, u64be
from veen.core.objects import labels
from veen.overlays.engine import state_hash
from veen.overlays.wallet.schemas import DAY, wallet_id, wallet_stream

T = 1_700_000_000
_names = count(1)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("wallets") / "data", config="trust_all_issuers = true\n") as made:
        yield made


@pytest.fixture
def user(tmp_path: Path, hub: HubProcess) -> User:
    made = User(tmp_path, VEEN_HUB=hub.url)
    made.ok("keygen")
    return made


@pytest.fixture
def stream() -> str:
    return f"wallet/{next(_names)}"


def _refused(user: User, code: str, *words: str | Path) -> dict[str, Any]:
    """Run a command that is refused by the rules of wallets: exit code 4, and their code."""
    told = user.run("wallet", *words)
    assert told.exit_code == 4, (words, told.output)
    assert told.stderr.startswith("veen: ")
    assert told.stderr.count("\n") == 1
    done = user.run("wallet", *words, "--json")
    assert done.exit_code == 4
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["ok"], found["code"]) == (False, code)
    return found


def _identity(user: User) -> bytes:
    return bytes.fromhex(user.ok("id", "show")["id_sign_public"])


def _two(user: User, stream: str, amount: int = 100) -> tuple[str, str]:
    """Open two wallets, with money in the first, which is the user's own."""
    at = ("--stream", stream)
    mine = user.ok("wallet", "open", "--currency", "EUR", *at, "--ts", str(T))["wallet_id"]
    other = user.ok("wallet", "open", "--currency", "EUR", "--ctx-id", "ab" * 32, *at)["wallet_id"]
    user.ok("wallet", "deposit", "--amount", str(amount), *at, "--ts", str(T))
    return mine, other


def test_open_deposit_transfer_and_show(user: User, stream: str) -> None:
    mine, other = _two(user, stream)
    assert mine == wallet_id(labels.realm_id(), _identity(user), "EUR").hex()
    sent = user.ok("wallet", "transfer", "--to", other, "--amount", "30", "--stream", stream)
    assert (sent["applied"], sent["verdict"], sent["to_wallet_id"]) == (True, "applied", other)
    assert sent["operation_id"] == tagged_hash("veen/operation-id", bytes.fromhex(sent["msg_id"])).hex()
    entry = user.ok("stream", "--stream", stream, "--from", str(sent["stream_seq"]))[0]
    place = bytes.fromhex(entry["client_id"]) + u64be(entry["client_seq"])
    label = bytes.fromhex(user.ok("verify-state", "--stream", stream)["labels"][0]["label"])
    assert sent["transfer_id"] == tagged_hash("wallet/xfer", label + place).hex(), "named by its place"
    shown = user.ok("wallet", "show", "--stream", stream)
    assert (shown["wallet_id"], shown["balance"], shown["currency"]) == (mine, 70, "EUR")
    assert user.ok("wallet", "show", "--stream", stream, "--wallet", other)["balance"] == 30
    everything = user.ok("wallet", "show", "--stream", stream, "--all")
    assert {key: item["balance"] for key, item in everything["wallets"].items()} == {mine: 70, other: 30}
    assert user.ok("wallet", "show", "--stream", stream, "--upto-stream-seq", "3")["balance"] == 100
    lines = user.run("wallet", "show", "--stream", stream).stdout
    assert "balance: 70" in lines
    assert "daily_limit: unspecified" in lines


def test_the_default_stream_is_shared_by_all(user: User) -> None:
    user.ok("wallet", "open", "--currency", "XTS")
    assert user.ok("wallet", "show")["stream"] == "wallet/main"


def test_everything_else_that_happens_to_a_wallet(user: User, stream: str) -> None:
    mine, other = _two(user, stream)
    at = ("--stream", stream)
    user.ok("wallet", "withdraw", "--amount", "10", "--ref", "cash 1", *at)
    _refused(user, "WAL.DUPLICATE", "withdraw", "--amount", "10", "--ref", "cash 1", *at)
    assert user.ok("wallet", "show", *at)["balance"] == 90, (
        "only the log knows references: it was not counted"
    )
    user.ok("wallet", "adjust", "--delta", "-5", "--reason", "fee", *at)
    _refused(user, "WAL.NEGATIVE_ADJUST", "adjust", "--delta", "-86", "--reason", "fee", *at)
    user.ok("wallet", "limit", "--daily-limit", "20", *at)
    assert user.ok("wallet", "show", *at)["daily_limit"] == 20
    _refused(user, "WAL.DAILY_LIMIT_EXCEEDED", "withdraw", "--amount", "21", *at)
    user.ok("wallet", "withdraw", "--amount", "20", *at)
    _refused(user, "WAL.DAILY_LIMIT_EXCEEDED", "transfer", "--to", other, "--amount", "1", *at)
    back = user.ok("wallet", "withdraw", "--amount", "1", "--ts", str(T + DAY), *at)
    assert (back["applied"], back["verdict"]) == (True, "WAL.TS_REGRESSION")
    user.ok("wallet", "limit", "--none", *at)
    user.ok("wallet", "freeze", "--reason", "lost", *at)
    _refused(user, "WAL.FROZEN", "withdraw", "--amount", "1", *at)
    user.ok("wallet", "deposit", "--amount", "1", *at)
    user.ok("wallet", "unfreeze", *at)
    _refused(user, "WAL.NOT_EMPTY", "close", *at)
    user.ok("wallet", "transfer", "--to", other, "--amount", "65", *at)
    user.ok("wallet", "close", *at)
    _refused(user, "WAL.CLOSED", "deposit", "--amount", "1", *at)
    _refused(user, "WAL.REOPENED", "open", "--currency", "EUR", "--ts", str(T + 1), *at)
    assert user.ok("wallet", "show", *at)["closed"] is True
    assert user.ok("wallet", "show", *at, "--wallet", other)["balance"] == 65
    assert user.ok("wallet", "show", *at)["wallet_id"] == mine


def test_what_would_not_count_is_not_sent_unless_forced(user: User, stream: str) -> None:
    mine, other = _two(user, stream)
    pay = ("transfer", "--to", other, "--amount", "101", "--stream", stream)
    _refused(user, "WAL.INSUFFICIENT_FUNDS", *pay)
    assert len(user.ok("stream", "--stream", stream)) == 3
    forced = user.ok("wallet", *pay, "--force")
    assert (forced["applied"], forced["verdict"]) == (False, "WAL.INSUFFICIENT_FUNDS, WAL.UNBACKED")
    found = user.ok("wallet", "show", "--stream", stream, "--violations")
    assert [(item["stream_seq"], item["code"]) for item in found["violations"]] == [
        (4, "WAL.INSUFFICIENT_FUNDS"),
        (4, "WAL.UNBACKED"),
    ]
    assert found["balance"] == 100
    _refused(user, "WAL.SELF_TRANSFER", "transfer", "--to", mine, "--amount", "1", "--stream", stream)
    _refused(user, "WAL.NOT_FOUND", "transfer", "--to", "name:bob", "--amount", "1", "--stream", stream)
    again = user.ok("wallet", "transfer", *pay[1:3], "--amount", "1", "--stream", stream)
    same = ("transfer", "--to", other, "--amount", "1", "--transfer-id", again["transfer_id"])
    _refused(user, "WAL.DUPLICATE", *same, "--stream", stream)


def _own_stream(user: User, *who: str | Path) -> tuple[str, tuple[str | Path, ...]]:
    """Open somebody's wallet in its own stream; returns it, and the options that lead there."""
    identity = bytes.fromhex(user.ok("id", "show", *who)["id_sign_public"])
    wallet = wallet_id(labels.realm_id(), identity, "EUR")
    at = ("--stream", wallet_stream(wallet).hex(), *who)
    assert user.ok("wallet", "open", "--currency", "EUR", *at)["wallet_id"] == wallet.hex()
    return wallet.hex(), at


def test_nobody_makes_money_in_the_own_stream_of_a_wallet(user: User) -> None:
    mine, at = _own_stream(user)
    user.ok("wallet", "deposit", "--amount", "50", *at)
    made_up = ("transfer", "--from", "ab" * 32, "--to", mine, "--amount", "1000000", *at)
    _refused(user, "WAL.UNBACKED_CREDIT", *made_up)
    forced = user.ok("wallet", *made_up, "--force")
    assert (forced["applied"], forced["verdict"]) == (False, "WAL.UNBACKED_CREDIT")
    waiting = {
        "transfer_id": forced["transfer_id"],
        "from": "ab" * 32,
        "amount": 1_000_000,
        "currency": "EUR",
        "epoch": 0,
        "stream_seq": 3,
        "msg_id": forced["msg_id"],
    }
    shown = user.ok("wallet", "show", *at)
    assert (shown["balance"], len(shown["pending"])) == (50, 1)
    assert {name: shown["pending"][0][name] for name in waiting} == waiting
    for more in (("--currency", "EUR"), ("--wallet", mine)):
        assert user.ok("wallet", "show", *at, *more) == shown, "whatever is said of the wallet"
    (told,) = user.ok("wallet", "show", *at, "--violations")["violations"]
    assert (told["stream_seq"], told["code"]) == (3, "WAL.UNBACKED_CREDIT")
    lines = user.run("wallet", "show", *at).stdout
    assert "balance: 50" in lines
    assert (
        f"pending: transfer_id={forced['transfer_id']} from={'ab' * 32} amount=1000000 currency=EUR" in lines
    )
    found = user.ok("interpret", "wallet", *at)["state"][mine]
    assert (found["balance"], found["pending"]) == (50, shown["pending"])
    assert user.ok("interpret", "wallet.literal", *at)["state"][mine]["balance"] == 50
    _refused(user, "WAL.WRONG_STREAM", "open", "--currency", "EUR", "--ctx-id", "ab" * 32, *at)
    user.fails(1, "interpret", "wallet", *at, "--param", f"wallets={mine}")


def test_a_snapshot_of_a_wallet_with_its_own_stream_is_of_what_it_holds(user: User) -> None:
    mine, at = _own_stream(user)
    user.ok("wallet", "deposit", "--amount", "50", *at)
    user.ok("wallet", "transfer", "--from", "ab" * 32, "--to", mine, "--amount", "7", *at, "--force")
    shown = user.ok("wallet", "show", *at)
    state = [True, False, 50, False, None, 0, shown["last_limit_reset_ts"]]
    what = ("--state-class", "wallet.account", "--state-id", mine)
    taken = user.ok("op", "snapshot", *what, *at)
    assert taken["state_hash"] == state_hash("wallet.account", state).hex()


def test_a_wallet_has_a_stream_of_its_own(user: User, tmp_path: Path) -> None:
    user.ok("keygen", "--out", tmp_path / "bob")
    alice, mine = _own_stream(user)
    bob, his = _own_stream(user, "--client", tmp_path / "bob")
    user.ok("wallet", "deposit", "--amount", "50", *mine)
    sent = user.ok("wallet", "transfer", "--to", bob, "--amount", "20", *mine)
    assert sent["verdict"] == "applied", "the credit stands elsewhere"
    assert user.ok("wallet", "show", *mine)["balance"] == 30
    assert user.ok("wallet", "show", *mine)["pending"] == []
    copy = ("--to", bob, "--from", alice, "--amount", "20", "--transfer-id", sent["transfer_id"])
    user.ok("wallet", "transfer", *copy, *his, "--force")
    shown = user.ok("wallet", "show", *his)
    assert (shown["balance"], shown["pending"][0]["amount"]) == (0, 20)


def test_streams_are_compared(user: User, stream: str) -> None:
    mine, other = _two(user, stream)
    at = ("--stream", stream)
    user.ok("wallet", "transfer", "--to", other, "--amount", "10", *at)
    found = user.ok("wallet", "reconcile", *at)
    assert found["problems"] == []
    money = {
        "balances": 100,
        "deposited": 100,
        "withdrawn": 0,
        "adjusted": 0,
        "undelivered": 0,
        "unbacked": 0,
        "pending": 0,
    }
    assert found["currencies"] == {"EUR": {**money, "holds": True}}
    third = wallet_id(labels.realm_id(), b"3" * 32, "EUR")
    alone = wallet_stream(third).hex()
    user.ok("wallet", "open", "--currency", "EUR", "--ctx-id", (b"3" * 32).hex(), "--stream", alone)
    when = ("--ts", "1700000000")
    sent = user.ok("wallet", "transfer", "--to", third.hex(), "--amount", "7", *when, *at, "--force")
    both = ("reconcile", *at, "--stream", alone)
    late = _refused(user, "WAL.UNDELIVERED_CREDIT", *both)
    assert late["problems"][0]["debit"]["amount"] == 7
    assert late["currencies"]["EUR"]["holds"] is True
    copy = ("--from", mine, "--to", third.hex(), "--amount", "7", "--transfer-id", sent["transfer_id"])
    user.ok("wallet", "transfer", *copy, *when, "--stream", alone, "--force")
    found = user.ok("wallet", *both)
    assert (found["ok"], found["problems"]) == (True, []), "the money is under way, and nobody has made any"
    (moved,) = found["pending"]
    assert (moved["transfer_id"], moved["debit"]["amount"], moved["credit"]["stream_seq"]) == (
        sent["transfer_id"],
        7,
        2,
    )
    money = found["currencies"]["EUR"]
    assert (money["balances"], money["pending"], money["holds"]) == (93, 7, True)
    assert user.ok("wallet", "show", "--wallet", third.hex(), "--stream", alone)["balance"] == 0
    lonely = _refused(user, "WAL.UNBACKED_CREDIT", "reconcile", "--stream", alone)
    assert (lonely["problems"][0]["debit"], lonely["pending"]) == (None, []), "its debit is not in sight"


def test_several_people_approve(user: User, tmp_path: Path, stream: str) -> None:
    mine, other = _two(user, stream)
    keys = []
    for name in ("bob", "carol"):
        user.ok("keygen", "--out", tmp_path / name)
        keys.append(user.ok("id", "show", "--client", tmp_path / name)["id_sign_public"])
    policy = ("--approver", keys[0], "--approver", tmp_path / "carol")
    what = ("--from", mine, "--to", other, "--amount", "40")
    first = user.ok("wallet", "approve", *what, "--client", tmp_path / "bob", "--out", tmp_path / "1")
    same = ("--ts", str(first["ts"]), "--transfer-id", first["transfer_id"])
    user.ok("wallet", "approve", *what, *same, "--client", tmp_path / "carol", "--out", tmp_path / "2")
    pay = ("transfer", *what, *same, "--stream", stream, *policy)
    _refused(user, "WAL.UNAUTHORIZED_OPERATION", *pay, "--approval", tmp_path / "1")
    _refused(
        user, "WAL.UNAUTHORIZED_OPERATION", *pay, "--approval", tmp_path / "1", "--approval", tmp_path / "1"
    )
    more = ("transfer", "--from", mine, "--to", other, "--amount", "41", *same, *policy)
    both = ("--approval", tmp_path / "1", "--approval", tmp_path / "2")
    _refused(user, "WAL.UNAUTHORIZED_OPERATION", *more, *both, "--stream", stream)
    done = user.ok("wallet", *pay, *both)
    assert (done["applied"], done["transfer_id"]) == (True, first["transfer_id"])
    user.fails(1, "wallet", "transfer", *what, "--stream", stream, *policy, *both)
    user.fails(1, "wallet", "transfer", *what, *same, "--stream", stream, *both)
    (tmp_path / "1").write_text("[]")
    user.fails(1, "wallet", *pay, *both)
    user.fails(1, "wallet", *pay, *both, "--threshold", "3")
    user.fails(1, "wallet", *pay, *both, "--approver", tmp_path / "nobody")


def test_when_a_day_begins_is_a_setting(user: User, stream: str) -> None:
    _two(user, stream)
    at = ("--stream", stream)
    user.ok("wallet", "limit", "--daily-limit", "10", *at)
    user.ok("wallet", "withdraw", "--amount", "10", "--ts", str(T + DAY), *at)
    user.ok("config", "set", "wallet_needs_reset", "gt")
    back = ("withdraw", "--amount", "10", "--ts", str(T), *at)
    _refused(user, "WAL.DAILY_LIMIT_EXCEEDED", *back)
    user.ok("config", "set", "wallet_needs_reset", "sometimes")
    assert "neq or gt" in user.fails(1, "wallet", *back)["detail"]
    user.ok("config", "set", "wallet_needs_reset", "neq")
    assert user.ok("wallet", *back)["verdict"] == "WAL.TS_REGRESSION"


def test_a_wallet_of_another_realm_is_found_by_its_realm(user: User, stream: str) -> None:
    at = ("--stream", stream)
    mine = user.ok("wallet", "open", "--currency", "EUR", "--realm", "work", *at)["wallet_id"]
    assert "--realm" in _refused(user, "WAL.NOT_FOUND", "show", *at)["detail"]
    assert user.ok("wallet", "show", "--realm", "work", *at)["wallet_id"] == mine


def test_mistakes(user: User, stream: str) -> None:
    at = ("--stream", stream)
    _refused(user, "WAL.NOT_FOUND", "show", *at)
    _refused(user, "WAL.NOT_FOUND", "deposit", "--amount", "1", *at)
    _refused(user, "WAL.NOT_FOUND", "show", "--wallet", "ab" * 32, *at)
    _two(user, stream)
    for words in (
        ("transfer", "--to", "@bob", "--amount", "1"),
        ("transfer", "--to", "ab", "--amount", "1"),
        ("transfer", "--to", "xy" * 32, "--amount", "1"),
        ("transfer", "--to", "ab" * 32, "--amount", "1", "--metadata-json", "{"),
        ("transfer", "--to", "ab" * 32, "--amount", "1", "--metadata-json", "[1]"),
        ("transfer", "--to", "ab" * 32, "--amount", "1", "--transfer-id", "1"),
        ("limit",),
        ("limit", "--none", "--daily-limit", "1"),
    ):
        user.fails(1, "wallet", *words, *at)
    assert "--to" in user.fails(1, "wallet", "transfer", "--to", "@bob", "--amount", "1", *at)["detail"]
    euro = user.run("wallet", "open", "--currency", "\u20ac", *at, "--json")
    assert (euro.exit_code, json.loads(euro.stdout)["code"]) == (1, "WAL.INVALID_CURRENCY")
    user.ok("wallet", "open", "--currency", "JPY", *at)
    assert "EUR, JPY" in user.fails(1, "wallet", "show", *at)["detail"]
    assert user.ok("wallet", "show", "--currency", "JPY", *at)["balance"] == 0
    for amount in ("-1", "1.5", str(2**64)):
        assert "--amount" in user.run("wallet", "deposit", "--amount", amount, *at).stderr


# --- the ledger of paid operations --------------------------------------------------------------------------


def _pay(user: User, stream: str, legs: tuple[str, str], amount: int, currency: str = "EUR") -> Any:
    payer, payee = legs
    who = ("--payer", payer, "--payee", payee, "--amount", str(amount), "--currency-code", currency)
    return user.ok("op", "paid", "--stream", stream, "--op-type", "test", *who)


A, B, C = (sha256(name).hex() for name in (b"a", b"b", b"c"))


def test_the_ledger(user: User, stream: str) -> None:
    at = ("--stream", stream)
    empty = user.ok("wallet", "ledger", *at)
    assert (empty["from"], empty["upto"], empty["balances"]) == (1, 0, {})
    _pay(user, stream, (A, B), 10)
    _pay(user, stream, (B, C), 4)
    _pay(user, stream, (B, B), 99)
    found = user.ok("wallet", "ledger", *at)
    assert found == {"ok": True, "stream": stream, "from": 1, "upto": 3, "balances": {A: -10, B: 6, C: 4}}
    assert user.ok("wallet", "ledger", *at, "--account", C)["balances"] == {C: 4}
    assert user.ok("wallet", "ledger", *at, "--account", "ab" * 32)["balances"] == {}
    part = user.ok("wallet", "ledger", *at, "--since-stream-seq", "2", "--upto-stream-seq", "2")
    assert (part["from"], part["upto"], part["balances"]) == (2, 2, {B: -4, C: 4})
    user.fails(1, "wallet", "ledger", *at, "--since-stream-seq", "3", "--upto-stream-seq", "2")
    assert user.ok("wallet", "ledger", *at, "--since-stream-seq", "9")["balances"] == {}
    strict = user.ok("wallet", "ledger", *at, "--forbid-negative")
    assert strict["balances"] == {B: 0}
    issued = user.ok("wallet", "ledger", *at, "--forbid-negative", "--issuer", A)
    assert (issued["balances"], issued["rejected"]) == ({A: -10, B: 6, C: 4}, [])
    assert [(item["stream_seq"], item["code"]) for item in strict["rejected"]] == [
        (1, "OP.NEGATIVE_BALANCE"),
        (2, "OP.NEGATIVE_BALANCE"),
    ]


def test_a_ledger_of_several_currencies(user: User, stream: str) -> None:
    at = ("--stream", stream)
    _pay(user, stream, (A, B), 10, "EUR")
    _pay(user, stream, (A, B), 3, "JPY")
    assert "EUR, JPY" in user.fails(1, "wallet", "ledger", *at)["detail"]
    found = user.ok("wallet", "ledger", *at, "--currency-code", "JPY")
    assert found["balances"] == {A: -3, B: 3}
    assert found["balances_by_currency"] == {"EUR": {A: -10, B: 10}, "JPY": {A: -3, B: 3}}
    user.fails(1, "wallet", "ledger", *at, "--account", "short")
    user.fails(1, "wallet", "ledger", *at, "--threshold", "1")


def test_a_recovered_identity_has_the_account_of_the_lost_one(
    user: User, tmp_path: Path, stream: str
) -> None:
    user.ok("keygen", "--out", tmp_path / "guardian")
    guardian = user.ok("id", "show", "--client", tmp_path / "guardian")["id_sign_public"]
    lost, new = _identity(user).hex(), sha256(b"new").hex()
    _pay(user, stream, (A, lost), 25)
    _recover(user, f"{stream}/recovery", lost, new, tmp_path / "guardian")
    at = ("--stream", stream, "--identity-remap", f"{stream}/recovery")
    found = user.ok("wallet", "ledger", *at, "--guardian", guardian)
    assert found["balances"] == {A: -25, new: 25}
    assert user.ok("wallet", "ledger", *at, "--guardian", guardian, "--account", lost)["balances"] == {
        new: 25
    }
    assert user.ok("wallet", "ledger", *at)["balances"] == {A: -25, lost: 25}, "nobody may say so"


def _recover(user: User, stream: str, lost: str, new: str, guardian: Path) -> None:
    """Let a guardian put a new identity in the place of a lost one, in a stream that both read."""
    key = guardian.parent / "reader key"
    user.ok("reader", "new", "--stream", stream)
    user.ok("reader", "share", "--stream", stream, "--to", guardian, "--out", key)
    user.ok("reader", "accept", key, "--client", guardian)
    at = ("--stream", stream, "--target-identity", lost)
    user.ok("op", "recovery-request", *at, "--requested-new-identity", new)
    asked = ("--requested-new-identity", new, "--client", guardian)
    approval = user.ok("op", "recovery-approval", *at, *asked)["operation_id"]
    user.ok("op", "recovery-execution", *at, "--new-identity", new, "--approval-ref", approval)
