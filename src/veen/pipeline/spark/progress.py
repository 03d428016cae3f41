"""Progress of a Spark job in tasks, reported from a thread while an action runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

__all__ = ["Advance", "in_group", "track_progress"]

# Frequent enough for a person, and no load for Spark.
_EVERY_SEC: Final = 0.25
_SETTLE_MS: Final = 1_000

# Receives the number of finished tasks, and of all tasks known so far.
Advance = Callable[[int, int], None]


@contextmanager
def in_group(context: SparkContext, name: str, description: str) -> Iterator[None]:
    """Run this thread's jobs in a group, so that they can be cancelled and tracked."""
    names = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
    before = [context.getLocalProperty(name) for name in names]
    context.setJobGroup(name, description, interruptOnCancel=True)
    try:
        yield
    finally:
        for key, value in zip(names, before, strict=True):
            context.setLocalProperty(key, value)  # type: ignore[arg-type] # None removes it


@contextmanager
def track_progress(context: SparkContext, advance: Advance) -> Iterator[None]:
    """Call ``advance(done, total)`` as tasks of jobs started in the block end, and finally when all have.

    It is called from another thread, only when a number has changed. More jobs may start: both numbers
    increase, and never decrease.
    """
    follower = _Follower(context, advance)
    ended = threading.Event()
    thread = threading.Thread(target=follower.follow, args=(ended,), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    _settle(context)
    follower.look()


def _settle(context: SparkContext) -> None:
    """Wait until Spark has counted finished tasks, which it does after an action has returned."""
    with suppress(Py4JError):  # timed out, because of many jobs of other threads
        context._jsc.sc().listenerBus().waitUntilEmpty(_SETTLE_MS)  # noqa: SLF001 - Spark has no other way


class _Follower:
    """Counts the tasks of jobs started after its creation."""

    def __init__(self, context: SparkContext, advance: Advance) -> None:
        self._tracker = context.statusTracker()
        self._advance = advance
        # Jobs belong to the group of the thread that starts them, if it has one, not of the polling thread.
        self._group = context.getLocalProperty("spark.jobGroup.id")
        self._before = frozenset(self._jobs())
        self._told = (0, 0)

    def _jobs(self) -> set[int]:
        job_ids = {*self._tracker.getJobIdsForGroup(self._group)}
        # With a group, concurrent jobs of other threads do not count.
        return job_ids if self._group is not None else {*job_ids, *self._tracker.getActiveJobsIds()}

    def follow(self, ended: threading.Event) -> None:
        """Poll until the action has ended."""
        try:
            while not ended.wait(_EVERY_SEC):
                self.look()
        except (Py4JError, OSError):
            return  # Spark has exited; the action raises an error for it

    def look(self) -> None:
        """Report the progress if it has changed."""
        counts = [self._count(job) for job in self._jobs() - self._before]
        done = max(self._told[0], sum(count[0] for count in counts))
        total = max(self._told[1], sum(count[1] for count in counts))
        if (done, total) != self._told:
            self._told = done, total
            self._advance(done, total)

    def _count(self, job: int) -> tuple[int, int]:
        info = self._tracker.getJobInfo(job)
        if info is None:
            return 0, 0
        stages = [self._tracker.getStageInfo(stage) for stage in info.stageIds]
        total = sum(stage.numTasks for stage in stages if stage is not None)
        # Stages whose result existed already are skipped, and never count as done.
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        return (total if info.status == "SUCCEEDED" else done), total
