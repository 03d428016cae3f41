"""Reading chunk files: entries from a position on, in large reads, each checked as it is decoded.

Finding an entry takes one index lookup. The node store has every completed node of a label's range, 32 bytes
each, by position.
"""

import bz2
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from veen.core.crypto.hash import HASH_BYTES
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain, FileKind
from veen.core.data_dir.store_records import StoreRecord
from veen.core.errors import ProtocolError
from veen.core.limits import ENTRY_HEADER_BYTES
from veen.core.merkle.mmr import ReadNode
from veen.core.objects.capability import CapToken
from veen.core.objects.entry import Entry, Frame
from veen.core.objects.labels import authorize_label
from veen.core.types import AuthRef, Label, NodeHash
from veen.storage.directory import reading_limits
from veen.storage.errors import DamagedStoreError, PrunedEntryError, StaleIndexError
from veen.storage.fs import Filesystem
from veen.storage.index.index import Snapshot
from veen.storage.index.label_state import LabelRef
from veen.storage.index.rows import ChunkRow

# Size of the first read of a range; later reads double up to the second.
_FIRST_READ_BYTES: Final = 1 << 14
_READ_BYTES: Final = 1 << 18
# Size of the read of a single entry: most fit.
_ONE_ENTRY_BYTES: Final = 4096


class StoredEntry(NamedTuple):
    """An entry and where it is stored; the offset is None inside a journal batch."""

    path: str
    offset: int | None
    frame: Frame

    @property
    def entry(self) -> Entry:
        """The entry with its receipt decoded."""
        try:
            return self.frame.entry()
        except ProtocolError as error:
            raise DamagedStoreError(self.path, self.offset, str(error)) from error


def path_of(ref: LabelRef, row: ChunkRow) -> str:
    """Return the file of a chunk."""
    if not row.end_seq:
        return paths.open_chunk(ref.domain, ref.label, row.start_seq)
    path = paths.chunk(ref.domain, ref.label, row.start_seq, row.end_seq)
    return path + paths.COMPRESSED if row.compressed else path


def read(fs: Filesystem, ref: LabelRef, row: ChunkRow, *, seqs: range, offset: int) -> Iterator[StoredEntry]:
    """Return the entries ``seqs`` as far as they are in this chunk; the first one is at ``offset``."""
    if row.end_seq:
        seqs = range(seqs.start, min(seqs.stop, row.end_seq + 1))
    path = path_of(ref, row)
    try:
        for stored in read_span(fs, path, ref.label, seqs=seqs, span=(offset, row.total_bytes)):
            yield stored
            seqs = seqs[1:]
            offset += stored.frame.frame_len
    except FileNotFoundError:
        if row.end_seq:
            raise  # compressed or pruned meanwhile: the caller consults the index again
        path = sealed_path(fs, ref.domain, ref.label, row.start_seq)
        yield from read_span(fs, path, ref.label, seqs=seqs, span=(offset, row.total_bytes))


def read_one(
    fs: Filesystem, ref: LabelRef, row: ChunkRow, *, seq: int, span: tuple[int, int]
) -> StoredEntry | None:
    """Return an entry if it is at its position; None if not: ``read`` then determines why."""
    if row.compressed:
        return None
    path = path_of(ref, row)
    offset, length = span
    try:
        frame, end = Frame.read(fs.read(path, offset, length), 0)
    except (FileNotFoundError, ProtocolError):
        return None
    plain = (frame.label, frame.stream_seq, end) == (ref.label, seq, length)
    return StoredEntry(path, offset, frame) if plain else None


def sealed_path(fs: Filesystem, domain: Domain, label: Label, start_seq: int) -> str:
    """Return the path of an open chunk that was sealed, but not yet committed to the index as sealed."""
    for text in fs.names(domain):
        name = paths.parse(text)
        if name is not None and (name.kind, name.label, name.start_seq) == (FileKind.CHUNK, label, start_seq):
            return f"{domain}/{text}"
    raise FileNotFoundError(paths.open_chunk(domain, label, start_seq))


def read_span(
    fs: Filesystem, path: str, label: Label, *, seqs: range, span: tuple[int, int]
) -> Iterator[StoredEntry]:
    """Return the entries ``seqs`` of a file; they begin at ``span[0]`` and end at or before ``span[1]``."""
    source = _source(fs, path)
    offset, limit = span
    buffer, at = b"", 0
    read_size = _ONE_ENTRY_BYTES if len(seqs) == 1 else _FIRST_READ_BYTES
    for seq in seqs:
        while _needed(buffer, at) > len(buffer) - at:
            fresh = source(offset, min(max(read_size, _needed(buffer, at)), limit - offset))
            if len(fresh) <= len(buffer) - at:
                raise DamagedStoreError(path, offset, f"file ends before entry {seq} does")
            buffer, at = fresh, 0
            read_size = min(2 * read_size, _READ_BYTES)
        try:
            frame, after = Frame.read(buffer, at)
        except ProtocolError as error:
            raise DamagedStoreError(path, offset, str(error)) from error
        if (frame.label, frame.stream_seq) != (label, seq):
            raise DamagedStoreError(path, offset, f"entry {frame.stream_seq} is at the position of {seq}")
        yield StoredEntry(path, offset, frame)
        offset += after - at
        at = after


