"""File imports: each line is recorded once, however often the import is restarted.

A file is identified by its content: the hash of the imported part, independent of its path and name. If that
part is short, and not the whole file, other files may begin alike: then the inode has to match as well.
Imports have a spool of their own. Before a batch is written to it, the offset where the batch begins in the
file is made durable, together with the next number of the spool: the numbers used since then say how many
events of the batch are in the spool. If nothing of a run can be read, the position does not change: the
options may have been wrong.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from veen.core.limits import DEFAULT_LIMITS
from veen.recorder.errors import BadLineError, SpoolFullError
from veen.recorder.event import UNFIT, Captured
from veen.recorder.feed.losses import DAMAGED, Losses
from veen.recorder.feed.settings import FeedSettings
from veen.recorder.feed.ship_journal import reserved
from veen.recorder.feed.shipper import JOURNAL
from veen.recorder.feed.spool import Spool
from veen.stdx.atomic_file import write_file

_logger: Final = logging.getLogger(__name__)

_POSITIONS: Final = "positions.json"
_PURPOSE: Final = "import"
# Maximum number of remembered files.
_MOST_FILES: Final = 1000
# Events per batch.
_BATCH: Final = 500
_READ_BYTES: Final = 1 << 20
# Files with a common beginning of this size are the same file, which has grown; below, the inode decides.
_SHORT_BYTES: Final = 4 << 10
# Maximum length of a line: four times that of a message, since JSON escapes some characters.
LINE_BYTES: Final = 4 * DEFAULT_LIMITS.max_msg_bytes
_MOST_REASON: Final = 300

# Converts a line to events; an event that cannot be read is an error in its place.
Convert = Callable[[bytes], Iterator[Captured | BadLineError]]


@dataclass(frozen=True, slots=True)
class Position:
    """How far a file is imported: up to a line, and a number of events of the batch after it."""

    # Hash of the content up to the end of the batch: identifies the file.
    sha256: str
    end: int
    # Offset where the batch begins.
    offset: int
    lines: int
    events: int = 0
    # The next number of the spool before the batch; 0 if its events were counted.
    number: int = 0
    # The inode of the file.
    inode: int = 0


_START: Final = Position("", 0, 0, 0)


class BadLine(NamedTuple):
    """A line that is not an event."""

    line: int
    reason: str


class Imports:
    """The spool of imports to a stream, and the position of each file."""

    def __init__(self, root: Path, settings: FeedSettings) -> None:
        """Raises BlockingIOError if another import to this stream is running."""
        done = partial(reserved, root / JOURNAL)
        self.settings = settings
        self.spool = Spool.open(
            root, settings.stream, bound=settings.spool_bytes, done=done, purpose=_PURPOSE
        )
        self._path = self.spool.place / _POSITIONS
        known = json.loads(self._path.read_bytes()) if self._path.exists() else []
        self._known = [self._settled(Position(**item)) for item in known]

    def _settled(self, position: Position) -> Position:
        """Count the events that were written to the spool after a position."""
        if not position.number:
            return position
        return replace(position, number=0, events=position.events + self.spool.next - position.number)

    def find(self, file: BinaryIO) -> Position:
        """Return the position of a file, identified by its content."""
        positions = self._find_all(file)
        return positions[-1] if positions else _START

    def _find_all(self, file: BinaryIO) -> list[Position]:
        """Return all positions that match the content of a file; the last one is the farthest."""
        positions, running, at = [], hashlib.sha256(), 0
        status = os.fstat(file.fileno())
        for position in sorted(self._known, key=lambda item: item.end):
            at += _hash(file, running, position.end - at)
            grown = position.inode == status.st_ino or position.end >= _SHORT_BYTES
            if (
                at == position.end
                and running.hexdigest() == position.sha256
                and (grown or at == status.st_size)
            ):
                positions.append(position)
        file.seek(0)
        return positions

    def forget(self, file: BinaryIO) -> None:
        """Drop the positions of a file; durable with its next position."""
        inode = os.fstat(file.fileno()).st_ino
        positions = self._find_all(file)
        dropped = {item for item in positions if item.inode == inode or item.sha256 == positions[-1].sha256}
        self._known = [item for item in self._known if item not in dropped]

    def note(self, old: Position, new: Position) -> Position:
        """Make a position durable; it replaces an older one of the same file, but not that of a copy."""
        noted = replace(new, number=self.spool.next)
        others = [
            self._settled(item)
            for item in self._known
            if (item.sha256, item.inode) != (old.sha256, new.inode)
        ]
        self._known = [*others[-_MOST_FILES:], noted]
        write_file(self._path, json.dumps([asdict(item) for item in self._known]).encode())
        return noted


def _hash(file: BinaryIO, running: "hashlib._Hash", size: int) -> int:
    """Add up to ``size`` bytes of a file to a hash; return how many."""
    remaining = size
    while remaining > 0 and (data := file.read(min(_READ_BYTES, remaining))):
        running.update(data)
        remaining -= len(data)
    return size - remaining


class _Line(NamedTuple):
    """A line; the content of one that is too long is dropped."""

    content: bytes
    size: int
    is_long: bool
    has_end: bool


class _Lines:
    """The lines of a file after an offset, and the hash of processed ones. Long lines are not buffered."""

    def __init__(self, file: BinaryIO, offset: int, max_bytes: int) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self._running = hashlib.sha256()
        # The end of the processed lines.
        self.end = _hash(file, self._running, offset)
        self._ahead = self._running
        self._size = 0

    @property
    def sha256(self) -> str:
        """The hash of everything up to the end of the processed lines."""
        return self._running.hexdigest()

    def __iter__(self) -> Iterator[_Line]:
        while data := self._file.readline(self._max_bytes + 1):
            self._ahead, self._size = self._running.copy(), len(data)
            self._ahead.update(data)
            has_end = data.endswith(b"\n")
            is_long = len(data) > self._max_bytes and not has_end
            if is_long:
                data, has_end = b"", self._pass_rest()
            yield _Line(data, self._size, is_long, has_end)

    def _pass_rest(self) -> bool:
        """Skip to the end of a line; False if it has no end."""
        while data := self._file.readline(_READ_BYTES):
            self._ahead.update(data)
            self._size += len(data)
            if data.endswith(b"\n"):
                return True
        return False

    def take(self) -> None:
        """Mark the line that was yielded last as processed."""
        self._running = self._ahead
        self.end += self._size


class Import:
    """One run over a file: yields lines that are not events, and counts."""

    def __init__(
        self,
        imports: Imports,
        convert: Convert,
        *,
        wait: Callable[[bool], None],
        line_bytes: int = LINE_BYTES,
    ) -> None:
        """``wait`` is called after each batch is written; with True if the spool is full."""
        self._imports = imports
        self._convert = convert
        self._defaults = imports.settings
        self._wait = wait
        self._line_bytes = line_bytes
        # Events written to the spool, lines read, and rejected lines or events.
        self.events = self.lines = self.bad = 0
        # Lines that an earlier run has read.
        self.known = 0
        # Whether the last line has no end yet, and was left for another run.
        self.incomplete = False
        # Whether any event could be read.
        self.has_read = False
        # Events of the current batch that an earlier run has written to the spool.
        self._skip = 0
        self._batch: list[bytes] = []

    def run(self, file: BinaryIO, *, again: bool = False) -> Iterator[BadLine]:
        """Resume the import of a file; start over if it is a pipe, or with ``again``."""
        seekable = file.seekable()
        if again and seekable:
            self._imports.forget(file)
        position = self._imports.find(file) if seekable and not again else _START
        self.known, self._skip = position.lines, position.events
        inode = os.fstat(file.fileno()).st_ino
        batch_start = position
        lines = _Lines(file, position.offset, self._line_bytes)

        def here() -> Position:
            return replace(batch_start, sha256=lines.sha256, end=lines.end, number=0, inode=inode)

        for line in lines:
            if not line.has_end and not self._is_whole(line):
                self.incomplete = True
                if line.is_long:
                    yield self._reject(self.known + self.lines + 1, self._too_long(line))
                break
            self.lines += 1
            yield from self._take(line)
            lines.take()
            if len(self._batch) >= _BATCH:
                position = self._imports.note(position, here())
                self._write()
                batch_start = Position("", 0, lines.end, self.known + self.lines)
        if self.bad and not self.has_read:
            return
        last = here()
        position = self._imports.note(position, last)
        self._write()
        self._imports.note(position, replace(last, offset=lines.end, lines=self.known + self.lines, events=0))

    def _take(self, line: _Line) -> Iterator[BadLine]:
        """Add the events of a line to the batch; yield the invalid ones."""
        for event in self._events(line):
            if isinstance(event, str):
                yield self._reject(self.known + self.lines, event)
                continue
            self.has_read = True
            if self._skip:
                self._skip -= 1
            else:
                self._batch.append(event)

    def _reject(self, line: int, reason: str) -> BadLine:
        self.bad += 1
        return BadLine(line, reason[:_MOST_REASON])

    def _too_long(self, line: _Line) -> str:
        return f"a line of {line.size} bytes exceeds the limit of {self._line_bytes}"

    def _is_whole(self, line: _Line) -> bool:
        """Whether a line without a newline is complete; it may be a write in progress."""
        return all(isinstance(event, bytes) for event in self._events(line))

    def _events(self, line: _Line) -> Iterator[bytes | str]:
        """Yield the encoded events of a line; text says why one is invalid."""
        if line.is_long:
            yield self._too_long(line)
            return
        try:
            for event in self._convert(line.content) if line.content.strip() else ():
                if isinstance(event, BadLineError):
                    yield str(event)
                    continue
                try:
                    yield event.pack(self._defaults)[1]
                except UNFIT as error:
                    yield str(error)
        except BadLineError as error:
            yield str(error)

    def _write(self) -> None:
        """Write the batch, whose position is durable."""
        spool = self._imports.spool
        while self._batch:
            written = spool.append(self._batch)
            self._batch = self._batch[written:]
            self.events += written
            spool.sync()
            self._wait(written == 0)


def report_damage(root: Path, stream: str, count: int, settings: FeedSettings) -> tuple[str, int]:
    """Record that events of a stream were lost; return the spool's name, and the number of that event.

    It is not the spool of imports, which is in use.
    """
    losses = Losses(_logger.error)
    losses.add(stream, DAMAGED, count=count)
    event = losses.event(stream, settings.subject, settings.origin)
    assert event is not None
    done = partial(reserved, root / JOURNAL)
    spool = Spool.open(root, stream, bound=settings.spool_bytes, done=done)
    try:
        if spool.append([event]) == 0:
            raise SpoolFullError(f"there is no room in {spool.place} to record the loss of events")
        spool.sync()
        return spool.name, spool.next - 1
    finally:
        spool.close(0)
