"""A reader of the journal's format: which entries it has, and where (data-directory.md, "Journal").

It stores only locations of entries, so memory grows with their number, not with their size.
"""

import struct
import zlib
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from veen.core.data_dir import paths
from veen.core.errors import Detail, ProtocolError
from veen.core.objects import labels
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.entry import EntryHeader
from veen.core.objects.finding import Finding, Level
from veen.core.objects.receipt import Receipt
from veen.core.types import Label, RoutingKey, StreamId
from veen.storage.errors import FindingError
from veen.storage.fsck.report import Reason, damage, refused, wrong
from veen.storage.fsck.source import Source

_HEADER: Final = struct.Struct(">8sQ16sII")
_RECORD: Final = struct.Struct(">8sB3sIQII")
_BINDING: Final = struct.Struct(">32sQ32s")
_MAGIC: Final = b"VEENJRN1"
_MARK_BYTES: Final = 8
_CHECKED_BYTES: Final = 28
_NO_PADDING: Final = bytes(3)

_BATCH, _COMMITTED, _END, _CHECKPOINT = 1, 2, 3, 4


class JournalPosition(NamedTuple):
    """The location of an entry."""

    path: str
    offset: int
    length: int


@dataclass(slots=True)
class Run:
    """The entries of one label in the journal: a range without gaps."""

    first: int
    places: list[JournalPosition] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.first + len(self.places) - 1

    def place(self, seq: int) -> JournalPosition:
        """Return the location of an entry."""
        return self.places[seq - self.first]


class JournalCheckpoint(NamedTuple):
    """A checkpoint with its location."""

    path: str
    offset: int
    checkpoint: Checkpoint


