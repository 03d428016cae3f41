"""From a query's options to Spark's partitions: which labels, which entries, and what each partition states.

hub_ts never goes back within a label, so the entries of a time range are a range of positions, and a log
knows where it begins. That is not believed: tasks compare the time of each entry that they read, and where
signatures are checked, so are the entries at the ends.
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

#: How often a query is planned if a hub prunes at the same time.
_TRIES: Final = 3
#: Labels of so many epochs are worked out, each time that a log is looked at.
MOST_EPOCHS: Final = 1000


def open_source(options: Options) -> Log:
    """Open the log that is asked for."""
    return open_log(options.place, options.hub_id, options.streams, options.epochs)


def steadily(log: Log, plan: Callable[[dict[Label, LabelHead]], T]) -> T:
    """Return what is planned with the heads of a log, planned again if entries were pruned meanwhile.

    Else what was pruned in between would be missing without a verdict: heads tell that it is there, and a
    search for a time, or the parts to read, begin behind it.
    """
    for _ in range(_TRIES):
        known = log.heads()
        try:
            found = plan(known)
        except ConcurrentPruningError:
            continue
        now = log.heads()
        if all(now[label].first_seq == head.first_seq for label, head in known.items() if label in now):
            return found
    raise ConcurrentPruningError(f"{log.name}: entries are pruned while the query is planned; run it again")


def selected(log: Log, heads: Mapping[Label, LabelHead], options: Options) -> dict[Label, LabelHead]:
    """Return the labels that the options leave; those of named streams are known to be of them."""
    if options.labels is not None:
        heads = {label: head for label, head in heads.items() if label in options.labels}
    epochs = options.epochs
    if options.streams and epochs is not None and epochs[-1] - epochs[0] < MOST_EPOCHS:
        return _computed(log, heads, options.streams, epochs)
    if options.streams:
        left, heads = heads, _of_streams(log, heads, options.streams)
        if epochs is not None and any(profile.epoch_sec for profile in log.profiles):
            heads |= {
                label: head for label, head in left.items() if head.stream_id is None and label not in heads
            }
    if epochs is None:
        return dict(heads)
    _refuse_unknown_epochs(log, heads)
    return {label: head for label, head in heads.items() if head.epoch in epochs}


def _computed(
    log: Log, heads: Mapping[Label, LabelHead], streams: tuple[str, ...], epochs: range
) -> dict[Label, LabelHead]:
    """Return the labels of streams in epochs, whatever the log says or does not say of them."""
    found: dict[Label, LabelHead] = {}
    for routing in {log.keys.identity_of(label).routing_key for label in heads}:
        for stream in map(naming.stream_id, streams):
            for epoch in epochs:
                label = naming.label(routing, stream, epoch)
                if label in heads:
                    found[label] = heads[label]._replace(stream_id=stream, epoch=epoch)
    return {label: found[label] for label in sorted(found)}


def _of_streams(
    log: Log, heads: Mapping[Label, LabelHead], streams: tuple[str, ...]
) -> dict[Label, LabelHead]:
    found: dict[Label, LabelHead] = {}
    for name in streams:
        stream = naming.stream_id(name)
        for epoch, label in log.labels_of(stream).items():
            if label in heads:
                found[label] = heads[label]._replace(stream_id=stream, epoch=epoch)
    return {label: found[label] for label in sorted(found)}


def _refuse_unknown_epochs(log: Log, heads: Mapping[Label, LabelHead]) -> None:
    """Refuse to choose among labels if one may be of any epoch: its entries would be left out by chance.

    What a log says of a label is not believed: stream and epoch make the label.
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
            f"epoch: the log does not tell the epoch of {unknown[0].hex()}{more}; "
            f"name the streams by the option stream, and no more than {MOST_EPOCHS} epochs"
        )


def has(
    log: Log, head: LabelHead | None, first: int, options: Options, of_time: tuple[int, int] | None = None
) -> LabelExtent:
    """Return what a log has of a label, for a verdict on entries from ``first`` on.

    ``of_time``: which entries of it are of the times asked for. If one that is left is older than these,
    those that were pruned before it are older still.
    """
    if head is None:
        return LabelExtent()
    if first >= head.first_seq:
        return LabelExtent(head.first_seq, head.last_seq)  # what was pruned before does not matter
    if options.times.is_empty or (of_time is not None and of_time[0] > head.first_seq):
        return LabelExtent(head.first_seq, head.last_seq, unasked=((1, head.first_seq - 1),))
    try:
        pruned = log.pruned(head.label)
    except DamagedStoreError:  # what would say so is missing itself
        pruned = []
    unasked = [item for item in pruned if not _may_be_of(options.times, item, options.verify.level)]
    return LabelExtent(head.first_seq, head.last_seq, _spans(pruned), _spans(unasked))


def _may_be_of(times: Times, item: Pruned, level: Level) -> bool:
    """Tell whether pruned entries may be asked for; of which times they were, nobody has signed."""
    return item.first_ts is None or level >= Level.FULL or times.meet(item.first_ts, item.last_ts)


def _spans(items: list[Pruned]) -> tuple[tuple[int, int], ...]:
    return tuple((item.first_seq, item.last_seq) for item in items)


def look_at(log: Log, places: Mapping[Label, int]) -> dict[Label, Entries]:
    """Return single entries, one of each label; those that there are."""
    if not places:
        return {}
    parts = log.plan({label: (seq, seq) for label, seq in places.items()})
    return {part.label: part.entries() for part in parts}


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
    return found | {label: one.mmr_root[0].tobytes() for label, one in look_at(log, others).items()}


