"""Wallets: each rule on its own, copies, and what they are called."""

from random import Random
from typing import Any

import pytest

from tests.overlays.histories_wallet import IDS, REALM, WALLETS
from tests.overlays.logs import BRIDGE, STREAM, T0, Log, ident
from tests.overlays.wallet.wallet_book import Book
from veen.core.crypto.ed25519 import SigningKey
from veen.core.crypto.hash import U64_MAX, tagged_hash
from veen.core.encoding import cbor
from veen.core.objects import labels
from veen.core.types import Signature
from veen.overlays.engine import Fold, Summary, fold, state_hash
from veen.overlays.errors import InvalidBodyError, ParameterError
from veen.overlays.event import Record
from veen.overlays.wallet import schemas as wal
from veen.overlays.wallet.effects import State
from veen.overlays.wallet.overlay import Wallets
from veen.overlays.wallet.schemas import (
    DAY,
    ApprovalPolicy,
    approval_hash,
    needs_reset,
    transfer_id,
    wallet_id,
    wallet_stream,
)

A, B, C = IDS[:3]


def _rich(amount: int = 100) -> Book:
    book = Book(A, B)
    book.put(wal.DEPOSIT, A, amount=amount)
    return book


def test_opening_forgets_what_was_before_and_happens_once() -> None:
    book = Book()
    book.put(wal.LIMIT, A, 77, daily_limit=5)
    assert book.state(A) == State(daily_limit=5, last_limit_reset_ts=77), "a limit counts in every state"
    book.open(A, 1234)
    assert book.state(A) == State(exists=True, last_limit_reset_ts=1234)
    book.open(A, 1234)
    assert book.verdicts() == []
    book.open(A, 99)
    assert book.verdicts() == ["WAL.REOPENED"]
    assert book.state(A).last_limit_reset_ts == 1234
    book.put(wal.CLOSE, A)
    book.open(A, 1234)
    assert book.state(A).closed, "what is closed stays closed"


def test_nothing_moves_before_it_is_open_or_after_it_is_closed() -> None:
    book = Book()
    for closed in (False, True):
        book.put(wal.DEPOSIT, A, amount=1)
        book.put(wal.WITHDRAW, A, amount=0)
        book.put(wal.ADJUST, A, delta=1, reason="")
        if not closed:
            for schema in (wal.CLOSE, wal.FREEZE, wal.UNFREEZE):
                book.put(schema, A)
            book.open(A)
            book.put(wal.CLOSE, A)
    assert book.verdicts() == ["WAL.NOT_FOUND"] * 6 + ["WAL.CLOSED"] * 3
    book.put(wal.FREEZE, A)
    book.put(wal.LIMIT, A, daily_limit=3)
    assert book.state(A) == State(
        exists=True, closed=True, frozen=True, daily_limit=3, last_limit_reset_ts=T0
    ), "freezes and limits count when it is closed, too"


def test_a_frozen_wallet_takes_but_does_not_give() -> None:
    book = _rich()
    book.put(wal.FREEZE, A)
    book.put(wal.WITHDRAW, A, amount=1)
    book.pay(A, B, 1, "frozen")
    book.put(wal.DEPOSIT, A, amount=5)
    book.put(wal.ADJUST, A, delta=-2, reason="fee")
    assert book.verdicts() == ["WAL.FROZEN", "WAL.FROZEN", "WAL.UNBACKED"]
    book.put(wal.UNFREEZE, A)
    book.put(wal.WITHDRAW, A, amount=103)
    assert book.state(A).balance == 0, "all that there is may be spent"
    book.put(wal.WITHDRAW, A, amount=1)
    assert book.verdicts()[-1] == "WAL.INSUFFICIENT_FUNDS"


