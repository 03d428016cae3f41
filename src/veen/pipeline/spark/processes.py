"""Ending the processes of Spark, on a signal as well, including those that they have started.

An exception raised inside py4j breaks its connection, and is lost while an object is being finalized. So a
signal raises nothing while Spark starts or stops: the JVM is killed, which ends the call, and the signal
handler's exception is raised afterwards.
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
    """Return whether this thread receives signals."""
    return threading.current_thread() is threading.main_thread()


class SignalHandler:
    """Records a signal, acts on it, and raises its exception at once or later."""

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
        """Install this handler; without ``numbers`` for the same signals again."""
        self._taken = numbers or self._taken
        for number in self._taken:
            signal.signal(number, self)

    def check(self) -> None:
        """Raise the signal's exception, if one was received."""
        if self.number == signal.SIGINT:
            raise KeyboardInterrupt from None
        if self.number is not None:
            raise SystemExit(128 + self.number) from None


@contextmanager
def held_back(act: Callable[[], None]) -> Iterator[SignalHandler]:
    """Call ``act`` on signals that would raise; their exception is raised at the end of the block instead."""
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


# Time for the system to remove a killed process.
_KILLED_SEC: Final = 5.0


def _children() -> dict[int, list[int]]:
    """Return the children of all visible processes, by parent."""
    by_parent: dict[int, list[int]] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            # The program's name is in parentheses and may contain parentheses itself.
            parent = (directory / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            by_parent.setdefault(int(parent), []).append(int(directory.name))
    return by_parent


def _below(pid: int, children: dict[int, list[int]]) -> Iterator[int]:
    for child in children.get(pid, ()):
        yield child
        yield from _below(child, children)


def children_with(text: str) -> list[int]:
    """Return the children of this process with a text on their command line."""
    matching = []
    for child in _children().get(os.getpid(), ()):
        with suppress(OSError):
            if os.fsencode(text) in Path(f"/proc/{child}/cmdline").read_bytes():
                matching.append(child)
    return matching


class Descendants:
    """A process and those below it at one moment, by descriptor: a reused process id is never signalled."""

    def __init__(self, pid: int) -> None:
        self._held: dict[int, int] = {}
        for child in (pid, *_below(pid, _children())):
            with suppress(OSError):  # it has exited, or this system has no process descriptors
                self._held[child] = os.pidfd_open(child)

    def wait(self, seconds: float) -> Sequence[int]:
        """Wait until all have exited, for at most ``seconds``; return those that have not."""
        deadline = time.monotonic() + seconds
        running = {descriptor: pid for pid, descriptor in self._held.items()}
        with selectors.DefaultSelector() as selector:
            for descriptor in running:
                selector.register(descriptor, selectors.EVENT_READ)
            while running:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    break
                for key, _ in ready:
                    selector.unregister(key.fd)
                    del running[key.fd]
        return tuple(running.values())

    def end(self, patience: float) -> None:
        """Wait for ``patience`` seconds, then kill the remaining ones."""
        with ExitStack() as stack:
            for descriptor in self._held.values():
                stack.callback(os.close, descriptor)
            for pid in self.wait(patience):
                with suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(self._held[pid], signal.SIGKILL)
            self.wait(_KILLED_SEC)
        self._held.clear()
