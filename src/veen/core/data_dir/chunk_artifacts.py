"""Files beside the chunks: summary, peaks and checkpoint index (001 section 4.8.3; decision C-82)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from veen.core.encoding import cbor
from veen.core.encoding.field_types import B32, TEXT, UINT, ListOf, not_json
from veen.core.encoding.shape import ArrayShape, Field, Fields
from veen.core.encoding.wire_object import Nested, Wire
from veen.core.errors import CborError, Detail, Fault, ProtocolError
from veen.core.limits import DEFAULT_LIMITS, MAX_PROOF_PATH, Limits
from veen.core.merkle.mmr import Peaks
from veen.core.types import JsonValue, Label, NodeHash


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSummary(Wire):
    """The range, size and roots of a closed chunk."""

    SHAPE: ClassVar = ArrayShape(
        "chunk_summary",
        Field("label", B32),
        Field("start_seq", UINT),
        Field("end_seq", UINT),
        Field("mmr_root_end", B32),
        Field("entry_count", UINT),
        Field("total_bytes", UINT),
        Field("entry_hashes_root", B32),
    )

    label: Label
    start_seq: int
    end_seq: int
    mmr_root_end: NodeHash
    entry_count: int
    total_bytes: int
    entry_hashes_root: NodeHash

    def _validate(self) -> None:
        _check_range(self.start_seq, self.end_seq)
        if self.entry_count != self.end_seq - self.start_seq + 1:
            raise ProtocolError(Detail.VALUE, "entry_count does not fit the range", field="entry_count")


def _check_range(start: int, end: int) -> None:
    if not 1 <= start <= end:
        raise ProtocolError(Detail.VALUE, f"no entries from {start} to {end}", field="start_seq")


_PEAKS: Final = ListOf(B32, max_length=MAX_PROOF_PATH)


@dataclass(frozen=True, slots=True)
class PeakSnapshot:
    """A peaks file: the peaks after some entry, by increasing height; the file's name says after which."""

    hashes: tuple[NodeHash, ...]

    def __post_init__(self) -> None:
        """Reject hashes of a wrong length."""
        _PEAKS.check(_PEAKS.lower(self.hashes), None)

    def at(self, size: int) -> Peaks:
        """Return the range of ``size`` leaves; reject a size with another number of peaks."""
        return Peaks(size, self.hashes)

    def encode(self) -> bytes:
        """Return the array."""
        return _PEAKS.write(self.hashes)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode the array."""
        raw, end = _PEAKS.read(data, 0)
        cbor.at_end(data, end)
        return cls(_PEAKS.lift(raw))

    def to_json(self) -> JsonValue:
        """Return a JSON array."""
        return _PEAKS.to_json(self.hashes)

    @classmethod
    def from_json(cls, value: JsonValue) -> Self:
        """Parse a JSON array."""
        return cls(_PEAKS.lift(_PEAKS.from_json(value)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRange(Wire):
    """First and last sequence number of a chunk."""

    SHAPE: ClassVar = ArrayShape("chunk_range", Field("start_seq", UINT), Field("end_seq", UINT))

    start_seq: int
    end_seq: int

    def _validate(self) -> None:
        _check_range(self.start_seq, self.end_seq)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedCheckpoint(Wire):
    """What belongs to a checkpoint: its root, the chunk it closes, its peaks file."""

    SHAPE: ClassVar = ArrayShape(
        "indexed_checkpoint",
        Field("mmr_root", B32),
        Field("chunk_range", Nested(ChunkRange)),
        Field("peaks_ref", TEXT),
    )

    mmr_root: NodeHash
    chunk_range: ChunkRange
    peaks_ref: str


@dataclass(frozen=True, slots=True)
class CheckpointIndex:
    """The checkpoint index of a label: checkpoints by upto_seq, ascending."""

    checkpoints: Mapping[int, IndexedCheckpoint]

    def __post_init__(self) -> None:
        """Reject a checkpoint of an empty label."""
        if 0 in self.checkpoints:
            raise ProtocolError(Detail.VALUE, "an empty label has no checkpoint", field="upto_seq")

    def encode(self) -> bytes:
        """Return the map in key order."""
        pairs = sorted(self.checkpoints.items())
        return cbor.head(cbor.MAJOR_MAP, len(pairs)) + b"".join(
            cbor.write_uint(upto_seq) + checkpoint.encode() for upto_seq, checkpoint in pairs
        )

    @classmethod
    def decode(cls, data: bytes, limits: Limits = DEFAULT_LIMITS) -> Self:
        """Decode an index; keys are sequence numbers, so they are not known in advance but must ascend."""
        kind = Nested(IndexedCheckpoint)
        count, pos = cbor.read_map(data, 0, max_items=None)
        raws: dict[int, Fields] = {}
        previous = -1
        for _ in range(count):
            start = pos
            upto_seq, pos = cbor.read_uint(data, pos)
            if upto_seq <= previous:
                raise CborError(Fault.DUPLICATE_KEY if upto_seq == previous else Fault.KEY_ORDER, start)
            previous = upto_seq
            raws[upto_seq], pos = kind.read(data, pos)
        cbor.at_end(data, pos)
        for raw in raws.values():
            kind.check(raw, limits)
        return cls({upto_seq: kind.lift(raw) for upto_seq, raw in raws.items()})

    def to_json(self) -> JsonValue:
        """Return a JSON object with decimal names."""
        return {str(upto_seq): item.to_json() for upto_seq, item in sorted(self.checkpoints.items())}

    @classmethod
    def from_json(cls, value: JsonValue) -> Self:
        """Parse a JSON object; the order of its names does not matter."""
        if not isinstance(value, dict):
            raise not_json("an object", value)
        return cls({_decimal(name): IndexedCheckpoint.from_json(item) for name, item in value.items()})


def _decimal(name: str) -> int:
    # Canonical digits only: int() would also accept signs, spaces and leading zeros.
    if not re.fullmatch(r"0|[1-9][0-9]{0,19}", name):
        raise CborError(Fault.VALUE, 0, f"{name!r} is not a sequence number")
    return UINT.from_json(int(name))
