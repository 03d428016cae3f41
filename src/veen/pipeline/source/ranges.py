"""Which entries a batch query reads: what its offsets and filters ask for, against what the log has."""

import logging
from collections.abc import Iterable, Mapping

from veen.core.types import Label
from veen.pipeline.logs import LabelHead, Log
from veen.pipeline.source.filters import Wanted
from veen.pipeline.source.looking import has, left_by, met, within
from veen.pipeline.source.losses import DataLossError, Has, Loss, judge_asked
from veen.pipeline.source.options import EARLIEST, LATEST, Bounds, Options

Heads = Mapping[Label, LabelHead]
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


def batch_ranges(
    log: Log, known: Heads, heads: Heads, options: Options, wanted: Wanted
) -> dict[Label, tuple[int, int]]:
    """Return the first and last entry to read of each label; ``heads`` are those that options leave."""
    asked = _asked(log, known, heads, options)
    left = left_by(heads, wanted)
    others = [dict.fromkeys(left, (wanted.seqs.low, wanted.seqs.high))]
    if wanted.times is not None:
        others.append(within(log, left, wanted.times))
    return met(asked, others)


def _asked(log: Log, known: Heads, heads: Heads, options: Options) -> dict[Label, tuple[int, int]]:
    """Return what the offsets ask for; a verdict on what the log has not does not depend on filters.

    Labels that offsets name and options leave out are not asked for.
    """
    starting, ending = options.starting or _FROM_EARLIEST, options.ending or _TO_LATEST
    found: dict[Label, tuple[int, int]] = {}
    losses: list[Loss] = []
    for label, head in heads.items():
        first, behind = starting.at(label), ending.at(label)
        first = head.first_seq if first == EARLIEST else first
        last = head.last_seq if behind == LATEST else behind - 1
        found[label] = first, last
        losses += judge_asked(label, first, last, has(log, head, first))
    for label in sorted({*starting.of, *ending.of} - set(known)):
        first, last = starting.of.get(label, 1), ending.of.get(label, 1) - 1
        losses += judge_asked(label, max(first, 1), last, Has())
    settle(losses, options)
    return found
