"""Wallets that share a stream, and those with one to themselves: which credits count, and what agrees."""

from typing import Any

import pytest

from tests.overlays.histories_wallet import IDS
from tests.overlays.logs import T0, ident
from tests.overlays.wallet.wallet_book import Book
from veen.core.crypto.hash import U64_MAX
from veen.overlays.engine import MemoryTables
from veen.overlays.errors import InvalidBodyError
from veen.overlays.schema import Schema
from veen.overlays.wallet import schemas as wal
from veen.overlays.wallet.effects import State
from veen.overlays.wallet.overlay import Wallets
from veen.overlays.wallet.reconcile import Conservation, reconcile
from veen.overlays.wallet.schemas import wallet_stream

A, B, C = IDS[:3]


def _alone(wallet: bytes) -> Book:
    """Return the own stream of a wallet, in which it is opened."""
    return Book(wallet, stream_id=wallet_stream(wallet))


def test_in_its_own_stream_a_wallet_gets_no_credit_that_anybody_writes_there() -> None:
    book = _alone(A)
    book.put(wal.DEPOSIT, A, amount=100)
    book.pay(C, A, 1_000_000, "from a wallet that nobody can see")
    book.pay(ident("made up"), A, U64_MAX, "from one that never was")
    assert book.state(A).balance == 100, "there is no money but what was put into it"
    assert book.verdicts() == ["WAL.UNBACKED_CREDIT"] * 2
    assert book.pending(A) == [(C, 1_000_000), (ident("made up"), U64_MAX)]
    tables, _ = book.folded()
    shown: Any = Wallets().view_key(tables, A)
    place = {"epoch": 0, "stream_seq": 3, "msg_id": book.records[2].msg_id.hex()}
    said = {"transfer_id": ident("xfer", "from a wallet that nobody can see").hex(), "from": C.hex()}
    assert shown["pending"][0] == {**said, "amount": 1_000_000, "currency": "EUR", "ts": T0, **place}
    assert Wallets().view(tables) == {A.hex(): shown}
    assert Wallets().view_key(tables, b"no wallet's id") is None
    assert Wallets().serialized(tables) == {A: [True, False, 100, False, None, 0, T0]}, "no part of the state"


def test_a_wallet_that_a_stranger_opens_in_anothers_stream_can_not_pay_there() -> None:
    book = _alone(A)
    book.open(C)
    book.put(wal.DEPOSIT, C, amount=50)
    book.pay(C, A, 50, 1)
    book.pay(C, ident("a friend"), 50, 2)
    wrong = ["WAL.WRONG_STREAM"]
    assert book.verdicts() == [*wrong * 2, "WAL.UNBACKED_CREDIT", *wrong]
    assert (book.state(A).balance, book.state(C)) == (0, State())
    early = Book(C, stream_id=wallet_stream(A))
    early.put(wal.DEPOSIT, C, amount=50)
    early.pay(C, A, 20, 1)
    assert early.state(C).balance == 50, "a transfer is one event: nothing has left"
    early.open(A)
    early.pay(C, A, 20, 2)
    early.put(wal.WITHDRAW, C, amount=1)
    assert early.verdicts() == ["WAL.UNBACKED_CREDIT"] * 2 + wrong
    assert (early.state(A).balance, early.state(C).balance) == (0, 50)


def test_a_credit_before_the_opening_is_pending_too() -> None:
    book = Book(stream_id=wallet_stream(A))
    book.pay(C, A, 30, 1)
    tables, verdicts = book.folded()
    assert verdicts == ["WAL.UNBACKED_CREDIT"]
    shown: Any = Wallets().view_key(tables, A)
    assert (shown["exists"], shown["pending"][0]["currency"]) == (False, None)
    assert Wallets().view(tables) == {A.hex(): shown}
    assert Wallets().serialized(tables) == {}
    book.open(A)
    book.pay(C, A, 30, 1)
    assert book.verdicts() == ["WAL.UNBACKED_CREDIT"] * 2, "no id is used up, and nothing has come"
    assert (book.state(A).balance, book.pending(A)) == (0, [(C, 30)]), "said twice, it is listed once"


@pytest.mark.parametrize("schema", [wal.CLOSE, wal.FREEZE])
def test_a_credit_waits_whatever_state_the_wallet_is_in(schema: Schema) -> None:
    book = _alone(A)
    book.put(schema, A)
    book.pay(C, A, 30, 1)
    book.pay(B, A, 5, "from another currency")
    assert book.verdicts() == ["WAL.UNBACKED_CREDIT"] * 2
    assert (book.state(A).balance, book.pending(A)) == (0, [(C, 30), (B, 5)])


