"""Monoids: the summary of one key over a range of the log, and how the summaries of two ranges merge.

A value here is the summary of some events of one key; a single event has one too. ``merge`` takes the summary
of an earlier range and that of the range after it. It is associative, and the absence of a value is its
identity. Equal summaries have equal bytes: plain tuples, numbers and byte strings, packed as deterministic
CBOR.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol, runtime_checkable

from veen.core.encoding import cbor
from veen.core.encoding.cbor import Value

# Position of an event in its stream: epoch, number in the label, message id (OVR-012).
Position = tuple[int, int, bytes]


class Monoid(Protocol):
    """How summaries of one kind merge.

    Attributes:
        commutes: Whether merging two summaries in the other order gives the same result.
    """

    name: str
    commutes: bool

    def merge(self, left: Any, right: Any) -> Any:
        """Return the summary of a range and the one after it."""

    def pack(self, summary: Any) -> Value:
        """Return a value that CBOR can encode."""

    def unpack(self, value: Any) -> Any:
        """Return the summary that was packed."""


@runtime_checkable
class CellMonoid(Monoid, Protocol):
    """A monoid for user-defined overlays: it validates summaries, so that a wrong one gives a clear error."""

    # Description of a valid summary, for the error.
    expects: str

    def accepts(self, summary: Any) -> bool:
        """Return whether a value is a summary of this kind."""


def frozen(value: Any) -> Any:
    """Return a decoded value with tuples for lists, as in summaries."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value


class _Plain:
    """Summaries that CBOR can encode without conversion."""

    def pack(self, summary: Any) -> Value:
        """Return the summary unchanged."""
        return summary  # type: ignore[no-any-return] # tuples, numbers, byte strings, text, None

    def unpack(self, value: Any) -> Any:
        """Return the value with tuples for lists."""
        return frozen(value)


class _Ordered(_Plain):
    """``(order, ...)``. Orders are unique: they end with a message id."""

    expects = "tuples (order, ...), as (event.position, ...)"

    def accepts(self, summary: Any) -> bool:
        return type(summary) is tuple and bool(summary)


class _Max(_Ordered):
    """``(order, ...)``: the one with the greatest order."""

    name = "MAX"
    commutes = True

    def merge(self, left: Any, right: Any) -> Any:
        return right if right[0] > left[0] else left


class _Min(_Ordered):
    """``(order, ...)``: the one with the smallest order."""

    name = "MIN"
    commutes = True

    def merge(self, left: Any, right: Any) -> Any:
        return right if right[0] < left[0] else left


class _First(_Plain):
    """``(first, other)``: the earliest record, and the earliest with different content.

    A record is ``(position, content hash, ...)``.
    """

    name = "FIRST"
    expects = "what first(event.position, content, ...) returns"
    commutes = True

    def accepts(self, summary: Any) -> bool:
        return type(summary) is tuple and len(summary) == 2 and type(summary[0]) is tuple

    def merge(self, left: Any, right: Any) -> Any:
        records = [record for record in (*left, *right) if record is not None]
        first = min(records, key=_position)
        others = [record for record in records if record[1] != first[1]]
        return (first, min(others, key=_position) if others else None)


def _position(record: Any) -> Any:
    return record[0]


def first(position: Position, content: bytes, *rest: Value) -> tuple[Any, None]:
    """Return the FIRST summary of one event."""
    return ((position, content, *rest), None)


class _Sum:
    """A number of any size and sign; packed as text, since CBOR's numbers end at 2^64."""

    name = "SUM"
    expects = "integers"
    commutes = True

    def accepts(self, summary: Any) -> bool:
        return type(summary) is int

    def merge(self, left: int, right: int) -> int:
        return left + right

    def pack(self, summary: int) -> Value:
        return str(summary)

    def unpack(self, value: Any) -> int:
        return int(value)


class _Count(_Plain):
    """``(count, first order, last order)``."""

    name = "CNT"
    expects = "tuples (count, first order, last order), as (1, event.position, event.position)"
    commutes = True

    def accepts(self, summary: Any) -> bool:
        return type(summary) is tuple and len(summary) == 3 and type(summary[0]) is int

    def merge(self, left: Any, right: Any) -> Any:
        return (left[0] + right[0], min(left[1], right[1]), max(left[2], right[2]))


class _Set:
    """A map from ids to values; if an id occurs twice, the first value stays."""

    name = "SET"
    expects = "maps from ids to values"
    commutes = False

    def accepts(self, summary: Any) -> bool:
        return isinstance(summary, Mapping)

    def merge(self, left: Mapping[Any, Any], right: Mapping[Any, Any]) -> Mapping[Any, Any]:
        return {**right, **left}

    def pack(self, summary: Mapping[Any, Any]) -> Value:
        return sorted((key, value) for key, value in summary.items())

    def unpack(self, value: Any) -> Mapping[Any, Any]:
        return dict(map(frozen, value))


class _Lowest:
    """``(sum, low)``: a running sum and its minimum, starting from 0."""

    name = "PFX"
    expects = "tuples of two integers (sum, low)"
    commutes = False

    def accepts(self, summary: Any) -> bool:
        return type(summary) is tuple and len(summary) == 2 and all(type(number) is int for number in summary)

    def merge(self, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        return (left[0] + right[0], min(left[1], left[0] + right[1]))

    def pack(self, summary: tuple[int, int]) -> Value:
        return [str(summary[0]), str(summary[1])]

    def unpack(self, value: Any) -> tuple[int, int]:
        return (int(value[0]), int(value[1]))


MAX: Final = _Max()
MIN: Final = _Min()
FIRST: Final = _First()
SUM: Final = _Sum()
COUNT: Final = _Count()
SET: Final = _Set()
LOWEST: Final = _Lowest()

# All monoids, for the tests of the laws.
ALL: Final[tuple[CellMonoid, ...]] = (MAX, MIN, FIRST, SUM, COUNT, SET, LOWEST)


def encode(monoid: Monoid, summary: Any) -> bytes:
    """Return the canonical bytes of a summary."""
    return cbor.encode(monoid.pack(summary), max_items=None)


def decode(monoid: Monoid, data: bytes) -> Any:
    """Return the summary that ``encode`` made these bytes of."""
    return monoid.unpack(cbor.decode(data, max_items=None))
