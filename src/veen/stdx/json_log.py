"""A structured log: JSON lines, written by a thread of its own, so that a slow reader slows nothing else."""

import json
import sys
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import BinaryIO, Final

import structlog

LEVELS: Final = ("debug", "info", "warn", "error")
# Bytes of lines that wait to be written; more are dropped, and counted.
_MAX_WAITING_BYTES: Final = 8 << 20


class LogWriter:
    """Writes lines in the order in which they were added."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._lock = Lock()
        self._waiting = 0
        self.dropped = 0
        self._thread = Thread(target=self._run, name="veen-log", daemon=True)
        self._thread.start()

    def write(self, lines: Iterable[str]) -> None:
        """Add lines; they are dropped if too many bytes wait."""
        data = "".join(f"{line}\n" for line in lines).encode()
        with self._lock:
            fits = self._waiting + len(data) <= _MAX_WAITING_BYTES
            self._waiting += len(data) if fits else 0
        if fits:
            self._queue.put(data)
        else:
            self.dropped += data.count(b"\n")

    def msg(self, line: str) -> None:
        """Add one line: what structlog calls."""
        self.write((line,))

    debug = info = warning = warn = error = critical = exception = msg

    def close(self) -> None:
        """Write what waits, and end the thread."""
        self._queue.put(None)
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while (data := self._queue.get()) is not None:
            try:
                self._sink.write(data)
                if not self._queue.qsize():
                    self._sink.flush()
            except (OSError, ValueError):
                self.dropped += data.count(b"\n")  # the reader is gone, or the disk is full
            with self._lock:
                self._waiting -= len(data)
        self._flush()

    def _flush(self) -> None:
        try:
            self._sink.flush()
        except (OSError, ValueError):
            self.dropped += 1


class Log:
    """Levels and structure over a writer."""

    def __init__(self, writer: LogWriter, level: str, now: Callable[[], str]) -> None:
        self.writer = writer
        self._least = LEVELS.index(level)
        self._now = now
        self._events = structlog.wrap_logger(
            writer, processors=[structlog.processors.JSONRenderer(serializer=json.dumps)]
        )

    def is_on(self, level: str) -> bool:
        """Report whether lines of a level are written."""
        return LEVELS.index(level) >= self._least

    def event(self, level: str, event: str, **fields: object) -> None:
        """Write one line."""
        if self.is_on(level):
            self._events.info(ts=self._now(), level=level, event=event, **fields)


def to_stderr() -> BinaryIO:
    """Return the sink of a process in the foreground."""
    return sys.stderr.buffer
