"""Locks of files, held by a process; every failure is an OSError.

The kernel releases a lock when the process ends, however it ends. The file is never deleted: a process
that waits for the lock has it open, and would not notice.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veen.stdx.atomic_file import PRIVATE


def lock(path: Path, *, wait: bool, create: bool = True) -> int | None:
    """Lock a file; None if it is locked and ``wait`` is false. Closing the descriptor releases it."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), PRIVATE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(fd)
        return None
    except BaseException:
        os.close(fd)
        raise
    return fd


def unlock(fd: int) -> None:
    """Release a lock, also if a forked child has the descriptor too."""
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file for a ``with`` statement; waits until it is free."""
    fd = lock(path, wait=True)
    assert fd is not None, "it has waited"
    try:
        yield
    finally:
        unlock(fd)


def is_locked(path: Path) -> bool:
    """Report whether a process holds the lock; read permission suffices."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


class FileLock:
    """A file lock that one thread acquires and another releases; once closed, it is not acquired again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._fd: int | None = None
        self._closed = False

    def acquire(self) -> bool:
        """Acquire the lock if it is free; report whether we have it."""
        with self._guard:
            if not self._closed and self._fd is None:
                self._fd = lock(self._path, wait=False)
            return self._fd is not None

    def close(self) -> None:
        with self._guard:
            self._closed = True
            if self._fd is not None:
                unlock(self._fd)
                self._fd = None
