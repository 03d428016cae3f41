"""Ingest a log into a lake: tasks verify, decrypt, type and write entries; the driver commits.

A run ingests the current entries; ``follow`` polls for new ones.
"""

import hashlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import TYPE_CHECKING, Final

from veen.core.objects.finding import Finding
from veen.core.types import Label, StreamId
from veen.pipeline.errors import LakeError, RejectedEntryError
from veen.pipeline.lake import hub_files
from veen.pipeline.lake.commits import Changes, FileFact, LabelFact, Missing, hexed
from veen.pipeline.lake.lake import Lake
from veen.pipeline.lake_jobs import gold, ingest_plan
from veen.pipeline.lake_jobs.ingest_plan import (
    Binder,
    PendingEntries,
    Step,
    by_label,
    find_work,
    plan_slices,
    steps,
)
from veen.pipeline.lake_jobs.ingest_task import Slice, SliceResult, SliceSettings, take_in
from veen.pipeline.lake_jobs.rebuild import Trying, find_remakes, make_all_again
from veen.pipeline.log.log import Log
from veen.pipeline.open.keyring import Keyring
from veen.pipeline.shared_keys import SharedKeys
from veen.pipeline.task_groups import group_into_tasks
from veen.pipeline.verify.job import with_peaks
from veen.pipeline.verify.task import obstacle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Tasks for each core, if there are enough slices.
_TASKS_EACH: Final = 2
# Hex digits of a key's digest.
_DIGITS: Final = 16


@dataclass(slots=True)
class IngestStats:
    """The result of a run."""

    commits: int = 0
    entries: int = 0
    files: int = 0
    labels: set[str] = field(default_factory=set)
    missing: int = 0
    # Updated states of overlays.
    states: int = 0
    # Labels whose streams became known, and formerly sealed entries that were opened.
    bound: int = 0
    opened: int = 0

    def add(self, changes: Changes) -> None:
        self.commits += bool(changes)
        self.files += len(changes.added)
        for fact in changes.labels:
            pruned = sum(item.last - item.first + 1 for item in fact.missing)
            self.entries += fact.upto_seq - fact.from_seq + 1 - pruned
            self.missing += pruned
            self.labels.add(fact.label)

    def join(self, other: "IngestStats") -> None:
        """Add the counts of another run."""
        self.commits += other.commits
        self.entries += other.entries
        self.files += other.files
        self.missing += other.missing
        self.states += other.states
        self.bound += other.bound
        self.opened += other.opened
        self.labels |= other.labels