#: A partition has about so much at most.
MOST_BYTES: Final = 64 << 20
#: Less than this is not worth a task of its own, if nobody asks for it.
_LEAST_BYTES: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class Piece:
    """A part to read, and what is known of it on the driver."""

    part: Part
    stream_id: StreamId | None
    epoch: int | None
    #: The peaks stated for the part behind it, which its own must come to.
    next_peaks: Peaks | None = None
    #: What is wrong with the peaks that are stated for it.
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
    """Return what tasks are to read: each entry of the ranges once."""
    level = options.verify.level
    target = options.min_partitions or parallelism * (2 if level >= Level.FULL else 1)
    parts = log.plan(ranges, parts=target) if ranges else []
    if level >= Level.ROOTS:
        pieces = _stated(log, heads, _with_peaks(log, parts))
    else:
        pieces = [Piece(part, None, None) for part in parts]
    named = [_named(piece, heads[piece.part.label]) for piece in pieces]
    least = 1 if options.min_partitions else _LEAST_BYTES
    keys = log.keys if level >= Level.FULL else None
    return [Group(one, keys) for one in group_ranges(named, target, least)]


def _named(piece: Piece, head: LabelHead) -> Piece:
    known = head.stream_id is not None
    return replace(piece, stream_id=head.stream_id, epoch=head.epoch if known else None)


def group_ranges(pieces: Sequence[Piece], target: int, least: int) -> Iterator[list[Piece]]:
    """Divide pieces, in their order, into about ``target`` groups of one size; more, if they get large."""
    total = sum(piece.part.nbytes for piece in pieces)
    limit = min(MOST_BYTES, max(-(-total // target), least))
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
    """Tell each part what its peaks must come to, so that a chain of peaks is checked link by link.

    The first part of a label has none before it in the query: its peaks must give the root in the receipt
    of the entry before, or the root that the log states for what was pruned.
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
    """Return parts with peaks; where none are stated, the entries before them are gone through here."""
    found: list[Part] = []
    for part in parts:
        known = part.peaks
        if known is None:
            near = found[-1] if found and found[-1].label == part.label else None
            known = _peaks_before(log, part, near)
        found.append(part.beginning_at(known))
    return found


def _peaks_before(log: Log, part: Part, near: Part | None) -> Peaks:
    """Return the peaks before a part: of a part before it that has some, and of the entries between."""
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
    """The entries of each label that are of the times asked for; all, if none are."""

    def __init__(self, options: Options) -> None:
        times, level = options.times, options.verify.level
        self._since = None if times.since is None else _Edge(times.since, level, outside=-1)
        self._until = None if times.until is None else _Edge(times.until, level, outside=0)

    def of(self, log: Log, heads: Heads) -> dict[Label, tuple[int, int]]:
        """Return the first and the last entry of labels; the last is before the first if there are none."""
        first = {label: head.first_seq for label, head in heads.items()}
        behind = {label: head.last_seq + 1 for label, head in heads.items()}
        if self._since is not None:
            first = self._since.at(log, heads)
        if self._until is not None:
            behind = self._until.at(log, heads)
        return {label: (first[label], behind[label] - 1) for label in heads}


class _Edge:
    """Where a time begins in labels. What was found stays so; only labels that grow are looked at again."""

    def __init__(self, hub_ts: int, level: Level, *, outside: int) -> None:
        self._hub_ts = hub_ts
        self._level = level
        #: Which entry is outside of the range that begins or ends here, counted from the first of the time.
        self._outside = outside
        self._first: dict[Label, int] = {}
        #: Up to here there is none.
        self._none: dict[Label, int] = {}

    def at(self, log: Log, heads: Heads) -> dict[Label, int]:
        """Return the first entry at or after the time; one behind the last if there is none."""
        unknown = {label: head for label, head in heads.items() if not self._is_known(head)}
        found = {
            label: min(max(log.seq_at(label, self._hub_ts), head.first_seq), head.last_seq + 1)
            for label, head in unknown.items()
        }
        if self._level >= Level.FULL:
            self._check(log, unknown, found)
        for label, seq in found.items():
            self._first.pop(label, None)
            last = heads[label].last_seq
            kept, value = (self._none, last) if seq > last else (self._first, seq)
            kept[label] = value
        return {
            label: max(self._first.get(label, head.last_seq + 1), head.first_seq)  # it may be pruned by now
            for label, head in heads.items()
        }

    def _is_known(self, head: LabelHead) -> bool:
        """Tell whether nothing is to be looked at; a log that was cut since is looked at again."""
        if head.label in self._first:
            return self._first[head.label] <= head.last_seq
        return self._none.get(head.label) == head.last_seq

    def _check(self, log: Log, heads: Heads, found: Mapping[Label, int]) -> None:
        """Check the entries by which ends are known; a hub has signed their times."""
        places = {label: seq + self._outside for label, seq in found.items()}
        there = {
            label: seq
            for label, seq in places.items()
            if heads[label].first_seq <= seq <= heads[label].last_seq
        }
        looked = look_at(log, there)
        for label in there.keys() - looked.keys():
            which = f"entry {there[label]} of {label.hex()}"
            raise ConcurrentPruningError(f"{log.name}: {which} was pruned just now; run the query again")
        for label, entries in looked.items():
            faults = check(entries, self._level, keys=log.keys).faults
            if (entries.hub_ts[0] < self._hub_ts) != (self._outside < 0):
                text = f"hub_ts is {entries.hub_ts[0]}, but another time in the index of the log"
                faults.append(EntryFault(there[label], Detail.VALUE.value, text))
            for fault in faults:
                text = f"{fault.text}; by this entry it is known which are of the time asked for"
                raise entries.frames.refused(fault.seq, 0, fault.detail, text)


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
    of_time = TimeBounds(options).of(log, heads)
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
        losses += judge_asked(label, max(first, 1), last, LabelExtent())
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
