"""Locks of files, held by a process; every failure is an OSError."""

import fcntl
import os
import threading
from pathlib import Path

from veen.stdx.atomic_file import PRIVATE


def lock(path: Path, *, wait: bool) -> int | None:
    """Lock a file; None if it is locked and ``wait`` is false. Closing the descriptor releases it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
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


class Hold:
    """A file lock that one thread acquires and another releases; once closed, it is not acquired again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._fd: int | None = None
        self._over = False

    def take(self) -> bool:
        """Acquire the lock if it is free; report whether we have it."""
        with self._guard:
            if not self._over:
                self._fd = lock(self._path, wait=False)
            return self._fd is not None

    def close(self) -> None:
        """Release it."""
        with self._guard:
            self._over = True
            if self._fd is not None:
                unlock(self._fd)
                self._fd = None
