"""Clients that wait for new entries of a label: a long poll, bounded in number and time."""

import asyncio
from collections.abc import Callable, Iterable

from veen.core.types import Label

_Wake = Callable[[], None]


class LongPolls:
    """Who is to be woken when a label grows."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[Label, dict[_Wake, asyncio.TimerHandle]] = {}
        self.count = 0

    def add(self, label: Label, seconds: float, wake: _Wake) -> bool:
        """Wake at the next entry, or when the time is over; False if too many wait already."""
        if self.count >= self._most:
            return False
        timer = asyncio.get_running_loop().call_later(seconds, self._expire, label, wake)
        self._waiting.setdefault(label, {})[wake] = timer
        self.count += 1
        return True

    def grown(self, labels: Iterable[Label]) -> None:
        """Wake everybody who waits for these labels."""
        if not self.count:
            return
        for label in labels:
            for wake, timer in self._waiting.pop(label, {}).items():
                timer.cancel()
                self.count -= 1
                wake()

    def hurry(self, label: Label, wake: _Wake) -> None:
        """Wake one of those who wait; nothing, if it does not wait any more."""
        timer = self._waiting.get(label, {}).get(wake)
        if timer is not None:
            timer.cancel()
            self._expire(label, wake)

    def stop(self) -> None:
        """Wake everybody: there will be no more entries."""
        self.grown(list(self._waiting))

    def _expire(self, label: Label, wake: _Wake) -> None:
        others = self._waiting[label]
        del others[wake]
        if not others:
            del self._waiting[label]
        self.count -= 1
        wake()
