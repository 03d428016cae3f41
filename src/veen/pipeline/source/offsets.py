"""Positions of a stream in Spark's checkpoint, and how much of what is new goes into a batch.

An offset is ``{label: number of the last entry that was read}``, labels in hexadecimal and sorted: Spark
compares offsets as text. Beside the labels stands ``roots``, the roots of those entries, so that a log that
was replaced in the meantime is noticed after a restart; offsets without it are understood as well.

Spark does not keep where a query began. If its first batch is cut off, Spark asks again, and the log may have
other ends by then: so the offset at the end of the first batch says itself where that ``began``.

Entries before a startingTimestamp are passed by, and positions do not tell which: so ``since`` says from
which second on a batch was decided on. One that was cut off is read with the same entries again.
"""

from collections.abc import Mapping
from typing import Any, Final

from veen.core.errors import VeenError
from veen.core.types import Label
from veen.pipeline.source.losses import Held

ROOTS: Final = "roots"
BEGAN: Final = "began"
SINCE: Final = "since"
_BESIDE: Final = (BEGAN, ROOTS, SINCE)


class OffsetError(VeenError):
    """An offset in a checkpoint that is none of this source."""


def decode(offset: Mapping[str, Any]) -> dict[Label, Held]:
    """Read an offset."""
    roots = offset.get(ROOTS, {})
    try:
        return {
            Label(bytes.fromhex(key)): Held(
                _number(value), bytes.fromhex(roots[key]) if key in roots else None
            )
            for key, value in offset.items()
            if key not in _BESIDE
        }
    except (TypeError, ValueError):
        raise OffsetError(f"{dict(offset)} is not an offset of this source") from None


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(value)
    return value


def encode(positions: Mapping[Label, Held]) -> dict[str, Any]:
    """Return the offset for positions."""
    found: dict[str, Any] = {label.hex(): positions[label].seq for label in sorted(positions)}
    roots = {
        label.hex(): root.hex() for label in sorted(positions) if (root := positions[label].root) is not None
    }
    return {**found, ROOTS: roots} if roots else found


def beginning(start: Mapping[str, Any], end: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return where a batch begins: as its end says, if it was the first of a query, else at its start."""
    began: Mapping[str, Any] = end.get(BEGAN, start)
    return began


def decided_since(end: Mapping[str, Any]) -> int | None:
    """Return the second from which on a batch was decided on, by the offset at its end; None: any."""
    try:
        return _number(end[SINCE]) if SINCE in end else None
    except ValueError:
        raise OffsetError(f"{dict(end)} is not an offset of this source") from None


def share(behind: Mapping[Label, int], most: int, turn: int) -> dict[Label, int]:
    """Divide ``most`` entries among labels that have so many to read; none waits for another to be done.

    Each gets the same, but for those that have less. What does not divide goes to the labels whose ``turn``
    it is: whoever passes the number of entries read so far goes round all labels.
    """
    given = dict.fromkeys(sorted(label for label, count in behind.items() if count > 0), 0)
    waiting = list(given)
    while most >= len(waiting) > 0:
        least = min(behind[label] - given[label] for label in waiting)
        step = min(least, most // len(waiting))
        for label in waiting:
            given[label] += step
        most -= step * len(waiting)
        waiting = [label for label in waiting if given[label] < behind[label]]
    for nth in range(min(most, len(waiting))):
        given[waiting[(turn + nth) % len(waiting)]] += 1
    return given