def test_a_day_has_a_limit_that_may_be_reached_and_not_passed() -> None:
    book = _rich()
    book.put(wal.LIMIT, A, daily_limit=30)
    book.put(wal.WITHDRAW, A, T0 + 1, amount=20)
    book.put(wal.WITHDRAW, A, T0 + 2, amount=11)
    assert book.verdicts() == ["WAL.DAILY_LIMIT_EXCEEDED"]
    book.pay(A, B, 10, "the rest", T0 + 3)
    assert (book.state(A).pending_daily_spent, book.state(A).balance) == (30, 70)
    book.put(wal.WITHDRAW, A, T0 + DAY, amount=31)
    state = book.state(A)
    assert (state.pending_daily_spent, state.last_limit_reset_ts) == (30, T0), (
        "what breaks a rule starts no day"
    )
    book.put(wal.WITHDRAW, A, T0 + DAY, amount=25)
    assert book.state(A).pending_daily_spent == 25
    assert book.state(A).last_limit_reset_ts == T0 + DAY
    book.put(wal.LIMIT, A, T0 + 2 * DAY, daily_limit=None)
    book.put(wal.WITHDRAW, A, T0 + 9 * DAY, amount=40)
    state = book.state(A)
    assert (state.pending_daily_spent, state.last_limit_reset_ts) == (25, T0 + DAY), (
        "nobody counts without a limit"
    )
    book.put(wal.LIMIT, A, T0 + 9 * DAY, daily_limit=0)
    book.put(wal.WITHDRAW, A, T0 + 9 * DAY, amount=99)
    assert book.verdicts()[-1] == "WAL.DAILY_LIMIT_EXCEEDED", "the limit is named before the funds"


@pytest.mark.parametrize(
    ("rule", "pending", "verdicts"), [("neq", 30, []), ("gt", 30, ["WAL.DAILY_LIMIT_EXCEEDED"])]
)
def test_going_back_a_day_opens_the_allowance_only_by_the_canonical_rule(
    rule: str, pending: int, verdicts: list[str]
) -> None:
    book = _rich()
    book.put(wal.LIMIT, A, daily_limit=30)
    book.put(wal.WITHDRAW, A, T0 + DAY, amount=30)
    book.put(wal.WITHDRAW, A, T0, amount=30)
    regression = ["WAL.TS_REGRESSION"] if rule == "neq" else []
    assert book.verdicts(needs_reset=rule) == verdicts + regression
    assert book.state(A, needs_reset=rule).pending_daily_spent == pending


def test_days_as_published() -> None:
    cases = [(0, 1700000000), (1700000000, 1700003600), (1700000000, 1700086400)]
    assert [needs_reset(*case) for case in cases] == [True, False, True]
    assert needs_reset(DAY, 0)
    assert not needs_reset(DAY, 0, forward_only=True)
    with pytest.raises(ValueError, match="neq or gt"):
        Wallets(needs_reset="never")


def test_back_dated_events_rewrite_nothing() -> None:
    book = _rich()
    book.put(wal.WITHDRAW, A, T0 + 50, amount=100)
    book.put(wal.DEPOSIT, A, 0, amount=7)
    assert book.state(A).balance == 7
    book.put(wal.WITHDRAW, A, 1, amount=100)
    assert book.verdicts() == ["WAL.INSUFFICIENT_FUNDS"]


def test_numbers_end_where_they_end() -> None:
    book = _rich(U64_MAX)
    book.put(wal.DEPOSIT, A, amount=1)
    book.put(wal.ADJUST, A, delta=1, reason="more")
    book.put(wal.ADJUST, B, delta=-1, reason="less")
    book.put(wal.DEPOSIT, B, amount=1)
    book.pay(B, A, 1, "too much")
    assert book.verdicts() == ["WAL.OVERFLOW", "WAL.OVERFLOW", "WAL.NEGATIVE_ADJUST", "WAL.OVERFLOW"]
    assert (book.state(A).balance, book.state(B).balance) == (U64_MAX, 0), (
        "the debit counts, its credit does not"
    )


def test_a_transfer_moves_money_once() -> None:
    book = _rich()
    book.pay(A, B, 30, 1)
    book.pay(A, B, 30, 1)
    assert (book.state(A).balance, book.state(B).balance) == (70, 30)
    book.pay(A, C, 30, 1)
    assert book.verdicts() == ["WAL.DUPLICATE", "WAL.DUPLICATE", "WAL.UNBACKED"]
    book.pay(B, A, 5, 1)
    assert (book.state(A).balance, book.state(B).balance) == (75, 25), "the other direction is another side"


def test_a_rejected_transfer_is_not_tried_again_under_its_name() -> None:
    book = _rich()
    book.pay(A, B, 500, "too much")
    book.pay(A, B, 5, "too much")
    assert book.state(B).balance == 0
    assert book.verdicts() == ["WAL.INSUFFICIENT_FUNDS", "WAL.UNBACKED", "WAL.DUPLICATE", "WAL.UNBACKED"]


def test_a_transfer_that_moves_nothing_takes_its_name_from_nobody() -> None:
    book = _rich()
    book.pay(C, B, 30, "the next of A")  # from a wallet that is not even open
    book.pay(A, B, 30, "the next of A")
    assert (book.state(A).balance, book.state(B).balance) == (70, 30)
    assert book.verdicts() == ["WAL.NOT_FOUND", "WAL.UNBACKED"]


