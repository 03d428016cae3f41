"""The log as a stream: offsets in Spark's checkpoint, and the limits and entries of a micro-batch.

An offset is ``{label: position of the last entry read}``, labels in hexadecimal and sorted: Spark compares
offsets as text. Beside the labels stands ``roots``, the roots of those entries, so that a log that was
replaced in the meantime is detected after a restart; offsets without it are accepted as well.

Spark does not store where a query started. If the first batch is interrupted, Spark asks for the initial
offset again, and the log may have grown or been pruned by then: so the end offset of the first batch contains
its start as ``began``.

Entries before a startingTimestamp are skipped, and positions do not say which: so ``since`` is the starting
second with which a batch was planned. An interrupted batch is read again with the same entries.
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
    """Return the positions in an offset."""
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
    """Return positions as an offset."""
    offset: dict[str, Any] = {label.hex(): positions[label].seq for label in sorted(positions)}
    roots = {
        label.hex(): root.hex() for label in sorted(positions) if (root := positions[label].root) is not None
    }
    return {**offset, ROOTS: roots} if roots else offset


def beginning(start: Mapping[str, Any], end: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the start of a batch: of a query's first one the ``began`` in its end offset, else ``start``."""
    began: Mapping[str, Any] = end.get(BEGAN, start)
    return began


def decided_since(end: Mapping[str, Any]) -> int | None:
    """Return the starting second with which a batch was planned, from its end offset; None: unbounded."""
    try:
        return _number(end[SINCE]) if SINCE in end else None
    except ValueError:
        raise OffsetError(f"{dict(end)} is not an offset of this source") from None


