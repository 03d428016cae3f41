"""Atomic writes of files: write a temporary file, sync, rename (docs/adr/0007).

Large derived files are written in portions; the old file stays until the new one replaces it.
"""

from collections.abc import Mapping
from typing import Final

from veen.storage.fs import Filesystem, Write

# Suffix of a file until it is complete.
TMP = ".tmp"


def replace_files(fs: Filesystem, files: Mapping[str, bytes]) -> None:
    """Replace the content of files, each atomically; their names are durable after ``sync_dir``."""
    for path in files:
        if fs.size(path + TMP) is not None:  # left by an interrupted write
            fs.unlink(path + TMP)
    fs.write_all([Write(path + TMP, 0, data) for path, data in files.items()])
    for path in files:
        fs.rename(path + TMP, path)


def replace_file(fs: Filesystem, path: str, data: bytes) -> None:
    """Replace the content of a file atomically and durably."""
    replace_files(fs, {path: data})
    fs.sync_dir(path.rpartition("/")[0])


def read_file(fs: Filesystem, path: str) -> bytes | None:
    """Return the content of a file, or None if there is none."""
    try:
        return fs.read(path)
    except FileNotFoundError:
        return None


_PORTION_BYTES: Final = 1 << 22


class OutFile:
    """Collects bytes and writes them in large portions."""

    def __init__(self, fs: Filesystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._temporary = f"{path}.tmp"
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._written = 0
        if fs.size(self._temporary) is not None:
            fs.unlink(self._temporary)

    @property
    def size(self) -> int:
        """Bytes added so far."""
        return self._written + self._pending_bytes

    def add(self, data: bytes) -> None:
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= _PORTION_BYTES:
            self._write()

    def _write(self) -> None:
        self._fs.write_all([Write(self._temporary, self._written, b"".join(self._pending))])
        self._written += self._pending_bytes
        self._pending, self._pending_bytes = [], 0

    def finish(self) -> None:
        """Sync the file and rename it to its path. Its name is durable after ``sync_dir``."""
        if self._pending or not self._written:
            self._write()
        self._fs.rename(self._temporary, self._path)

    def discard(self) -> None:
        """Remove the file and its temporary: it would be empty."""
        for path in (self._temporary, self._path):
            if self._fs.size(path) is not None:
                self._fs.unlink(path)
