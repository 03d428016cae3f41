"""The spool: events on disk that the hub does not have yet.

A spool belongs to one stream and to one process at a time, which holds its lock; numbers of events go on
from 1 and are never used again. Its files are segments, named by the number of their first event, of frames:
length, checksum, the encoded event. What is torn at the end, with nothing whole behind it, is cut off when
the spool is opened; what is damaged before whole frames stays, and is passed over by whoever ships: the
numbers of the frames behind it say how many events are missing. Whoever ships reads beside the writer, and
removes segments that the hub has.

Writing does not sync: what is not durable yet is remembered, for whoever has the time.
"""

import errno
import os
import re
import struct
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, count, pairwise
from pathlib import Path
from typing import Final, NamedTuple, Self

from veen.core.objects import labels
from veen.recorder.event import FIRST_FIELD
from veen.stdx.atomic_file import PRIVATE, remove_file, sync_dir, write_file
from veen.stdx.file_lock import lock, unlock

_FRAME: Final = struct.Struct(">II")
_NAME: Final = re.compile(r"(\d{20})\.events")
_STREAM: Final = "stream"
_LOCK: Final = "lock"
#: A segment that is longer than this is not added to.
SEGMENT_BYTES: Final = 8 << 20
#: How many segments there are at least in a full spool: room comes back when one of them is done.
_SEGMENTS: Final = 8
_READ_BYTES: Final = 1 << 20
#: What a disk says that has no room.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def frame(number: int, data: bytes) -> bytes:
    """Return an event as it stands in a segment."""
    return _FRAME.pack(len(data), _checksum(number, data)) + data


def _checksum(number: int, data: bytes | memoryview) -> int:
    return zlib.crc32(data, zlib.crc32(number.to_bytes(8, "big")))


def frames(data: bytes, number: int, position: int = 0) -> Iterator[tuple[bytes, int]]:
    """Yield the content of whole frames, the first of which has a number, and where each of them ends."""
    while position + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, position)
        position += _FRAME.size
        content = data[position : position + length]
        if len(content) != length or checksum != _checksum(number, content):
            return
        position += length
        number += 1
        yield content, position


class Whole(NamedTuple):
    """A whole frame: its number, its content and where it ends."""

    number: int
    content: bytes
    end: int


def whole_frames(data: bytes, number: int, mark: bytes = FIRST_FIELD) -> Iterator[Whole]:
    """Yield all frames that are whole, also behind damaged ones; their numbers say how many are missing.

    ``mark`` is what all contents have behind their first byte.
    """
    place: tuple[int, int] | None = (0, number)
    while place is not None:
        position, number = place
        for content, end in frames(data, number, position):
            yield Whole(number, content, end)
            position, number = end, number + 1
        place = _find_whole(data, position, number, mark)


def _find_whole(data: bytes, position: int, number: int, mark: bytes = FIRST_FIELD) -> tuple[int, int] | None:
    """Return where the next whole frame is behind one that is not, and its number; None if there is none."""
    if position + _FRAME.size <= len(data):  # the length may be right, and what follows is no guess then
        after = position + _FRAME.size + _FRAME.unpack_from(data, position)[0]
        if _number_of(data, after, range(number + 1, number + 2)) is not None:
            return after, number + 1
    head = _FRAME.size + 1
    at = data.find(mark, position + 1 + head)
    while at >= 0:
        start = at - head
        missing = 1 + (start - position) // (head + len(mark))
        next_number = _number_of(data, start, range(number + 1, number + 1 + missing))
        if next_number is not None:
            return start, next_number
        at = data.find(mark, at + 1)
    return None


def _number_of(data: bytes, position: int, numbers: Iterable[int]) -> int | None:
    """Return which of some numbers a frame has; None if none of them, or if it is not whole."""
    if position + _FRAME.size > len(data):
        return None
    length, checksum = _FRAME.unpack_from(data, position)
    content = memoryview(data)[position + _FRAME.size : position + _FRAME.size + length]
    if len(content) != length:
        return None
    return next((number for number in numbers if _checksum(number, content) == checksum), None)


def segment_path(place: Path, first: int) -> Path:
    """Return where a segment is."""
    return place / f"{first:020d}.events"


def segments(place: Path) -> list[int]:
    """Return the first numbers of the segments that are there."""
    matches = (_NAME.fullmatch(name) for name in os.listdir(place))  # noqa: PTH208 - only names: often called
    return sorted(int(match[1]) for match in matches if match is not None)


def _take(root: Path, key: str, purpose: str) -> tuple[Path, int]:
    """Return a place that no process has, and its lock."""
    nth = count()
    while True:
        place = root / f"{key}-{purpose or next(nth)}"
        place.mkdir(mode=0o700, exist_ok=True)
        fd = lock(place / _LOCK, wait=False)
        if fd is not None:
            return place, fd
        if purpose:
            raise BlockingIOError(f"another process uses {place}")


class Unsynced(NamedTuple):
    """What of a spool is not durable yet: segments, by their first numbers, and whether one is new."""

    segments: frozenset[int] = frozenset()
    is_new: bool = False

    def __or__(self, other: "Unsynced") -> "Unsynced":
        """Return both."""
        return Unsynced(self.segments | other.segments, self.is_new or other.is_new)