@dataclass(slots=True)
class Journal:
    """The content of the segments, and the finding that ended reading."""

    runs: dict[Label, Run] = field(default_factory=dict)
    # Requested checkpoints by label and upto_seq; their files may not exist yet.
    checkpoints: dict[Label, dict[int, JournalCheckpoint]] = field(default_factory=dict)
    finding: Finding | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to flush."""
        return not self.runs and not self.checkpoints


class _Record(NamedTuple):
    kind: int
    bindings: int
    start: int
    end: int


class _Segment:
    """One segment: its bytes, and the nonce that its records are bound to."""

    def __init__(self, path: str, data: bytes, nonce: bytes) -> None:
        self.path = path
        self.data = data
        self.nonce = nonce

    @classmethod
    def read(cls, source: Source, number: int) -> "_Segment | None":
        """Read a segment; None if its creation was interrupted. Raise if its header was complete once."""
        path = paths.journal(number)
        data = source.read(path)
        if len(data) >= _HEADER.size:
            magic, named, nonce, zero, crc = _HEADER.unpack_from(data)
            sound = zlib.crc32(data[: _HEADER.size - 4]) == crc
            if sound and (magic, named, zero) == (_MAGIC, number, 0):
                return cls(path, data, nonce)
            if sound:
                raise wrong(path, 0, Reason.JOURNAL_HEADER, f"the header is not that of segment {number}")
        if len(data) <= _HEADER.size:
            return None
        # Records are only written after a durable header.
        raise wrong(path, 0, Reason.JOURNAL_HEADER, "the header does not check out, and records follow it")

    def record(self, at: int) -> _Record | None:
        """Return the record at an offset, if it is valid."""
        data = self.data
        start = at + _RECORD.size
        if start > len(data):
            return None
        mark, kind, padding, length, position, bindings, crc = _RECORD.unpack_from(data, at)
        if mark != self.nonce[:_MARK_BYTES] or position != at or padding != _NO_PADDING:
            return None
        end = start + length
        if end > len(data):
            return None
        view = memoryview(data)
        actual = zlib.crc32(view[at : at + _CHECKED_BYTES], zlib.crc32(self.nonce))
        return _Record(kind, bindings, start, end) if zlib.crc32(view[start:end], actual) == crc else None

    def find(self, start: int) -> int | None:
        """Return the offset of the next valid record at or after ``start``."""
        mark = self.nonce[:_MARK_BYTES]
        at = self.data.find(mark, start)
        while at >= 0:
            if self.record(at) is not None:
                return at
            at = self.data.find(mark, at + 1)
        return None


class _Scan:
    """Reads segments in order. What may be a torn write is damage as soon as something valid follows."""

    def __init__(self, source: Source, level: Level, routing: RoutingKey | None) -> None:
        self._source = source
        self._level = level
        self._routing = routing
        self._doubt: Finding | None = None
        self._dropped: Finding | None = None
        self._newest_ts = 0
        self.journal = Journal()

    def run(self) -> None:
        names = self._source.names(paths.STATE_DIR)
        numbers = sorted(number for name in names if (number := paths.parse_journal(name)) is not None)
        promised = False
        for number in numbers:
            path = paths.journal(number)
            if number != numbers[0] and number - 1 not in numbers:
                raise wrong(paths.journal(number - 1), None, Reason.MISSING, f"{path} follows it")
            segment = _Segment.read(self._source, number)
            if segment is None:
                promised = False
                self._drop(damage(path, 0, Reason.JOURNAL_HEADER, "the header does not check out"))
                continue
            promised = self._segment(segment)
            if not promised:
                end = len(segment.data)
                missing = damage(path, end, Reason.JOURNAL_RECORD, "the end record is missing")
                self._doubt = self._doubt or missing
        if promised:
            absent = paths.journal(numbers[-1] + 1)
            raise wrong(absent, None, Reason.MISSING, "the segment before it refers to it")
        if self._dropped is not None:
            self.journal.notes.append(f"{self._dropped}: a write that was never acknowledged, dropped")

    def _drop(self, finding: Finding) -> None:
        """Treat this as a torn write, unless something valid follows."""
        self._doubt = self._doubt or finding
        self._dropped = self._dropped or finding

    def _segment(self, segment: _Segment) -> bool:
        """Read the records; return whether the last one is an end record."""
        at = _HEADER.size
        while at < len(segment.data):
            record = segment.record(at)
            if record is None and segment.record(at + _RECORD.size) is not None:
                # It was a committed record by its length; the valid record after it implies the same.
                self.journal.notes.append(
                    f"{segment.path} at byte {at}: a committed record is damaged; nothing is lost"
                )
                at += _RECORD.size
                continue
            if record is None:
                self._torn_or_damaged(segment, at)
                return False
            if self._doubt is not None:  # it was durable, since a valid record follows
                raise FindingError(self._doubt)
            if record.kind == _BATCH:
                self._batch(segment, record, at)
            elif record.kind == _CHECKPOINT and not record.bindings:
                self._checkpoint(segment, record)
            elif record.bindings or record.end != record.start or record.kind not in (_COMMITTED, _END):
                raise wrong(segment.path, at, Reason.JOURNAL_RECORD, f"no such record: kind {record.kind}")
            at = record.end
            if record.kind == _END:
                if at != len(segment.data):
                    raise wrong(segment.path, at, Reason.JOURNAL_RECORD, "bytes after the end record")
                return True
        return False

    def _torn_or_damaged(self, segment: _Segment, at: int) -> None:
        finding = damage(segment.path, at, Reason.JOURNAL_RECORD, "the record does not check out")
        if segment.find(at + 1) is not None:
            raise FindingError(finding)
        self._drop(finding)

    def _batch(self, segment: _Segment, record: _Record, at: int) -> None:
        entries = record.start + record.bindings * _BINDING.size
        if entries > record.end:
            raise wrong(segment.path, at, Reason.JOURNAL_RECORD, "more bindings than the batch has bytes")
        if self._level >= Level.HASHES and self._routing is not None:
            for offset in range(record.start, entries, _BINDING.size):
                self._binding(segment, offset, self._routing)
        while entries < record.end:
            try:
                entries = self._entry(segment, record, entries)
            except ProtocolError as error:
                raise refused(segment.path, entries, error) from error

    def _checkpoint(self, segment: _Segment, record: _Record) -> None:
        try:
            checkpoint = Checkpoint.decode(segment.data[record.start : record.end])
        except ProtocolError as error:
            raise refused(segment.path, record.start, error) from error
        of_label = self.journal.checkpoints.setdefault(checkpoint.label_curr, {})
        of_label.setdefault(checkpoint.upto_seq, JournalCheckpoint(segment.path, record.start, checkpoint))

    def _binding(self, segment: _Segment, offset: int, routing: RoutingKey) -> None:
        stream, epoch, label = _BINDING.unpack_from(segment.data, offset)
        if labels.label(routing, StreamId(stream), epoch) != label:
            raise wrong(segment.path, offset, Reason.BINDING, "label is not the one of stream and epoch")

    def _entry(self, segment: _Segment, record: _Record, at: int) -> int:
        header = EntryHeader.decode(segment.data[at : min(at + 82, record.end)])
        end = at + header.entry_len
        if end > record.end:
            raise ProtocolError(Detail.ENTRY_LENGTH, "the entry extends past its batch")
        if self._level >= Level.ROOTS:
            self._time(segment, at, segment.data[end - header.receipt_len : end])
        run = self.journal.runs.setdefault(header.label, Run(header.stream_seq))
        if header.stream_seq != run.last + 1:
            raise wrong(segment.path, at, Reason.ORDER, f"entry {header.stream_seq} follows entry {run.last}")
        run.places.append(JournalPosition(segment.path, at, end - at))
        return end

    def _time(self, segment: _Segment, at: int, receipt: bytes) -> None:
        """Check that hub_ts never decreases: entries of all labels are in the order of admission."""
        hub_ts = Receipt.decode(receipt).hub_ts
        if hub_ts < self._newest_ts:
            raise wrong(
                segment.path, at, Reason.HUB_TS, f"hub_ts goes back from {self._newest_ts} to {hub_ts}"
            )
        self._newest_ts = hub_ts


def read_journal(source: Source, level: Level, routing: RoutingKey | None) -> Journal:
    """Read the journal up to the first damage; FileNotFoundError if a segment is deleted meanwhile."""
    scan = _Scan(source, level, routing)
    try:
        scan.run()
    except FindingError as error:
        scan.journal.finding = error.finding
    return scan.journal
