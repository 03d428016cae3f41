"""When a checkpoint is due: by time, and by the number of entries (SDR-011).

There is one rule, for who makes checkpoints, who judges them and who looks how it is going. One is due when
an entry has waited for ``every_sec``, and when ``each_events`` entries wait; checkpoints themselves need
none. It is made beside the work, and so may be late by ``grace_sec``, however many entries come meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

EVERY_SEC: Final = 300
EACH_EVENTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Cadence:
    """How often there is to be a checkpoint; what is None does not count."""

    every_sec: int | None = EVERY_SEC
    each_events: int | None = EACH_EVENTS
    grace_sec: int = 30

    def is_many(self, waiting: int) -> bool:
        """Tell whether so many entries that wait are enough for a checkpoint."""
        return self.each_events is not None and waiting >= self.each_events

    def is_late(self, since: int | None, until: int) -> bool:
        """Tell whether an entry that has come then has waited too long."""
        if since is None or self.every_sec is None:
            return False
        return until - since > self.every_sec + self.grace_sec


DEFAULT_CADENCE: Final = Cadence()


class Pace:
    """Says when to make one; asks how many entries there are no more often than it has to."""

    def __init__(self, cadence: Cadence) -> None:
        self._cadence = cadence
        self._last: float | None = None

    def is_due(self, now: float, count_new: Callable[[], int]) -> bool:
        """Tell whether a checkpoint is due; the first one is at once."""
        every = self._cadence.every_sec
        if self._last is None or (every is not None and now - self._last >= every):
            return True
        return self._cadence.each_events is not None and self._cadence.is_many(count_new())

    def made(self, now: float) -> None:
        """Note that one was made."""
        self._last = now