def _needed(buffer: bytes, at: int) -> int:
    """Return the length of the entry at an offset, or of its header if that is incomplete."""
    if len(buffer) - at < ENTRY_HEADER_BYTES:
        return ENTRY_HEADER_BYTES
    lengths = buffer[at + 42 : at + 50]
    return ENTRY_HEADER_BYTES + int.from_bytes(lengths[:4]) + int.from_bytes(lengths[4:])


def _source(fs: Filesystem, path: str) -> Callable[[int, int], bytes]:
    if not path.endswith(paths.COMPRESSED):
        return lambda offset, length: fs.read(path, offset, length)
    data = unpacked(fs, path)  # completely: a compressed chunk has no random access (C-87)
    return lambda offset, length: data[offset : offset + length]


def read_raw(fs: Filesystem, path: str, span: tuple[int, int], chunk_bytes: int | None) -> bytes:
    """Return unchecked bytes of a chunk by offset and length, decompressed if need be."""
    offset, length = span
    if not path.endswith(paths.COMPRESSED):
        return fs.read(path, offset, length)
    data = unpacked(fs, path, chunk_bytes)
    return data[offset : offset + length]


def unpacked(fs: Filesystem, path: str, chunk_bytes: int | None = None) -> bytes:
    """Return the entries of a compressed chunk; decompression stops beyond ``chunk_bytes``."""
    decoder = bz2.BZ2Decompressor()
    try:
        data = decoder.decompress(fs.read(path), -1 if chunk_bytes is None else chunk_bytes + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedStoreError(path, 0, f"compressed chunk cannot be read: {error}") from error
    if chunk_bytes is not None and len(data) > chunk_bytes:
        raise DamagedStoreError(path, 0, "compressed chunk holds more than its entries")
    if not decoder.eof or decoder.unused_data:
        raise DamagedStoreError(path, 0, "compressed chunk does not end where it should")
    return data


class Location(NamedTuple):
    """The chunk of an entry, and the offset and length of the entry in it."""

    ref: LabelRef
    row: ChunkRow
    offset: int
    length: int


def locate(view: Snapshot, label: Label, seq: int) -> Location | None:
    """Return the location of an entry; None if it is not in chunk files."""
    ref = view.ref(label)
    if ref is None or not 1 <= seq <= ref.seq:
        return None
    row = view.chunk_at(ref.number, seq)
    if row is None:
        raise StaleIndexError(paths.INDEX, None, f"no chunk holds entry {seq}")
    if row.pruned:
        raise PrunedEntryError(f"entry {seq} was pruned; {row.end_seq + 1} is the next one stored")
    span = view.position(ref.number, seq)
    if span is None or span.chunk_start != row.start_seq:
        raise StaleIndexError(paths.INDEX, None, f"entry {seq} has no position")
    return Location(ref, row, span.offset, span.length)


def stored_token(fs: Filesystem, view: Snapshot, store: StoreRecord, auth_ref: AuthRef) -> CapToken | None:
    """Return a token from the authorize log."""
    record = view.auth(auth_ref)
    if record is None or not record.authorize_seq:
        return None
    location = locate(view, authorize_label(store.hub_id), record.authorize_seq)
    if location is None:
        return None  # it is in the journal only
    seqs = range(record.authorize_seq, record.authorize_seq + 1)
    try:
        stored = next(read(fs, location.ref, location.row, seqs=seqs, offset=location.offset))
    except FileNotFoundError as error:
        raise DamagedStoreError(path_of(location.ref, location.row), None, "file is missing") from error
    return decode_token(stored, store)


def decode_token(place: StoredEntry, store: StoreRecord) -> CapToken:
    """Return the token in an entry of the authorize log."""
    try:
        return CapToken.decode(place.entry.msg_bytes, reading_limits(store))
    except ProtocolError as error:
        raise DamagedStoreError(place.path, place.offset, str(error)) from error


def read_nodes(fs: Filesystem, domain: Domain, label: Label, positions: Sequence[int]) -> list[NodeHash]:
    """Return the nodes at some positions of the node store."""
    path = paths.nodes(domain, label)
    offsets = [position * HASH_BYTES for position in positions]
    try:
        nodes = fs.read_each(path, offsets, HASH_BYTES)
    except FileNotFoundError:
        raise StaleIndexError(path, None, "the node store is missing") from None
    for offset, node in zip(offsets, nodes, strict=True):
        if len(node) != HASH_BYTES:
            raise StaleIndexError(path, offset, "the node store is too short")
    return [NodeHash(node) for node in nodes]


def node_reader(fs: Filesystem, domain: Domain, label: Label) -> ReadNode:
    """Return a function that reads one stored node."""
    return lambda position: read_nodes(fs, domain, label, (position,))[0]
