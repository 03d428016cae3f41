"""Rows of the index: where entries, chunks and checkpoints are, and how far clients and tokens have come.

Each carries a checksum over its key and itself (see ``label_state``). The key of a position is a label's
number and the position in it.
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
    """Return the number of the label and the place in it."""
    number, at = _PLACE.unpack(key)
    return number, at


class Span(NamedTuple):
    """Where an entry is: in which chunk, and where in it."""

    chunk_start: int
    offset: int
    length: int


class Block(NamedTuple):
    """Entries that stand one after the other in one chunk."""

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
        """Return where one of the entries is."""
        nth = seq - self.first_seq
        if not 0 <= nth < len(self.lengths):
            return None
        return Span(self.chunk_start, self.offset + sum(self.lengths[:nth]), self.lengths[nth])


class ChunkRow(NamedTuple):
    """A chunk as the manifest lists it; ``end_seq`` 0 while it grows."""

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
        """Whether the file is gone, and a tombstone in its place."""
        return bool(self.flags & PRUNED)

    def encode(self, key: bytes) -> bytes:
        """Return the row's value; the key has where the chunk begins."""
        return protect(key, _CHUNK.pack(*self[1:]))

    @classmethod
    def decode(cls, number: int, start_seq: int, stored: bytes) -> "ChunkRow":
        return cls(start_seq, *_CHUNK.unpack(checked(place(number, start_seq), stored)))


class CheckpointRow(NamedTuple):
    """A checkpoint that is stored."""

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
    """What a label has, and where: chunks in order, and how much is in the journal only."""

    label: Label
    head: Head
    chunks: tuple[ChunkRow, ...]
    journal_entries: int
    # The first entry that can still be read.
    first_seq: int


def encode_cursor(key: bytes, cursor: ClientCursor) -> bytes:
    """Return the row of a client in a label."""
    return protect(key, _CLIENT.pack(*cursor))


def decode_cursor(key: bytes, stored: bytes) -> ClientCursor:
    """Read the row of a client in a label."""
    return ClientCursor(*_CLIENT.unpack(checked(key, stored)))


def encode_auth(key: bytes, record: AuthRecord) -> bytes:
    """Return the row of a token."""
    left = record.bucket
    bucket = b"" if left is None else _BUCKET.pack(left.tokens, left.last_ts)
    return protect(key, _AUTH.pack(record.issued_at, record.authorize_seq) + bucket)


def decode_auth(key: bytes, stored: bytes) -> AuthRecord:
    """Read the row of a token."""
    value = checked(key, stored)
    issued_at, authorize_seq = _AUTH.unpack_from(value)
    bucket = Bucket(*_BUCKET.unpack_from(value, _AUTH.size)) if len(value) > _AUTH.size else None
    return AuthRecord(issued_at, authorize_seq, bucket)
