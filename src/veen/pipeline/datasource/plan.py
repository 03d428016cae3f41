"""From a query's options to Spark's partitions: which labels and entries, and the peaks stated for each.

hub_ts never decreases within a label, so a time range is a range of positions, whose bounds the index of a
log states. The index is not trusted: tasks compare the time of each entry that they read, and where
signatures are checked, the entries at the bounds are checked as well.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from pyspark.sql.datasource import InputPartition

from veen.core.errors import Detail
from veen.core.merkle.mmr import Peaks
from veen.core.objects import labels as naming
from veen.core.objects.finding import Level
from veen.core.types import Label, StreamId
from veen.pipeline.datasource.data_loss import LabelExtent, judge_asked, judge_next
from veen.pipeline.datasource.options import EARLIEST, LATEST, Bounds, Options, Times
from veen.pipeline.errors import ConcurrentPruningError, DataLossError, LogSourceError, Loss, OptionError
from veen.pipeline.log.entry_columns import Entries, parse
from veen.pipeline.log.hub_keys import HubKeys
from veen.pipeline.log.log import Heads, LabelHead, Log, Pruned
from veen.pipeline.log.open import open_log
from veen.pipeline.log.partition import Part
from veen.pipeline.verify.kernel import EntryFault, check
from veen.storage.errors import DamagedStoreError

T = TypeVar("T")

# How often a query is planned while a hub prunes at the same time.
_TRIES: Final = 3
# Up to this many epochs, labels are computed from stream and epoch each time that a log is read.
MOST_EPOCHS: Final = 1000


def open_source(options: Options) -> Log:
    """Open the log that the options name."""
    return open_log(options.place, options.hub_id, options.streams, options.epochs)


def steadily(log: Log, plan: Callable[[dict[Label, LabelHead]], T]) -> T:
    """Plan with the heads of a log, and plan again if entries were pruned meanwhile.

    Otherwise entries pruned in between would be missing without a verdict: the heads still list them, while a
    search by time, or the parts to read, start after them.
    """
    for _ in range(_TRIES):
        known = log.heads()
        try:
            plan_result = plan(known)
        except ConcurrentPruningError:
            continue
        now = log.heads()
        if all(now[label].first_seq == head.first_seq for label, head in known.items() if label in now):
            return plan_result
    raise ConcurrentPruningError(f"{log.name}: entries are pruned while the query is planned; run it again")


def selected(log: Log, heads: Mapping[Label, LabelHead], options: Options) -> dict[Label, LabelHead]:
    """Return the labels that the options select; those of named streams get their stream and epoch."""
    if options.labels is not None:
        heads = {label: head for label, head in heads.items() if label in options.labels}
    epochs = options.epochs
    if options.streams and epochs is not None and epochs[-1] - epochs[0] < MOST_EPOCHS:
        return _computed(log, heads, options.streams, epochs)
    if options.streams:
        candidates, heads = heads, _of_streams(log, heads, options.streams)
        if epochs is not None and any(profile.epoch_sec for profile in log.profiles):
            heads |= {
                label: head
                for label, head in candidates.items()
                if head.stream_id is None and label not in heads
            }
    if epochs is None:
        return dict(heads)
    _refuse_unknown_epochs(log, heads)
    return {label: head for label, head in heads.items() if head.epoch in epochs}


def _computed(
    log: Log, heads: Mapping[Label, LabelHead], streams: tuple[str, ...], epochs: range
) -> dict[Label, LabelHead]:
    """Compute the labels of streams in epochs, independent of what the log states about them."""
    selection: dict[Label, LabelHead] = {}
    for routing in {log.keys.identity_of(label).routing_key for label in heads}:
        for stream in map(naming.stream_id, streams):
            for epoch in epochs:
                label = naming.label(routing, stream, epoch)
                if label in heads:
                    selection[label] = heads[label]._replace(stream_id=stream, epoch=epoch)
    return {label: selection[label] for label in sorted(selection)}


def _of_streams(
    log: Log, heads: Mapping[Label, LabelHead], streams: tuple[str, ...]
) -> dict[Label, LabelHead]:
    selection: dict[Label, LabelHead] = {}
    for name in streams:
        stream = naming.stream_id(name)
        for epoch, label in log.labels_of(stream).items():
            if label in heads:
                selection[label] = heads[label]._replace(stream_id=stream, epoch=epoch)
    return {label: selection[label] for label in sorted(selection)}


def _refuse_unknown_epochs(log: Log, heads: Mapping[Label, LabelHead]) -> None:
    """Reject a selection by epoch if the epoch of a label is unknown: its entries might be omitted wrongly.

    What a log states about a label is not trusted: the label must follow from stream and epoch.
    """
    unknown = [
        label
        for label, head in heads.items()
        if head.stream_id is None
        or naming.label(log.keys.identity_of(label).routing_key, head.stream_id, head.epoch) != label
    ]
    if unknown:
        more = f" and of {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise OptionError(
            f"epoch: the log does not record the epoch of {unknown[0].hex()}{more}; "
            f"name the streams by the option stream, and no more than {MOST_EPOCHS} epochs"
        )


def has(
    log: Log, head: LabelHead | None, first: int, options: Options, of_time: tuple[int, int] | None = None
) -> LabelExtent:
    """Return the extent of a label in the log, for a verdict on entries from ``first`` on.

    ``of_time``: its entries within the requested times. If an entry that is left is older than these times,
    the entries pruned before it are older still.
    """
    if head is None:
        return LabelExtent()
    if first >= head.first_seq:
        return LabelExtent(head.first_seq, head.last_seq)  # entries pruned before are not needed
    if options.times.is_empty or (of_time is not None and of_time[0] > head.first_seq):
        return LabelExtent(head.first_seq, head.last_seq, unasked=((1, head.first_seq - 1),))
    try:
        pruned = log.pruned(head.label)
    except DamagedStoreError:  # the tombstones themselves are missing
        pruned = []
    unasked = [item for item in pruned if not _may_be_of(options.times, item, options.verify.level)]
    return LabelExtent(head.first_seq, head.last_seq, _spans(pruned), _spans(unasked))


def _may_be_of(times: Times, item: Pruned, level: Level) -> bool:
    """Return whether the query may need pruned entries; the times in a tombstone are not signed."""
    return item.first_ts is None or level >= Level.FULL or times.meet(item.first_ts, item.last_ts)


def _spans(items: list[Pruned]) -> tuple[tuple[int, int], ...]:
    return tuple((item.first_seq, item.last_seq) for item in items)


def look_at(log: Log, places: Mapping[Label, int]) -> dict[Label, Entries]:
    """Return single entries, one of each label; missing ones are left out."""
    if not places:
        return {}
    parts = log.plan({label: (seq, seq) for label, seq in places.items()})
    return {part.label: part.entries() for part in parts}


def roots_at(log: Log, heads: Mapping[Label, LabelHead], places: Mapping[Label, int]) -> dict[Label, bytes]:
    """Return the roots in the receipts of entries; missing entries are left out."""
    roots: dict[Label, bytes] = {}
    others: dict[Label, int] = {}
    for label, seq in places.items():
        head = heads.get(label)
        if head is not None and seq == head.last_seq:
            roots[label] = head.mmr_root
        elif head is not None and head.first_seq <= seq < head.last_seq:
            others[label] = seq
    return roots | {label: one.mmr_root[0].tobytes() for label, one in look_at(log, others).items()}


# The approximate maximum of a partition.
MOST_BYTES: Final = 64 << 20
# A smaller task is not worth its overhead, unless minPartitions requests it.
_LEAST_BYTES: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class Piece:
    """A part to read, and what the driver knows about it."""

    part: Part
    stream_id: StreamId | None
    epoch: int | None
    # The peaks stated for the part after it: those at its end must equal them.
    next_peaks: Peaks | None = None
    # What is wrong with the peaks stated for it.
    suspect: str | None = None


class Group(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: Sequence[Piece], keys: HubKeys | None = None) -> None:
        super().__init__(None)
        self.pieces = tuple(pieces)
        self.keys = keys


def plan_groups(
    log: Log,
    heads: Mapping[Label, LabelHead],
    ranges: Mapping[Label, tuple[int, int]],
    options: Options,
    parallelism: int,
) -> list[Group]:
    """Divide the ranges into tasks; each entry is read once."""
    level = options.verify.level
    target = options.min_partitions or parallelism * (2 if level >= Level.FULL else 1)
    parts = log.plan(ranges, parts=target) if ranges else []
    if level >= Level.ROOTS:
        pieces = _stated(log, heads, _with_peaks(log, parts))
    else:
        pieces = [Piece(part, None, None) for part in parts]
    named = [_named(piece, heads[piece.part.label]) for piece in pieces]
    min_bytes = 1 if options.min_partitions else _LEAST_BYTES
    keys = log.keys if level >= Level.FULL else None
    return [Group(one, keys) for one in group_ranges(named, target, min_bytes)]


def _named(piece: Piece, head: LabelHead) -> Piece:
    known = head.stream_id is not None
    return replace(piece, stream_id=head.stream_id, epoch=head.epoch if known else None)


def group_ranges(pieces: Sequence[Piece], target: int, min_bytes: int) -> Iterator[list[Piece]]:
    """Divide pieces, in order, into about ``target`` groups of equal size; more if these would be large."""
    total = sum(piece.part.nbytes for piece in pieces)
    limit = min(MOST_BYTES, max(-(-total // target), min_bytes))
    group: list[Piece] = []
    size = 0
    for piece in pieces:
        if group and size + piece.part.nbytes > limit:
            yield group
            group, size = [], 0
        group.append(piece)
        size += piece.part.nbytes
    if group:
        yield group


def _stated(log: Log, heads: Mapping[Label, LabelHead], parts: Sequence[Part]) -> list[Piece]:
    """Add to each part the peaks expected at its end, so that the chain of peaks is checked link by link.

    The first part of a label has no part before it in the query: its peaks must give the root in the receipt
    of the entry before, or the root that the log states for the pruned entries.
    """
    pieces = []
    for part, behind in zip(parts, [*parts, None][1:], strict=True):
        follows = behind is not None and (behind.label, behind.first_seq) == (part.label, part.last_seq + 1)
        pieces.append(Piece(part, None, None, behind.peaks if behind is not None and follows else None))
    firsts = {part.label: part for part in reversed(parts)}
    before = {label: part.first_seq - 1 for label, part in firsts.items() if part.first_seq > 1}
    roots = roots_at(log, heads, before)
    for label in set(before) - set(roots):
        ends = {one.last_seq: one.mmr_root for one in log.pruned(label)}
        roots |= {label: ends[before[label]]} if before[label] in ends else {}
    wrong = {label for label in before if _differs(firsts[label].peaks, roots.get(label))}
    text = "the peaks that are stated before it are not those of the entry before it"
    return [
        replace(piece, suspect=text)
        if piece.part.label in wrong and piece.part is firsts[piece.part.label]
        else piece
        for piece in pieces
    ]


def _differs(peaks: Peaks | None, root: bytes | None) -> bool:
    return peaks is not None and root is not None and peaks.root != root


def _with_peaks(log: Log, parts: Sequence[Part]) -> list[Part]:
    """Return parts with peaks; where none are stated, they are computed here from the entries before."""
    with_peaks: list[Part] = []
    for part in parts:
        known = part.peaks
        if known is None:
            near = with_peaks[-1] if with_peaks and with_peaks[-1].label == part.label else None
            known = _peaks_before(log, part, near)
        with_peaks.append(part.beginning_at(known))
    return with_peaks


def _peaks_before(log: Log, part: Part, near: Part | None) -> Peaks:
    """Compute the peaks before a part, from those of an earlier part and the entries in between."""
    peaks = Peaks.empty() if near is None or near.peaks is None else near.peaks
    between: Iterable[Part] = log.plan({part.label: (peaks.size + 1, part.first_seq - 1)})
    for one in between:
        if one.first_seq != peaks.size + 1:
            break
        peaks, _ = peaks.extend(parse(one.read()).leaves())
    if peaks.size != part.first_seq - 1:
        raise LogSourceError(
            f"{log.name}: the peaks before entry {part.first_seq} of {part.label.hex()} are neither stated "
            "nor can they be worked out, as entries before it were pruned; run: veen repair DATA_DIR"
        )
    return peaks


class TimeBounds:
    """The entries of each label within the requested times; without such times, all entries."""

    def __init__(self, options: Options) -> None:
        times, level = options.times, options.verify.level
        self._since = None if times.since is None else _Edge(times.since, level, outside=-1)
        self._until = None if times.until is None else _Edge(times.until, level, outside=0)

    def of(self, log: Log, heads: Heads) -> dict[Label, tuple[int, int]]:
        """Return the first and last entry of each label; if there are none, the last is before the first."""
        first = {label: head.first_seq for label, head in heads.items()}
        behind = {label: head.last_seq + 1 for label, head in heads.items()}
        if self._since is not None:
            first = self._since.at(log, heads)
        if self._until is not None:
            behind = self._until.at(log, heads)
        return {label: (first[label], behind[label] - 1) for label in heads}


class _Edge:
    """The position of a time in each label, cached: only labels with no entry after it are searched again."""

    def __init__(self, hub_ts: int, level: Level, *, outside: int) -> None:
        self._hub_ts = hub_ts
        self._level = level
        # The entry outside the range that starts or ends here, relative to the first at or after the time.
        self._outside = outside
        self._first: dict[Label, int] = {}
        # No entry up to this one is at or after the time.
        self._none: dict[Label, int] = {}

    def at(self, log: Log, heads: Heads) -> dict[Label, int]:
        """Return the first entry at or after the time; the one after the last if there is none."""
        unknown = {label: head for label, head in heads.items() if not self._is_known(head)}
        first_seqs = {
            label: min(max(log.seq_at(label, self._hub_ts), head.first_seq), head.last_seq + 1)
            for label, head in unknown.items()
        }
        if self._level >= Level.FULL:
            self._check(log, unknown, first_seqs)
        for label, seq in first_seqs.items():
            self._first.pop(label, None)
            last = heads[label].last_seq
            positions, value = (self._none, last) if seq > last else (self._first, seq)
            positions[label] = value
        return {
            label: max(self._first.get(label, head.last_seq + 1), head.first_seq)  # may be pruned by now
            for label, head in heads.items()
        }

    def _is_known(self, head: LabelHead) -> bool:
        """Return whether the cached position is valid; it is not for a log that was truncated since."""
        if head.label in self._first:
            return self._first[head.label] <= head.last_seq
        return self._none.get(head.label) == head.last_seq

    def _check(self, log: Log, heads: Heads, first_seqs: Mapping[Label, int]) -> None:
        """Check the entries that determine the bounds: their times are signed by the hub."""
        places = {label: seq + self._outside for label, seq in first_seqs.items()}
        available = {
            label: seq
            for label, seq in places.items()
            if heads[label].first_seq <= seq <= heads[label].last_seq
        }
        bounds = look_at(log, available)
        for label in available.keys() - bounds.keys():
            which = f"entry {available[label]} of {label.hex()}"
            raise ConcurrentPruningError(f"{log.name}: {which} was pruned just now; run the query again")
        for label, entries in bounds.items():
            faults = check(entries, self._level, keys=log.keys).faults
            if (entries.hub_ts[0] < self._hub_ts) != (self._outside < 0):
                text = f"hub_ts is {entries.hub_ts[0]}, but another time in the index of the log"
                faults.append(EntryFault(available[label], Detail.VALUE.value, text))
            for fault in faults:
                text = f"{fault.text}; by this entry it is known which are of the time asked for"
                raise entries.frames.refused(fault.seq, 0, fault.detail, text)


Ranges = dict[Label, tuple[int, int]]
_log = logging.getLogger(__name__)

_FROM_EARLIEST = Bounds(EARLIEST, {})
_TO_LATEST = Bounds(LATEST, {})


def settle(losses: Iterable[Loss], options: Options) -> None:
    """Raise for losses, or log them only (failOnDataLoss)."""
    listed = list(losses)
    if listed and options.fail_on_data_loss:
        raise DataLossError(listed)
    for loss in listed:
        _log.warning("%s", loss)


def batch_ranges(log: Log, known: Heads, heads: Heads, options: Options) -> Ranges:
    """Return the first and last entry to read of each label; ``heads`` are those that the options select."""
    asked, losses = _asked(log, known, heads, options)
    of_time = TimeBounds(options).of(log, heads)
    losses += pruned_since(log, heads, of_time, options)
    settle(losses, options)
    return met(asked, of_time)


def _asked(log: Log, known: Heads, heads: Heads, options: Options) -> tuple[Ranges, list[Loss]]:
    """Return the ranges that the offsets request, and the losses among them.

    Labels that the offsets name but the options exclude are ignored.
    """
    starting, ending = options.starting or _FROM_EARLIEST, options.ending or _TO_LATEST
    ranges: Ranges = {}
    losses: list[Loss] = []
    for label, head in heads.items():
        first, behind = starting.at(label), ending.at(label)
        first = head.first_seq if first == EARLIEST else first
        last = head.last_seq if behind == LATEST else behind - 1
        ranges[label] = first, last
        losses += judge_asked(label, first, last, has(log, head, first, options))
    for label in sorted({*starting.of, *ending.of} - set(known)):
        first, last = starting.of.get(label, 1), ending.of.get(label, 1) - 1
        losses += judge_asked(label, max(first, 1), last, LabelExtent())
    return ranges, losses


def pruned_since(
    log: Log, heads: Heads, of_time: Mapping[Label, tuple[int, int]], options: Options
) -> list[Loss]:
    """Judge pruned entries that may lie after the requested starting time."""
    if options.times.since is None:
        return []
    losses: list[Loss] = []
    for label, head in heads.items():
        losses += judge_next(label, 1, has(log, head, 1, options, of_time[label]))
    return losses


def met(ranges: Mapping[Label, tuple[int, int]], others: Mapping[Label, tuple[int, int]]) -> Ranges:
    """Return the intersection."""
    spans = {
        label: (max(first, others[label][0]), min(last, others[label][1]))
        for label, (first, last) in ranges.items()
        if label in others
    }
    return {label: span for label, span in spans.items() if span[0] <= span[1]}