def share(behind: Mapping[Label, int], max_entries: int, turn: int) -> dict[Label, int]:
    """Divide ``max_entries`` fairly among labels, given how many each has to read; no label starves.

    Each gets the same number, except those that have less. The remainder goes to the labels whose ``turn`` it
    is: a caller that passes the number of entries read so far rotates through all labels.
    """
    shares = dict.fromkeys(sorted(label for label, count in behind.items() if count > 0), 0)
    waiting = list(shares)
    while max_entries >= len(waiting) > 0:
        smallest_need = min(behind[label] - shares[label] for label in waiting)
        step = min(smallest_need, max_entries // len(waiting))
        for label in waiting:
            shares[label] += step
        max_entries -= step * len(waiting)
        waiting = [label for label in waiting if shares[label] < behind[label]]
    for nth in range(min(max_entries, len(waiting))):
        shares[waiting[(turn + nth) % len(waiting)]] += 1
    return shares


Positions = dict[Label, SourcePosition]
Spans = Mapping[Label, tuple[int, int]]
_LATEST = Bounds(LATEST, {})
_NOTHING = SourcePosition(0)


class VeenStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query. All of its state is in Spark's offsets.

    The open log, and the bounds of the requested times in it, are caches.
    """

    def __init__(self, options: Options, schema: pa.Schema, parallelism: int) -> None:
        self._options = options
        self._schema = schema
        self._parallelism = parallelism
        self._log: Log | None = None
        self._within = TimeBounds(options)
        # The entries after which a query with Trigger.AvailableNow ends.
        self._target: dict[Label, int] | None = None
        # The initial offset of this query, if it has no checkpoint.
        self._began: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the caches."""
        return {**self.__dict__, "_log": None, "_within": TimeBounds(self._options)}

    def _opened(self) -> Log:
        if self._log is None:
            self._log = open_source(self._options)
        return self._log

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset at which a query without a checkpoint starts."""
        log = self._opened()
        self._began = encode(steadily(log, lambda known: self._first_positions(log, known)))
        return self._began

    def _first_positions(self, log: Log, known: Heads) -> Positions:
        heads = selected(log, known, self._options)
        timed = self._options.times.since is not None
        positions, losses = self._at_time(log, heads) if timed else self._at_offsets(log, heads)
        settle(losses, self._options)
        return positions

    def _at_time(self, log: Log, heads: Heads) -> tuple[Positions, list[Loss]]:
        """Return positions before the first entries of the time range; if it has none yet, the last ones."""
        of_time = self._within.of(log, heads)
        positions = {label: SourcePosition(first - 1) for label, (first, _) in of_time.items()}
        return positions, pruned_since(log, heads, of_time, self._options)

    def _at_offsets(self, log: Log, heads: Heads) -> tuple[Positions, list[Loss]]:
        starting = self._options.starting or _LATEST
        positions: Positions = {}
        losses: list[Loss] = []
        for label in sorted({*heads, *starting.of}):
            head = heads.get(label)
            first = starting.at(label)
            if first in (EARLIEST, LATEST):
                positions |= {} if head is None else {label: _edge(head, first)}
                continue
            now = has(log, head, first, self._options)
            losses += judge_asked(label, first, 0, now)
            positions[label] = SourcePosition(min(max(first, now.first_seq) - 1, now.last_seq))
        return positions, losses

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch (maxOffsetsPerTrigger)."""
        max_rows = self._options.max_offsets
        return ReadAllAvailable() if max_rows is None else ReadMaxRows(max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the current end of the log; later entries are for the next query."""
        log = self._opened()
        log.refresh()
        self._target = {label: head.last_seq for label, head in log.heads().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch: durable entries, within the limit, shared among the labels."""
        log = self._opened()
        log.refresh()
        known = log.heads()
        heads = selected(log, known, self._options)
        before = decode(start)
        of_time = self._within.of(log, heads)
        positions = self._settled(log, before, known, of_time)
        positions |= self._advanced(positions, of_time, limit)
        if positions == before:
            return start  # the same text: Spark would take a different one for new data
        moved = {label: held.seq for label, held in positions.items() if held != before.get(label)}
        roots = roots_at(log, known, moved)
        positions |= {label: SourcePosition(seq, roots.get(label)) for label, seq in moved.items() if seq}
        since = self._options.times.since
        beside = {} if since is None else {SINCE: since}
        return encode(positions) | beside | ({BEGAN: start} if start == self._began else {})

    def _settled(self, log: Log, before: Positions, known: Heads, of_time: Spans) -> Positions:
        """Return positions that exist in the log, after a verdict on those that do not."""
        roots = roots_at(log, known, {label: held.seq for label, held in before.items()})
        positions, losses = dict(before), list[Loss]()
        for label in sorted({*before, *of_time}):
            held = before.get(label, _NOTHING)
            now = has(log, known.get(label), held.seq + 1, self._options, of_time.get(label))
            wrong = judge_held(label, held, now, roots.get(label))
            gap = judge_next(label, held.seq + 1, now)
            if wrong or gap:
                losses += [*wrong, *gap]
                positions[label] = SourcePosition(min(max(held.seq, now.first_seq - 1), now.last_seq))
        settle(losses, self._options)
        return positions

    def _advanced(self, positions: Positions, of_time: Spans, limit: ReadLimit) -> Positions:
        """Return the new positions of the labels of which the batch reads entries."""
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
        """Return the end of the log, for the query's progress reports."""
        log = self._opened()
        of_time = self._within.of(log, selected(log, log.heads(), self._options))
        return encode({label: SourcePosition(last) for label, (_, last) in of_time.items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return one partition for each task of a batch; after a restart, the same entries as before it."""
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
        available = {label: known[label] for label in ranges if label in known}
        since = decided_since(end)
        batch_options = replace(self._options, times=Times(since))  # the end of the batch is fixed already
        within = self._within if since == self._options.times.since else TimeBounds(batch_options)
        of_time = within.of(log, available)
        now = {
            label: has(log, known.get(label), low, batch_options, of_time.get(label))
            for label, (low, _) in ranges.items()
        }
        self._judge_batch(log, known, decode(end), ranges, now)
        ranges = met(
            ranges, {label: (first, available[label].last_seq) for label, (first, _) in of_time.items()}
        )
        _refuse_narrowed(ranges, self._within.of(log, available))
        heads = {**known, **selected(log, known, self._options)}
        return plan_groups(log, heads, ranges, self._options, self._parallelism)

    def _judge_batch(
        self, log: Log, known: Heads, end: Positions, ranges: Spans, now: Mapping[Label, LabelExtent]
    ) -> None:
        """Compare a planned batch, perhaps planned by a query that was killed, with the log."""
        roots = roots_at(log, known, {label: upto for label, (_, upto) in ranges.items()})
        losses: list[Loss] = []
        for label, (first, upto) in sorted(ranges.items()):
            losses += judge_held(label, end[label], now[label], roots.get(label))
            losses += judge_next(label, first, now[label], upto)
        settle(losses, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Group):
            return iter(())
        return read_group(partition, self._options, self._schema)

    def stop(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
            self._log = None


def _refuse_narrowed(ranges: Spans, of_time: Spans) -> None:
    """Reject a planned batch with entries that the options no longer select.

    Spark would commit the batch up to its end, and these entries would never be read.
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
