"""Rows of the index: locations of entries, chunks and checkpoints, and states of clients and tokens.

Each has a checksum over its key and value (see ``label_state``). The key of a position is a label's number
and the position in it.
"""

import struct
from typing import Final, NamedTuple

from veen.core.data_dir.store_records import AuthRecord, ClientCursor
from veen.core.objects.capability import Bucket
from veen.core.types import Label, NodeHash
from veen.storage.index.label_state import Head, checked, protect

# Entries located by one row of ``positions``.
BLOCK_ENTRIES: Final = 128
# Flags of chunks.
COMPRESSED, PRUNED = 1, 2

_PLACE: Final = struct.Struct(">IQ")
_BLOCK: Final = struct.Struct(">QQ")
_LENGTH: Final = struct.Struct(">I")
_CHECKPOINT: Final = struct.Struct(">32sQ")
_CHUNK: Final = struct.Struct(">QQQQB")
_CLIENT: Final = struct.Struct(">QQ")
_AUTH: Final = struct.Struct(">QQ")
_BUCKET: Final = struct.Struct(">QQ")


def place(number: int, seq: int) -> bytes:
    """Return the key of a position in a label."""
    return _PLACE.pack(number, seq)


def placed(key: bytes | memoryview) -> tuple[int, int]:
    """Return the number of the label and the position in it."""
    number, at = _PLACE.unpack(key)
    return number, at


class Span(NamedTuple):
    """The location of an entry: its chunk, and offset and length in it."""

    chunk_start: int
    offset: int
    length: int


class Block(NamedTuple):
    """Consecutive entries of one chunk."""

    first_seq: int
    chunk_start: int
    offset: int
    lengths: tuple[int, ...]

    def encode(self, key: bytes) -> bytes:
        lengths = struct.pack(f">{len(self.lengths)}I", *self.lengths)
        return protect(key, _BLOCK.pack(self.chunk_start, self.offset) + lengths)

    @classmethod
    def decode(cls, key: bytes, stored: bytes) -> "Block":
        value = checked(key, stored)
        _, first_seq = placed(key)
        chunk_start, offset = _BLOCK.unpack_from(value)
        count = (len(value) - _BLOCK.size) // _LENGTH.size
        return cls(first_seq, chunk_start, offset, struct.unpack_from(f">{count}I", value, _BLOCK.size))

    def find(self, seq: int) -> Span | None:
        """Return the location of one of the entries."""
        nth = seq - self.first_seq
        if not 0 <= nth < len(self.lengths):
            return None
        return Span(self.chunk_start, self.offset + sum(self.lengths[:nth]), self.lengths[nth])


class ChunkRow(NamedTuple):
    """A chunk as the manifest lists it; ``end_seq`` is 0 while it is open."""

    start_seq: int
    end_seq: int
    total_bytes: int
    first_ts: int
    last_ts: int
    flags: int = 0

    @property
    def compressed(self) -> bool:
        """Whether the file is compressed."""
        return bool(self.flags & COMPRESSED)

    @property
    def pruned(self) -> bool:
        """Whether the file was replaced by a tombstone."""
        return bool(self.flags & PRUNED)

    def encode(self, key: bytes) -> bytes:
        """Return the row's value; the key has the start of the chunk."""
        return protect(key, _CHUNK.pack(*self[1:]))

    @classmethod
    def decode(cls, number: int, start_seq: int, stored: bytes) -> "ChunkRow":
        return cls(start_seq, *_CHUNK.unpack(checked(place(number, start_seq), stored)))


class CheckpointRow(NamedTuple):
    """A stored checkpoint."""

    upto_seq: int
    mmr_root: NodeHash
    chunk_start: int

    def encode(self, key: bytes) -> bytes:
        """Return the row's value; the key has the entry."""
        return protect(key, _CHECKPOINT.pack(self.mmr_root, self.chunk_start))

    @classmethod
    def decode(cls, number: int, upto_seq: int, stored: bytes) -> "CheckpointRow":
        root, chunk_start = _CHECKPOINT.unpack(checked(place(number, upto_seq), stored))
        return cls(upto_seq, NodeHash(root), chunk_start)


class Manifest(NamedTuple):
    """The chunks of a label in order, and the number of entries that are in the journal only."""

    label: Label
    head: Head
    chunks: tuple[ChunkRow, ...]
    journal_entries: int
    # The first entry that is not pruned.
    first_seq: int


def encode_cursor(key: bytes, cursor: ClientCursor) -> bytes:
    """Return the row of a client in a label."""
    return protect(key, _CLIENT.pack(*cursor))


def decode_cursor(key: bytes, stored: bytes) -> ClientCursor:
    """Decode the row of a client in a label."""
    return ClientCursor(*_CLIENT.unpack(checked(key, stored)))


def encode_auth(key: bytes, record: AuthRecord) -> bytes:
    """Return the row of a token."""
    remaining = record.bucket
    bucket = b"" if remaining is None else _BUCKET.pack(remaining.tokens, remaining.last_ts)
    return protect(key, _AUTH.pack(record.issued_at, record.authorize_seq) + bucket)


def decode_auth(key: bytes, stored: bytes) -> AuthRecord:
    """Decode the row of a token."""
    value = checked(key, stored)
    issued_at, authorize_seq = _AUTH.unpack_from(value)
    bucket = Bucket(*_BUCKET.unpack_from(value, _AUTH.size)) if len(value) > _AUTH.size else None
    return AuthRecord(issued_at, authorize_seq, bucket)
