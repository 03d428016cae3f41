"""The log as a stream: offsets in Spark's checkpoint, the limits of a batch, and what it reads.

An offset is ``{label: number of the last entry that was read}``, labels in hexadecimal and sorted: Spark
compares offsets as text. Beside the labels stands ``roots``, the roots of those entries, so that a log that
was replaced in the meantime is noticed after a restart; offsets without it are understood as well.

Spark does not keep where a query began. If its first batch is cut off, Spark asks again, and the log may have
other ends by then: so the offset at the end of the first batch says itself where that ``began``.

Entries before a startingTimestamp are passed by, and positions do not tell which: so ``since`` says from
which second on a batch was decided on. One that was cut off is read with the same entries again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from veen.core.types import Label
from veen.pipeline.datasource.data_loss import (
    LabelExtent,
    SourcePosition,
    judge_asked,
    judge_held,
    judge_next,
)
from veen.pipeline.datasource.options import EARLIEST, LATEST, Bounds, Options, Times
from veen.pipeline.datasource.plan import (
    Group,
    TimeBounds,
    has,
    met,
    open_source,
    plan_groups,
    pruned_since,
    roots_at,
    selected,
    settle,
    steadily,
)
from veen.pipeline.datasource.task import read_group
from veen.pipeline.errors import Loss, OffsetError, OptionError
from veen.pipeline.log.log import Heads, LabelHead, Log

ROOTS: Final = "roots"
BEGAN: Final = "began"
SINCE: Final = "since"
_BESIDE: Final = (BEGAN, ROOTS, SINCE)


def decode(offset: Mapping[str, Any]) -> dict[Label, SourcePosition]:
    """Read an offset."""
    roots = offset.get(ROOTS, {})
    try:
        return {
            Label(bytes.fromhex(key)): SourcePosition(
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


def encode(positions: Mapping[Label, SourcePosition]) -> dict[str, Any]:
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


Positions = dict[Label, SourcePosition]
Spans = Mapping[Label, tuple[int, int]]
_LATEST = Bounds(LATEST, {})
_NOTHING = SourcePosition(0)


class VeenStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a log. All that it remembers is in Spark's offsets.

    The open log is only kept for speed, and so is where the time asked for begins and ends in it.
    """

    def __init__(self, options: Options, schema: pa.Schema, parallelism: int) -> None:
        self._options = options
        self._schema = schema
        self._parallelism = parallelism
        self._log: Log | None = None
        self._within = TimeBounds(options)
        #: The entries after which a query with Trigger.AvailableNow ends.
        self._target: dict[Label, int] | None = None
        #: Where this query began, if it has no checkpoint.
        self._began: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Travel without what is kept for speed."""
        return {**self.__dict__, "_log": None, "_within": TimeBounds(self._options)}

    def _opened(self) -> Log:
        if self._log is None:
            self._log = open_source(self._options)
        return self._log

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint begins."""
        log = self._opened()
        self._began = encode(steadily(log, lambda known: self._first_positions(log, known)))
        return self._began

    def _first_positions(self, log: Log, known: Heads) -> Positions:
        heads = selected(log, known, self._options)
        timed = self._options.times.since is not None
        found, losses = self._at_time(log, heads) if timed else self._at_offsets(log, heads)
        settle(losses, self._options)
        return found

    def _at_time(self, log: Log, heads: Heads) -> tuple[Positions, list[Loss]]:
        """Return positions before the first entries of the time, or behind the last if there are none yet."""
        of_time = self._within.of(log, heads)
        found = {label: SourcePosition(first - 1) for label, (first, _) in of_time.items()}
        return found, pruned_since(log, heads, of_time, self._options)

    def _at_offsets(self, log: Log, heads: Heads) -> tuple[Positions, list[Loss]]:
        starting = self._options.starting or _LATEST
        found: Positions = {}
        losses: list[Loss] = []
        for label in sorted({*heads, *starting.of}):
            head = heads.get(label)
            first = starting.at(label)
            if first in (EARLIEST, LATEST):
                found |= {} if head is None else {label: _edge(head, first)}
                continue
            now = has(log, head, first, self._options)
            losses += judge_asked(label, first, 0, now)
            found[label] = SourcePosition(min(max(first, now.first_seq) - 1, now.last_seq))
        return found, losses

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a batch may have."""
        most = self._options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take note of what there is now; what comes later is for the next query."""
        log = self._opened()
        log.refresh()
        self._target = {label: head.last_seq for label, head in log.heads().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return how far the next batch goes: what is durable, as much as allowed, some of each label."""
        log = self._opened()
        log.refresh()
        known = log.heads()
        heads = selected(log, known, self._options)
        before = decode(start)
        of_time = self._within.of(log, heads)
        found = self._settled(log, before, known, of_time)
        found |= self._advanced(found, of_time, limit)
        if found == before:
            return start  # the same text: Spark would take another one for news
        moved = {label: held.seq for label, held in found.items() if held != before.get(label)}
        roots = roots_at(log, known, moved)
        found |= {label: SourcePosition(seq, roots.get(label)) for label, seq in moved.items() if seq}
        since = self._options.times.since
        beside = {} if since is None else {SINCE: since}
        return encode(found) | beside | ({BEGAN: start} if start == self._began else {})

    def _settled(self, log: Log, before: Positions, known: Heads, of_time: Spans) -> Positions:
        """Return positions that the log has, after a verdict on those that it has not."""
        roots = roots_at(log, known, {label: held.seq for label, held in before.items()})
        found, losses = dict(before), list[Loss]()
        for label in sorted({*before, *of_time}):
            held = before.get(label, _NOTHING)
            now = has(log, known.get(label), held.seq + 1, self._options, of_time.get(label))
            wrong = judge_held(label, held, now, roots.get(label))
            gap = judge_next(label, held.seq + 1, now)
            if wrong or gap:
                losses += [*wrong, *gap]
                found[label] = SourcePosition(min(max(held.seq, now.first_seq - 1), now.last_seq))
        settle(losses, self._options)
        return found

    def _advanced(self, positions: Positions, of_time: Spans, limit: ReadLimit) -> Positions:
        """Return new positions of labels that a batch takes something of."""
        target = self._target
        before, behind = {}, {}
        for label, (first, last) in of_time.items():
            upto = last if target is None else min(last, target.get(label, 0))
            before[label] = max(positions.get(label, _NOTHING).seq, first - 1)
            behind[label] = upto - before[label]
        if isinstance(limit, ReadMaxRows):
            turn = sum(held.seq for held in positions.values())
            behind = share(behind, limit.max_rows, turn)
        return {label: SourcePosition(before[label] + count) for label, count in behind.items() if count > 0}

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the end of what there is to read, for the progress of the query."""
        log = self._opened()
        of_time = self._within.of(log, selected(log, log.heads(), self._options))
        return encode({label: SourcePosition(last) for label, (_, last) in of_time.items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return what tasks are to read for a batch; after a restart the same as before it."""
        log = self._opened()
        first, last = decode(beginning(start, end)), decode(end)
        ranges = {
            label: (first.get(label, _NOTHING).seq + 1, held.seq)
            for label, held in last.items()
            if held.seq > first.get(label, _NOTHING).seq
        }
        known = log.heads()
        if any(label not in known or known[label].last_seq < upto for label, (_, upto) in ranges.items()):
            log.refresh()
        return [*steadily(log, lambda known: self._groups(log, known, ranges, end))]

    def _groups(self, log: Log, known: Heads, ranges: Spans, end: dict[str, Any]) -> list[Group]:
        there = {label: known[label] for label in ranges if label in known}
        since = decided_since(end)
        then = replace(self._options, times=Times(since))  # its end is decided
        within = self._within if since == self._options.times.since else TimeBounds(then)
        of_time = within.of(log, there)
        now = {
            label: has(log, known.get(label), low, then, of_time.get(label))
            for label, (low, _) in ranges.items()
        }
        self._judge_batch(log, known, decode(end), ranges, now)
        ranges = met(ranges, {label: (first, there[label].last_seq) for label, (first, _) in of_time.items()})
        _refuse_narrowed(ranges, self._within.of(log, there))
        heads = {**known, **selected(log, known, self._options)}
        return plan_groups(log, heads, ranges, self._options, self._parallelism)

    def _judge_batch(
        self, log: Log, known: Heads, end: Positions, ranges: Spans, now: Mapping[Label, LabelExtent]
    ) -> None:
        """Compare a batch that was decided on, perhaps by a query that was killed, with the log."""
        roots = roots_at(log, known, {label: upto for label, (_, upto) in ranges.items()})
        losses: list[Loss] = []
        for label, (first, upto) in sorted(ranges.items()):
            losses += judge_held(label, end[label], now[label], roots.get(label))
            losses += judge_next(label, first, now[label], upto)
        settle(losses, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the entries of a partition."""
        if not isinstance(partition, Group):
            return iter(())
        return read_group(partition, self._options, self._schema)

    def stop(self) -> None:
        """Let go of the log."""
        if self._log is not None:
            self._log.close()
            self._log = None


def _refuse_narrowed(ranges: Spans, of_time: Spans) -> None:
    """Refuse a batch with entries that are not asked for any more.

    Spark takes it for done up to its end, and nobody would ever read them.
    """
    for label, (first, last) in sorted(ranges.items()):
        if of_time[label][1] < last:
            raise _narrowed(label, "a later endingTimestamp")
        if of_time[label][0] > first:
            raise _narrowed(label, "an earlier startingTimestamp, or none")


def _narrowed(label: Label, what: str) -> OptionError:
    return OptionError(
        f"the batch to read again was decided on with {what}, and has entries of {label.hex()} which are not "
        "asked for any more: give the same times as then, or another checkpoint"
    )


def _edge(head: LabelHead, bound: int) -> SourcePosition:
    return (
        SourcePosition(head.first_seq - 1)
        if bound == EARLIEST
        else SourcePosition(head.last_seq, head.mmr_root)
    )
