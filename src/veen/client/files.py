"""Files of a client: replaced as a whole or not at all, and readable by their owner only."""

import contextlib
import fcntl
import os
import threading
from pathlib import Path
from typing import BinaryIO

from veen.client.errors import StateError

PRIVATE = 0o600


def write_file(path: Path, data: bytes, mode: int = PRIVATE) -> None:
    """Replace a file; after a crash there is the old or the new one."""
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
    """Make a file to write to."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE), "wb")


def sync_dir(path: Path) -> None:
    """Make names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def append_file(path: Path, data: bytes) -> None:
    """Add to a file of things that could be had again."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def remove_file(path: Path) -> None:
    """Remove a file, which may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def read_file(path: Path, what: str) -> bytes:
    """Read a file that should be there."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise StateError(f"{path} can not be read: {error.strerror}; {what}") from None


def lock(path: Path, *, wait: bool) -> int | None:
    """Take a lock; None if another has it and we do not wait. Closing the descriptor gives it back."""
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
    """Give a lock back, also if a child was forked meanwhile, which has the descriptor too."""
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


class Hold:
    """A lock that a thread takes and another gives back; once given back, it is not taken any more."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._fd: int | None = None
        self._over = False

    def take(self) -> bool:
        """Take the lock if nobody has it."""
        with self._guard:
            if not self._over:
                self._fd = lock(self._path, wait=False)
            return self._fd is not None

    def close(self) -> None:
        """Give it back."""
        with self._guard:
            self._over = True
            if self._fd is not None:
                unlock(self._fd)
                self._fd = None
