"""Reading chunk files: entries from a place on, in large reads, each checked as it is decoded."""

import bz2
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from veen.core import layout
from veen.core.entry import Entry
from veen.core.errors import ProtocolError
from veen.core.layout import Domain
from veen.core.limits import ENTRY_HEADER_BYTES
from veen.core.types import Label
from veen.storage.errors import DamagedError
from veen.storage.fs import Filesystem
from veen.storage.index import ChunkRow
from veen.storage.state import LabelState

_READ_BYTES: Final = 1 << 18


class Place(NamedTuple):
    """An entry and where it is stored; the offset is None inside a journal batch."""

    path: str
    offset: int | None
    entry: Entry


def path_of(state: LabelState, row: ChunkRow) -> str:
    """Return the file of a chunk."""
    return chunk_path(state.domain, state.label, row)


def chunk_path(domain: Domain, label: Label, row: ChunkRow) -> str:
    """Return the file of a chunk."""
    if not row.end_seq:
        return layout.open_chunk(domain, label, row.start_seq)
    path = layout.chunk(domain, label, row.start_seq, row.end_seq)
    return path + layout.COMPRESSED if row.compressed else path


def read(
    fs: Filesystem, state: LabelState, row: ChunkRow, start: int, end: int, offset: int
) -> Iterator[Place]:
    """Return the entries of a chunk from ``start``, which is at ``offset``, to ``end`` or the chunk's end."""
    last = min(end, row.end_seq or end)
    return read_span(fs, path_of(state, row), state.label, start, last, offset, row.total_bytes)


def read_span(
    fs: Filesystem, path: str, label: Label, start: int, end: int, offset: int, limit: int
) -> Iterator[Place]:
    """Return entries ``start`` to ``end`` of a file, from ``offset`` and not beyond ``limit``."""
    seq = start
    buffer, base, want = b"", offset, _READ_BYTES
    if end == start:
        want = 4096
    while seq <= end:
        at = offset - base
        if len(buffer) - at < ENTRY_HEADER_BYTES or _needed(buffer, at) > len(buffer) - at:
            more = max(want, _needed(buffer, at))
            fresh = _read(fs, path, offset, min(more, limit - offset))
            if len(fresh) <= len(buffer) - at:
                raise DamagedError(path, offset, f"file ends before entry {seq} does")
            buffer, base, at = fresh, offset, 0
            want = _READ_BYTES
            if _needed(buffer, 0) > len(buffer):
                continue
        try:
            entry, next_at = Entry.decode(buffer, at)
        except ProtocolError as error:
            raise DamagedError(path, offset, str(error)) from error
        if (entry.receipt.label, entry.receipt.stream_seq) != (label, seq):
            raise DamagedError(path, offset, f"entry {entry.receipt.stream_seq} stands in the place of {seq}")
        yield Place(path, offset, entry)
        offset += next_at - at
        seq += 1


def _needed(buffer: bytes, at: int) -> int:
    """Return how many bytes the entry at a place has, as far as its header is there."""
    if len(buffer) - at < ENTRY_HEADER_BYTES:
        return ENTRY_HEADER_BYTES
    lengths = buffer[at + 42 : at + 50]
    return ENTRY_HEADER_BYTES + int.from_bytes(lengths[:4]) + int.from_bytes(lengths[4:])


def _read(fs: Filesystem, path: str, offset: int, length: int) -> bytes:
    if not path.endswith(layout.COMPRESSED):
        return fs.read(path, offset, length)
    return unpacked(fs, path)[offset : offset + length]


@lru_cache(maxsize=2)  # a chunk has to be unpacked as a whole (C-87); the next page is in the same one
def unpacked(fs: Filesystem, path: str) -> bytes:
    """Return the entries of a compressed chunk."""
    packed = fs.read(path)
    decoder = bz2.BZ2Decompressor()
    try:
        data = decoder.decompress(packed)
    except OSError as error:
        raise DamagedError(path, 0, f"compressed chunk can not be read: {error}") from error
    if not decoder.eof or decoder.unused_data:
        raise DamagedError(path, 0, "compressed chunk does not end where it should")
    return data
