"""The journal of whoever ships: how far the hub has each spool, and which events are on their way.

Before messages are sealed, a note says which events get which numbers of the client. It is durable before
anything is sent. Each record is the whole state, and the last whole record counts: what a note says is
settled before the next one is made, so there is at most one. The number that the hub has reached for this key
then says how much of it was recorded.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from veen.core.encoding import cbor
from veen.core.types import Label, VerifyKey
from veen.recorder.feed.spool import Whole, frame, whole_frames
from veen.stdx.atomic_file import PRIVATE, sync_dir, write_file

#: A journal that is longer is written anew, with its last record.
_MOST_BYTES: Final = 1 << 20
#: How records begin, behind the head of their map.
_MARK: Final = cbor.write_text("done")


@dataclass(frozen=True, slots=True)
class Note:
    """Events of a spool, in a row, and the numbers that their messages get."""

    spool: str
    first: int
    count: int
    label: Label
    client_id: VerifyKey
    client_seq: int


@dataclass(slots=True)
class Progress:
    """How far each spool is recorded, and what is not known yet."""

    done: dict[str, int]
    note: Note | None = None

    def encode(self) -> bytes:
        """Return a record."""
        note = self.note
        progress: dict[Any, Any] = {"done": self.done}
        if note is not None:
            progress["note"] = [
                note.spool,
                note.first,
                note.count,
                bytes(note.label),
                bytes(note.client_id),
                note.client_seq,
            ]
        return cbor.encode(progress)

    @classmethod
    def decode(cls, data: bytes) -> "Progress":
        """Read a record, whose checksum was right."""
        progress: Any = cbor.decode(data)
        note = progress.get("note")
        return cls(dict(progress["done"]), None if note is None else Note(*note))


def read_progress(path: Path) -> Progress:
    """Return what the last whole record says; no lock is needed to look."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Progress({})
    return _last(data)[0]


def reserved(path: Path, spool: str) -> int:
    """Return the last number of a spool that is recorded, or may be."""
    progress = read_progress(path)
    note = progress.note
    last = note.first + note.count - 1 if note is not None and note.spool == spool else 0
    return max(progress.done.get(spool, 0), last)


def _last(data: bytes) -> tuple[Progress, int, int]:
    """Return the last whole record, the number of the next one, and where it begins.

    A record before it that is damaged does not matter: going back behind it would send events twice.
    """
    last: Whole | None = None
    for last in whole_frames(data, 0, _MARK):  # noqa: B007 - the last one
        pass
    if last is None:
        return Progress({}), 0, 0
    return Progress.decode(last.content), last.number + 1, last.end


class Journal:
    """The journal, of the one who ships."""

    def __init__(self, path: Path) -> None:
        """Read it; a torn record at its end was never relied on."""
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        sync_dir(path.parent)
        self.progress, self._number, self._size = _last(path.read_bytes())
        os.ftruncate(self._fd, self._size)
        os.lseek(self._fd, self._size, os.SEEK_SET)
        self._written = self.progress.encode()
        self._synced = False

    def done(self, spool: str) -> int:
        """Return the number up to which a spool is recorded."""
        return self.progress.done.get(spool, 0)

    def begin(self, note: Note) -> None:
        """Note what is about to be sealed; it is durable when this returns."""
        self.progress.note = note
        self.write()
        self.sync()

    def settle(self, spool: str, done: int) -> None:
        """Take it that a spool is recorded up to a number, and nothing is on its way."""
        self.progress.note = None
        if done > self.done(spool):
            self.progress.done[spool] = done

    def write(self) -> None:
        """Add a record, if there is news."""
        data = self.progress.encode()
        if data == self._written:
            return
        if self._size > _MOST_BYTES:
            self._start_again(data)
            return
        record = frame(self._number, data)
        try:
            view = memoryview(record)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            os.ftruncate(self._fd, self._size)
            os.lseek(self._fd, self._size, os.SEEK_SET)
            raise
        self._number += 1
        self._size += len(record)
        self._written, self._synced = data, False

    def sync(self) -> None:
        """Make it durable."""
        if not self._synced:
            os.fdatasync(self._fd)
            self._synced = True

    def _start_again(self, data: bytes) -> None:
        write_file(self._path, frame(0, data))
        os.close(self._fd)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        self._size = os.lseek(self._fd, 0, os.SEEK_END)
        self._number, self._written, self._synced = 1, data, True

    def close(self) -> None:
        """Write what is known, and let go."""
        try:
            self.write()
            self.sync()
        finally:
            os.close(self._fd)
