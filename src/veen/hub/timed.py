"""The data directory with a stopwatch on the journal's syncs: what an acknowledgement waits for (OPS-003)."""

from collections.abc import Callable
from time import perf_counter

from veen.storage import RealFilesystem
from veen.storage.fs import AppendFile


class _TimedAppend:
    def __init__(self, file: AppendFile, on_sync: Callable[[float], None]) -> None:
        self.write = file.write
        self.truncate = file.truncate
        self.close = file.close
        self._sync = file.sync
        self._on_sync = on_sync

    def sync(self) -> None:
        """Make everything written durable."""
        started = perf_counter()
        self._sync()
        self._on_sync(perf_counter() - started)


class TimedFilesystem(RealFilesystem):
    """Calls ``on_sync`` with the seconds that each sync of the journal took."""

    on_sync: Callable[[float], None] = staticmethod(lambda _: None)

    def open_append(self, path: str) -> AppendFile:
        """Open an existing file for appending."""
        return _TimedAppend(super().open_append(path), self._synced)

    def _synced(self, seconds: float) -> None:
        self.on_sync(seconds)  # asked each time: the journal is opened before anybody listens
