"""Ending processes: those that Spark has started, and those that they have started in turn."""

import os
import selectors
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

__all__ = ["Descendants", "children_with"]

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
