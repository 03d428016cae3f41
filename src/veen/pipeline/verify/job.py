"""``verify``: check a whole log in parallel; the driver connects the results of the tasks."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby

from pyspark import SparkContext

from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.finding import Finding, Level, Location
from veen.core.objects.receipt import Receipt
from veen.core.types import Label
from veen.pipeline.errors import PeaksMismatchError
from veen.pipeline.log.data_directory import DirectoryLog
from veen.pipeline.log.hub_keys import HubKeys
from veen.pipeline.log.log import LabelHead, Log, Pruned
from veen.pipeline.log.partition import Part
from veen.pipeline.task_groups import group_into_tasks
from veen.pipeline.verify import held_receipts
from veen.pipeline.verify.chain import Chain, prefixed, unstated, wanted_roots
from veen.pipeline.verify.report import HeldReceipts, Report
from veen.pipeline.verify.task import (
    Obstacle,
    PartResult,
    PartTask,
    check_group,
    obstacle,
    part_trees,
)
from veen.storage.errors import DamagedStoreError

# Tasks for each core: a slow one delays the others only briefly.
_TASKS_EACH = 4
# How often a label is checked while a hub prunes it.
_ATTEMPTS = 3


class Verification:
    """One verification of one log."""

    def __init__(
        self, context: SparkContext, log: Log, level: Level = Level.FULL, *, partitions: int | None = None
    ) -> None:
        self._context = context
        self._log = log
        self._level = level
        self._least = partitions or _TASKS_EACH * context.defaultParallelism
        self._checkpoints = dict[Label, Sequence[Checkpoint]]()
        self._pruned = dict[Label, Sequence[Pruned]]()
        self._damaged = dict[Label, list[Finding]]()
        self._chains = dict[Label, Chain]()
        self._receipts = dict[Label, list[Receipt]]()
        self._held = HeldReceipts()

    def run(self, labels: Sequence[Label] | None = None, receipts: Sequence[Receipt] = ()) -> Report:
        """Check ``labels`` (None: all) and held receipts."""
        log = self._log
        held_receipts.check_signed(log, receipts)
        self._receipts = held_receipts.by_label(receipts)
        heads = log.heads()
        selected = heads if labels is None else {label: heads[label] for label in labels}
        self._check_all(selected)
        others = log.check_others() if labels is None else []
        self._compare_held(complete=labels is None and isinstance(log, DirectoryLog))
        verdicts = [self._chains[label].verdict for label in selected]
        return Report(log.name, log.hub_id, self._level, verdicts, others, self._held)

    def _check_all(self, heads: Mapping[Label, LabelHead]) -> None:
        """Check labels; those pruned meanwhile are checked again."""
        for attempt in range(_ATTEMPTS):
            for label in heads:
                self._look_beside(label)
            ranges = {label: (head.first_seq, head.last_seq) for label, head in heads.items()}
            parts = self._log.plan(ranges, parts=self._least)
            stale = self._check(heads, parts)
            if not stale or attempt == _ATTEMPTS - 1:
                return
            self._log.refresh()
            now = self._log.heads()
            heads = {label: now[label] for label in stale}

    def _compare_held(self, *, complete: bool) -> None:
        """Compare held receipts; those of other labels count as unchecked, unless all labels were read."""
        self._held = HeldReceipts(sum(map(len, self._receipts.values())))
        for label, receipts in self._receipts.items():
            chain = self._chains.get(label)
            if chain is None and not complete:
                self._held.unchecked += len(receipts)
                continue
            known = chain is not None and self._level >= Level.FULL
            roots = chain.known_roots() if chain is not None and known else {}
            head = None if chain is None else chain.head
            held_receipts.compare(self._held, receipts, head, self._pruned.get(label, ()), roots)

    def _look_beside(self, label: Label) -> None:
        """Read the checkpoints and tombstones of a label; damage is reported with its entries."""
        self._damaged.pop(label, None)
        for read in (self._read_checkpoints, self._read_pruned):
            try:
                read(label)
            except DamagedStoreError as error:
                where = Location(error.path, error.offset, label, seq=1)
                bad = Finding(where, Obstacle.UNREADABLE, error.what)
                self._damaged.setdefault(label, []).append(bad)

    def _read_checkpoints(self, label: Label) -> None:
        if self._level >= Level.ROOTS:
            self._checkpoints[label] = self._log.checkpoints(label)

    def _read_pruned(self, label: Label) -> None:
        self._pruned[label] = self._log.pruned(label)

    def _check(self, heads: Mapping[Label, LabelHead], parts: list[Part]) -> list[Label]:
        """Check labels; return those that were pruned after planning."""
        to_repeat: list[Part] = []
        by_label = self._results(parts)
        stale = [label for label, head in heads.items() if _is_stale(head, by_label.get(label, []))]
        for label, head in heads.items():
            pairs = by_label.get(label, [])
            try:
                self._chains[label] = self._chain(head, pairs)
            except PeaksMismatchError:
                # Either derived files are wrong or the log is: recompute the peaks from the log.
                to_repeat += [part for part, _ in pairs]
        if to_repeat:
            by_label = self._results(unstated(to_repeat))
            for label, pairs in by_label.items():
                self._chains[label] = self._chain(heads[label], pairs)
        return stale

    def _results(self, parts: list[Part]) -> dict[Label, list[tuple[Part, PartResult]]]:
        """Check parts in tasks."""
        if not parts:
            return {}
        if self._level >= Level.ROOTS:
            parts = with_peaks(self._context, parts)
        tasks = [
            PartTask(number, part, wanted_roots(self._asked_for(part.label), part))
            for number, part in enumerate(parts)
        ]
        groups = group_into_tasks(tasks, lambda task: task.part.nbytes, self._least)
        check = partial(_check_each, level=self._level, keys=self._log.keys)
        results = self._context.parallelize(groups, len(groups)).mapPartitions(check).collect()
        for fault in (fault for item in results for fault in item.faults):
            error = obstacle(fault)
            if error is not None:
                raise error
        results.sort(key=lambda item: item.number)
        by_label = groupby(results, key=lambda item: parts[item.number].label)
        return {label: [(parts[item.number], item) for item in items] for label, items in by_label}

    def _asked_for(self, label: Label) -> Iterator[int]:
        """Yield the entries whose roots are compared with checkpoints or held receipts."""
        yield from (item.upto_seq for item in self._checkpoints.get(label, ()))
        yield from (item.stream_seq for item in self._receipts.get(label, ()))

    def _chain(self, head: LabelHead, pairs: list[tuple[Part, PartResult]]) -> Chain:
        chain = Chain(head, self._level)
        chain.verdict.faults.add(self._damaged.get(head.label, ()))
        if head.first_seq > 1:
            chain.begin(head.first_seq, self._pruned.get(head.label, ()))
        for part, result in pairs:
            chain.add(part, result)
        checkpoints = self._checkpoints.get(head.label, ())
        chain.finish(checkpoints, self._log.keys, self._log.profiles[0].epoch_sec)
        return chain


def with_peaks(context: SparkContext, parts: Sequence[Part]) -> list[Part]:
    """Return parts, in order, with the peaks that follow from the parts before them.

    A part that does not continue another part has the peaks that it states itself.
    """
    if all(part.peaks is not None for part in parts):
        return list(parts)
    incomplete = {part.label for part in parts if part.peaks is None}
    incomplete_parts = [part for part in parts if part.label in incomplete]
    trees = context.parallelize(incomplete_parts, len(incomplete_parts)).map(part_trees).collect()
    prefixed_parts = iter(prefixed(incomplete_parts, trees))
    return [next(prefixed_parts) if part.label in incomplete else part for part in parts]


def _is_stale(head: LabelHead, pairs: Sequence[tuple[Part, PartResult]]) -> bool:
    """Return whether entries of a label were pruned after its head was read."""
    if pairs and pairs[0][0].first_seq > head.first_seq:
        return True
    return any(fault.code is Obstacle.PRUNED for _, result in pairs for fault in result.faults)


def _check_each(groups: Iterator[list[PartTask]], level: Level, keys: HubKeys) -> Iterator[PartResult]:
    for group in groups:
        yield from check_group(group, level, keys)
