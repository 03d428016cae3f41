"""Comparing wallet streams: every debit has its credit, and money is neither made nor lost (WAL-059).

Where each wallet has its own stream, a fold sees one side of a transfer. Here the sides meet.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from veen.overlays.overlay import Tables
from veen.overlays.schema import RejectedError
from veen.overlays.wallet import OUT, wallet_of

if TYPE_CHECKING:
    from veen.overlays.wallet_effects import Effect


class Side(NamedTuple):
    """One side of a transfer that counts in a stream."""

    wallet: bytes
    other: bytes
    amount: int
    #: Epoch, number and message in its stream.
    place: tuple[int, int, bytes]


class Problem(NamedTuple):
    """A transfer whose sides do not agree."""

    code: str
    transfer_id: bytes
    debit: Side | None
    credit: Side | None


@dataclass(slots=True)
class Conservation:
    """The money of a currency, in all streams together."""

    balances: int = 0
    deposited: int = 0
    withdrawn: int = 0
    adjusted: int = 0
    #: Debits without a credit that agrees, and credits without such a debit.
    undelivered: int = 0
    unbacked: int = 0

    @property
    def holds(self) -> bool:
        """Whether what there is is what came in, went out, and is under way."""
        came = self.deposited - self.withdrawn + self.adjusted
        return self.balances == came - self.undelivered + self.unbacked


@dataclass(slots=True)
class Reconciliation:
    """What comparing has found."""

    problems: list[Problem] = field(default_factory=list)
    currencies: dict[str, Conservation] = field(default_factory=dict)


#: The sides of transfers that count, by transfer.
_Sides = dict[bytes, list[Side]]


def reconcile(streams: Iterable[Tables]) -> Reconciliation:
    """Compare the folded streams of a deployment; a wallet may be opened in one of them only (WAL-073)."""
    found = Reconciliation()
    currency_of: dict[bytes, str] = {}
    debits: _Sides = {}
    credited: _Sides = {}
    for tables in streams:
        _count(tables, found, currency_of)
        _collect(tables, debits, credited)
    for transfer_id in sorted({*debits, *credited}):
        problems = _compare(
            transfer_id, debits.get(transfer_id, []), credited.get(transfer_id, []), currency_of
        )
        for problem in problems:
            found.problems.append(problem)
            if problem.debit is not None:
                found.currencies[currency_of[problem.debit.wallet]].undelivered += problem.debit.amount
            if problem.credit is not None:
                found.currencies[currency_of[problem.credit.wallet]].unbacked += problem.credit.amount
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


def _collect(tables: Tables, debits: _Sides, credited: _Sides) -> None:
    """Sort the sides of transfers that count in a stream."""
    for key, (place, amount, other, why) in tables.items("transfers"):
        assert isinstance(key, tuple)
        wallet, side, transfer_id = key
        if not why:
            sides = debits if side == OUT else credited
            sides.setdefault(transfer_id, []).append(Side(wallet, other, amount, place))


def _compare(
    transfer_id: bytes, debits: list[Side], credited: list[Side], currency_of: Mapping[bytes, str]
) -> Iterator[Problem]:
    """Yield what is wrong with one transfer. Sides that agree are put aside, others paired as they come."""

    def agree(debit: Side, credit: Side) -> bool:
        ends = (debit.wallet, debit.other, debit.amount) == (credit.other, credit.wallet, credit.amount)
        return ends and currency_of[debit.wallet] == currency_of[credit.wallet]

    left = list(credited)
    alone = []
    for debit in debits:
        match = next((credit for credit in left if agree(debit, credit)), None)
        if match is None:
            alone.append(debit)
        else:
            left.remove(match)
    for debit, credit in zip_longest(alone, left):
        if debit is None:
            yield Problem("WAL.UNBACKED_CREDIT", transfer_id, None, credit)
        elif credit is None:
            yield Problem("WAL.UNDELIVERED_CREDIT", transfer_id, debit, None)
        else:
            yield Problem("WAL.TRANSFER_MISMATCH", transfer_id, debit, credit)
