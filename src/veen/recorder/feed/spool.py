"""The spool: events on disk that the hub does not have yet.

A spool belongs to one stream and to one process at a time, which holds its lock; numbers of events start at 1
and are never reused. Its files are segments, named by the number of their first event, of frames: length,
checksum, the encoded event. A torn end without whole frames after it is cut off when the spool is opened;
damage before whole frames stays, and the shipper skips it: the numbers of the frames after it say how many
events are missing. The shipper reads concurrently with the writer, and removes segments that the hub has.

Writing does not sync: pending syncs are tracked, so that another thread can do them.
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
# A segment of this size is complete.
SEGMENT_BYTES: Final = 8 << 20
# Minimum number of segments in a full spool: there is room again as soon as one of them is shipped.
_SEGMENTS: Final = 8
_READ_BYTES: Final = 1 << 20
# Errors of a full disk.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def frame(number: int, data: bytes) -> bytes:
    """Return the frame of an event."""
    return _FRAME.pack(len(data), _checksum(number, data)) + data


def _checksum(number: int, data: bytes | memoryview) -> int:
    return zlib.crc32(data, zlib.crc32(number.to_bytes(8, "big")))


def frames(data: bytes, number: int, position: int = 0) -> Iterator[tuple[bytes, int]]:
    """Yield the content and the end of consecutive whole frames, numbered from ``number``."""
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
    """A whole frame: its number, its content and its end."""

    number: int
    content: bytes
    end: int


def whole_frames(data: bytes, number: int, mark: bytes = FIRST_FIELD) -> Iterator[Whole]:
    """Yield all whole frames, also those after damaged ones; gaps in their numbers are missing events.

    ``mark`` is what all contents have after their first byte.
    """
    place: tuple[int, int] | None = (0, number)
    while place is not None:
        position, number = place
        for content, end in frames(data, number, position):
            yield Whole(number, content, end)
            position, number = end, number + 1
        place = _find_whole(data, position, number, mark)


def _find_whole(data: bytes, position: int, number: int, mark: bytes = FIRST_FIELD) -> tuple[int, int] | None:
    """Return offset and number of the next whole frame after a damaged one; None if there is none."""
    if position + _FRAME.size <= len(data):  # if the length is intact, the next frame is where it says
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
    """Return the one of these numbers that a frame has; None if it has none of them, or is not whole."""
    if position + _FRAME.size > len(data):
        return None
    length, checksum = _FRAME.unpack_from(data, position)
    content = memoryview(data)[position + _FRAME.size : position + _FRAME.size + length]
    if len(content) != length:
        return None
    return next((number for number in numbers if _checksum(number, content) == checksum), None)


def segment_path(place: Path, first: int) -> Path:
    """Return the path of a segment."""
    return place / f"{first:020d}.events"


def segments(place: Path) -> list[int]:
    """Return the first numbers of the existing segments."""
    matches = (_NAME.fullmatch(name) for name in os.listdir(place))  # noqa: PTH208 - only names: often called
    return sorted(int(match[1]) for match in matches if match is not None)


def _take(root: Path, key: str, purpose: str) -> tuple[Path, int]:
    """Return the directory of a spool that no other process uses, and its lock."""
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
    """Pending syncs of a spool: segments, by their first numbers, and whether a file was created."""

    segments: frozenset[int] = frozenset()
    is_new: bool = False

    def __or__(self, other: "Unsynced") -> "Unsynced":
        return Unsynced(self.segments | other.segments, self.is_new or other.is_new)


_SYNCED: Final = Unsynced()


def sync_segments(place: Path, unsynced: Unsynced) -> None:
    """Sync segments, concurrently with writes to them and their removal by the shipper."""
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
    """A spool open for writing. Not thread-safe."""

    def __init__(self, place: Path, stream: str, lock_fd: int, bound: int) -> None:
        self.place = place
        self.stream = stream
        self.bound = bound
        # The number of the next event.
        self.next = 1
        # Number of torn bytes that were cut off at the end.
        self.torn_bytes = 0
        self._lock_fd = lock_fd
        self._segment_bytes = max(min(SEGMENT_BYTES, bound // _SEGMENTS), 1)
        # The current segment: its first number, its file and its size.
        self._first = 1
        self._fd: int | None = None
        self._size = 0
        self.unsynced = _SYNCED
        # Size of the segments before the current one; an upper bound, since the shipper removes them.
        self._before = 0

    @classmethod
    def open(
        cls, root: Path, stream: str, *, bound: int, done: Callable[[str], int], purpose: str = ""
    ) -> Self:
        """Open an unused spool of a stream, or create one; ``done`` returns how far the hub has it.

        With a purpose there is a single spool: BlockingIOError if another process uses it.
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
        """Its name in the journal."""
        return self.place.name

    @property
    def used(self) -> int:
        """Size in bytes; an upper bound."""
        return self._before + self._size

    def _recover(self, done: int) -> None:
        firsts = segments(self.place)
        if firsts:
            path = segment_path(self.place, firsts[-1])
            data = path.read_bytes()
            whole, last = 0, firsts[-1] - 1
            for last, _, whole in whole_frames(data, firsts[-1]):  # noqa: B007 - the last one
                pass
            self.torn_bytes = len(data) - whole
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            os.ftruncate(fd, whole)
            os.fsync(fd)
            self._first, self._fd, self._size = firsts[-1], fd, whole
            self.next = last + 1
        if done >= self.next:  # the hub has events that a power failure removed from the disk
            self._end_segment()
            self.next = done + 1
        self._measure()

    def _measure(self) -> None:
        """Measure the existing segments: the shipper removes those that the hub has."""
        sizes = []
        for first in segments(self.place):
            try:
                sizes.append(segment_path(self.place, first).stat().st_size)
            except FileNotFoundError:
                continue
        self._before = max(sum(sizes) - self._size, 0)

    def append(self, bodies: Sequence[bytes]) -> int:
        """Write events while there is room; return how many. They are durable after ``sync``."""
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
        """Return the frames that fit in the current segment, within the limit of the spool."""
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
        """Whether there is room for all of these events."""
        return self._has_room(sum(_FRAME.size + len(body) for body in bodies))

    def _has_room(self, size: int) -> bool:
        if self.used + size > self.bound:
            self._measure()
        return self.used + size <= self.bound

    def _write(self, frames: Sequence[bytes]) -> int:
        """Write frames; return how many. Whole ones stay after an error: the shipper may have read them."""
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
                with suppress(OSError):  # the next write starts here even if this fails
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
        """Make all written events durable."""
        sync_segments(self.place, self.unsynced)
        self.unsynced = _SYNCED

    def take_unsynced(self) -> Unsynced:
        """Return and clear pending syncs, for ``sync_segments``; the caller restores them on failure."""
        unsynced, self.unsynced = self.unsynced, _SYNCED
        return unsynced

    def _end_segment(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            self._before += self._size
            self._size = 0

    def close(self, done: int) -> None:
        """Release the spool; if the hub has all of it, delete its segments."""
        self._end_segment()
        try:
            if done >= self.next - 1:
                for first in segments(self.place):
                    remove_file(segment_path(self.place, first))
            self.sync()
        finally:
            unlock(self._lock_fd)

    def abandon(self) -> None:
        """Close the files unchanged; in a forked child, where the parent still uses them."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        os.close(self._lock_fd)


class Spooled(NamedTuple):
    """An event in a spool."""

    number: int
    data: bytes


class SpoolReader:
    """Reads a spool for the shipper, concurrently with the process that writes it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.name = place.name
        self.stream = (place / _STREAM).read_text(encoding="utf-8")
        self._ahead: deque[Spooled] = deque()
        # The current segment, the offset of the next frame in it, and the number of that frame.
        self._first: int | None = None
        self._offset = 0
        self._number = self._skip_to = 0

    @property
    def passed(self) -> int:
        """The number up to which all events were returned, or are unreadable."""
        return self._ahead[0].number - 1 if self._ahead else max(self._number, self._skip_to) - 1

    def peek(self, after: int, max_items: int) -> list[Spooled]:
        """Return available events after a number, without consuming them."""
        while self._ahead and self._ahead[0].number <= after:
            self._ahead.popleft()
        if not self._ahead and self._number != after + 1:
            self._seek(after + 1)
        while len(self._ahead) < max_items and self._read_on():
            pass
        return [self._ahead[nth] for nth in range(min(max_items, len(self._ahead)))]

    def _seek(self, number: int) -> None:
        firsts = [first for first in segments(self.place) if first <= number]
        self._first, self._offset = (firsts[-1] if firsts else None), 0
        self._number = self._first or number
        self._skip_to = number

    def _read_on(self) -> bool:
        """Read more frames; False if there are none yet."""
        later = [first for first in segments(self.place) if self._first is None or first > self._first]
        if self._first is None:
            return bool(later) and self._go_to(later[0])
        if self._read_frames(_READ_BYTES) or self._pass_damage():
            return True
        return bool(later) and self._go_to(later[0])

    def _go_to(self, first: int) -> bool:
        """Continue in the next segment: the writer completes a segment before it starts another."""
        self._first, self._offset, self._number = first, 0, first
        return True

    def _read_frames(self, size: int) -> bool:
        data = self._read(size)
        if len(data) >= _FRAME.size:
            length, _ = _FRAME.unpack_from(data)
            if length + _FRAME.size > len(data):  # a frame larger than one read
                data = self._read(length + _FRAME.size)
        end = 0
        for content, end in frames(data, self._number):  # noqa: B007 - the last one
            if self._number >= self._skip_to:
                self._ahead.append(Spooled(self._number, content))
            self._number += 1
        self._offset += end
        return end > 0

    def _pass_damage(self) -> bool:
        """Skip to the next whole frame; damage without whole frames after it may be a write in progress.

        That frame may be the one that was damaged, if its write has completed. It is searched for twice: a
        frame may be read from before its write completes, and the one after it from after.
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

    def _read(self, max_bytes: int | None = None) -> bytes:
        """Return the rest of the segment, at most ``max_bytes``."""
        assert self._first is not None
        try:
            with segment_path(self.place, self._first).open("rb") as file:
                remaining = max(os.fstat(file.fileno()).st_size - self._offset, 0)
                file.seek(self._offset)
                return file.read(remaining if max_bytes is None else min(max_bytes, remaining))
        except FileNotFoundError:
            return b""

    def discard(self, done: int) -> bool:
        """Remove segments that are recorded; not the last one, which may still be written."""
        firsts = segments(self.place)
        recorded = [first for first, after in pairwise(firsts) if after <= done + 1]
        for first in recorded:
            remove_file(segment_path(self.place, first))
        return bool(recorded)

    def can_discard(self, done: int) -> bool:
        """Whether a segment can be removed."""
        firsts = segments(self.place)
        return len(firsts) > 1 and firsts[1] <= done + 1


def find_spools(root: Path) -> list[Path]:
    """Return the directories of all spools, of all processes."""
    return sorted(place for place in root.iterdir() if (place / _STREAM).exists())
