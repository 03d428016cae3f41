"""Wallets: each event is judged once by the state before it, and counts or not (WAL-047).

An event that counts is stored as its effect, so that ranges merge without judging again. One that does not
count changes nothing and is reported. Fold order is that of the stream; ``ts`` only gives the day (WAL-009).

A stream is shared unless its name says otherwise: it contains all wallets, one that is not opened in it does
not exist, and a credit counts only if its debit did. If the id of the stream is that of a wallet's own
stream, and that wallet is opened in it, it belongs to this wallet alone (C-132): what it pays is a debit here
and a credit elsewhere. The fold itself determines this, so that no reader can compute another balance.

In its own stream a wallet gets nothing by a transfer, since the debit is not visible there: any writer could
credit it with money that was never paid. Such a credit moves nothing, is reported, and is listed as pending,
whatever state the wallet is in (C-160). ``reconcile`` looks for its debit.

Anybody can compute the id of a wallet's next transfer. So a credit without a debit that counts leaves no
trace: for the payee the transfer did not happen. And a transfer whose credit was applied before is rejected
as a whole: a debit alone would destroy money.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

from veen.core.crypto.hash import HASH_BYTES, U64_MAX, sha256
from veen.core.encoding.cbor import Value
from veen.core.encoding.field_types import hex_from_json
from veen.core.types import JsonValue
from veen.overlays.errors import ParameterError
from veen.overlays.event import Event
from veen.overlays.monoid import MIN, Monoid, Position
from veen.overlays.overlay import (
    NOTHING,
    Cell,
    Key,
    Lowered,
    Overlay,
    Tables,
    appended,
    sequence,
    sequence_keys,
    sequence_tables,
)
from veen.overlays.report_codes import CODES
from veen.overlays.schema import Schema
from veen.overlays.wallet.effects import CLOSED, EFFECT, OPENED, Effect, State, state_of
from veen.overlays.wallet.schemas import (
    ADJUST,
    CLOSE,
    DAY,
    DEPOSIT,
    FREEZE,
    LIMIT,
    OPEN,
    SCHEMAS,
    TRANSFER,
    UNFREEZE,
    WITHDRAW,
    is_own_stream,
    needs_reset,
)

# Reported only: these events count.
TOLD: Final = frozenset({"WAL.TS_REGRESSION", "WAL.UNAUTHORIZED_OPERATION"})
# The reason for rejection of an event that counts.
_APPLIED: Final = ""
_NEW: Final = Effect()
# The key of the table that names the owner of the stream: it has at most one row.
_STREAM: Final = b""
# The sides of a transfer.
OUT: Final = "out"
IN: Final = "in"


class Wallets(Overlay):
    """Balances, limits, freezes and transfers."""

    # A day ends when the day differs ("neq"), or only when a later one comes ("gt"; WAL-041).
    needs_reset: str = "neq"
    # A second withdrawal with the same reference does not count (WAL-060).
    unique_withdraw_refs: bool = True
    # The stream is a copy of another one: only copies count (WAL-068).
    replica: bool = False
    # Keys of clients, and references of tokens, that may adjust; other adjustments are reported (WAL-063).
    institution: frozenset[bytes] = frozenset()

    name: ClassVar[str] = "wallet"
    version: ClassVar[int] = 3
    about: ClassVar[str] = (
        "Wallets: balances, limits, freezes, transfers; an event that breaks a rule does not count."
    )
    schemas: ClassVar[tuple[Schema, ...]] = SCHEMAS
    tables: ClassVar[Mapping[str, Monoid]] = {
        "wallets": EFFECT,
        # The first opening of each wallet: (position, realm, context, currency, time).
        "opened": MIN,
        # (wallet, side, transfer) -> (position of the first, amount, other wallet, reason for rejection, hash
        # of the body).
        "transfers": MIN,
        # In a wallet's own stream: (position of its opening, this wallet). Otherwise empty.
        "own": MIN,
        # For each wallet its credits without a visible debit: (position, transfer, other wallet, amount,
        # time, hash of the body).
        **sequence_tables("pending"),
    }
    indexes: ClassVar[Mapping[str, Monoid]] = {
        "refs": MIN,
        # (wallet, transfer, hash of the body) of pending credits. Another body under the same id is another
        # credit: a forged one does not hide the real one.
        "waiting": MIN,
    }
    copies_by_parent: ClassVar[tuple[Schema, ...]] = SCHEMAS
    state_class: ClassVar[str] = "wallet.account"

    def __post_init__(self) -> None:
        """Reject an invalid ``needs_reset``."""
        if self.needs_reset not in ("neq", "gt"):
            raise ParameterError(f"needs_reset is neq or gt, not {self.needs_reset!r}")

    def lower(self, event: Event, before: Tables) -> Lowered:
        """Judge an event by the state before it, and return its effect."""
        if self.replica and event.canonical_id == event.record.msg_id:
            return _rejected("WAL.NOT_A_COPY", event.body["wallet_id"])
        if event.schema is TRANSFER:
            return self._transfer(event, before)
        wallet = event.body["wallet_id"]
        if not self.is_here(wallet, before):
            return _rejected("WAL.WRONG_STREAM", wallet)
        known: Effect = before.get("wallets", wallet) or _NEW
        if event.schema is WITHDRAW:
            return self._withdraw(event, known, before)
        if event.schema is OPEN:
            return _open(event, known, before)
        if event.schema is ADJUST:
            return self._adjust(event, known)
        return _RULES[event.schema.name](event, known)

    def is_here(self, wallet: bytes, before: Tables) -> bool:
        """Whether a wallet belongs to the stream: a wallet's own stream contains no other (WAL-023)."""
        return owner_of(before) in (None, wallet)

    def _adjust(self, event: Event, known: Effect) -> Lowered:
        wallet, delta = event.body["wallet_id"], event.body["delta"]
        why = _credit(known, delta)
        if why:
            return _rejected(why, wallet)
        lowered = _entered(wallet, Effect(balance=delta, adjusted=delta))
        signed = {event.record.client_id, event.record.auth_ref}
        if not self.institution or self.institution & signed:
            return lowered
        return lowered._replace(reports=(report("WAL.UNAUTHORIZED_OPERATION", wallet),))

    # --- spending -------------------------------------------------------------------------------------------

    def _withdraw(self, event: Event, known: Effect, before: Tables) -> Lowered:
        body = event.body
        wallet, amount, ref = body["wallet_id"], body["amount"], body.get("ref")
        cells: list[Cell] = []
        if ref is not None and self.unique_withdraw_refs:
            if before.get("refs", (wallet, ref)) is not None:
                return _rejected("WAL.DUPLICATE", wallet)
            cells.append(("refs", (wallet, ref), (event.position,)))
        why, effect = self._spend(known, amount, body["ts"])
        if why != _APPLIED:
            return Lowered(cells, (report(why, wallet),))
        cells.append(("wallets", wallet, effect._replace(withdrawn=amount)))
        return Lowered(cells, _regression(known, body["ts"], wallet))

    def _spend(self, known: Effect, amount: int, ts: int) -> tuple[str, Effect]:
        """Return why an amount cannot be spent, and the effect of spending it."""
        why = _APPLIED
        limit = None if known.limit is None else known.limit[0]
        last, pending = known.last_reset or 0, known.pending
        resets = limit is not None and needs_reset(last, ts, forward_only=self.needs_reset == "gt")
        if known.mode != OPENED:
            why = "WAL.CLOSED" if known.mode else "WAL.NOT_FOUND"
        elif known.frozen:
            why = "WAL.FROZEN"
        elif limit is not None and (0 if resets else pending) + amount > limit:  # the limit first: WAL-048
            why = "WAL.DAILY_LIMIT_EXCEEDED"
        elif amount > known.balance:
            why = "WAL.INSUFFICIENT_FUNDS"
        if why != _APPLIED or limit is None:  # without a limit nothing is counted (WAL-032)
            return why, Effect(balance=-amount)
        return why, Effect(last_reset=ts if resets else None, resets=resets, pending=amount, balance=-amount)

    # --- transfers ------------------------------------------------------------------------------------------

    def _transfer(self, event: Event, before: Tables) -> Lowered:
        if is_unbacked(event):
            return _pending(event, before)
        body = event.body
        source, target = body["wallet_id"], body["to_wallet_id"]
        out, into = self.is_here(source, before), self.is_here(target, before)
        if not out and not into:
            return _rejected("WAL.WRONG_STREAM", source)
        cells: list[Cell] = []
        reports: list[tuple[str, str]] = []
        # The payer is absent only if a subset of the wallets of a shared stream is folded, where the others
        # are assumed to pay; transfers from elsewhere were rejected above.
        paid = True
        if out:
            credit = (target, IN, body["transfer_id"])
            repeats = into and before.get("transfers", credit) is not None
            paid = self._debit_side(event, before, cells, reports, repeats=repeats)
        if into:
            _credit_side(event, before, cells, reports, paid=paid)
        return Lowered(cells, reports)

    def _debit_side(
        self,
        event: Event,
        before: Tables,
        cells: list[Cell],
        reports: list[tuple[str, str]],
        *,
        repeats: bool,
    ) -> bool:
        """Add the debit of a transfer, if it counts; return whether it does.

        ``repeats``: its credit was applied before, so the money would be lost.
        """
        body = event.body
        source, target, amount, ts = body["wallet_id"], body["to_wallet_id"], body["amount"], body["ts"]
        key = (source, OUT, body["transfer_id"])
        if before.get("transfers", key) is not None:  # the first one stands, counted or not (WAL-056)
            reports.append(report("WAL.DUPLICATE", source))
            return False
        known: Effect = before.get("wallets", source) or _NEW
        why, effect = self._spend(known, amount, ts)
        if repeats:
            why = "WAL.DUPLICATE"
        elif source == target:
            why = "WAL.SELF_TRANSFER"
        cells.append(("transfers", key, (event.position, amount, target, why, sha256(event.record.body))))
        if why != _APPLIED:
            reports.append(report(why, source))
            return False
        cells.append(("wallets", source, effect))
        reports += _regression(known, ts, source)
        return True

    # --- reading --------------------------------------------------------------------------------------------

    def parse_key(self, text: str) -> Key:
        """Parse a wallet id: hex."""
        return hex_from_json(text)

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the state of a wallet, its opening, and its pending credits."""
        effect, pending = tables.get("wallets", key), pending_of(tables, key)
        if effect is None and not pending:
            return None
        return _shown(effect, tables.get("opened", key), pending)

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the state of each wallet."""
        known = {wallet_of(key): effect for key, effect in tables.items("wallets")}
        known = dict.fromkeys(sequence_keys(tables, "pending")) | known
        return {
            wallet.hex(): _shown(known[wallet], tables.get("opened", wallet), pending_of(tables, wallet))
            for wallet in sorted(known)
        }

    def serialized(self, tables: Tables) -> Mapping[bytes, list[Value]]:
        """Return the seven fields of each wallet."""
        return {wallet_of(key): list(state_of(effect)) for key, effect in tables.items("wallets")}

    def serialized_key(self, tables: Tables, key: Key) -> list[Value]:
        """Return the seven fields of a wallet."""
        return list(self.state(tables, wallet_of(key)))

    def state(self, tables: Tables, wallet: bytes) -> State:
        """Return the state of a wallet; that of an unknown one is the initial one."""
        return state_of(tables.get("wallets", wallet))