def test_a_name_under_which_money_has_come_moves_none_out_of_another_wallet() -> None:
    book = _rich()
    book.open(C)
    book.put(wal.DEPOSIT, C, amount=1)
    book.pay(C, B, 1, "the next of A")
    book.pay(A, B, 30, "the next of A")
    found = [book.state(wallet).balance for wallet in (A, B, C)]
    assert found == [100, 1, 0], "nothing is lost"
    assert book.verdicts() == ["WAL.DUPLICATE"]
    book.pay(A, C, 30, "the next of A")
    assert book.state(A).balance == 100, "it was seen, and is not tried again"
    assert book.verdicts() == ["WAL.DUPLICATE", "WAL.DUPLICATE", "WAL.UNBACKED"]


def test_a_transfer_to_oneself_does_nothing() -> None:
    book = _rich()
    book.pay(A, A, 5, "self")
    assert book.state(A).balance == 100
    assert book.verdicts()[0] == "WAL.SELF_TRANSFER"


def test_references_of_withdrawals() -> None:
    book = _rich()
    for _ in range(2):
        book.put(wal.WITHDRAW, A, amount=10, ref=b"invoice")
        book.put(wal.DEPOSIT, A, amount=1, ref=b"invoice")
    book.put(wal.DEPOSIT, B, amount=10)
    book.put(wal.WITHDRAW, B, amount=10, ref=b"invoice")
    assert book.verdicts() == ["WAL.DUPLICATE"]
    assert book.state(A).balance == 92
    assert book.state(A, unique_withdraw_refs=False).balance == 82


def test_adjustments_by_others_are_told() -> None:
    book = _rich()
    signed = book.put(wal.ADJUST, A, delta=1, reason="ours")
    assert book.verdicts() == []
    assert book.verdicts(institution=frozenset({signed.client_id})) == []
    assert book.verdicts(institution=frozenset({ident("org")})) == ["WAL.UNAUTHORIZED_OPERATION"]
    assert book.state(A, institution=frozenset({ident("org")})).balance == 101, "it counts all the same"
    book.records[-1] = signed._replace(auth_ref=ident("token"))
    assert book.verdicts(institution=frozenset({ident("token")})) == []


def test_metadata_does_not_matter() -> None:
    book = _rich()
    values: dict[str, Any] = {"to_wallet_id": B, "amount": 1}
    book.put(wal.TRANSFER, A, **values, transfer_id=ident(1), metadata={"amount": 99, "to": [b"x"]})
    assert book.state(B).balance == 1


# --- copies -------------------------------------------------------------------------------------------------


def _bridged(records: list[Record], times: int = 1) -> list[Record]:
    """Return a log with copies of a log, by a bridge."""
    log = Log(Random(2))
    for _ in range(times):
        for record in records:
            log.add(record.schema, record.body, client_id=BRIDGE, parent_id=record.msg_id)
    return log.records


def _hash(records: list[Record], **parameters: Any) -> bytes:
    overlay = Wallets(**parameters)
    summary: Summary = fold(overlay, records, STREAM, frozenset({BRIDGE}))
    return Fold(overlay).state_hash(summary)


def test_a_bridged_log_has_the_same_state_however_often_it_comes() -> None:
    book = _rich()
    book.pay(A, B, 30, 1)
    book.put(wal.WITHDRAW, A, amount=500)
    for upto in range(len(book.records) + 1):
        part = book.records[:upto]
        assert _hash(_bridged(part)) == _hash(part)
        assert _hash(_bridged(part, 2)) == _hash(part)
        assert _hash(_bridged(part), replica=True) == _hash(part)
    looped = Log(Random(3))
    looped.records = list(book.records)
    away = _bridged(book.records)
    for record in away:  # there and back again
        looped.add(record.schema, record.body, client_id=BRIDGE, parent_id=record.parent_id)
    for record in looped.records[len(book.records) :]:
        looped.add(record.schema, record.body, client_id=BRIDGE, parent_id=record.msg_id)
    assert _hash(looped.records) == _hash(book.records)


def test_in_a_replica_nothing_begins() -> None:
    book = _rich()
    assert set(book.verdicts(replica=True)) == {"WAL.NOT_A_COPY"}
    assert book.state(A, replica=True) == State()


# --- bodies and names ---------------------------------------------------------------------------------------


