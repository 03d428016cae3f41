"""A thread that moves committed entries into chunk files while others commit."""

from threading import Event, Thread
from typing import Final

from veen.storage.errors import FullError
from veen.storage.writer import Writer

#: Entries are in chunk files, for readers that do not look at the journal, after this long.
DEFAULT_INTERVAL_SEC: Final = 2.0


class BackgroundFlush:
    """Flushes when a segment is full, and at an interval. Its last error can be asked for."""

    def __init__(self, writer: Writer, interval_sec: float = DEFAULT_INTERVAL_SEC) -> None:
        self._writer = writer
        self._interval = interval_sec
        self._wake = Event()
        self._ending = False
        self.error: Exception | None = None
        writer.on_full = self._wake.set
        self._thread = Thread(target=self._run, name="veen-flush", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what it has not moved is left to ``Writer.close``."""
        self._ending = True
        self._wake.set()
        self._thread.join()
        self._writer.on_full = self._writer.flush

    def _run(self) -> None:
        while not self._ending:
            self._wake.wait(self._interval)
            self._wake.clear()
            try:
                self._writer.flush()
                self.error = None
            except FullError as error:
                self.error = error  # tried again at the next interval
            except Exception as error:  # noqa: BLE001 - whatever it is, commits must not wait for this thread
                self.error = error
                self._writer.halt(str(error))
                return