class Pending(NamedTuple):
    """A credit that was not applied, since its debit is not visible in the stream."""

    place: Position
    transfer_id: bytes
    source: bytes
    amount: int
    ts: int
    body_hash: bytes


def owner_of(tables: Tables) -> bytes | None:
    """Return the wallet that owns a stream; None if the stream is shared as far as it is folded."""
    own: tuple[Position, bytes] | None = tables.get("own", _STREAM)
    return None if own is None else own[1]


def pending_of(tables: Tables, wallet: Key) -> list[Pending]:
    """Return the pending credits of a wallet, in log order."""
    return [Pending(*entry) for entry in sequence(tables, "pending", wallet)]


def is_unbacked(event: Event) -> bool:
    """Whether an event is a transfer into the wallet's own stream from another wallet (C-160)."""
    if event.schema is not TRANSFER or event.body["wallet_id"] == event.body["to_wallet_id"]:
        return False
    return is_own_stream(event.stream_id, event.body["to_wallet_id"])


def _pending(event: Event, before: Tables) -> Lowered:
    """Add a credit without a visible debit: it moves nothing, and does not use up the transfer id."""
    body = event.body
    target, transfer_id = body["to_wallet_id"], body["transfer_id"]
    rejected = _rejected("WAL.UNBACKED_CREDIT", target)
    body_hash = sha256(event.record.body)
    key = (target, transfer_id, body_hash)
    if before.get("waiting", key) is not None:  # repeated: listed once
        return rejected
    entry = (event.position, transfer_id, body["wallet_id"], body["amount"], body["ts"], body_hash)
    cells = (("waiting", key, (event.position,)), *appended(before, "pending", target, entry))
    return rejected._replace(cells=cells)