class Ingest:
    """The ingest of a log into a lake; ``run`` ingests the current entries."""

    def __init__(
        self,
        spark: "SparkSession",
        lake: Lake,
        log: Log,
        *,
        keyring: Keyring | None = None,
        shared: SharedKeys | None = None,
        overlays: Iterable[str] | None = (),
        streams: Iterable[StreamId] = (),
    ) -> None:
        """``shared``: the keys of the keyring for tasks; ``streams``: ingest only these.

        States are stored for ``overlays``; if empty, for all with events; None: for none.
        """
        lake.require_hub(log.hub_id)
        self._spark = spark
        self._lake = lake
        self._log = log
        self._only = frozenset(streams)
        known = () if keyring is None else (key.stream_id for key in keyring.secrets.streams)
        self._binder = Binder(log, self._only.union(known))
        self._trying = _Trying(keyring)
        self._setting = SliceSettings(str(lake.root.resolve()), log.keys, tuple(log.profiles), shared)
        self._overlays = None if overlays is None else tuple(overlays)
        # States to rebuild.
        self._dropped: set[gold.Key] = set()

    def run(self) -> IngestStats:
        """Ingest all entries that the lake does not have, in steps; a failed check ends the run."""
        stats = IngestStats()
        works = find_work(self._lake.state, self._log, self._binder)
        again = self._make_again(stats)
        if again:  # the streams of labels apply to their new entries too
            works = find_work(self._lake.state, self._log, self._binder)
        omitted = [work for work in works if not self._is_meant(work.stream_id)]
        works = [work for work in works if self._is_meant(work.stream_id)]
        if works:
            with self._lake.writing():
                self._take(works, omitted, stats)
        kept = hub_files.keep(self._lake.root, self._lake.state, self._log)
        kept += ingest_plan.keep(self._lake.root, self._lake.state, omitted)
        self._lake.commit(Changes(kind="hub", hub=kept), self._log.keys.identity)
        if self._overlays is not None:
            stats.states = gold.bring_up(self._spark, self._lake, self._overlays, again=self._dropped)
            self._dropped.clear()
        return stats

    def _is_meant(self, stream: StreamId | None) -> bool:
        return not self._only or stream in self._only

    def _make_again(self, stats: IngestStats) -> bool:
        """Rebuild tables of labels whose streams or keys became known since."""
        state = self._lake.state
        bound = self._binder.newly_bound(state)
        bound = {label: found for label, found in bound.items() if self._is_meant(found[0])}
        remakes = find_remakes(state, bound, self._trying)
        remakes = [item for item in remakes if self._is_meant(item.stream_id)]
        if not remakes:
            return False
        done = make_all_again(self._spark, self._lake, self._setting, remakes)
        self._dropped.update(done.dropped)
        stats.commits += done.commits
        stats.files += done.files
        stats.bound, stats.opened = done.bound, done.opened
        return True

    @property
    def unknown(self) -> list[StreamId]:
        """The named streams without entries in the lake."""
        return sorted(self._only - {fact.stream for fact in self._lake.state.labels.values()})

    def _take(self, works: list[PendingEntries], omitted: list[PendingEntries], stats: IngestStats) -> None:
        planned = list(steps(works))
        for step in planned:
            changes, trouble = self._step(step)
            changes.hub = hub_files.keep(self._lake.root, self._lake.state, self._log)
            if omitted or trouble or len(planned) > 1:  # recorded first, in case the run ends here
                changes.hub += ingest_plan.keep(self._lake.root, self._lake.state, [*works, *omitted])
            # A state needs all entries from the first: a gap ends it.
            gaps = [fact.stream_id for fact in changes.labels if fact.missing]
            changes.dropped = gold.of_streams(self._lake.state, gaps)
            self._lake.commit(changes, self._log.keys.identity)
            stats.add(changes)
            if trouble is not None:
                self._lake.clean()
                raise obstacle(trouble) or RejectedEntryError(trouble)

    def _step(self, step: Step) -> tuple[Changes, Finding | None]:
        context = self._spark.sparkContext
        step.works = {label: self._begun(work, step.spans[label][0]) for label, work in step.works.items()}
        slices = plan_slices(self._log, step, lambda parts: with_peaks(context, parts))
        settled = _Settled(step.works, by_label(slices), self._trying)
        while slices:
            settled.add(self._run_tasks(slices))
            slices = settled.to_repeat()
        changes = Changes(kind="ingest", labels=settled.labels(), added=settled.files())
        return changes, settled.trouble()

    def _begun(self, work: PendingEntries, span: tuple[int, int]) -> PendingEntries:
        """Return the work of a step, starting from where the previous steps ended in the lake."""
        if span[0] == work.first:
            return work
        known = self._lake.state.labels[work.label.hex()]
        return replace(work, first=span[0], peaks=known.range, missing=None)

    def _run_tasks(self, slices: Sequence[Slice]) -> list[SliceResult]:
        setting = self._setting
        context = self._spark.sparkContext
        groups = group_into_tasks(slices, lambda item: item.nbytes, _TASKS_EACH * context.defaultParallelism)
        tasks = context.parallelize(groups, len(groups))
        results: list[SliceResult] = tasks.flatMap(lambda group: take_in(group, setting)).collect()
        for done in results:
            if done.failure is not None:
                raise LakeError(f"the lake cannot be written: {done.failure}")
        return results


