"""Looking into a log while planning: which labels are meant, what is at single entries, where times begin."""

from collections.abc import Iterable, Mapping

from veen.core import labels as naming
from veen.core.types import Label
from veen.pipeline.frames import Entries, parse
from veen.pipeline.logs import LabelHead, Log
from veen.pipeline.source.filters import Span, Wanted
from veen.pipeline.source.losses import Has
from veen.pipeline.source.options import Options
from veen.storage.errors import DamagedError


def selected(log: Log, heads: Mapping[Label, LabelHead], options: Options) -> dict[Label, LabelHead]:
    """Return the labels that the options leave; those of named streams are known to be of them."""
    if options.labels is not None:
        heads = {label: head for label, head in heads.items() if label in options.labels}
    if not options.streams:
        return dict(heads)
    found: dict[Label, LabelHead] = {}
    for name in options.streams:
        stream = naming.stream_id(name)
        for epoch, label in log.labels_of(stream).items():
            if label in heads:
                found[label] = heads[label]._replace(stream_id=stream, epoch=epoch)
    return {label: found[label] for label in sorted(found)}


def left_by(heads: Mapping[Label, LabelHead], wanted: Wanted) -> dict[Label, LabelHead]:
    """Return the labels that filters leave."""
    return {label: head for label, head in heads.items() if _is_wanted(head, wanted)}


def _is_wanted(head: LabelHead, wanted: Wanted) -> bool:
    if wanted.labels is not None and head.label not in wanted.labels:
        return False
    if wanted.stream_ids is not None and head.stream_id not in wanted.stream_ids:
        return False
    return wanted.epochs is None or (head.stream_id is not None and head.epoch in wanted.epochs)


def has(log: Log, head: LabelHead | None, first: int) -> Has:
    """Return what a log has of a label, for a verdict on entries from ``first`` on."""
    if head is None:
        return Has()
    if first >= head.first_seq:
        return Has(head.first_seq, head.last_seq)  # what was pruned before does not matter
    try:
        pruned = tuple((item.first_seq, item.last_seq) for item in log.pruned(head.label))
    except DamagedError:  # what would say so is missing itself
        pruned = ()
    return Has(head.first_seq, head.last_seq, pruned)


def look_at(log: Log, places: Mapping[Label, int]) -> dict[Label, Entries]:
    """Return single entries, one of each label; those that there are."""
    parts = log.plan({label: (seq, seq) for label, seq in places.items()})
    return {part.label: parse(part.read()) for part in parts}


def roots_at(log: Log, heads: Mapping[Label, LabelHead], places: Mapping[Label, int]) -> dict[Label, bytes]:
    """Return the roots in the receipts of entries; those that there are."""
    found: dict[Label, bytes] = {}
    others: dict[Label, int] = {}
    for label, seq in places.items():
        head = heads.get(label)
        if head is not None and seq == head.last_seq:
            found[label] = head.mmr_root
        elif head is not None and head.first_seq <= seq < head.last_seq:
            others[label] = seq
    if others:
        found |= {label: one.mmr_root[0].tobytes() for label, one in look_at(log, others).items()}
    return found


def within(log: Log, heads: Mapping[Label, LabelHead], times: Span) -> dict[Label, tuple[int, int]]:
    """Return the entries of a time, by what the log tells; hub_ts never goes back in a label."""
    if times.low > times.high:
        return {}
    first = {label: log.seq_at(label, times.low) if times.low > 0 else 1 for label in heads}
    behind = _first_at(log, heads, times.high + 1)
    return {label: (first[label], behind[label] - 1) for label in heads}


def _first_at(log: Log, heads: Mapping[Label, LabelHead], hub_ts: int) -> dict[Label, int]:
    """Return the first entry at or after a time in each label; one behind the last if there is none.

    What the log says may be too early, as its marks are not at every entry; so the search goes on from there.
    """
    low = {label: max(log.seq_at(label, hub_ts), head.first_seq) for label, head in heads.items()}
    high = {label: head.last_seq + 1 for label, head in heads.items()}
    asked = dict(low)
    while True:
        open_ = {label: seq for label, seq in asked.items() if low[label] < high[label]}
        if not open_:
            return high
        for label, one in look_at(log, open_).items():
            if int(one.hub_ts[0]) < hub_ts:
                low[label] = open_[label] + 1
            else:
                high[label] = open_[label]
        asked = {label: (low[label] + high[label]) // 2 for label in open_}


def met(
    ranges: Mapping[Label, tuple[int, int]], others: Iterable[Mapping[Label, tuple[int, int]]]
) -> dict[Label, tuple[int, int]]:
    """Return the entries that are in all of these ranges."""
    found = dict(ranges)
    for more in others:
        found = {
            label: (max(first, more[label][0]), min(last, more[label][1]))
            for label, (first, last) in found.items()
            if label in more
        }
    return {label: span for label, span in found.items() if span[0] <= span[1]}
