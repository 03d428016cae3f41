"""Imports of files: each line is recorded once, however often the import is begun again.

A file is known by its content: the hash of what was imported of it, wherever it lies and whatever it is
called by now. If that is short, and only the beginning of a file, many files may begin like this: then it
must be the same file. Imports have a spool of their own. Before a portion is written to it, the position
where it begins in the file is made durable, together with the next number of the spool: how far the numbers
have come since says how many events of the portion are in the spool. If nothing of a run can be read, the
position stays where it was: the options may have been wrong.
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
#: How many files are remembered.
_MOST_FILES: Final = 1000
#: Events that are written to the spool together.
_BATCH: Final = 500
_READ_BYTES: Final = 1 << 20
#: Files that have so many bytes in common are one that has grown; with fewer, only if they have one inode.
_SHORT_BYTES: Final = 4 << 10
#: How long a line may be: four times what a message can hold, as JSON spells some letters out.
LINE_BYTES: Final = 4 * DEFAULT_LIMITS.max_msg_bytes
_MOST_REASON: Final = 300

#: What makes events of a line: one, several, or an error in the place of one.
Convert = Callable[[bytes], Iterator[Captured | BadLineError]]


@dataclass(frozen=True, slots=True)
class Position:
    """How far a file is imported: up to a line, and so many events of the portion behind it."""

    #: The content up to the end of the portion: what the file is known by.
    sha256: str
    end: int
    #: Where the portion begins.
    offset: int
    lines: int
    events: int = 0
    #: The next number of the spool before the portion; 0 if its events were counted.
    number: int = 0
    #: The file that it was, on its filesystem.
    inode: int = 0


_START: Final = Position("", 0, 0, 0)


class BadLine(NamedTuple):
    """A line that is no event."""

    line: int
    reason: str


class Imports:
    """The spool of imports to a stream, and how far each file has come."""

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
        """Count the events that have come to the spool behind a position."""
        if not position.number:
            return position
        return replace(position, number=0, events=position.events + self.spool.next - position.number)

    def find(self, file: BinaryIO) -> Position:
        """Return how far a file is imported, by its content."""
        positions = self._find_all(file)
        return positions[-1] if positions else _START

    def _find_all(self, file: BinaryIO) -> list[Position]:
        """Return all positions that are of a file, by its content; the last one is the farthest."""
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
        """Take it that nothing of a file was imported; that is durable with the next position of it."""
        inode = os.fstat(file.fileno()).st_ino
        positions = self._find_all(file)
        gone = {item for item in positions if item.inode == inode or item.sha256 == positions[-1].sha256}
        self._known = [item for item in self._known if item not in gone]

    def note(self, old: Position, new: Position) -> Position:
        """Make a position durable, in the place of an older one of the same file; of a copy, beside it."""
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
    """Add so many bytes of a file to a hash, or as many as there are; returns how many."""
    left = size
    while left > 0 and (data := file.read(min(_READ_BYTES, left))):
        running.update(data)
        left -= len(data)
    return size - left


class _Line(NamedTuple):
    """A line; of one that is too long there is no content."""

    content: bytes
    size: int
    is_long: bool
    has_end: bool


class _Lines:
    """The lines of a file behind an offset, and the hash of what was taken. Long ones are not kept."""

    def __init__(self, file: BinaryIO, offset: int, most: int) -> None:
        self._file = file
        self._most = most
        self._running = hashlib.sha256()
        #: Where the lines end that were taken.
        self.end = _hash(file, self._running, offset)
        self._ahead = self._running
        self._size = 0

    @property
    def sha256(self) -> str:
        """The hash of everything up to the end of the lines that were taken."""
        return self._running.hexdigest()

    def __iter__(self) -> Iterator[_Line]:
        while data := self._file.readline(self._most + 1):
            self._ahead, self._size = self._running.copy(), len(data)
            self._ahead.update(data)
            has_end = data.endswith(b"\n")
            is_long = len(data) > self._most and not has_end
            if is_long:
                data, has_end = b"", self._pass_rest()
            yield _Line(data, self._size, is_long, has_end)

    def _pass_rest(self) -> bool:
        """Read on to the end of a line; False if there is none."""
        while data := self._file.readline(_READ_BYTES):
            self._ahead.update(data)
            self._size += len(data)
            if data.endswith(b"\n"):
                return True
        return False

    def take(self) -> None:
        """Take the line that was yielded last."""
        self._running = self._ahead
        self.end += self._size


class Import:
    """One run over a file: yields lines that are no events, and counts."""

    def __init__(
        self,
        imports: Imports,
        convert: Convert,
        *,
        wait: Callable[[bool], None],
        line_bytes: int = LINE_BYTES,
    ) -> None:
        """``wait`` is called after each portion that was written; with True if the spool is full."""
        self._imports = imports
        self._convert = convert
        self._defaults = imports.settings
        self._wait = wait
        self._line_bytes = line_bytes
        #: Events that were written to the spool, lines that were read, and what is no event.
        self.events = self.lines = self.bad = 0
        #: Lines that were read by a run before.
        self.known = 0
        #: Whether the last line has no end yet, and was left for another run.
        self.incomplete = False
        #: Whether there was an event at all.
        self.has_read = False
        #: Events of the portion that was begun, which are in the spool already.
        self._skip = 0
        self._batch: list[bytes] = []

    def run(self, file: BinaryIO, *, again: bool = False) -> Iterator[BadLine]:
        """Import a file from where it was left; all of it if it is a pipe, or is to be read ``again``."""
        seekable = file.seekable()
        if again and seekable:
            self._imports.forget(file)
        kept = self._imports.find(file) if seekable and not again else _START
        self.known, self._skip = kept.lines, kept.events
        inode = os.fstat(file.fileno()).st_ino
        begun = kept
        lines = _Lines(file, kept.offset, self._line_bytes)

        def here() -> Position:
            return replace(begun, sha256=lines.sha256, end=lines.end, number=0, inode=inode)

        for line in lines:
            if not line.has_end and not self._is_whole(line):
                self.incomplete = True
                if line.is_long:
                    yield self._refuse(self.known + self.lines + 1, self._too_long(line))
                break
            self.lines += 1
            yield from self._take(line)
            lines.take()
            if len(self._batch) >= _BATCH:
                kept = self._imports.note(kept, here())
                self._write()
                begun = Position("", 0, lines.end, self.known + self.lines)
        if self.bad and not self.has_read:
            return
        last = here()
        kept = self._imports.note(kept, last)
        self._write()
        self._imports.note(kept, replace(last, offset=lines.end, lines=self.known + self.lines, events=0))

    def _take(self, line: _Line) -> Iterator[BadLine]:
        """Put the events of a line in the batch; yields what is none."""
        for event in self._events(line):
            if isinstance(event, str):
                yield self._refuse(self.known + self.lines, event)
                continue
            self.has_read = True
            if self._skip:
                self._skip -= 1
            else:
                self._batch.append(event)

    def _refuse(self, line: int, reason: str) -> BadLine:
        self.bad += 1
        return BadLine(line, reason[:_MOST_REASON])

    def _too_long(self, line: _Line) -> str:
        return f"a line of {line.size} bytes exceeds the limit of {self._line_bytes}"

    def _is_whole(self, line: _Line) -> bool:
        """Tell whether a line without an end is one; it may be half of what is being written."""
        return all(isinstance(event, bytes) for event in self._events(line))

    def _events(self, line: _Line) -> Iterator[bytes | str]:
        """Yield the encoded events of a line; text that says why one is none."""
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
        """Write the batch, whose position was noted."""
        spool = self._imports.spool
        while self._batch:
            written = spool.append(self._batch)
            self._batch = self._batch[written:]
            self.events += written
            spool.sync()
            self._wait(written == 0)


def report_damage(root: Path, stream: str, count: int, settings: FeedSettings) -> tuple[str, int]:
    """Write to a spool that events of a stream were lost; return its name, and the number of that event.

    It is not the spool of imports, which is being written.
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
