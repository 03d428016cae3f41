"""Filters that Spark hands down: which entries need not be read, and what Spark must still look at.

What selects whole labels or runs of entries is done here and not handed back. A time only narrows the search,
so Spark compares each row as well.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from veen.pipeline.source.columns import COLUMNS

_MOST: Final = (1 << 63) - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_CHOICES: Final = {"label": "labels", "stream_id": "stream_ids"}
_SPANS: Final = {"stream_seq": "seqs", "epoch": "epochs", "hub_ts": "times", "hub_time": "times"}
#: Entries are found by these alone; times only narrow.
_EXACT: Final = frozenset({"stream_seq", "epoch"})


class Span(NamedTuple):
    """Numbers from ``low`` to ``high``, both included."""

    low: int = 0
    high: int = _MOST

    def meets(self, other: "Span") -> "Span":
        """Return the numbers that are in both; low > high if there are none."""
        return Span(max(self.low, other.low), min(self.high, other.high))

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.low <= number <= self.high


@dataclass(frozen=True, slots=True)
class Wanted:
    """The entries that filters leave; None: all of them, those of unknown streams as well."""

    labels: frozenset[bytes] | None = None
    stream_ids: frozenset[bytes] | None = None
    epochs: Span | None = None
    seqs: Span = Span()  # noqa: RUF009 - does not change
    times: Span | None = None


def push(filters: Iterable[Filter]) -> tuple[Wanted, list[Filter]]:
    """Return what filters leave, and those that Spark must evaluate on what is read."""
    wanted, rest = Wanted(), []
    for one in filters:
        wanted, exact = _push_one(wanted, one)
        if not exact:
            rest.append(one)
    return wanted, rest


def _push_one(wanted: Wanted, one: Filter) -> tuple[Wanted, bool]:
    """Return what a filter leaves, and whether that is all that it says."""
    name = _column(one)
    if name is None:
        return wanted, False
    if isinstance(one, IsNotNull):
        return wanted, not COLUMNS[name].nullable
    if name in _CHOICES:
        chosen = _choice(one)
        return (wanted, False) if chosen is None else (_choose(wanted, name, chosen), True)
    if name in _SPANS:
        span = _time_span(one) if name == "hub_time" else _span(one)
        return (wanted, False) if span is None else (_narrow(wanted, name, span), _is_exact(name, one))
    return wanted, False


def _column(one: Filter) -> str | None:
    path: tuple[str, ...] = getattr(one, "attribute", ())
    return path[0] if len(path) == 1 and path[0] in COLUMNS else None


def _is_exact(name: str, one: Filter) -> bool:
    return name in _EXACT and not isinstance(one, In)


def _choice(one: Filter) -> frozenset[bytes] | None:
    match one:
        case EqualTo(_, value) | EqualNullSafe(_, value) if isinstance(value, bytes | bytearray):
            return frozenset({bytes(value)})
        case In(_, values) if all(isinstance(item, bytes | bytearray) for item in values):
            return frozenset(map(bytes, values))
    return None


def _choose(wanted: Wanted, name: str, chosen: frozenset[bytes]) -> Wanted:
    attribute = _CHOICES[name]
    before = getattr(wanted, attribute)
    change: dict[str, Any] = {attribute: chosen if before is None else before & chosen}
    return replace(wanted, **change)


def _narrow(wanted: Wanted, name: str, span: Span) -> Wanted:
    attribute = _SPANS[name]
    before = getattr(wanted, attribute)
    change: dict[str, Any] = {attribute: (Span() if before is None else before).meets(span)}
    return replace(wanted, **change)


def _is_number(value: Any) -> bool:  # noqa: ANN401 - whatever literal Spark has
    return isinstance(value, int) and not isinstance(value, bool)


def _span(one: Filter) -> Span | None:
    match one:
        case EqualTo(_, value) | EqualNullSafe(_, value) if _is_number(value):
            return Span(value, value)
        case GreaterThan(_, value) if _is_number(value):
            return Span(low=value + 1)
        case GreaterThanOrEqual(_, value) if _is_number(value):
            return Span(low=value)
        case LessThan(_, value) if _is_number(value):
            return Span(high=value - 1)
        case LessThanOrEqual(_, value) if _is_number(value):
            return Span(high=value)
        case In(_, values) if values and all(map(_is_number, values)):
            return Span(min(values), max(values))
    return None


def _time_span(one: Filter) -> Span | None:
    """Return the seconds in which the condition on a time can hold."""
    value = getattr(one, "value", None)
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    since = value - _EPOCH
    floor, ceiling = since // _SECOND, -(-since // _SECOND)
    match one:
        case EqualTo() | EqualNullSafe():
            return Span(ceiling, floor)
        case GreaterThan() | GreaterThanOrEqual():
            return Span(low=ceiling)
        case LessThan() | LessThanOrEqual():
            return Span(high=floor)
    return None
