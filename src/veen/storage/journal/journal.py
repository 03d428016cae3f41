"""The journal: where entries become durable (docs/reference/data-directory.md, ADR 0007).

A segment is a header and records. A batch is committed when the sync after it has returned, and not before.
The ``committed`` record that follows is not synced: later, it distinguishes a damaged batch from one that was
never acknowledged.

Assumptions: a synced write is durable; of a write that was not synced, any bytes may be missing or garbage.
Clients control the content of entries, so a record is recognised by a random mark that they cannot know.
"""

import contextlib
import errno
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from veen.core.data_dir import paths
from veen.core.objects.checkpoint import Checkpoint
from veen.core.types import Label, RandomBytes, StreamId
from veen.storage.atomic_file import replace_file
from veen.storage.errors import DamagedStoreError, StoreFullError
from veen.storage.fs import AppendFile, Filesystem, Write

_MAGIC: Final = b"VEENJRN1"
_HEADER: Final = struct.Struct(">8sQ16s4x")
_HEADER_BYTES: Final = 40
_RECORD: Final = struct.Struct(">8sB3xIQI")
_RECORD_BYTES: Final = 32
_NONCE_BYTES: Final = 16
_MARK_BYTES: Final = 8
_CRC: Final = struct.Struct(">I")
_BINDING: Final = struct.Struct(">32sQ32s")


class Kind(IntEnum):
    """The types of records."""

    BATCH = 1
    COMMITTED = 2
    END = 3
    CHECKPOINT = 4


class Binding(NamedTuple):
    """The stream and epoch of a label, recorded when the hub learns them (C-31)."""

    stream_id: StreamId
    epoch: int
    label: Label


def _full() -> StoreFullError:
    return StoreFullError("no space left for the journal; free some space and send again")


def _crc(nonce: bytes, head: bytes, payload: bytes) -> bytes:
    return _CRC.pack(zlib.crc32(payload, zlib.crc32(head, zlib.crc32(nonce))))


class Segment:
    """A segment that is being written. After errors other than a full disk it is unusable."""

    def __init__(self, number: int, nonce: bytes, file: AppendFile) -> None:
        self.number = number
        self.position = _HEADER_BYTES
        self._nonce = nonce
        self._mark = nonce[:_MARK_BYTES]
        self._file = file

    @classmethod
    def create(cls, fs: Filesystem, number: int, random: RandomBytes) -> "Segment":
        """Create an empty segment; it and its name are durable when this returns."""
        nonce = random(_NONCE_BYTES)
        head = _HEADER.pack(_MAGIC, number, nonce)
        path = paths.journal(number)
        try:
            fs.write_all([Write(path, 0, head + _CRC.pack(zlib.crc32(head)))])
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            if fs.size(path) is not None:
                fs.unlink(path)
            raise _full() from error
        fs.sync_dir(paths.STATE_DIR)
        return cls(number, nonce, fs.open_append(path))

    def append(self, frames: Sequence[bytes], bindings: Sequence[Binding]) -> None:
        """Commit a batch: when this returns, it is durable."""
        lines = (_BINDING.pack(*binding) for binding in bindings)
        self._commit(Kind.BATCH, b"".join((*lines, *frames)), len(bindings))

    def append_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Commit a checkpoint: when this returns, it is durable."""
        self._commit(Kind.CHECKPOINT, checkpoint.encode())

    def end(self) -> None:
        """End the segment with a record; the next one exists already."""
        self._write(self._record(Kind.END, b"", 0))
        self._file.sync()
        self._file.close()

    def close(self) -> None:
        """Close the file without an end record."""
        self._file.close()

    def discard(self, fs: Filesystem) -> None:
        """Delete a segment that nothing was written to."""
        self._file.close()
        fs.unlink(paths.journal(self.number))

    def _commit(self, kind: Kind, payload: bytes, bindings: int = 0) -> None:
        self._write(self._record(kind, payload, bindings))
        self._file.sync()
        # The batch is durable; this record only helps to classify damage later.
        with contextlib.suppress(StoreFullError):
            self._write(self._record(Kind.COMMITTED, b"", 0))

    def _record(self, kind: Kind, payload: bytes, bindings: int) -> bytes:
        head = _RECORD.pack(self._mark, kind, len(payload), self.position, bindings)
        return head + _crc(self._nonce, head, payload) + payload

    def _write(self, record: bytes) -> None:
        try:
            self._file.write(record)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self._file.truncate(self.position)  # none of it was synced or acknowledged
            raise _full() from error
        self.position += len(record)


class JournalRecord(NamedTuple):
    """A valid record."""

    kind: Kind
    position: int
    bindings: int
    payload: bytes
    end: int

    def entries_at(self) -> int:
        """Return the offset of the entries in the payload."""
        return self.bindings * _BINDING.size

    def read_bindings(self) -> Iterator[Binding]:
        """Return the bindings of a batch."""
        for stream_id, epoch, label in _BINDING.iter_unpack(self.payload[: self.entries_at()]):
            yield Binding(StreamId(stream_id), epoch, Label(label))


@dataclass(slots=True)
class ReadSegment:
    """The content of a segment."""

    number: int
    path: str
    records: list[JournalRecord] = field(default_factory=list)
    ended: bool = False
    # Length of the valid prefix; bytes after it were never acknowledged.
    valid_bytes: int = 0
    # Bytes after the valid prefix.
    torn_bytes: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether it has no acknowledged records."""
        return not self.records


