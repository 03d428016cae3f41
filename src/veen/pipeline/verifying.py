"""``verify``: a whole log, entry by entry, in parallel; the driver connects what the tasks have found."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby

from pyspark import SparkContext

from veen.core.checkpoint import Checkpoint
from veen.core.receipt import Receipt
from veen.core.types import Label
from veen.pipeline import held
from veen.pipeline.chaining import Chain, StatedPeaksError, wanted_roots
from veen.pipeline.checking import UNREADABLE, PartResult, PartTask, check_group, grouped
from veen.pipeline.directory_log import DirectoryLog
from veen.pipeline.kernel import Level
from veen.pipeline.logs import LabelHead, Log, Pruned
from veen.pipeline.parts import Part
from veen.pipeline.prefix import unstated, with_peaks
from veen.pipeline.signers import HubKeys
from veen.pipeline.verdicts import LabelVerdict, Located, Report
from veen.storage.errors import DamagedError

#: Tasks for each core: a slow one does not keep the others waiting for long.
_TASKS_EACH = 4


class Verification:
    """One run over one log."""

    def __init__(
        self, context: SparkContext, log: Log, level: Level = Level.FULL, *, partitions: int | None = None
    ) -> None:
        self._context = context
        self._log = log
        self._level = level
        self._least = partitions or _TASKS_EACH * context.defaultParallelism
        self._checkpoints = dict[Label, Sequence[Checkpoint]]()
        self._pruned = dict[Label, Sequence[Pruned]]()
        self._damaged = dict[Label, list[Located]]()

    def run(self, labels: Sequence[Label] | None = None, receipts: Sequence[Receipt] = ()) -> Report:
        """Check the labels, all if none are named, and receipts that somebody holds."""
        log = self._log
        heads = log.heads()
        chosen = heads if labels is None else {label: heads[label] for label in labels}
        for label in chosen if self._level >= Level.ROOTS else ():
            self._look_beside(label)
        ranges = {label: (head.first_seq, head.last_seq) for label, head in chosen.items()}
        parts = log.plan(ranges, parts=self._least)
        verdicts = self._check(chosen, parts)
        forked, lost = held.compare(log, receipts) if receipts else ([], [])
        others = log.check_others() if isinstance(log, DirectoryLog) and labels is None else []
        return Report(
            log.name,
            log.hub_id,
            self._level,
            [verdicts[label] for label in chosen],
            others,
            len(receipts),
            forked,
            lost,
        )

    def _look_beside(self, label: Label) -> None:
        """Read what stands beside the chunks of a label; one that is damaged is told with its entries."""
        for read in (self._read_checkpoints, self._read_pruned):
            try:
                read(label)
            except DamagedError as error:
                bad = Located(label, 1, error.path, error.offset, UNREADABLE, error.what)
                self._damaged.setdefault(label, []).append(bad)

    def _read_checkpoints(self, label: Label) -> None:
        self._checkpoints[label] = self._log.checkpoints(label)

    def _read_pruned(self, label: Label) -> None:
        self._pruned[label] = self._log.pruned(label)

    def _check(self, heads: Mapping[Label, LabelHead], parts: list[Part]) -> dict[Label, LabelVerdict]:
        found: dict[Label, LabelVerdict] = {}
        again: list[Part] = []
        by_label = self._results(parts)
        for label, head in heads.items():
            pairs = by_label.get(label, [])
            try:
                found[label] = self._chain(head, pairs)
            except StatedPeaksError:
                # Derived files are wrong, or the log is: what follows from the log itself decides.
                again += [part for part, _ in pairs]
        if again:
            by_label = self._results(unstated(again))
            for label, pairs in by_label.items():
                found[label] = self._chain(heads[label], pairs)
        return found

    def _results(self, parts: list[Part]) -> dict[Label, list[tuple[Part, PartResult]]]:
        """Check parts where Spark sends them."""
        if not parts:
            return {}
        if self._level >= Level.ROOTS:
            parts = with_peaks(self._context, parts)
        tasks = [
            PartTask(number, part, wanted_roots(self._checkpoints.get(part.label, ()), part))
            for number, part in enumerate(parts)
        ]
        groups = grouped(tasks, self._least)
        check = partial(_check_each, level=self._level, keys=self._log.keys)
        found = self._context.parallelize(groups, len(groups)).mapPartitions(check).collect()
        found.sort(key=lambda item: item.number)
        by_label = groupby(found, key=lambda item: parts[item.number].label)
        return {label: [(parts[item.number], item) for item in items] for label, items in by_label}

    def _chain(self, head: LabelHead, pairs: list[tuple[Part, PartResult]]) -> LabelVerdict:
        chain = Chain(head, self._level)
        chain.verdict.faults.add(self._damaged.get(head.label, ()))
        if head.first_seq > 1:
            chain.begin(head.first_seq, self._pruned.get(head.label, ()))
        for part, result in pairs:
            chain.add(part, result)
        checkpoints = self._checkpoints.get(head.label, ())
        return chain.finish(checkpoints, self._log.keys, self._log.profiles[0].epoch_sec)


def _check_each(groups: Iterator[list[PartTask]], level: Level, keys: HubKeys) -> Iterator[PartResult]:
    for group in groups:
        yield from check_group(group, level, keys)
