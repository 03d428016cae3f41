"""Comparing wallet streams: every debit has its credit, and money is neither made nor lost (WAL-059).

Where each wallet has its own stream, a fold sees one side of a transfer. Here the sides meet: a credit that
is pending, and a debit that agrees with it, are money under way (C-160).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from veen.overlays.monoids import Position
from veen.overlays.overlay import Tables
from veen.overlays.schema import RejectedError
from veen.overlays.sequences import sequence_keys
from veen.overlays.wallet import OUT, pending_of, wallet_of

if TYPE_CHECKING:
    from veen.overlays.wallet_effects import Effect


class Side(NamedTuple):
    """One side of a transfer in a stream: it counts, unless it is a credit that is pending."""

    wallet: bytes
    other: bytes
    amount: int
    #: Epoch, number and message in its stream.
    place: Position


class Problem(NamedTuple):
    """A transfer whose sides do not agree."""

    code: str
    transfer_id: bytes
    debit: Side | None
    credit: Side | None


class UnderWay(NamedTuple):
    """A transfer whose debit counts, and whose credit is pending where it should come in."""

    transfer_id: bytes
    debit: Side
    credit: Side


@dataclass(slots=True)
class Conservation:
    """The money of a currency, in all streams together."""

    balances: int = 0
    deposited: int = 0
    withdrawn: int = 0
    adjusted: int = 0
    #: Debits without a credit that agrees, and credits that count without such a debit.
    undelivered: int = 0
    unbacked: int = 0
    #: Debits whose credit is pending.
    pending: int = 0

    @property
    def holds(self) -> bool:
        """Whether what there is is what came in, went out, and is under way."""
        came = self.deposited - self.withdrawn + self.adjusted
        return self.balances == came - self.undelivered + self.unbacked - self.pending


@dataclass(slots=True)
class Reconciliation:
    """What comparing has found."""

    problems: list[Problem] = field(default_factory=list)
    pending: list[UnderWay] = field(default_factory=list)
    currencies: dict[str, Conservation] = field(default_factory=dict)


#: Sides of transfers, by transfer.
_Sides = dict[bytes, list[Side]]


@dataclass(slots=True)
class _Collected:
    """What some streams say of transfers."""

    currency_of: dict[bytes, str] = field(default_factory=dict)
    debits: _Sides = field(default_factory=dict)
    #: Credits that count, and those that are pending.
    credits: _Sides = field(default_factory=dict)
    pending: _Sides = field(default_factory=dict)


def reconcile(streams: Iterable[Tables]) -> Reconciliation:
    """Compare the folded streams of a deployment; a wallet may be opened in one of them only (WAL-073)."""
    found, known = Reconciliation(), _Collected()
    for tables in streams:
        _count(tables, found, known.currency_of)
        _collect(tables, known)
    for transfer_id in sorted({*known.debits, *known.credits, *known.pending}):
        _compare(transfer_id, known, found)
    return found


def _count(tables: Tables, found: Reconciliation, currency_of: dict[bytes, str]) -> None:
    """Add up the money of a stream."""
    for key, (_, _, _, currency, _) in tables.items("opened"):
        wallet = wallet_of(key)
        if wallet in currency_of:
            raise RejectedError("WAL.TWO_STREAMS", f"wallet {wallet.hex()} is opened in two streams")
        currency_of[wallet] = currency
        effect: Effect = tables.get("wallets", wallet)
        money = found.currencies.setdefault(currency, Conservation())
        money.balances += effect.balance
        money.deposited += effect.deposited
        money.withdrawn += effect.withdrawn
        money.adjusted += effect.adjusted


def _collect(tables: Tables, known: _Collected) -> None:
    """Sort the sides of transfers in a stream."""
    for key, (place, amount, other, why) in tables.items("transfers"):
        assert isinstance(key, tuple)
        wallet, side, transfer_id = key
        if not why:
            sides = known.debits if side == OUT else known.credits
            sides.setdefault(transfer_id, []).append(Side(wallet, other, amount, place))
    for wallet in sequence_keys(tables, "pending"):
        for item in pending_of(tables, wallet):
            side = Side(wallet, item.source, item.amount, item.place)
            known.pending.setdefault(item.transfer_id, []).append(side)


def _compare(transfer_id: bytes, known: _Collected, found: Reconciliation) -> None:
    """Compare the sides of one transfer. Those that agree are put aside, others paired as they come."""
    of = known.currency_of
    left = list(known.credits.get(transfer_id, []))
    waiting = list(known.pending.get(transfer_id, []))
    alone = []
    for debit in known.debits.get(transfer_id, []):
        if _take(debit, left, of) is not None:
            continue
        credit = _take(debit, waiting, of)
        if credit is None:
            alone.append(debit)
            continue
        found.pending.append(UnderWay(transfer_id, debit, credit))
        found.currencies[of[debit.wallet]].pending += debit.amount
    for debit in alone:
        found.currencies[of[debit.wallet]].undelivered += debit.amount
    for credit in left:
        found.currencies[of[credit.wallet]].unbacked += credit.amount
    for pair in zip_longest(alone, [*left, *waiting]):
        found.problems.append(Problem(_code(*pair), transfer_id, *pair))


def _take(debit: Side, credits_: list[Side], currency_of: Mapping[bytes, str]) -> Side | None:
    """Take the first credit that agrees with a debit; its wallet may not be open yet, if it is pending."""
    currency = currency_of[debit.wallet]
    for credit in credits_:
        ends = (debit.wallet, debit.other, debit.amount) == (credit.other, credit.wallet, credit.amount)
        if ends and currency_of.get(credit.wallet, currency) == currency:
            credits_.remove(credit)
            return credit
    return None


def _code(debit: Side | None, credit: Side | None) -> str:
    if debit is None:
        return "WAL.UNBACKED_CREDIT"
    return "WAL.UNDELIVERED_CREDIT" if credit is None else "WAL.TRANSFER_MISMATCH"
