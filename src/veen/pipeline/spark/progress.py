"""How far a job of Spark is: told in tasks, from a thread, while an action runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

__all__ = ["Advance", "in_group", "track_progress"]

#: Often enough for a person, and nothing to Spark.
_EVERY_SEC: Final = 0.25
_SETTLE_MS: Final = 1_000

#: How far something is: tasks that are done, and how many there are so far.
Advance = Callable[[int, int], None]


@contextmanager
def in_group(context: SparkContext, name: str, description: str) -> Iterator[None]:
    """Begin jobs of this thread in a group, so that they can be cancelled and followed."""
    names = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
    before = [context.getLocalProperty(name) for name in names]
    context.setJobGroup(name, description, interruptOnCancel=True)
    try:
        yield
    finally:
        for key, value in zip(names, before, strict=True):
            context.setLocalProperty(key, value)  # type: ignore[arg-type] # None takes it away


@contextmanager
def track_progress(context: SparkContext, advance: Advance) -> Iterator[None]:
    """Call ``advance(done, total)`` as tasks of the jobs end that are begun inside; at last when all have.

    The call comes from another thread, and only when something has changed. More jobs may come: both numbers
    grow, and never shrink.
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
    """Wait until Spark has counted what has ended, which it does later than it tells who waits for a job."""
    with suppress(Py4JError):  # it was not to be had in time, with many jobs of others
        context._jsc.sc().listenerBus().waitUntilEmpty(_SETTLE_MS)  # noqa: SLF001 - Spark has no other way


class _Follower:
    """Counts tasks of jobs that were not there before."""

    def __init__(self, context: SparkContext, advance: Advance) -> None:
        self._tracker = context.statusTracker()
        self._advance = advance
        # Jobs go by the group of the thread that begins them, if it has one; that is not the follower's.
        self._group = context.getLocalProperty("spark.jobGroup.id")
        self._before = frozenset(self._jobs())
        self._told = (0, 0)

    def _jobs(self) -> set[int]:
        found = {*self._tracker.getJobIdsForGroup(self._group)}
        # In a group, what others run at the same time does not count.
        return found if self._group is not None else {*found, *self._tracker.getActiveJobsIds()}

    def follow(self, ended: threading.Event) -> None:
        """Look again and again, until the action has ended."""
        try:
            while not ended.wait(_EVERY_SEC):
                self.look()
        except (Py4JError, OSError):
            return  # Spark is gone; whoever runs the action hears of it

    def look(self) -> None:
        """Tell how far it is, if that has changed."""
        counts = [self._count(job) for job in self._jobs() - self._before]
        done = max(self._told[0], sum(count[0] for count in counts))
        total = max(self._told[1], sum(count[1] for count in counts))
        if (done, total) != self._told:
            self._told = done, total
            self._advance(done, total)

    def _count(self, job: int) -> tuple[int, int]:
        found = self._tracker.getJobInfo(job)
        if found is None:
            return 0, 0
        stages = [self._tracker.getStageInfo(stage) for stage in found.stageIds]
        total = sum(stage.numTasks for stage in stages if stage is not None)
        # Stages whose result was there already are left out, and never count as done by themselves.
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        return (total if found.status == "SUCCEEDED" else done), total
