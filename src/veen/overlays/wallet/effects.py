"""The effect of a range of applied events on one wallet, and the resulting state (WAL-010, WAL-011)."""

from typing import Any, Final, NamedTuple

from veen.core.encoding.cbor import Value

OPENED: Final = 1
CLOSED: Final = 2


class Effect(NamedTuple):
    """The combined effect of events that count. The default is no effect."""

    # OPENED or CLOSED after such an event; neither is ever undone.
    mode: int = 0
    # None: unchanged.
    frozen: bool | None = None
    # None: unchanged; else a tuple with the new limit, or with None for no limit.
    limit: tuple[int | None] | None = None
    # None: unchanged.
    last_reset: int | None = None
    # Whether the amount spent before the range is reset.
    resets: bool = False
    # Amount spent on the day, since the last reset in the range.
    pending: int = 0
    # Deltas; a balance starts at 0.
    balance: int = 0
    deposited: int = 0
    withdrawn: int = 0
    adjusted: int = 0


class State(NamedTuple):
    """A wallet (WAL-010), in the order of its serialized form (SNP-004)."""

    exists: bool = False
    closed: bool = False
    balance: int = 0
    frozen: bool = False
    daily_limit: int | None = None
    pending_daily_spent: int = 0
    last_limit_reset_ts: int = 0


INITIAL: Final = State()


def state_of(effect: Effect | None) -> State:
    """Return the state after all events of a log, given their effect."""
    if effect is None:
        return INITIAL
    mode, frozen, limit, last_reset, _, pending, balance, *_ = effect
    return State(
        mode >= OPENED,
        mode == CLOSED,
        balance,
        frozen is True,
        None if limit is None else limit[0],
        pending,
        last_reset or 0,
    )


class _Effects:
    """Effects merge in order: new values replace, amounts are added."""

    name = "EFFECT"
    commutes = False

    def merge(self, left: Effect, right: Effect) -> Effect:
        mode, frozen, limit, last_reset, resets, pending, balance, deposited, withdrawn, adjusted = right
        return Effect(
            max(mode, left[0]),
            left[1] if frozen is None else frozen,
            left[2] if limit is None else limit,
            left[3] if last_reset is None else last_reset,
            resets or left[4],
            pending if resets else left[5] + pending,
            left[6] + balance,
            left[7] + deposited,
            left[8] + withdrawn,
            left[9] + adjusted,
        )

    def pack(self, summary: Effect) -> Value:
        # The last five may be negative or exceed 64 bits in a range.
        return [*summary[:5], *map(str, summary[5:])]

    def unpack(self, value: Any) -> Effect:
        mode, frozen, limit, last_reset, resets, *numbers = value
        return Effect(
            mode, frozen, None if limit is None else (limit[0],), last_reset, resets, *map(int, numbers)
        )


EFFECT: Final = _Effects()
