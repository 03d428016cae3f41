"""The index row of a label.

Appends depend on this row, so it has a checksum over its key and value: LMDB has no checksums.
"""

import struct
import zlib
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import StreamEpoch
from veen.core.merkle.mmr import Peaks, node_count
from veen.core.types import Label, LeafHash, NodeHash, StreamId
from veen.storage.errors import StaleIndexError

_CRC: Final = struct.Struct(">I")
_HASH: Final = 32
_DOMAINS: Final = tuple(Domain)
_STATE: Final = struct.Struct(">IBBQQ32sQQQQQ")
_BINDING: Final = struct.Struct(">32sQ")
_FROZEN, _BOUND = 1, 2


def protect(key: bytes, value: bytes) -> bytes:
    """Return a value with its checksum."""
    return value + _CRC.pack(zlib.crc32(value, zlib.crc32(key)))


def checked(key: bytes, stored: bytes) -> bytes:
    """Return a value without its checksum; raise if the checksum is wrong."""
    value = stored[: -_CRC.size]
    if protect(key, value) != stored:
        raise StaleIndexError(paths.INDEX, None, f"row {key.hex()} is damaged")
    return value


class Head(NamedTuple):
    """The append cursor of a label: everything that the next entry depends on."""

    seq: int
    hub_ts: int
    leaf_hash: LeafHash
    peaks: Peaks

    @classmethod
    def empty(cls) -> "Head":
        """Return the head of a label without entries."""
        return cls(seq=0, hub_ts=0, leaf_hash=LeafHash(bytes(_HASH)), peaks=Peaks.empty())

    @property
    def root(self) -> NodeHash:
        """The root after the last entry."""
        return self.peaks.root


class LabelRef(NamedTuple):
    """What is needed to find an entry: the beginning of the label's row, which is cheap to decode."""

    number: int
    domain: Domain
    label: Label
    # The last entry in chunk files.
    seq: int
    pruned_upto: int

    @classmethod
    def decode(cls, label: Label, stored: bytes) -> "LabelRef":
        """Decode the beginning of the row."""
        number, domain, _, seq, *_, pruned_upto = _STATE.unpack_from(checked(label, stored))
        return cls(number, _DOMAINS[domain], label, seq, pruned_upto)


def decode_binding(label: Label, stored: bytes) -> StreamEpoch | None:
    """Decode only the stream and epoch from the row of a label."""
    value = checked(label, stored)
    flags = _STATE.unpack_from(value)[2]
    if not flags & _BOUND:
        return None
    stream_id, epoch = _BINDING.unpack_from(value, _STATE.size)
    return StreamEpoch(StreamId(stream_id), epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelState:
    """The state of a label's files: the head of its chunks, and the open chunk."""

    number: int
    domain: Domain
    label: Label
    head: Head
    # First entry of the open chunk; head + 1 if it is empty.
    chunk_start: int = 1
    chunk_bytes: int = 0
    chunk_first_ts: int = 0
    # Peaks over the entry hashes of the open chunk, for its summary.
    chunk_hashes: Peaks
    last_checkpoint: int = 0
    # The last pruned entry (C-85).
    pruned_upto: int = 0
    # Part of a fork's copied prefix: no hub may append to it (C-95).
    frozen: bool = False
    binding: StreamEpoch | None = None

    @classmethod
    def new(cls, label: Label, domain: Domain, number: int, *, frozen: bool = False) -> "LabelState":
        """Return the state of a label without entries."""
        return cls(
            number=number,
            domain=domain,
            label=label,
            head=Head.empty(),
            chunk_hashes=Peaks.empty(),
            frozen=frozen,
        )

    @property
    def ref(self) -> LabelRef:
        """The part that is needed to find an entry."""
        return LabelRef(self.number, self.domain, self.label, self.head.seq, self.pruned_upto)

    @property
    def chunk_entries(self) -> int:
        """Number of entries in the open chunk."""
        return self.head.seq + 1 - self.chunk_start

    @property
    def node_bytes(self) -> int:
        """Length of the node store."""
        return node_count(self.head.seq) * _HASH

    def encode(self) -> bytes:
        flags = (_FROZEN if self.frozen else 0) | (_BOUND if self.binding else 0)
        head = self.head
        fixed = _STATE.pack(
            self.number,
            _DOMAINS.index(self.domain),
            flags,
            head.seq,
            head.hub_ts,
            head.leaf_hash,
            self.chunk_start,
            self.chunk_bytes,
            self.chunk_first_ts,
            self.last_checkpoint,
            self.pruned_upto,
        )
        binding = _BINDING.pack(*self.binding) if self.binding else b""
        return protect(self.label, b"".join((fixed, binding, *head.peaks.hashes, *self.chunk_hashes.hashes)))

    @classmethod
    def decode(cls, label: Label, stored: bytes) -> "LabelState":
        value = checked(label, stored)
        number, domain, flags, seq, hub_ts, leaf, *chunk, checkpoint, pruned = _STATE.unpack_from(value)
        start, size, first_ts = chunk
        binding = decode_binding(label, stored)
        at = _STATE.size + (_BINDING.size if binding is not None else 0)
        hashes = tuple(NodeHash(value[i : i + _HASH]) for i in range(at, len(value), _HASH))
        split = seq.bit_count()
        return cls(
            number=number,
            domain=_DOMAINS[domain],
            label=label,
            head=Head(seq=seq, hub_ts=hub_ts, leaf_hash=LeafHash(leaf), peaks=Peaks(seq, hashes[:split])),
            chunk_start=start,
            chunk_bytes=size,
            chunk_first_ts=first_ts,
            chunk_hashes=Peaks(seq + 1 - start, hashes[split:]),
            last_checkpoint=checkpoint,
            pruned_upto=pruned,
            frozen=bool(flags & _FROZEN),
            binding=binding,
        )

    def bound_to(self, binding: StreamEpoch) -> "LabelState":
        """Return this state with a stream and epoch."""
        return replace(self, binding=binding)