def test_an_id_is_that_of_its_fields() -> None:
    ctx, currency, wallet = WALLETS[0]
    body: dict[str, Any] = {"realm_id": REALM, "ctx_id": ctx, "currency": currency, "created_at": 1}
    wal.OPEN.make(wallet_id=wallet, **body)
    with pytest.raises(InvalidBodyError) as caught:
        wal.OPEN.make(wallet_id=B, **body)
    assert caught.value.code == "WAL.ID_MISMATCH"
    with pytest.raises(InvalidBodyError) as caught:
        wal.OPEN.make(wallet_id=wallet, **{**body, "currency": "\u20ac"})
    assert caught.value.code == "WAL.INVALID_CURRENCY"


def test_names_as_published() -> None:
    realm = labels.realm_id("realm-x")
    wallet = wallet_id(realm, b"\x22" * 32, "JPY")
    assert wallet.hex() == "e8699924c6a4a5d088b2fe8efd0b9f652190e83da85f84f8d42becc0400a64cd"
    assert wallet_stream(wallet).hex() == "d28b211bb167c0ff745302308f7fb8601ee29130a82b9e8c2d3bde0eb295a4bf"
    assert transfer_id(A, B, 7) == tagged_hash("wallet/xfer", A + B + (7).to_bytes(8, "big"))


def test_a_limit_is_a_number_or_null_and_always_there() -> None:
    body = wal.LIMIT.make(wallet_id=A, daily_limit=None, ts=1)
    data = wal.LIMIT.encode(body)
    assert data.endswith(b"\x6bdaily_limit\xf6\x62ts\x01")
    assert wal.LIMIT.decode(data) == body
    with pytest.raises(InvalidBodyError) as caught:
        wal.LIMIT.make(wallet_id=A, ts=1)
    assert caught.value.code == "BODY.MISSING_KEY"


def test_only_an_adjustment_may_be_negative() -> None:
    data = wal.ADJUST.encode(wal.ADJUST.make(wallet_id=A, delta=-500, ts=1, reason="x"))
    assert wal.ADJUST.decode(data)["delta"] == -500
    assert b"\x65delta\x39\x01\xf3" in data, "in its shortest form"
    for wrong in (b"\x65delta\x3a\x00\x00\x01\xf3", b"\x65delta\xf9\x00\x00"):
        with pytest.raises(InvalidBodyError):
            wal.ADJUST.decode(data.replace(b"\x65delta\x39\x01\xf3", wrong))
    deposit = wal.DEPOSIT.encode(wal.DEPOSIT.make(wallet_id=A, amount=5, ts=1))
    with pytest.raises(InvalidBodyError):
        wal.DEPOSIT.decode(deposit.replace(b"\x66amount\x05", b"\x66amount\x24"))


def test_the_state_of_one_wallet_is_hashed_alone() -> None:
    book = _rich()
    overlay = Wallets()
    tables, _ = book.folded()
    fields = overlay.serialized_key(tables, A)
    assert fields == [True, False, 100, False, None, 0, T0]
    written = b"\x87\xf5\xf4\x18\x64\xf4\xf6\x00" + cbor.encode(T0)
    assert state_hash(overlay.state_class, fields) == tagged_hash("veen/state-wallet.account", written)
    assert overlay.serialized(tables)[A] == fields
    assert overlay.serialized_key(tables, C) == [False, False, 0, False, None, 0, 0]


# --- approvals ----------------------------------------------------------------------------------------------


def test_enough_approvals_and_no_more() -> None:
    keys = [SigningKey.from_seed(bytes([nth]) * 32) for nth in range(1, 5)]
    policy = ApprovalPolicy(2, frozenset(key.public_key for key in keys[:3]))
    digest = approval_hash(A, B, 5, T0, ident("xfer"))
    assert digest == tagged_hash(
        "wallet/approval", A + B + (5).to_bytes(8, "big") + T0.to_bytes(8, "big") + ident("xfer")
    )
    one, two, three, stranger = ((key.public_key, key.sign(digest)) for key in keys)
    assert policy.holds(digest, [one, two])
    assert policy.holds(digest, [three, stranger, one])
    assert not policy.holds(digest, [one, one])
    assert not policy.holds(digest, [one, stranger])
    assert not policy.holds(digest, [one, (two[0], Signature(bytes(64)))])
    assert not policy.holds(approval_hash(A, B, 6, T0, ident("xfer")), [one, two])
    for threshold in (0, 4):
        with pytest.raises(ParameterError):
            ApprovalPolicy(threshold, policy.keys)
