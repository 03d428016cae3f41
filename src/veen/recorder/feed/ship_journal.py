"""The journal of the shipper: how far the hub has each spool, and which events are in flight.

Before messages are sealed, a note assigns client sequence numbers to events. It is durable before anything is
sent. Each record is the whole state, and the last whole record counts: a note is settled before the next one
is written, so there is at most one. After a failure, the last number that the hub has for this key says how
many of its events were recorded.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from veen.core.encoding import cbor
from veen.core.types import Label, VerifyKey
from veen.recorder.feed.spool import Whole, frame, whole_frames
from veen.stdx.atomic_file import PRIVATE, sync_dir, write_file

# A larger journal is rewritten with its last record only.
_MOST_BYTES: Final = 1 << 20
# The bytes after the head of the map in every record.
_MARK: Final = cbor.write_text("done")


@dataclass(frozen=True, slots=True)
class Note:
    """A run of consecutive events of a spool, and the sequence numbers of their messages."""

    spool: str
    first: int
    count: int
    label: Label
    client_id: VerifyKey
    client_seq: int


@dataclass(slots=True)
class Progress:
    """How far each spool is recorded, and the events in flight."""

    done: dict[str, int]
    note: Note | None = None

    def encode(self) -> bytes:
        """Return the encoded record."""
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
        """Decode a record whose checksum is valid."""
        progress: Any = cbor.decode(data)
        note = progress.get("note")
        return cls(dict(progress["done"]), None if note is None else Note(*note))


def read_progress(path: Path) -> Progress:
    """Return the last whole record; reading needs no lock."""
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
    """Return the last whole record, the number of the next one, and its offset.

    A damaged record before it does not matter: falling back to an earlier one would send events twice.
    """
    last: Whole | None = None
    for last in whole_frames(data, 0, _MARK):  # noqa: B007 - the last one
        pass
    if last is None:
        return Progress({}), 0, 0
    return Progress.decode(last.content), last.number + 1, last.end


class Journal:
    """The journal, opened by the process that ships."""

    def __init__(self, path: Path) -> None:
        """Read the journal; a torn record at its end was never synced, so it is cut off."""
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
        """Write a note of the messages to be sealed; it is durable when this returns."""
        self.progress.note = note
        self.write()
        self.sync()

    def settle(self, spool: str, done: int) -> None:
        """Set the number up to which a spool is recorded; nothing is in flight."""
        self.progress.note = None
        if done > self.done(spool):
            self.progress.done[spool] = done

    def write(self) -> None:
        """Append a record if the state has changed."""
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
        """Make the journal durable."""
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
        """Write and sync the state, then close the file."""
        try:
            self.write()
            self.sync()
        finally:
            os.close(self._fd)