def test_a_credit_that_is_copied_or_said_again_or_otherwise_still_moves_nothing() -> None:
    book = _alone(A)
    first = book.pay(C, A, 30, 1)
    book.add(wal.TRANSFER, first.body, parent_id=first.msg_id)
    book.add(wal.TRANSFER, first.body)
    book.pay(C, A, 31, 1)
    assert book.verdicts() == ["WAL.UNBACKED_CREDIT"] * 3, "of a copy nothing is said"
    assert book.pending(A) == [(C, 30), (C, 31)], "another body under the same id hides nothing"
    assert book.state(A).balance == 0


def test_in_its_own_stream_a_wallet_pays_out_takes_deposits_and_does_all_else() -> None:
    book = _alone(A)
    book.put(wal.DEPOSIT, A, amount=100)
    book.put(wal.LIMIT, A, daily_limit=90)
    book.pay(A, C, 30, 1)
    book.pay(A, C, 30, 1)
    book.pay(A, A, 5, 2)
    book.put(wal.WITHDRAW, A, amount=10)
    book.put(wal.ADJUST, A, delta=-1, reason="fee")
    assert book.verdicts() == ["WAL.DUPLICATE", "WAL.SELF_TRANSFER", "WAL.UNBACKED"]
    assert book.state(A).balance == 59
    assert book.pending(A) == [], "nothing waits for what it could only pay itself"


def test_the_same_events_move_money_in_a_stream_that_both_share() -> None:
    own, shared = Book(A, C, stream_id=wallet_stream(C)), Book(A, C)
    for book in (own, shared):
        book.put(wal.DEPOSIT, A, amount=100)
        book.pay(A, C, 30, 1)
    assert (shared.state(A).balance, shared.state(C).balance, shared.verdicts()) == (70, 30, [])
    assert shared.pending(C) == []
    assert (own.state(C).balance, own.pending(C)) == (0, [(A, 30)])


def test_a_stream_is_a_wallets_own_in_every_epoch() -> None:
    book = _alone(A)
    book.put(wal.DEPOSIT, A, amount=1)
    later = book.pay(C, A, 30, 1)
    book.records[-1] = later._replace(epoch=9, stream_seq=1)
    assert (book.state(A).balance, book.pending(A)) == (1, [(C, 30)])


def _two_streams() -> tuple[Book, Book]:
    """Each wallet in its own stream; a transfer is in both (WAL-058)."""
    source, target = _alone(A), _alone(C)  # both in EUR
    source.put(wal.DEPOSIT, A, amount=100)
    sent = source.pay(A, C, 30, 1)
    target.add(wal.TRANSFER, sent.body, parent_id=sent.msg_id)
    return source, target


def _tables(*books: Book) -> list[MemoryTables]:
    return [book.folded()[0] for book in books]


def test_a_credit_whose_debit_is_in_another_stream_is_under_way() -> None:
    source, target = _two_streams()
    assert (source.state(A).balance, target.state(C).balance) == (70, 0)
    found = reconcile(_tables(source, target))
    assert found.problems == []
    (moved,) = found.pending
    assert (moved.transfer_id, moved.debit.amount) == (ident("xfer", 1), 30)
    assert moved.credit == (C, A, 30, (0, 2, target.records[1].msg_id))
    money = found.currencies["EUR"]
    assert (money.balances, money.deposited, money.pending, money.holds) == (70, 100, 30, True)


def test_a_credit_is_unbacked_where_its_debit_is_not_in_sight() -> None:
    source, target = _two_streams()
    found = reconcile(_tables(target))
    assert [item.code for item in found.problems] == ["WAL.UNBACKED_CREDIT"]
    money = found.currencies["EUR"]
    assert (money.balances, money.unbacked, money.holds) == (0, 0, True), "it has not come in"
    found = reconcile(_tables(source))
    assert [item.code for item in found.problems] == ["WAL.UNDELIVERED_CREDIT"]
    early = Book(stream_id=wallet_stream(C))
    early.add(wal.TRANSFER, source.records[-1].body)
    assert len(reconcile(_tables(source, early)).pending) == 1, "also before the wallet is opened"


