"""Atomic, durable writes of files that only their owner can read; every failure is an OSError."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PRIVATE = 0o600


def write_file(path: Path, data: bytes, mode: int = PRIVATE) -> None:
    """Replace a file atomically and durably: a crash leaves the old content or the new."""
    with open_replacement(path, mode) as file:
        file.write(data)


@contextlib.contextmanager
def open_replacement(path: Path, mode: int = PRIVATE) -> Iterator[BinaryIO]:
    """Open a file that replaces another atomically and durably at the end of the block, unless it raises."""
    temporary = path.with_name(f".{os.urandom(8).hex()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def rename(source: Path, target: Path) -> None:
    """Rename a file or directory durably; a file may replace another. Its content is not synced here."""
    source.replace(target)
    sync_dir(target.parent)


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
