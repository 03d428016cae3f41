"""Comparing wallet streams: every debit has its credit, and money is neither created nor lost (WAL-059).

Where each wallet has its own stream, a fold sees one side of a transfer. Here the sides are matched: a
pending credit and a debit that agrees with it are money in transit (C-160).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from veen.overlays.errors import InvalidBodyError
from veen.overlays.monoid import Position
from veen.overlays.overlay import Tables, sequence_keys
from veen.overlays.wallet.overlay import OUT, owner_of, pending_of, wallet_of

if TYPE_CHECKING:
    from veen.overlays.wallet.effects import Effect


class Side(NamedTuple):
    """One side of a transfer in a stream: it counts, unless it is a credit that is pending."""

    wallet: bytes
    other: bytes
    amount: int
    # Epoch, number and message in its stream.
    place: Position


class Problem(NamedTuple):
    """A transfer whose sides do not agree."""

    code: str
    transfer_id: bytes
    debit: Side | None
    credit: Side | None


class UnderWay(NamedTuple):
    """A transfer in transit: its debit counts, and its credit is pending in the payee's stream."""

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
    # Debits without a matching credit, and credits that count without a matching debit.
    undelivered: int = 0
    unbacked: int = 0
    # Debits whose credit is pending.
    pending: int = 0

    @property
    def holds(self) -> bool:
        """Whether the balances equal deposits, withdrawals and adjustments, less what is in transit."""
        came = self.deposited - self.withdrawn + self.adjusted
        return self.balances == came - self.undelivered + self.unbacked - self.pending


@dataclass(slots=True)
class Reconciliation:
    """The result of a reconciliation."""

    problems: list[Problem] = field(default_factory=list)
    pending: list[UnderWay] = field(default_factory=list)
    currencies: dict[str, Conservation] = field(default_factory=dict)


# Sides of transfers, by transfer and hash of the body. The body names payer and payee; each has one stream,
# with at most one such transfer. So there is at most one debit, one credit that counts, one pending.
_Sides = dict[tuple[bytes, bytes], Side]


@dataclass(slots=True)
class _Collected:
    """The transfers in some streams."""

    currency_of: dict[bytes, str] = field(default_factory=dict)
    debits: _Sides = field(default_factory=dict)
    # Credits that count, and pending ones.
    credits: _Sides = field(default_factory=dict)
    pending: _Sides = field(default_factory=dict)


def reconcile(streams: Iterable[Tables]) -> Reconciliation:
    """Compare the folded streams of a deployment; a wallet may be opened in one of them only (WAL-073).

    In a wallet's own stream, events of other wallets from before it was opened are ignored: they do not
    belong there (C-132). Otherwise any writer could open another's wallet in a second stream.
    """
    reconciliation, known = Reconciliation(), _Collected()
    for tables in streams:
        _count(tables, reconciliation, known.currency_of)
        _collect(tables, known)
    _compare(known, reconciliation)
    return reconciliation


def _count(tables: Tables, reconciliation: Reconciliation, currency_of: dict[bytes, str]) -> None:
    """Add up the money of a stream."""
    own = owner_of(tables)
    for key, (_, _, _, currency, _) in tables.items("opened"):
        wallet = wallet_of(key)
        if own not in (None, wallet):
            continue
        if wallet in currency_of:
            raise InvalidBodyError("WAL.TWO_STREAMS", f"wallet {wallet.hex()} is opened in two streams")
        currency_of[wallet] = currency
        effect: Effect = tables.get("wallets", wallet)
        money = reconciliation.currencies.setdefault(currency, Conservation())
        money.balances += effect.balance
        money.deposited += effect.deposited
        money.withdrawn += effect.withdrawn
        money.adjusted += effect.adjusted


def _collect(tables: Tables, known: _Collected) -> None:
    """Collect the sides of transfers in a stream."""
    own = owner_of(tables)
    for key, (place, amount, other, why, body_hash) in tables.items("transfers"):
        assert isinstance(key, tuple)
        wallet, side, transfer_id = key
        if not why and own in (None, wallet):
            sides = known.debits if side == OUT else known.credits
            sides[transfer_id, body_hash] = Side(wallet, other, amount, place)
    for wallet in sequence_keys(tables, "pending"):  # only the owner of a stream has pending credits
        for item in pending_of(tables, wallet):
            side = Side(wallet, item.source, item.amount, item.place)
            known.pending[item.transfer_id, item.body_hash] = side


def _compare(known: _Collected, reconciliation: Reconciliation) -> None:
    """Match sides that are equal byte for byte (C-160); the remaining ones are problems."""
    alone: dict[tuple[bytes, bytes, bytes], Side] = {}
    for key, debit in sorted(known.debits.items()):
        money = reconciliation.currencies[known.currency_of[debit.wallet]]
        if _is_same_money(debit, known.credits.get(key), known.currency_of):
            del known.credits[key]
        elif _is_same_money(debit, known.pending.get(key), known.currency_of):
            reconciliation.pending.append(UnderWay(key[0], debit, known.pending.pop(key)))
            money.pending += debit.amount
        else:
            alone[key[0], debit.wallet, debit.other] = debit
            money.undelivered += debit.amount
    for credit in known.credits.values():
        reconciliation.currencies[known.currency_of[credit.wallet]].unbacked += credit.amount
    for (transfer_id, _), credit in (*known.credits.items(), *known.pending.items()):
        # Any writer can use an id: it is the same transfer only between the same wallets.
        paid = alone.pop((transfer_id, credit.other, credit.wallet), None)
        code = "WAL.UNBACKED_CREDIT" if paid is None else "WAL.TRANSFER_MISMATCH"
        reconciliation.problems.append(Problem(code, transfer_id, paid, credit))
    for (transfer_id, _, _), debit in alone.items():
        reconciliation.problems.append(Problem("WAL.UNDELIVERED_CREDIT", transfer_id, debit, None))
    reconciliation.problems.sort(key=attrgetter("transfer_id"))


def _is_same_money(debit: Side, credit: Side | None, currency_of: Mapping[bytes, str]) -> bool:
    """Whether the credit exists, in the currency of the debit; the payee of a pending one may be unopened."""
    if credit is None:
        return False
    currency = currency_of[debit.wallet]
    return currency_of.get(credit.wallet, currency) == currency
