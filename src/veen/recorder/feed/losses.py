"""Lost events: events without room are counted, and the count is recorded as an event."""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from veen.recorder.event import pack, writable

_logger: Final = logging.getLogger(__name__)

# Type of the event that reports how many events of its stream were lost.
LOST_TYPE: Final = "recorder.lost"
# Reason for the loss of events that were in a spool.
DAMAGED: Final = "the spool was damaged on the disk"


class DeferredLog:
    """Lines to log once no lock is held: a handler may itself record, or wait for a thread that does."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int, str, tuple[object, ...]]] = deque()

    def error(self, text: str, *values: object) -> None:
        """Add a line; the arguments are those of a logger."""
        self._lines.append((logging.ERROR, text, values))

    def warning(self, text: str, *values: object) -> None:
        """Add a line; the arguments are those of a logger."""
        self._lines.append((logging.WARNING, text, values))

    def log(self) -> None:
        """Log the collected lines."""
        while self._lines:
            level, text, values = self._lines.popleft()
            _logger.log(level, text, *values)


@dataclass(slots=True)
class _Lost:
    count: int
    first: int
    last: int
    reason: str


class Losses:
    """Lost events by stream, until their loss is recorded."""

    def __init__(self, log: Callable[..., None]) -> None:
        self.total = 0
        self._log = log
        self._lost: dict[str, _Lost] = {}

    def add(self, stream: str, reason: str, times: Sequence[int] = (), count: int = 0) -> None:
        """Count events of these times, or ``count`` of now; log the first loss of a stream."""
        known = times or (int(time.time()),)
        count = count or len(known)
        first, last = min(known), max(known)
        self.total += count
        lost = self._lost.get(stream)
        if lost is None:
            text = "events of %s are lost: %s; their number is recorded"
            self._log(text, writable(stream), writable(reason))
            self._lost[stream] = _Lost(count, first, last, writable(reason))
        else:
            lost.count += count
            lost.first, lost.last = min(lost.first, first), max(lost.last, last)

    def streams(self) -> list[str]:
        """Return the streams with unrecorded losses."""
        return list(self._lost)

    def event(self, stream: str, subject: str, origin: str) -> bytes | None:
        """Return the event that reports the losses of a stream; None if there are none."""
        lost = self._lost.get(stream)
        if lost is None:
            return None
        return pack(
            subject_id=subject,
            event_type=LOST_TYPE,
            event_time=int(time.time()),
            origin=origin,
            payload={"count": lost.count, "from": lost.first, "to": lost.last, "reason": lost.reason},
        )

    def told(self, stream: str) -> None:
        """Clear the losses of a stream: they are recorded."""
        del self._lost[stream]
