"""Which entries a batch query reads: what its offsets and times ask for, against what the log has."""

import logging
from collections.abc import Iterable, Mapping

from veen.core.types import Label
from veen.pipeline.logs import LabelHead, Log
from veen.pipeline.source.looking import has
from veen.pipeline.source.losses import DataLossError, Has, Loss, judge_asked, judge_next
from veen.pipeline.source.options import EARLIEST, LATEST, Bounds, Options
from veen.pipeline.source.times import Within

Heads = Mapping[Label, LabelHead]
Ranges = dict[Label, tuple[int, int]]
_log = logging.getLogger(__name__)

_FROM_EARLIEST = Bounds(EARLIEST, {})
_TO_LATEST = Bounds(LATEST, {})


def settle(losses: Iterable[Loss], options: Options) -> None:
    """Stop at losses, or only tell of them."""
    found = list(losses)
    if found and options.fail_on_data_loss:
        raise DataLossError(found)
    for loss in found:
        _log.warning("%s", loss)


def batch_ranges(log: Log, known: Heads, heads: Heads, options: Options) -> Ranges:
    """Return the first and last entry to read of each label; ``heads`` are those that options leave."""
    asked, losses = _asked(log, known, heads, options)
    of_time = Within(options).of(log, heads)
    losses += pruned_since(log, heads, of_time, options)
    settle(losses, options)
    return met(asked, of_time)


def _asked(log: Log, known: Heads, heads: Heads, options: Options) -> tuple[Ranges, list[Loss]]:
    """Return what the offsets ask for, and a verdict on what the log has not of it.

    Labels that offsets name and options leave out are not asked for.
    """
    starting, ending = options.starting or _FROM_EARLIEST, options.ending or _TO_LATEST
    found: Ranges = {}
    losses: list[Loss] = []
    for label, head in heads.items():
        first, behind = starting.at(label), ending.at(label)
        first = head.first_seq if first == EARLIEST else first
        last = head.last_seq if behind == LATEST else behind - 1
        found[label] = first, last
        losses += judge_asked(label, first, last, has(log, head, first, options))
    for label in sorted({*starting.of, *ending.of} - set(known)):
        first, last = starting.of.get(label, 1), ending.of.get(label, 1) - 1
        losses += judge_asked(label, max(first, 1), last, Has())
    return found, losses


def pruned_since(
    log: Log, heads: Heads, of_time: Mapping[Label, tuple[int, int]], options: Options
) -> list[Loss]:
    """Judge what was pruned of the time from which on entries are asked for."""
    if options.times.since is None:
        return []
    found: list[Loss] = []
    for label, head in heads.items():
        found += judge_next(label, 1, has(log, head, 1, options, of_time[label]))
    return found


def met(ranges: Mapping[Label, tuple[int, int]], others: Mapping[Label, tuple[int, int]]) -> Ranges:
    """Return the entries that are in both."""
    found = {
        label: (max(first, others[label][0]), min(last, others[label][1]))
        for label, (first, last) in ranges.items()
        if label in others
    }
    return {label: span for label, span in found.items() if span[0] <= span[1]}
