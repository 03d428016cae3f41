"""Wallets in columns: which ones never broke a rule, and their results.

Most wallets never do: then all of their operations count, and their state is the sums and last values of
their events. This is determined for many wallets at once, assuming that all debits of others count. All other
cases are left to the overlay itself: a wallet is never judged here, only found clean.

A clean wallet is opened once, before anything else and not at time 0; none of its events is rejected or
reported; and all of its sums fit into 64 bits.
"""

from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from veen.overlays.wallet.schemas import DAY

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Op(IntEnum):
    """The operations on a wallet: the schemas of its events by index, and operations derived from them."""

    OPEN = 0
    CLOSE = 1
    DEPOSIT = 2
    WITHDRAW = 3
    OUT = 4
    ADJUST = 5
    LIMIT = 6
    FREEZE = 7
    UNFREEZE = 8
    IN = 9
    NO_LIMIT = 10
    # Not handled here, including numbers beyond 63 bits.
    ODD = 11
    # The same, for a transfer to the wallet.
    ODD_IN = 12


# One row for each wallet and event: ``amount`` may be a delta or a limit, ``ts`` the time of opening.
OPS: Final = pa.schema(
    [
        pa.field("wallet", pa.binary()),
        pa.field("epoch", pa.int64()),
        pa.field("stream_seq", pa.int64()),
        pa.field("op", pa.int32()),
        pa.field("amount", pa.int64()),
        pa.field("ts", pa.int64()),
        pa.field("ref", pa.binary()),
    ]
)
# Numbers from here on are left to the overlay.
_TOO_LARGE: Final = 1 << 62
# The low of a wallet that has spent nothing: withheld credits change none of its verdicts.
NO_LOW: Final = (1 << 63) - 1
_SUMS: Final = ("pending", "balance", "deposited", "withdrawn", "adjusted")
# One row for each wallet; if it is not clean, the other columns mean nothing. ``low`` is its lowest balance
# right after spending: withholding credits of up to this amount changes no verdict.
CHECKED: Final = pa.schema(
    [
        pa.field("wallet", pa.binary()),
        pa.field("clean", pa.bool_()),
        pa.field("events", pa.int64()),
        pa.field("low", pa.int64()),
        pa.field("closed", pa.bool_()),
        pa.field("frozen", pa.bool_()),
        pa.field("limit", pa.int64()),
        pa.field("last_reset", pa.int64()),
        *(pa.field(name, pa.int64()) for name in _SUMS),
    ]
)
# Operations that change the balance, and their signs.
_SIGNS: Final = np.zeros(len(Op), np.int64)
_SIGNS[[Op.DEPOSIT, Op.IN, Op.ADJUST]] = 1
_SIGNS[[Op.WITHDRAW, Op.OUT]] = -1
_MOVES: Final[Bools] = _SIGNS != 0
_SPENDS: Final[Bools] = _SIGNS < 0
# Operations that can be rejected because of the balance.
_LOWERS: Final[Bools] = _SPENDS.copy()
_LOWERS[Op.ADJUST] = True


def check(ops: pa.Table) -> pa.RecordBatch:
    """Check wallets; all rows of each must be given, in any order."""
    if not len(ops):
        return pa.RecordBatch.from_pylist([], schema=CHECKED)
    return _Wallets(ops).checked()


