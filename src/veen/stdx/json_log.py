"""Logging for programs: events with fields, and the handler with which a process writes them as JSON lines.

A library logs to ``logging.getLogger("veen.x")``, so that a program that embeds it sees everything in one
place. A VEEN process calls ``json_lines``: a thread writes, so that a slow reader delays nothing else.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from queue import SimpleQueue
from threading import Lock, Thread
from typing import BinaryIO, Final

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}
_NAMES: Final = {number: name for name, number in LEVELS.items()} | {logging.CRITICAL: "error"}
# Everything that VEEN logs is logged below this name.
_ROOT: Final = logging.getLogger("veen")
# Bytes of queued lines; further lines are dropped, and counted.
_MAX_WAITING_BYTES: Final = 8 << 20


class LogEvent:
    """An event with fields: the message of a log record. As text: ``name field=value ...``."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, /, **fields: object) -> None:
        self.name = name
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{name}={value!r}" for name, value in self.fields.items())])


class JsonLines:
    """Many similar events, each already a line of JSON: the message of one log record."""

    __slots__ = ("lines",)

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines

    def __str__(self) -> str:
        return "\n".join(self.lines)


class LogWriter:
    """A stream of text that never blocks: a thread writes the lines in order."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._lock = Lock()
        self._waiting = 0
        self.dropped = 0
        self._thread = Thread(target=self._run, name="veen-log", daemon=True)
        self._thread.start()

    def write(self, lines: str) -> None:
        """Queue lines; they are dropped if too many bytes are queued."""
        data = lines.encode()
        with self._lock:
            fits = self._waiting + len(data) <= _MAX_WAITING_BYTES
            self._waiting += len(data) if fits else 0
        if fits:
            self._queue.put(data)
        else:
            self.dropped += data.count(b"\n")

    @property
    def is_idle(self) -> bool:
        """Whether everything that was queued is written, or dropped."""
        return not self._waiting

    def close(self) -> None:
        """Write the queued lines, and end the thread."""
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


class JsonFormatter(logging.Formatter):
    """Formats a record as a line of JSON."""

    def __init__(self, now: Callable[[], str]) -> None:
        super().__init__()
        self._now = now

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, or the lines of a ``JsonLines`` record."""
        if isinstance(record.msg, JsonLines):
            return str(record.msg)
        head = {"ts": self._now(), "level": _NAMES.get(record.levelno, record.levelname.lower())}
        if isinstance(record.msg, LogEvent):
            return json.dumps({**head, **record.msg.fields, "event": record.msg.name}, default=repr)
        # The record is of a library that logs text.
        fields = {"logger": record.name, "event": record.getMessage()}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps({**head, **fields})


class JsonHandler(logging.StreamHandler[LogWriter]):
    """Writes each record as a line of JSON."""

    def __init__(self, sink: BinaryIO, level: str, now: Callable[[], str]) -> None:
        super().__init__(LogWriter(sink))
        self.setFormatter(JsonFormatter(now))
        self.setLevel(LEVELS[level])


@contextmanager
def json_lines(
    sink: BinaryIO,
    level: str,
    now: Callable[[], str] = lambda: datetime.now(UTC).isoformat(timespec="milliseconds"),
) -> Iterator[JsonHandler]:
    """In the block, write VEEN's log records of at least a level as JSON lines, and nowhere else."""
    handler = JsonHandler(sink, level, now)
    _ROOT.addHandler(handler)
    _adapt()
    try:
        yield handler
    finally:
        _ROOT.removeHandler(handler)
        _adapt()
        handler.stream.close()


def log_lines(logger: logging.Logger, lines: Sequence[str]) -> None:
    """Log many lines of JSON at level info.

    A record costs several times as much as a line, so it is created only for handlers that are not of
    ``json_lines``.
    """
    handlers = _listeners(logger)
    ours = [handler for handler in handlers if isinstance(handler, JsonHandler) and not handler.filters]
    if len(ours) < len(handlers) or not ours:
        logger.info(JsonLines(lines))
        return
    text = "\n".join(lines) + "\n"
    for handler in ours:
        if handler.level <= logging.INFO:
            handler.stream.write(text)


def _listeners(logger: logging.Logger) -> list[logging.Handler]:
    """Return the handlers that receive the records of a logger."""
    handlers: list[logging.Handler] = []
    at: logging.Logger | None = logger
    while at is not None:
        handlers += at.handlers
        at = at.parent if at.propagate else None
    return handlers


def _handlers() -> list[JsonHandler]:
    return [handler for handler in _ROOT.handlers if isinstance(handler, JsonHandler)]


def _adapt() -> None:
    """Set level and propagation of the root logger by the handlers it has."""
    handlers = _handlers()
    _ROOT.setLevel(min((handler.level for handler in handlers), default=logging.NOTSET))
    _ROOT.propagate = not handlers


def dropped() -> int:
    """Return how many lines of this process were dropped."""
    return sum(handler.stream.dropped for handler in _handlers())


def to_stderr() -> BinaryIO:
    """Return the sink of a process in the foreground."""
    return sys.stderr.buffer
