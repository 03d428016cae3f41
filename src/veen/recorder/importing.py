"""Imports of files: each line is recorded once, however often the import is begun again.

A file is known by its content: the hash of what was imported of it, wherever it lies and whatever it is
called by now. If that is short, and only the beginning of a file, many files may begin like this: then it
must be the same file. Imports have a spool of their own. Before a portion is written to it, the position
where it begins in the file is made durable, together with the next number of the spool: how far the numbers
have come since says how many events of the portion are in the spool.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from veen.client.files import write_file
from veen.recorder.journal import reserved
from veen.recorder.jsonlines import BadLineError
from veen.recorder.packing import UNFIT, Captured, Defaults
from veen.recorder.shipping import JOURNAL
from veen.recorder.spool import Spool

_POSITIONS: Final = "positions.json"
_PURPOSE: Final = "import"
#: How many files are remembered.
_MOST_FILES: Final = 1000
#: Events that are written to the spool together.
_BATCH: Final = 500
_READ_BYTES: Final = 1 << 20
#: Files that have so many bytes in common are one that has grown; with fewer, only if they have one inode.
_SHORT_BYTES: Final = 4 << 10

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

    def __init__(self, root: Path, stream: str, *, bound: int) -> None:
        """Raises BlockingIOError if another import to this stream is on its way."""
        done = partial(reserved, root / JOURNAL)
        self.spool = Spool.open(root, stream, bound=bound, done=done, purpose=_PURPOSE)
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
        best, running, at = _START, hashlib.sha256(), 0
        status = os.fstat(file.fileno())
        for position in sorted(self._known, key=lambda item: item.end):
            at += _hash(file, running, position.end - at)
            grown = position.inode == status.st_ino or position.end >= _SHORT_BYTES
            if (
                at == position.end
                and running.hexdigest() == position.sha256
                and (grown or at == status.st_size)
            ):
                best = position
        file.seek(0)
        return best

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


class Import:
    """One run over a file: yields lines that are no events, and counts."""

    def __init__(
        self, imports: Imports, convert: Convert, *, defaults: Defaults, wait: Callable[[bool], None]
    ) -> None:
        """``wait`` is called after each portion that was written; with True if the spool is full."""
        self._imports = imports
        self._convert = convert
        self._defaults = defaults
        self._wait = wait
        self.events = self.lines = self.bad = 0
        #: Events that were recorded by a run before.
        self.known = 0
        #: Whether the last line has no end yet, and was left for another run.
        self.incomplete = False

    def run(self, file: BinaryIO) -> Iterator[BadLine]:
        """Import a file from where it was left; of a pipe, all."""
        kept = self._imports.find(file) if file.seekable() else _START
        self.known, skip = kept.lines, kept.events
        offset, lines, carried = kept.offset, kept.lines, kept.events
        running = hashlib.sha256()
        end = _hash(file, running, offset)
        inode = os.fstat(file.fileno()).st_ino
        batch: list[bytes] = []
        for line in file:
            if not line.endswith(b"\n") and not self._is_whole(line):
                self.incomplete = True
                break
            self.lines += 1
            for found in self._events(line) if line.strip() else ():
                if isinstance(found, str):
                    self.bad += 1
                    yield BadLine(self.known + self.lines, found)
                elif skip:
                    skip -= 1
                else:
                    batch.append(found)
            running.update(line)
            end += len(line)
            if len(batch) >= _BATCH:
                here = Position(running.hexdigest(), end, offset, lines, carried, inode=inode)
                kept = self._imports.note(kept, here)
                self._write(batch)
                batch, offset, lines, carried = [], end, self.known + self.lines, 0
        here = Position(running.hexdigest(), end, offset, lines, carried, inode=inode)
        kept = self._imports.note(kept, here)
        self._write(batch)
        lines = self.known + self.lines
        self._imports.note(kept, replace(here, offset=end, lines=lines, events=0))

    def _is_whole(self, line: bytes) -> bool:
        """Tell whether a line without an end is one; it may be half of what is being written."""
        return all(isinstance(found, bytes) for found in self._events(line))

    def _events(self, line: bytes) -> Iterator[bytes | str]:
        """Yield the encoded events of a line; text that says why one is none."""
        try:
            for found in self._convert(line):
                if isinstance(found, BadLineError):
                    yield str(found)
                    continue
                try:
                    yield found.pack(self._defaults)[1]
                except UNFIT as error:
                    yield str(error)
        except BadLineError as error:
            yield str(error)

    def _write(self, bodies: list[bytes]) -> None:
        """Write events, whose position was noted."""
        spool = self._imports.spool
        while bodies:
            written = spool.append(bodies)
            bodies = bodies[written:]
            self.events += written
            spool.sync()
            self._wait(written == 0)
