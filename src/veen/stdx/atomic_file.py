"""Atomic writes and locks of files that only their owner can read; every failure is an OSError."""

import contextlib
import fcntl
import os
import threading
from pathlib import Path
from typing import BinaryIO

PRIVATE = 0o600


def write_file(path: Path, data: bytes, mode: int = PRIVATE) -> None:
    """Replace a file atomically and durably: after a crash there is the old content or the new."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_dir(path.parent)


def create_file(path: Path) -> BinaryIO:
    """Create a file that must not exist yet, open for writing."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE), "wb")


def sync_dir(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def append_file(path: Path, data: bytes) -> None:
    """Append to a file, without fsync: for what can be rebuilt after a crash."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def remove_file(path: Path) -> None:
    """Remove a file, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


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