class _Wallets:
    """Rows sorted by wallet and position: ``own`` is the index of each row's wallet.

    ``starts`` and ``sizes`` are the first row and the number of rows of each wallet.
    """

    def __init__(self, ops: pa.Table) -> None:
        coded = ops.column("wallet").combine_chunks().dictionary_encode()
        codes = coded.indices.to_numpy()
        order = np.lexsort((_ints(ops, "stream_seq"), _ints(ops, "epoch"), codes))
        self.wallets = coded.dictionary
        self.own = codes[order]
        self.starts = np.flatnonzero(np.diff(self.own, prepend=-1))
        self.sizes = np.diff(self.starts, append=len(order))
        self.op = _ints(ops, "op")[order]
        self.amount = _ints(ops, "amount")[order]
        self.ts = _ints(ops, "ts")[order]
        self.refs = ops.column("ref").combine_chunks().take(pa.array(order))
        self.clean = np.ones(len(self.starts), np.bool_)

    def checked(self) -> pa.RecordBatch:
        """Return the verdict row of each wallet."""
        change = _SIGNS[self.op] * self.amount
        self._opened_once()
        self._small_enough()
        low = self._never_below_zero(change)
        closed = self._never_after_its_end()
        frozen = self._never_frozen()
        limit, is_limited = self._limits()
        pending, last_reset = self._within_limits(limit, is_limited)
        self._no_reference_twice()
        ends = self.starts + self.sizes - 1
        frosted = self._last_of((self.op == Op.FREEZE) | (self.op == Op.UNFREEZE))[ends]
        limits = self._last_of((self.op == Op.LIMIT) | (self.op == Op.NO_LIMIT))[ends]
        columns: list[pa.Array] = [
            self.wallets,
            pa.array(self.clean),
            pa.array(self._sum(((self.op != Op.IN) & (self.op != Op.ODD_IN)).astype(np.int64))),
            pa.array(low),
            pa.array(closed),
            _masked(frozen[ends], frosted >= 0),
            _masked(self.amount[limits], (limits >= 0) & (self.op[limits] == Op.LIMIT)),
            pa.array(last_reset),
            pa.array(pending),
            pa.array(self._sum(change)),
            *(pa.array(self._sum(np.where(self.op == op, self.amount, 0))) for op in _COUNTED),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=CHECKED)

    # --- parts of rows --------------------------------------------------------------------------------------

    def _sum(self, values: Ints) -> Ints:
        """Return the sum over each wallet."""
        return np.add.reduceat(values, self.starts)

    def _any(self, rows: Bools) -> Bools:
        return np.logical_or.reduceat(rows, self.starts)

    def _running(self, values: Ints) -> Ints:
        """Return the running sum of each row within its wallet.

        Sums over all wallets may wrap round; their differences are right as long as each wallet's fits.
        """
        total = np.cumsum(values)
        before = (total - values)[self.starts]
        return total - np.repeat(before, self.sizes)

    def _last_of(self, rows: Bools) -> Ints:
        """Return for each row the last of ``these`` rows of its wallet up to it; -1 if there is none."""
        places = np.maximum.accumulate(np.where(rows, np.arange(len(rows)), -1))
        return np.where(places >= np.repeat(self.starts, self.sizes), places, -1)

    # --- what must hold -------------------------------------------------------------------------------------

    def _opened_once(self) -> None:
        opens = self.op == Op.OPEN
        self.clean &= opens[self.starts] & (self._sum(opens.astype(np.int64)) == 1)
        self.clean &= self.ts[self.starts] > 0
        self.clean &= ~self._any(self.op >= Op.ODD)

    def _small_enough(self) -> None:
        largest = np.maximum.reduceat(self.amount, self.starts)
        smallest = np.minimum.reduceat(self.amount, self.starts)
        each = _TOO_LARGE // self.sizes
        self.clean &= (largest < each) & (smallest > -each)

    def _never_below_zero(self, change: Ints) -> Ints:
        """Return each wallet's lowest balance after spending."""
        had = self._running(change)
        self.clean &= ~self._any(had < 0)
        return np.minimum.reduceat(np.where(_LOWERS[self.op], had, NO_LOW), self.starts)

    def _never_after_its_end(self) -> Bools:
        """Return which wallets are closed; nothing may move afterwards."""
        is_over = self._running((self.op == Op.CLOSE).astype(np.int64)) > 0
        self.clean &= ~self._any(is_over & _MOVES[self.op])
        return self._any(is_over)

    def _never_frozen(self) -> Bools:
        """Return the rows at which a wallet is frozen; nothing may be spent then."""
        last = self._last_of((self.op == Op.FREEZE) | (self.op == Op.UNFREEZE))
        frozen: Bools = (last >= 0) & (self.op[last] == Op.FREEZE)
        self.clean &= ~self._any(frozen & self._spends())
        return frozen

    def _spends(self) -> Bools:
        spends: Bools = _SPENDS[self.op]
        return spends

    def _limits(self) -> tuple[Ints, Bools]:
        """Return the limit at each row, and whether there is one."""
        last = self._last_of((self.op == Op.LIMIT) | (self.op == Op.NO_LIMIT))
        return self.amount[last], (last >= 0) & (self.op[last] == Op.LIMIT)

    def _within_limits(self, limit: Ints, is_limited: Bools) -> tuple[Ints, Ints]:
        """Return what was spent on the last day, and when that began.

        Days only go forward in a clean wallet, so that it is the same whether going back begins a new one.
        """
        created_at = self.ts[self.starts]
        pending, last_reset = np.zeros_like(created_at), created_at.copy()
        rows = np.flatnonzero(self._spends() & is_limited)
        if not len(rows):
            return pending, last_reset
        own, day = self.own[rows], self.ts[rows] // DAY
        is_first = np.diff(own, prepend=-1) != 0
        before = np.where(is_first, created_at[own] // DAY, np.roll(day, 1))
        resets = day > before
        amount = self.amount[rows]
        runs = np.flatnonzero(is_first | resets)
        lengths = np.diff(runs, append=len(rows))
        total = np.cumsum(amount)
        spent = total - np.repeat((total - amount)[runs], lengths)
        self.clean[own[(day < before) | (spent > limit[rows])]] = False
        is_last = np.append(np.diff(own) != 0, True)
        pending[own[is_last]] = spent[is_last]
        # Of several resets of a wallet the last one stays: the rows are in order.
        last_reset[own[resets]] = self.ts[rows][resets]
        return pending, last_reset

    def _no_reference_twice(self) -> None:
        rows = np.flatnonzero(self.refs.is_valid().to_numpy(zero_copy_only=False))
        if not len(rows):
            return
        used = pa.table({"own": self.own[rows], "ref": self.refs.take(pa.array(rows))})
        counted = used.group_by(["own", "ref"]).aggregate([([], "count_all")])
        twice = counted.filter(pc.greater(counted.column("count_all"), 1))
        self.clean[twice.column("own").to_numpy()] = False


_COUNTED: Final = (Op.DEPOSIT, Op.WITHDRAW, Op.ADJUST)


def _ints(table: pa.Table, name: str) -> Ints:
    column = table.column(name)
    integers: Ints = (pc.fill_null(column, 0) if column.null_count else column).to_numpy()
    return integers


def _masked(values: npt.NDArray[Any], valid: Bools) -> pa.Array:
    return pa.array(values, mask=~valid)
