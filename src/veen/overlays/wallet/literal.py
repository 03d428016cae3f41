"""Wallets read literally: every event takes effect, and violations of rules are only reported (WAL-047).

For diagnosis, and for folding in parallel: the summary of a range is a function of the unknown state before
it, exact and of fixed size. It depends on three aspects of that state. Its *control*: not opened, open or
closed; frozen; with a limit or not. The day of its last reset, only compared with the day of the first spend
that counts against the limit: hence three *pieces*. And numbers, to which deltas are added.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple

from veen.core.crypto.hash import U64_MAX
from veen.core.encoding.cbor import Value
from veen.core.encoding.field_types import hex_from_json
from veen.core.types import JsonValue
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Event
from veen.overlays.monoid import MIN, Monoid
from veen.overlays.overlay import Cell, Key, Lowered, Overlay, Tables
from veen.overlays.schema import Schema
from veen.overlays.wallet.effects import INITIAL, State
from veen.overlays.wallet.overlay import IN, OUT, is_unbacked, report, wallet_of
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
    WITHDRAW,
)

# Controls: not opened (without, with a limit), then open and closed with frozen and limit as bits.
_NONE, _OPEN, _CLOSED = 0, 2, 6
_CONTROLS: Final = 10
_FROZEN, _LIMITED = 2, 1


class Piece(NamedTuple):
    """The effect on the amount spent today, for one kind of last reset; and when the limit is exceeded.

    With p and L before the range: it is exceeded if p + kept > L, reset > L, p > known, or broken.
    """

    # Whether the amount spent before the range stays; if so, ``spent`` is added to it.
    keeps: bool = True
    spent: int = 0
    # None: the last reset is unchanged.
    last_reset: int | None = None
    kept: int | None = None
    reset: int | None = None
    known: int | None = None
    broken: bool = False


class Row(NamedTuple):
    """The effect of a range on a wallet with one control."""

    exit: int
    # None: unchanged; else a tuple with the new limit, or with None for no limit.
    limit: tuple[int | None] | None = None
    balance: int = 0
    # Minimum of the running balance change after debits and adjustments, maximum after credits.
    low: int | None = None
    high: int | None = None
    # The day of the first spend that counts, if its reset depends on the last one before the range.
    day: int | None = None
    # For a last reset that is not set (0); on another day; on that day.
    unset: Piece = Piece()
    other: Piece = Piece()
    same: Piece = Piece()
    # Number of transfers out of a wallet that its state did not permit.
    ignored: int = 0


# The summary of a range: its effect on a wallet of each control.
Table = tuple[Row, ...]

IDENTITY: Final[Table] = tuple(Row(control) for control in range(_CONTROLS))
_STILL: Final = Piece()
# The effect of a transfer out of a wallet whose state does not permit it.
_IGNORING: Final[Table] = tuple(Row(control, ignored=1) for control in range(_CONTROLS))


def control_of(state: State) -> int:
    """Return the control of a state."""
    limited = state.daily_limit is not None
    if not state.exists:
        return _NONE + limited
    return (_CLOSED if state.closed else _OPEN) + (_FROZEN if state.frozen else 0) + limited


# --- single events ------------------------------------------------------------------------------------------


def _table(rows: Mapping[int, Row], others: Table = IDENTITY) -> Table:
    return tuple(rows.get(control, other) for control, other in enumerate(others))


def opened(created_at: int) -> Table:
    """Return the effect of opening."""
    piece = Piece(keeps=False, last_reset=created_at)
    row = Row(_OPEN, limit=(None,), unset=piece, other=piece, same=piece)
    return _table({_NONE: row, _NONE + _LIMITED: row})


def closed() -> Table:
    """Return the effect of closing."""
    return _table({_OPEN + bits: Row(_CLOSED + bits) for bits in range(4)})


def limited(limit: int | None, ts: int) -> Table:
    """Return the effect of setting or removing a limit, for every control."""
    if limit is None:
        return tuple(Row(_unlimited(control), limit=(None,)) for control in range(_CONTROLS))
    starts = Piece(last_reset=ts)
    return tuple(
        Row(_unlimited(control) + _LIMITED, limit=(limit,), unset=starts) for control in range(_CONTROLS)
    )


def _unlimited(control: int) -> int:
    return control - control % 2  # the controls of a group begin at an even number


def frosted(*, frozen: bool) -> Table:
    """Return the effect of freezing and unfreezing."""
    rows = {}
    for control in range(_OPEN, _CONTROLS):
        base = _CLOSED if control >= _CLOSED else _OPEN
        rows[control] = Row(base + (_FROZEN if frozen else 0) + (control - base) % 2)
    return _table(rows)


def credited(amount: int) -> Table:
    """Return the effect of a deposit, or of a transfer to the wallet."""
    return _table({_OPEN + bits: Row(_OPEN + bits, balance=amount, high=amount) for bits in range(4)})


def adjusted(delta: int) -> Table:
    """Return the effect of an adjustment."""
    return _table(
        {_OPEN + bits: Row(_OPEN + bits, balance=delta, low=delta, high=delta) for bits in range(4)}
    )


def spent(amount: int, ts: int, *, transfer: bool = False) -> Table:
    """Return the effect of a withdrawal, or of a transfer from the wallet."""
    day = ts // DAY
    keep = Piece(spent=amount, kept=amount)
    reset = Piece(keeps=False, spent=amount, last_reset=ts, reset=amount)
    rows = {
        _OPEN: Row(_OPEN, balance=-amount, low=-amount),
        _OPEN + _LIMITED: Row(
            _OPEN + _LIMITED,
            balance=-amount,
            low=-amount,
            day=day,
            unset=reset if day else keep,
            other=reset,
            same=keep,
        ),
    }
    return _table(rows, _IGNORING if transfer else IDENTITY)


# --- merging ------------------------------------------------------------------------------------------------


class _Literal:
    """Tables compose: the exit control of a row in the first selects the row of the second."""

    name = "LITERAL"
    commutes = False

    def merge(self, left: Table, right: Table) -> Table:
        # Most rows of most tables are the identity: reuse the other row instead of merging.
        return tuple(
            right[control]
            if row == same
            else row
            if right[row.exit] == IDENTITY[row.exit]
            else _follow(row, right)
            for control, (row, same) in enumerate(zip(left, IDENTITY, strict=True))
        )

    def pack(self, summary: Table) -> Value:
        return [None if row == same else _packed(row) for row, same in zip(summary, IDENTITY, strict=True)]

    def unpack(self, value: Any) -> Table:
        return tuple(
            same if row is None else _unpacked(row) for row, same in zip(value, IDENTITY, strict=True)
        )


LITERAL: Final = _Literal()


def _follow(first: Row, right: Table) -> Row:
    """Return the effect of ``first`` followed by that of ``right``."""
    then = right[first.exit]
    limit, balance, low, high = first.limit, first.balance, then.low, then.high
    if then.unset == then.other == then.same == _STILL:  # most events do not spend against the limit
        day, unset, other, same = first.day, first.unset, first.other, first.same
    else:
        day, unset, other, same = _pieces(first, then)
    return Row(
        then.exit,
        limit if then.limit is None else then.limit,
        balance + then.balance,
        first.low if low is None else _least(first.low, balance + low),
        first.high if high is None else _most(first.high, balance + high),
        day,
        unset,
        other,
        same,
        first.ignored + then.ignored,
    )


def _pieces(first: Row, then: Row) -> tuple[int | None, Piece, Piece, Piece]:
    """Return the day that matters, and the three pieces, of two ranges."""
    limit = first.limit
    unset = _then(first.unset, _chosen(first.unset, then, then.unset), limit)
    day = first.day
    if day is not None:
        follows = then.same if then.day == day else then.other
        same = _then(first.same, _chosen(first.same, then, follows), limit)
        other = _then(first.other, _chosen(first.other, then, then.other), limit)
        return day, unset, other, same
    if first.other.last_reset is None:  # no earlier spend depends on the day
        same, other = _then(first.other, then.same, limit), _then(first.other, then.other, limit)
        return then.day, unset, other, same
    # It was opened in between.
    other = _then(first.other, _chosen(first.other, then, then.other), limit)
    return None, unset, other, other


def _chosen(piece: Piece, then: Row, if_kept: Piece) -> Piece:
    """Return the piece that follows: by the last reset that ``piece`` has set, if it has set one."""
    return if_kept if piece.last_reset is None else _piece(then, piece.last_reset)


def _piece(row: Row, last_reset: int) -> Piece:
    """Return the piece of a row for a last reset."""
    if not last_reset:
        return row.unset
    return row.same if row.day is not None and last_reset // DAY == row.day else row.other


def _then(a: Piece, b: Piece, limit: tuple[int | None] | None) -> Piece:
    """Return the composition of two pieces; ``limit`` is the limit set in the range of the first."""
    if b == _STILL:
        return a
    kept, reset, known, broken = a.kept, a.reset, a.known, a.broken or b.broken
    if b.known is not None:
        if a.keeps:
            known = _least(known, b.known - a.spent)
        else:
            broken = broken or a.spent > b.known
    if b.kept is not None:
        most = a.spent + b.kept
        if limit is None:
            kept, reset = (_most(kept, most), reset) if a.keeps else (kept, _most(reset, most))
        else:
            assert limit[0] is not None, "nothing counts without a limit"
            if a.keeps:
                known = _least(known, limit[0] - most)
            else:
                broken = broken or most > limit[0]
    if b.reset is not None:
        if limit is None:
            reset = _most(reset, b.reset)
        else:
            assert limit[0] is not None, "nothing counts without a limit"
            broken = broken or b.reset > limit[0]
    return Piece(
        b.keeps and a.keeps,
        a.spent + b.spent if b.keeps else b.spent,
        a.last_reset if b.last_reset is None else b.last_reset,
        kept,
        reset,
        known,
        broken,
    )


def _least(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return min(left, right)


def _most(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return max(left, right)


def _packed(row: Row) -> Value:
    pieces = [[item.keeps, item.last_reset, item.broken, *_texts(item[1:2] + item[3:6])] for item in row[6:9]]
    return [row.exit, row.limit, row.day, row.ignored, _texts(row[2:5]), pieces]


def _texts(numbers: tuple[Any, ...]) -> list[str | None]:
    """Return numbers of any size and sign in a form that CBOR can encode."""
    return [None if number is None else str(number) for number in numbers]


def _numbers(texts: Any) -> list[Any]:
    return [None if text is None else int(text) for text in texts]


def _unpacked(value: Any) -> Row:
    leads, limit, day, ignored, changes, packed = value
    pieces = []
    for keeps, last_reset, broken, *texts in packed:
        total, kept, reset, known = _numbers(texts)
        pieces.append(Piece(keeps, total, last_reset, kept, reset, known, broken))
    balance, low, high = _numbers(changes)
    unset, other, same = pieces
    limit_change = None if limit is None else (limit[0],)
    return Row(leads, limit_change, balance, low, high, day, unset, other, same, ignored)


# --- states -------------------------------------------------------------------------------------------------


def applied(table: Table, state: State) -> tuple[State, bool]:
    """Return the state after a range, and whether a rule was broken in it."""
    row = table[control_of(state)]
    piece = _piece(row, state.last_limit_reset_ts)
    pending, balance = state.pending_daily_spent, state.balance
    broken = (
        (row.low is not None and balance + row.low < 0)
        or (row.high is not None and balance + row.high > U64_MAX)
        or piece.broken
        or (piece.known is not None and pending > piece.known)
    )
    if not broken and state.daily_limit is not None:
        limit = state.daily_limit
        broken = (piece.kept is not None and pending + piece.kept > limit) or (
            piece.reset is not None and piece.reset > limit
        )
    base = _CLOSED if row.exit >= _CLOSED else _OPEN
    after = State(
        row.exit >= _OPEN,
        row.exit >= _CLOSED,
        balance + row.balance,
        row.exit >= _OPEN and row.exit - base >= _FROZEN,
        state.daily_limit if row.limit is None else row.limit[0],
        (pending if piece.keeps else 0) + piece.spent,
        state.last_limit_reset_ts if piece.last_reset is None else piece.last_reset,
    )
    return after, broken


# --- the overlay --------------------------------------------------------------------------------------------


def literal_cells(event: Event) -> list[tuple[bytes, str, Table]]:
    """Return the effect of an event on each wallet: (wallet, side, summary)."""
    body = event.body
    wallet, ts = body["wallet_id"], body.get("ts", 0)
    match event.schema.name:
        case OPEN.name:
            return [(wallet, "", opened(body["created_at"]))]
        case CLOSE.name:
            return [(wallet, "", closed())]
        case DEPOSIT.name:
            return [(wallet, "", credited(body["amount"]))]
        case WITHDRAW.name:
            return [(wallet, "", spent(body["amount"], ts))]
        case ADJUST.name:
            return [(wallet, "", adjusted(body["delta"]))]
        case LIMIT.name:
            return [(wallet, "", limited(body["daily_limit"], ts))]
        case TRANSFER.name:
            target, amount = body["to_wallet_id"], body["amount"]
            out = (wallet, OUT, spent(amount, ts, transfer=True))
            # Read literally, a transfer to the wallet itself is a debit only (WAL-051).
            return [out] if target == wallet else [out, (target, IN, credited(amount))]
    return [(wallet, "", frosted(frozen=event.schema is FREEZE))]


class LiteralWallets(Overlay):
    """Wallets without rules: the literal effect of the events, and whether a rule was broken."""

    name: ClassVar[str] = "wallet.literal"
    version: ClassVar[int] = 2
    about: ClassVar[str] = (
        "Wallets without rules, for diagnosis: every event counts; broken rules are only reported."
    )
    schemas: ClassVar[tuple[Schema, ...]] = SCHEMAS
    tables: ClassVar[Mapping[str, Monoid]] = {"wallets": LITERAL}
    # Known transfers and references: the first of each counts here too.
    indexes: ClassVar[Mapping[str, Monoid]] = {"seen": MIN}
    copies_by_parent: ClassVar[tuple[Schema, ...]] = SCHEMAS
    state_class: ClassVar[str] = "wallet.literal"

    def lower(self, event: Event, before: Tables) -> Lowered:
        """Apply an event, unless it is a duplicate, or a credit without a debit in this stream."""
        if is_unbacked(event):  # not a rule of the wallet: the payment is not proven (C-160)
            return Lowered((), (report("WAL.UNBACKED_CREDIT", event.body["to_wallet_id"]),))
        cells: list[Cell] = []
        reports: list[tuple[str, str]] = []
        for wallet, side, table in literal_cells(event):
            once = event.body.get("transfer_id") if side else _reference(event)
            if once is not None:
                key = (wallet, side, once)
                if before.get("seen", key) is not None:
                    reports.append(report("WAL.DUPLICATE", wallet))
                    continue
                cells.append(("seen", key, (event.position,)))
            cells.append(("wallets", wallet, table))
        return Lowered(cells, reports)

    def parse_key(self, text: str) -> Key:
        """Parse a wallet id: hex."""
        return hex_from_json(text)

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the state of a wallet, and whether a rule was broken."""
        wallet = tables.get("wallets", key)
        return None if wallet is None else _shown(wallet)

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the state of each wallet."""
        return {wallet_of(key).hex(): _shown(wallet) for key, wallet in tables.items("wallets")}

    def serialized(self, tables: Tables) -> Mapping[bytes, list[Value]]:
        """Return the seven fields of each wallet."""
        return {wallet_of(key): _seven(wallet) for key, wallet in tables.items("wallets")}

    def serialized_key(self, tables: Tables, key: Key) -> list[Value]:
        """Return the seven fields of a wallet."""
        return _seven(tables.get("wallets", key) or IDENTITY)


def _reference(event: Event) -> bytes | None:
    ref: bytes | None = event.body.get("ref") if event.schema is WITHDRAW else None
    return ref


def _seven(table: Table) -> list[Value]:
    """Return the fields of a wallet; without rules their values may exceed what can be encoded."""
    state, _ = applied(table, INITIAL)
    if not -U64_MAX <= state.balance <= U64_MAX or state.pending_daily_spent > U64_MAX:
        raise InvalidBodyError(
            "WAL.OVERFLOW", "a wallet read literally exceeds 64 bits and cannot be encoded"
        )
    return list(state)


def _shown(table: Table) -> dict[str, JsonValue]:
    state, broken = applied(table, INITIAL)
    return {**state._asdict(), "broken": broken, "ignored_transfers": table[_NONE].ignored}
