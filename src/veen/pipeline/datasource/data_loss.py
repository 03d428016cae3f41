"""Why expected entries are missing: a verdict from the evidence of both sides, not a guess.

One side is the reader: it has read up to an entry, whose receipt has a root, or was given a starting
position. The other is the log as it is now.
"""

from collections.abc import Iterable
from typing import NamedTuple

from veen.core.types import Label
from veen.pipeline.errors import Loss, LossVerdict


class SourcePosition(NamedTuple):
    """The last entry read of a label (0: none yet), and the root in its receipt, if known."""

    seq: int
    root: bytes | None = None


class LabelExtent(NamedTuple):
    """The entries of a label that the log has now. ``last_seq`` 0: none."""

    first_seq: int = 1
    last_seq: int = 0
    # Ranges that the log declares as pruned.
    pruned: tuple[tuple[int, int], ...] = ()
    # Those of ``pruned`` that are outside the requested times.
    unasked: tuple[tuple[int, int], ...] = ()


def judge_held(label: Label, held: SourcePosition, has: LabelExtent, root_now: bytes | None) -> list[Loss]:
    """Compare the last entry read with the log; ``root_now``: the log's root at that position."""
    if held.seq > has.last_seq:
        text = f"the log contained it, and now ends with entry {has.last_seq}"
        return [Loss(LossVerdict.LOST, label, has.last_seq + 1, held.seq, text)]
    if None not in (held.root, root_now) and held.root != root_now:
        text = "it was read with another root than the log has now: there are two receipts for it"
        return [Loss(LossVerdict.FORKED, label, held.seq, held.seq, text)]
    return []


def judge_next(label: Label, first: int, has: LabelExtent, last: int | None = None) -> list[Loss]:
    """Judge missing entries from ``first`` up to the first one that the log still has."""
    last = has.first_seq - 1 if last is None else min(last, has.first_seq - 1)
    first, last = _without(first, last, has.unasked)
    if first > last:
        return []
    if _covered(first, last, has.pruned):
        return [
            Loss(LossVerdict.PRUNED, label, first, last, f"the log now starts with entry {has.first_seq}")
        ]
    text = f"the log starts with entry {has.first_seq}, without a record that earlier entries were pruned"
    return [Loss(LossVerdict.LOST, label, first, last, text)]


def judge_asked(label: Label, first: int, last: int, has: LabelExtent) -> list[Loss]:
    """Compare entries requested by position with the log; ``last`` before ``first``: none yet."""
    losses = judge_next(label, first, has)
    upto = max(first - 1, last)
    if upto > has.last_seq:
        text = f"the log ends with entry {has.last_seq}"
        losses.append(Loss(LossVerdict.NEVER_WRITTEN, label, has.last_seq + 1, upto, text))
    return losses


def _without(first: int, last: int, ranges: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the range without the entries at either end that ``ranges`` cover."""
    by_position = sorted(ranges)
    for low, high in by_position:
        if low <= first:
            first = max(first, high + 1)
    for low, high in reversed(by_position):
        if high >= last:
            last = min(last, low - 1)
    return first, last


def _covered(first: int, last: int, ranges: Iterable[tuple[int, int]]) -> bool:
    for low, high in sorted(ranges):
        if low <= first:
            first = max(first, high + 1)
    return first > last