def parse(data: bytes, number: int) -> ReadSegment:
    """Parse a segment; raise on damage, drop a torn end."""
    path = paths.journal(number)
    read = ReadSegment(number, path)
    head = data[: _HEADER_BYTES - 4]
    if len(data) <= _HEADER_BYTES and not _is_header(data, head, number):
        read.torn_bytes = len(data)  # its creation was interrupted, so it never had records
        return read
    if not _is_header(data, head, number):
        raise DamagedStoreError(path, 0, "header of the journal segment is damaged")
    nonce = data[16 : 16 + _NONCE_BYTES]
    position = _HEADER_BYTES
    while position < len(data):
        record = _record_at(data, position, nonce) or _behind_torn_mark(data, position, nonce)
        if record is None:
            _refuse_if_damaged(data, position, nonce, path)
            break
        position = record.end
        if read.ended:
            raise DamagedStoreError(path, record.position, "a record follows the last one")
        if record.kind is Kind.END:
            read.ended = True
        elif record.kind is not Kind.COMMITTED:
            read.records.append(record)
    read.valid_bytes = position
    read.torn_bytes = len(data) - position
    return read


def _is_header(data: bytes, head: bytes, number: int) -> bool:
    if len(data) < _HEADER_BYTES or _CRC.pack(zlib.crc32(head)) != data[_HEADER_BYTES - 4 : _HEADER_BYTES]:
        return False
    magic, stated, _ = _HEADER.unpack(head)
    return bool(magic == _MAGIC and stated == number and head[-4:] == bytes(4))


def _record_at(data: bytes, position: int, nonce: bytes) -> JournalRecord | None:
    head = data[position : position + _RECORD.size]
    if len(head) < _RECORD.size or head[:_MARK_BYTES] != nonce[:_MARK_BYTES]:
        return None
    _, kind, length, stated, bindings = _RECORD.unpack(head)
    start = position + _RECORD_BYTES
    payload = data[start : start + length]
    crc = data[position + _RECORD.size : start]
    if len(payload) != length or stated != position or crc != _crc(nonce, head, payload):
        return None
    if kind not in list(Kind) or head[9:12] != bytes(3):
        return None
    return JournalRecord(Kind(kind), position, bindings, payload, start + length)


def _behind_torn_mark(data: bytes, position: int, nonce: bytes) -> JournalRecord | None:
    """Return the record after an invalid one of the length of a ``committed`` record.

    No other record that short is followed by another. It is not synced, so a power failure can tear it and
    leave later writes intact; and nothing depends on it.
    """
    return _record_at(data, position + _RECORD_BYTES, nonce)


def _refuse_if_damaged(data: bytes, position: int, nonce: bytes, path: str) -> None:
    """Raise if a valid record follows an invalid one: then the invalid one was durable once."""
    mark = nonce[:_MARK_BYTES]
    offset = data.find(mark, position + 1)
    while offset >= 0:
        if _record_at(data, offset, nonce) is not None:
            raise DamagedStoreError(path, position, "an acknowledged record of the journal is damaged")
        offset = data.find(mark, offset + 1)


def segments(fs: Filesystem) -> list[int]:
    """Return the numbers of the existing segments."""
    numbers = (paths.parse_journal(name) for name in fs.names(paths.STATE_DIR))
    return [number for number in numbers if number is not None]


def read_all(fs: Filesystem, numbers: Iterable[int]) -> Iterator[ReadSegment]:
    """Read segments in order and check that they are complete."""
    previous: ReadSegment | None = None
    for number in numbers:
        path = paths.journal(number)
        read = parse(fs.read(path), number)
        if previous is not None:
            if number != previous.number + 1:
                raise DamagedStoreError(
                    paths.journal(previous.number + 1), None, "journal segment is missing"
                )
            if not previous.ended and (read.records or read.ended):
                raise DamagedStoreError(previous.path, None, "journal segment lost its end")
        previous = read
        yield read
    if previous is not None and previous.ended:
        raise DamagedStoreError(paths.journal(previous.number + 1), None, "journal segment is missing")


def settle(fs: Filesystem, read: ReadSegment) -> None:
    """Rewrite a segment that has no end record, so that what was read from it is certainly durable.

    Its last batch may be in memory only, if the process ended before the sync or the sync failed. If it were
    flushed into chunks first, these could be ahead of the journal after a power failure.
    """
    if not read.ended and read.records:
        replace_file(fs, read.path, fs.read(read.path, 0, read.valid_bytes))
