"""The processes of Spark: how a signal ends them, and how those that they have started are ended in turn.

An exception that is raised in the middle of py4j breaks its connection, and is lost if an object is just
being finalized. So nothing is raised while Spark starts or stops: the JVM is ended, which ends that, and the
signal handler's exception follows.
"""

import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

__all__ = ["Descendants", "SignalHandler", "children_with", "held_back", "is_main"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def is_main() -> bool:
    """Tell whether this thread is the one that gets signals."""
    return threading.current_thread() is threading.main_thread()


class SignalHandler:
    """Whether a signal has come, and what it means."""

    def __init__(self, act: Callable[[], None], *, at_once: bool = False) -> None:
        self._act = act
        self._at_once = at_once
        self._taken: tuple[signal.Signals, ...] = ()
        self.number: int | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
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
def held_back(act: Callable[[], None]) -> Iterator[SignalHandler]:
    """Do something when a signal comes that would raise; it raises at the end, whatever else went wrong."""
    ending = SignalHandler(act)
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
    return handler is signal.default_int_handler or isinstance(handler, SignalHandler)


#: How long the system may take to clear away a process that was killed.
_KILLED_SEC: Final = 5.0


def _children() -> dict[int, list[int]]:
    """Return who is whose child, of all processes that can be seen."""
    found: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            # The name of a program stands in brackets and may hold anything, brackets too.
            parent = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            found.setdefault(int(parent), []).append(int(place.name))
    return found


def _below(pid: int, children: dict[int, list[int]]) -> Iterator[int]:
    for child in children.get(pid, ()):
        yield child
        yield from _below(child, children)


def children_with(text: str) -> list[int]:
    """Return the children of this process that have a text on their command line."""
    found = []
    for child in _children().get(os.getpid(), ()):
        with suppress(OSError):
            if os.fsencode(text) in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


class Descendants:
    """Processes below one, as they were at a moment; held so that a number used again means nobody else."""

    def __init__(self, pid: int) -> None:
        self._held: dict[int, int] = {}
        for child in (pid, *_below(pid, _children())):
            with suppress(OSError):  # it is gone, or this system can not hold a process
                self._held[child] = os.pidfd_open(child)

    def wait(self, seconds: float) -> Sequence[int]:
        """Wait until all have ended, but no longer than this; returns those that have not."""
        deadline = time.monotonic() + seconds
        left = {descriptor: pid for pid, descriptor in self._held.items()}
        with selectors.DefaultSelector() as selector:
            for descriptor in left:
                selector.register(descriptor, selectors.EVENT_READ)
            while left:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    break
                for key, _ in ready:
                    selector.unregister(key.fd)
                    del left[key.fd]
        return tuple(left.values())

    def end(self, patience: float) -> None:
        """Wait as long as patience lasts, then kill what is left."""
        with ExitStack() as stack:
            for descriptor in self._held.values():
                stack.callback(os.close, descriptor)
            for pid in self.wait(patience):
                with suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(self._held[pid], signal.SIGKILL)
            self.wait(_KILLED_SEC)
        self._held.clear()
