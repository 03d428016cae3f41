"""Long polls: clients waiting for new entries of a label, bounded in number and time."""

import asyncio
from collections.abc import Callable, Iterable

from veen.core.types import Label

_Wake = Callable[[], None]


class LongPolls:
    """Callbacks to wake when a label grows."""

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._waiting: dict[Label, dict[_Wake, asyncio.TimerHandle]] = {}
        self.count = 0

    def add(self, label: Label, seconds: float, wake: _Wake) -> bool:
        """Call ``wake`` at the next entry or after the timeout; False if too many are waiting."""
        if self.count >= self._max_waiting:
            return False
        timer = asyncio.get_running_loop().call_later(seconds, self._expire, label, wake)
        self._waiting.setdefault(label, {})[wake] = timer
        self.count += 1
        return True

    def grown(self, labels: Iterable[Label]) -> None:
        """Wake all that wait for these labels."""
        if not self.count:
            return
        for label in labels:
            for wake, timer in self._waiting.pop(label, {}).items():
                timer.cancel()
                self.count -= 1
                wake()

    def hurry(self, label: Label, wake: _Wake) -> None:
        """Wake one before its timeout; no effect if it is not waiting any more."""
        timer = self._waiting.get(label, {}).get(wake)
        if timer is not None:
            timer.cancel()
            self._expire(label, wake)

    def stop(self) -> None:
        """Wake all: there will be no more entries."""
        self.grown(list(self._waiting))

    def _expire(self, label: Label, wake: _Wake) -> None:
        waiting = self._waiting[label]
        del waiting[wake]
        if not waiting:
            del self._waiting[label]
        self.count -= 1
        wake()
