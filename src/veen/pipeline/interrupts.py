"""SIGINT and SIGTERM while Spark starts, works and stops: they end it, wherever they come, and quietly.

An exception that is raised in the middle of py4j breaks its connection, and is lost if an object is just
being cleared away. So nothing is raised while Spark starts or stops: the JVM is ended, which ends that, and
the signal has its effect then. While a session works, it raises at once, and is remembered if that is lost.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

__all__ = ["Ending", "held_back", "is_main"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def is_main() -> bool:
    """Tell whether this thread is the one that gets signals."""
    return threading.current_thread() is threading.main_thread()


class Ending:
    """Whether a signal has come, and what it means."""

    def __init__(self, act: Callable[[], None], *, at_once: bool = False) -> None:
        self._act = act
        self._at_once = at_once
        self._taken: tuple[signal.Signals, ...] = ()
        self.number: int | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Take a signal."""
        self.number = number
        self._act()
        if self._at_once:
            self.check()

    def take(self, *numbers: signal.Signals) -> None:
        """Get signals from now on; without numbers, those of before again."""
        self._taken = numbers or self._taken
        for number in self._taken:
            signal.signal(number, self)

    def check(self) -> None:
        """Raise what the signal means, if one has come."""
        if self.number == signal.SIGINT:
            raise KeyboardInterrupt from None
        if self.number is not None:
            raise SystemExit(128 + self.number) from None


@contextmanager
def held_back(act: Callable[[], None]) -> Iterator[Ending]:
    """Do something when a signal comes that would raise; it raises at the end, whatever else went wrong."""
    ending = Ending(act)
    if not is_main():
        yield ending
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    raising = [number for number, handler in before.items() if _raises(handler)]
    ending.take(*raising)
    try:
        yield ending
    finally:
        for number in raising:
            signal.signal(number, before[number])
        ending.check()


def _raises(handler: object) -> bool:
    return handler is signal.default_int_handler or isinstance(handler, Ending)