class _Trying:
    """Identifies the keys tried for a stream by a digest of their public keys."""

    def __init__(self, keyring: Keyring | None) -> None:
        self._keys = None if keyring is None else keyring.reader_keys()
        self._known: dict[StreamId | None, str | None] = {}

    def __call__(self, stream: StreamId | None) -> str | None:
        if stream not in self._known:
            public_keys = () if self._keys is None else (key.public_key for key in self._keys.of(stream))
            joined = b"".join(sorted(public_keys))
            self._known[stream] = hashlib.sha256(joined).hexdigest()[:_DIGITS] if joined else None
        return self._known[stream]


class _Settled:
    """The results of a step in log order: each slice must continue the one before."""

    def __init__(
        self, works: dict[Label, PendingEntries], slices: dict[Label, list[Slice]], trying: Trying
    ) -> None:
        self._trying = trying
        self._works = works
        self._slices = slices
        self._done: dict[tuple[Label, int], SliceResult] = {}

    def add(self, found: Iterable[SliceResult]) -> None:
        """Add results; a repeated slice has its last one."""
        self._done |= {(done.label, done.first): done for done in found}

    def to_repeat(self) -> list[Slice]:
        """Return slices that started with other peaks than those at the end of the slice before.

        The peaks that a log states are derived, and may be damaged although the log is not.
        """
        slices = []
        for label, listed in self._slices.items():
            expected = self._works[label].peaks
            for nth, item in enumerate(listed):
                if expected is not None and item.peaks != expected:
                    listed[nth] = replace(item, peaks=expected)
                    slices.append(listed[nth])
                    break  # the later ones can be checked only when this one is done
                done = self._done[label, item.first]
                if done.trouble is not None:
                    break
                expected = done.peaks
        return slices

    def _good(self, label: Label) -> list[SliceResult]:
        """Return the results of a label before the first bad one."""
        results = []
        for item in self._slices[label]:
            done = self._done[label, item.first]
            if done.trouble is not None:
                break
            results.append(done)
        return results

    def labels(self) -> list[LabelFact]:
        """Return the new end of each label."""
        facts = []
        for label, work in sorted(self._works.items()):
            good = self._good(label)
            if not good:
                continue
            peaks, first = good[-1].peaks, good[0].first
            if peaks is None:
                raise _unknown_peaks(label, first)
            begin = first if work.missing is None else work.missing[0]
            tried = self._trying(work.stream_id)
            facts.append(
                LabelFact.of(
                    label,
                    work.stream_id,
                    work.epoch,
                    span=(begin, good[-1].last),
                    peaks=peaks,
                    missing=self._missing(label, work),
                    sealed=sum(done.sealed for done in good),
                    tried=() if tried is None else (tried,),
                )
            )
        return facts

    def _missing(self, label: Label, work: PendingEntries) -> list[Missing]:
        """Return the entries pruned before ingest; the peaks after them led to roots signed by the hub."""
        peaks = self._slices[label][0].peaks
        return [] if work.missing is None or peaks is None else [Missing(*work.missing, hexed(peaks))]

    def files(self) -> list[FileFact]:
        """Return the files to commit."""
        files = [fact for label in self._works for done in self._good(label) for fact in done.files]
        return sorted(files, key=lambda fact: fact.path)

    def trouble(self) -> Finding | None:
        """Return the first fault, by label and entry."""
        faults = [done.trouble for done in self._done.values() if done.trouble is not None]
        return (
            min(faults, key=lambda item: (item.where.label or b"", item.where.seq or 0)) if faults else None
        )


def _unknown_peaks(label: Label, seq: int) -> LakeError:
    return LakeError(
        f"entries before entry {seq} of {label.hex()} were pruned, and the log does not record their peaks: "
        "ingest from the hub's data directory"
    )


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """Provide an event that an interrupt sets: the current step is completed, and no further one started."""
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(
    ingest: Ingest,
    log: Log,
    stopped: threading.Event,
    *,
    interval_sec: float,
    on_run: Callable[[IngestStats], None],
) -> IngestStats:
    """Ingest new entries, polling for them; ``on_run`` is called after each run with new entries."""
    total = IngestStats()
    while not stopped.is_set():
        stats = ingest.run()
        if stats.commits or stats.states:
            total.join(stats)
            on_run(stats)
        else:
            stopped.wait(interval_sec)
        log.refresh()
    return total
