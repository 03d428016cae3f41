"""A derived file that is written anew: in portions beside the old one, which it replaces at the end."""

from typing import Final

from veen.storage.fs import Filesystem, Write

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
        """How much was added."""
        return self._written + self._pending_bytes

    def add(self, data: bytes) -> None:
        """Add bytes."""
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= _PORTION_BYTES:
            self._write()

    def _write(self) -> None:
        self._fs.write_all([Write(self._temporary, self._written, b"".join(self._pending))])
        self._written += self._pending_bytes
        self._pending, self._pending_bytes = [], 0

    def finish(self) -> None:
        """Put the file in its place. Its name is durable after ``sync_dir``."""
        if self._pending or not self._written:
            self._write()
        self._fs.rename(self._temporary, self._path)

    def discard(self) -> None:
        """Remove the file: there is nothing that it could hold."""
        for path in (self._temporary, self._path):
            if self._fs.size(path) is not None:
                self._fs.unlink(path)