_SYNCED: Final = Unsynced()


def sync_segments(place: Path, unsynced: Unsynced) -> None:
    """Make segments durable; others write to them meanwhile, and remove those that the hub has."""
    for first in sorted(unsynced.segments):
        with suppress(FileNotFoundError):
            fd = os.open(segment_path(place, first), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)
    if unsynced.is_new:
        sync_dir(place)


class Spool:
    """A spool that is written to. One thread at a time."""

    def __init__(self, place: Path, stream: str, lock_fd: int, bound: int) -> None:
        self.place = place
        self.stream = stream
        self.bound = bound
        #: The number of the next event.
        self.next = 1
        #: How many bytes were cut off at the end: of no whole event.
        self.torn_bytes = 0
        self._lock_fd = lock_fd
        self._segment_bytes = max(min(SEGMENT_BYTES, bound // _SEGMENTS), 1)
        #: The segment that is written: its first number, its file and its size.
        self._first = 1
        self._fd: int | None = None
        self._size = 0
        self.unsynced = _SYNCED
        #: Bytes of segments before the one that is written, as far as is known: others remove them.
        self._before = 0

    @classmethod
    def open(
        cls, root: Path, stream: str, *, bound: int, done: Callable[[str], int], purpose: str = ""
    ) -> Self:
        """Take a spool of a stream that no process has, or make one; ``done``: how far the hub has it.

        For a purpose there is one spool only: BlockingIOError if another process has it.
        """
        place, fd = _take(root, labels.stream_id(stream).hex()[:16], purpose)
        spool = cls(place, stream, fd, bound)
        try:
            if not (place / _STREAM).exists():
                write_file(place / _STREAM, stream.encode())
                sync_dir(root)
            spool._recover(done(place.name))
        except BaseException:
            spool.abandon()
            raise
        return spool

    @property
    def name(self) -> str:
        """What the journal calls it."""
        return self.place.name

    @property
    def used(self) -> int:
        """How many bytes there are, at most."""
        return self._before + self._size

    def _recover(self, done: int) -> None:
        there = segments(self.place)
        if there:
            path = segment_path(self.place, there[-1])
            data = path.read_bytes()
            whole, last = 0, there[-1] - 1
            for last, _, whole in whole_frames(data, there[-1]):  # noqa: B007 - the last one
                pass
            self.torn_bytes = len(data) - whole
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            os.ftruncate(fd, whole)
            os.fsync(fd)
            self._first, self._fd, self._size = there[-1], fd, whole
            self.next = last + 1
        if done >= self.next:  # the hub has events that a power failure has taken from the disk
            self._end_segment()
            self.next = done + 1
        self._measure()

    def _measure(self) -> None:
        """Look what is there: segments that the hub has are removed by whoever ships."""
        sizes = []
        for first in segments(self.place):
            try:
                sizes.append(segment_path(self.place, first).stat().st_size)
            except FileNotFoundError:
                continue
        self._before = max(sum(sizes) - self._size, 0)

    def append(self, bodies: Sequence[bytes]) -> int:
        """Write events, as many as there is room for; returns how many. They are durable after ``sync``."""
        written = 0
        while written < len(bodies):
            some = self._portion(bodies[written:])
            if not some:
                break
            whole = self._write(some)
            written += whole
            if whole < len(some):
                break
        return written

    def _portion(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Return the frames that go to the segment that is written, within the bound."""
        if self._size >= self._segment_bytes:
            self._end_segment()
        frames: list[bytes] = []
        size = 0
        for nth, body in enumerate(bodies):
            data = frame(self.next + nth, body)
            if not self._has_room(size + len(data)):
                break
            frames.append(data)
            size += len(data)
            if self._size + size >= self._segment_bytes:
                break
        return frames

    def fits(self, bodies: Sequence[bytes]) -> bool:
        """Tell whether all of these events are within the bound."""
        return self._has_room(sum(_FRAME.size + len(body) for body in bodies))

    def _has_room(self, size: int) -> bool:
        if self.used + size > self.bound:
            self._measure()
        return self.used + size <= self.bound

    def _write(self, frames: Sequence[bytes]) -> int:
        """Write frames; returns how many. Those that are whole stay: whoever ships may have read them."""
        data, position, failed = memoryview(b"".join(frames)), 0, None
        try:
            fd = self._begin_segment() if self._fd is None else self._fd
            while position < len(data):
                position += os.pwrite(fd, data[position:], self._size + position)
        except OSError as error:
            failed = error
        ends = [0, *accumulate(map(len, frames))]
        whole = bisect_right(ends, position) - 1
        if whole:
            self._size += ends[whole]
            self.next += whole
            self.unsynced |= Unsynced(frozenset({self._first}))
        if failed is not None:
            if self._fd is not None:
                with suppress(OSError):  # the next frame is written over what is torn
                    os.ftruncate(self._fd, self._size)
            if not whole and failed.errno not in NO_ROOM:
                raise failed
        return whole

    def _begin_segment(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._first, self._fd = self.next, os.open(segment_path(self.place, self.next), flags, PRIVATE)
        self.unsynced |= Unsynced(is_new=True)
        return self._fd

    def sync(self) -> None:
        """Make durable what was written."""
        sync_segments(self.place, self.unsynced)
        self.unsynced = _SYNCED

    def take_unsynced(self) -> Unsynced:
        """Return what is not durable, for ``sync_segments``; if that fails, it is to be put back."""
        unsynced, self.unsynced = self.unsynced, _SYNCED
        return unsynced

    def _end_segment(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            self._before += self._size
            self._size = 0

    def close(self, done: int) -> None:
        """Give the spool back; if the hub has all of it, nothing of it stays on the disk."""
        self._end_segment()
        try:
            if done >= self.next - 1:
                for first in segments(self.place):
                    remove_file(segment_path(self.place, first))
            self.sync()
        finally:
            unlock(self._lock_fd)

    def abandon(self) -> None:
        """Let go of the files as they are; in a forked child, where the parent goes on with them."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        os.close(self._lock_fd)


class Spooled(NamedTuple):
    """An event in a spool."""

    number: int
    data: bytes


class SpoolReader:
    """A spool as whoever ships reads it, beside the process that writes it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.name = place.name
        self.stream = (place / _STREAM).read_text(encoding="utf-8")
        self._ahead: deque[Spooled] = deque()
        #: The segment, and where in it the next frame begins, which has the number.
        self._first: int | None = None
        self._offset = 0
        self._number = self._skip_to = 0

    @property
    def passed(self) -> int:
        """The number up to which everything was returned, or cannot be read any more."""
        return self._ahead[0].number - 1 if self._ahead else max(self._number, self._skip_to) - 1

    def peek(self, after: int, most: int) -> list[Spooled]:
        """Return events behind a number, those that are there by now."""
        while self._ahead and self._ahead[0].number <= after:
            self._ahead.popleft()
        if not self._ahead and self._number != after + 1:
            self._seek(after + 1)
        while len(self._ahead) < most and self._read_on():
            pass
        return [self._ahead[nth] for nth in range(min(most, len(self._ahead)))]

    def _seek(self, number: int) -> None:
        there = [first for first in segments(self.place) if first <= number]
        self._first, self._offset = (there[-1] if there else None), 0
        self._number = self._first or number
        self._skip_to = number

    def _read_on(self) -> bool:
        """Read some more; False if there is no more yet."""
        later = [first for first in segments(self.place) if self._first is None or first > self._first]
        if self._first is None:
            return bool(later) and self._go_to(later[0])
        if self._read_frames(_READ_BYTES) or self._pass_damage():
            return True
        return bool(later) and self._go_to(later[0])

    def _go_to(self, first: int) -> bool:
        """Go on in the next segment: this one has no more, and was ended before that one was begun."""
        self._first, self._offset, self._number = first, 0, first
        return True

    def _read_frames(self, size: int) -> bool:
        data = self._read(size)
        if len(data) >= _FRAME.size:
            length, _ = _FRAME.unpack_from(data)
            if length + _FRAME.size > len(data):  # one that is longer than what is read at once
                data = self._read(length + _FRAME.size)
        end = 0
        for content, end in frames(data, self._number):  # noqa: B007 - the last one
            if self._number >= self._skip_to:
                self._ahead.append(Spooled(self._number, content))
            self._number += 1
        self._offset += end
        return end > 0

    def _pass_damage(self) -> bool:
        """Go on at the next frame that is whole; what has nothing whole behind it may still be written.

        That is the next one of all, if it was written meanwhile. It is looked at twice: a frame may be read
        as it was before it was written, and the one behind it as it is now.
        """
        whole = self._find_whole()
        if whole is None or whole != self._find_whole():
            return False
        self._offset, self._number = self._offset + whole[0], whole[1]
        return True

    def _find_whole(self) -> tuple[int, int] | None:
        for number, content, end in whole_frames(self._read(), self._number):
            return end - len(content) - _FRAME.size, number
        return None

    def _read(self, most: int | None = None) -> bytes:
        """Return what there is of the segment, at most so many bytes of it."""
        assert self._first is not None
        try:
            with segment_path(self.place, self._first).open("rb") as file:
                left = max(os.fstat(file.fileno()).st_size - self._offset, 0)
                file.seek(self._offset)
                return file.read(left if most is None else min(most, left))
        except FileNotFoundError:
            return b""

    def discard(self, done: int) -> bool:
        """Remove segments that are done; not the last one, which may be written to."""
        there = segments(self.place)
        gone = [first for first, after in pairwise(there) if after <= done + 1]
        for first in gone:
            remove_file(segment_path(self.place, first))
        return bool(gone)

    def can_discard(self, done: int) -> bool:
        """Tell whether there is a segment that is done."""
        there = segments(self.place)
        return len(there) > 1 and there[1] <= done + 1


def find_spools(root: Path) -> list[Path]:
    """Return the places of all spools, of whatever process."""
    return sorted(place for place in root.iterdir() if (place / _STREAM).exists())