def report(why: str, wallet: bytes) -> tuple[str, str]:
    """Return the report of an event that does not count."""
    return why, f"wallet {wallet.hex()}: {CODES[why]}"


def _rejected(why: str, wallet: bytes) -> Lowered:
    return Lowered((), (report(why, wallet),))


def _entered(wallet: bytes, effect: Effect) -> Lowered:
    return Lowered((("wallets", wallet, effect),))


def _credit(known: Effect, amount: int) -> str:
    """Return why a wallet cannot be credited; "" if it can. An adjustment may be negative."""
    if known.mode != OPENED:
        return "WAL.CLOSED" if known.mode else "WAL.NOT_FOUND"
    balance = known.balance + amount
    if balance < 0:
        return "WAL.NEGATIVE_ADJUST"
    return "WAL.OVERFLOW" if balance > U64_MAX else _APPLIED


def _credit_side(
    event: Event, before: Tables, cells: list[Cell], reports: list[tuple[str, str]], *, paid: bool
) -> None:
    """Add the credit of a transfer, if it counts; ``paid``: its debit counts, or is in another stream.

    Without a debit nothing is added, so the transfer id is not used up.
    """
    body = event.body
    source, target, amount = body["wallet_id"], body["to_wallet_id"], body["amount"]
    key = (target, IN, body["transfer_id"])
    if before.get("transfers", key) is not None:
        if paid:
            reports.append(report("WAL.DUPLICATE", target))
        return
    if not paid:
        reports.append(report("WAL.UNBACKED", target))
        return
    why = _credit(before.get("wallets", target) or _NEW, amount)
    cells.append(("transfers", key, (event.position, amount, source, why, sha256(event.record.body))))
    if why != _APPLIED:
        reports.append(report(why, target))
        return
    cells.append(("wallets", target, Effect(balance=amount)))