def test_credits_that_never_came_and_that_nobody_paid() -> None:
    source, target = _two_streams()
    source.pay(A, C, 5, "never copied")
    rejected = source.pay(A, C, 500, "too much")
    target.add(wal.TRANSFER, rejected.body, parent_id=rejected.msg_id)
    target.pay(A, C, 9, "made up")
    found = reconcile(_tables(source, target))
    undelivered = [item.debit.amount for item in found.problems if item.debit is not None]
    unbacked = [item.credit.amount for item in found.problems if item.credit is not None]
    assert (undelivered, sorted(unbacked)) == ([5], [9, 500])
    assert {item.code for item in found.problems} == {"WAL.UNDELIVERED_CREDIT", "WAL.UNBACKED_CREDIT"}
    assert [item.debit.amount for item in found.pending] == [30]
    money = found.currencies["EUR"]
    assert (money.balances, money.undelivered, money.pending, money.holds) == (65, 5, 30, True)
    money.balances += 1
    assert not money.holds


def test_sides_that_say_something_else() -> None:
    source, target = _two_streams()
    sent = source.pay(A, C, 10, "changed")
    body = wal.TRANSFER.decode(sent.body)
    body["amount"] = 11
    target.add(wal.TRANSFER, wal.TRANSFER.encode(body))
    found = reconcile(_tables(source, target))
    assert [item.code for item in found.problems] == ["WAL.TRANSFER_MISMATCH"]
    assert found.currencies["EUR"].holds
    target.add(wal.TRANSFER, sent.body)
    found = reconcile(_tables(source, target))
    assert [item.code for item in found.problems] == ["WAL.UNBACKED_CREDIT"], "what was made up hides nothing"
    assert len(found.pending) == 2


def test_what_is_under_way_is_the_same_byte_for_byte() -> None:
    source, target = _alone(A), _alone(C)
    source.put(wal.DEPOSIT, A, amount=100)
    sent = source.pay(A, C, 30, 1)
    target.pay(A, C, 30, 1, ts=T0 + 1)
    forged = reconcile(_tables(source, target))
    assert ([item.code for item in forged.problems], forged.pending) == (["WAL.TRANSFER_MISMATCH"], [])
    target.add(wal.TRANSFER, sent.body, parent_id=sent.msg_id)
    found = reconcile(_tables(source, target))
    assert [item.credit.place[1] for item in found.pending] == [3], "the copy, though another came before it"
    (left,) = found.problems
    assert (left.code, left.credit and left.credit.place[1]) == ("WAL.UNBACKED_CREDIT", 2)


def test_the_id_of_somebodys_transfer_makes_no_other_one_of_it() -> None:
    source, target = Book(A), _alone(C)
    source.put(wal.DEPOSIT, A, amount=100)
    source.pay(A, ident("a shop"), 30, 1)
    target.pay(ident("nobody"), C, 10**9, 1)
    target.pay(A, C, 30, 1)
    found = reconcile(_tables(source, target))
    assert sorted((item.code, bool(item.debit)) for item in found.problems) == [
        ("WAL.UNBACKED_CREDIT", False),
        ("WAL.UNBACKED_CREDIT", False),
        ("WAL.UNDELIVERED_CREDIT", True),
    ]


def test_what_strangers_did_in_a_stream_before_its_owner_opened_it_is_left_out() -> None:
    shared, own = Book(A, C), Book(C, A, stream_id=wallet_stream(B))
    own.put(wal.DEPOSIT, C, amount=7)
    own.pay(C, A, 3, 1)
    own.pay(C, ident("nobody"), 2, 2)
    with pytest.raises(InvalidBodyError, match="two streams"):  # so far it is a stream as any other
        reconcile(_tables(shared, own))
    own.open(B)
    own.put(wal.DEPOSIT, B, amount=1)
    for books in ((own,), (own, shared), (shared, own)):
        found = reconcile(_tables(*books))
        assert found.problems == []
        money = {currency: found.currencies[currency] for currency in sorted(found.currencies)}
        assert (money["JPY"].balances, money["JPY"].deposited, money["JPY"].holds) == (1, 1, True)
        assert "EUR" not in money or money["EUR"] == Conservation()


def test_another_currency_is_another_amount() -> None:
    book = Book(A, B)
    book.put(wal.DEPOSIT, A, amount=100)
    book.pay(A, B, 10, "EUR to JPY")
    found = reconcile([book.folded()[0]])
    assert [item.code for item in found.problems] == ["WAL.TRANSFER_MISMATCH"]
    assert all(money.holds for money in found.currencies.values())


def test_a_wallet_has_one_origin() -> None:
    with pytest.raises(InvalidBodyError, match="two streams"):
        reconcile([Book(A).folded()[0], Book(A).folded()[0]])
