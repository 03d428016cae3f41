"""Read-only access to a data directory for the checker."""

import errno
from collections.abc import Callable
from typing import Protocol

from veen.storage.errors import FindingError
from veen.storage.fsck.report import Reason, wrong


class Files(Protocol):
    """The read operations of ``veen.storage.fs.Filesystem``."""

    def names(self, directory: str) -> list[str]:
        """Return the names of the files in a directory, sorted; none if it does not exist."""

    def size(self, path: str) -> int | None:
        """Return the size of a file, or None if there is no such file."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return up to ``length`` bytes; FileNotFoundError if there is no such file."""


# Called with the number of bytes read since the last call.
Progress = Callable[[int], None]


class Source:
    """Reads files, counts bytes, and distinguishes missing files from unreadable ones."""

    def __init__(self, files: Files, progress: Progress | None, where: str = "") -> None:
        self._files = files
        self._progress = progress
        self._where = where

    def below(self, where: str) -> "Source":
        """Return a subdirectory as a source."""
        return Source(self._files, self._progress, self._where + where)

    def names(self, directory: str) -> list[str]:
        """Return the names of the files in a directory, sorted; none if it does not exist."""
        return self._files.names((self._where + directory).rstrip("/"))

    def size(self, path: str) -> int | None:
        """Return the size of a file, or None if there is no such file."""
        return self._files.size(self._where + path)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return bytes; FileNotFoundError if the file is missing, since a running hub may have moved it."""
        try:
            data = self._files.read(self._where + path, offset, length)
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, "gone", path) from error
        except PermissionError:  # not a finding about the file
            raise
        except OSError as error:
            raise _unreadable(path, offset, error) from error
        if self._progress is not None:
            self._progress(len(data))
        return data

    def read_if_there(self, path: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""
        try:
            return self.read(path)
        except FileNotFoundError:
            return None


def _unreadable(path: str, offset: int, error: OSError) -> FindingError:
    return wrong(path, offset, Reason.UNREADABLE, error.strerror or type(error).__name__)