def _regression(known: Effect, ts: int, wallet: bytes) -> tuple[tuple[str, str], ...]:
    """Report a spend on an earlier day than the last: with "neq" it resets the allowance (WAL-041)."""
    if known.limit is None or known.limit[0] is None or ts // DAY >= (known.last_reset or 0) // DAY:
        return ()
    return (report("WAL.TS_REGRESSION", wallet),)


# --- the effect of each event, except for spending ----------------------------------------------------------


def _open(event: Event, known: Effect, before: Tables) -> Lowered:
    body = event.body
    wallet, created_at = body["wallet_id"], body["created_at"]
    if known.mode:
        first = before.get("opened", wallet)
        return NOTHING if first[4] == created_at else _rejected("WAL.REOPENED", wallet)
    opened = (event.position, body["realm_id"], body["ctx_id"], body["currency"], created_at)
    effect = Effect(OPENED, limit=(None,), last_reset=created_at, resets=True)
    cells: list[Cell] = [("wallets", wallet, effect), ("opened", wallet, opened)]
    if is_own_stream(event.stream_id, wallet):
        cells.append(("own", _STREAM, (event.position, wallet)))
    return Lowered(cells)


def _close(event: Event, known: Effect) -> Lowered:
    wallet = event.body["wallet_id"]
    return _entered(wallet, Effect(CLOSED)) if known.mode else _rejected("WAL.NOT_FOUND", wallet)


def _limit(event: Event, known: Effect) -> Lowered:
    # Also before it is opened and after it is closed (WAL-038).
    limit = event.body["daily_limit"]
    starts = limit is not None and not known.last_reset
    return _entered(
        event.body["wallet_id"],
        Effect(limit=(limit,), last_reset=event.body["ts"] if starts else None),
    )


def _freeze(event: Event, known: Effect) -> Lowered:
    wallet = event.body["wallet_id"]
    if not known.mode:
        return _rejected("WAL.NOT_FOUND", wallet)
    return _entered(wallet, Effect(frozen=event.schema is FREEZE))


def _deposit(event: Event, known: Effect) -> Lowered:
    wallet, amount = event.body["wallet_id"], event.body["amount"]
    why = _credit(known, amount)
    if why:
        return _rejected(why, wallet)
    return _entered(wallet, Effect(balance=amount, deposited=amount))


_RULES: Final[Mapping[str, Callable[[Event, Effect], Lowered]]] = {
    CLOSE.name: _close,
    DEPOSIT.name: _deposit,
    LIMIT.name: _limit,
    FREEZE.name: _freeze,
    UNFREEZE.name: _freeze,
}


def wallet_of(key: Key) -> bytes:
    """Return a key of a table as a wallet id."""
    assert isinstance(key, bytes)
    assert len(key) == HASH_BYTES
    return key


def _shown(
    effect: Effect | None,
    opened: tuple[object, bytes, bytes, str, int] | None,
    pending: Sequence[Pending],
) -> dict[str, JsonValue]:
    fields: dict[str, JsonValue] = dict(state_of(effect)._asdict())
    if opened is not None:
        _, realm, ctx, currency, created_at = opened
        fields |= {
            "currency": currency,
            "realm_id": realm.hex(),
            "ctx_id": ctx.hex(),
            "created_at": created_at,
        }
    fields["pending"] = [_shown_pending(item, None if opened is None else opened[3]) for item in pending]
    return fields


def _shown_pending(item: Pending, currency: str | None) -> dict[str, JsonValue]:
    """Return a pending credit, in the currency of the wallet that it would be added to."""
    epoch, seq, msg_id = item.place
    return {
        "transfer_id": item.transfer_id.hex(),
        "from": item.source.hex(),
        "amount": item.amount,
        "currency": currency,
        "ts": item.ts,
        "epoch": epoch,
        "stream_seq": seq,
        "msg_id": msg_id.hex(),
    }
