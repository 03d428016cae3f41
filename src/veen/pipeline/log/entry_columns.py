"""Entries in columns: the framed bytes of a part, parsed with numpy.

A whole part at once costs a third of entry by entry. Only well-formed entries are parsed this way: one with
an unexpected length, head or number is passed to core's decoder, which raises the error. So the results are
the same, only faster.
"""

import struct
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from veen.core.crypto.hash import HASH_BYTES
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import (
    DEFAULT_LIMITS,
    ENTRY_HEADER_BYTES,
    ENVELOPE_HEAD_BYTES,
    MAX_RECEIPT_BYTES,
    Limits,
)
from veen.core.objects.entry import Frame
from veen.core.objects.finding import Finding, Location
from veen.core.types import Label
from veen.pipeline.errors import InvalidEntryError

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_LENGTHS: Final = struct.Struct(">II")
_SIG_BYTES: Final = 64
_NULL: Final = 0xF6
_ARRAY_10, _ARRAY_7 = 0x8A, 0x87
# Appended so that reads beyond the end are in bounds; what they return is not used.
_PADDING: Final = bytes(2 * _SIG_BYTES)
# By the additional information of a CBOR head: the bytes that follow, and the least value that needs them.
_FOLLOWING: Final = np.array([0] * 24 + [1, 2, 4, 8] + [-1] * 4, dtype=np.int64)
_LEAST: Final = np.array([0] * 24 + [24, 1 << 8, 1 << 16, 1 << 32] + [0] * 4, dtype=np.uint64)
_MOST: Final = (1 << 63) - 1


class Frames(NamedTuple):
    """Consecutive framed entries of one label, and the position of the first."""

    label: Label
    first_seq: int
    data: bytes
    file: str
    # In ``file``; None where entries have no offsets: a journal, a hub.
    offset: int | None
    limits: Limits = DEFAULT_LIMITS

    def refused(self, seq: int, at: int, detail: str, text: str) -> InvalidEntryError:
        """Return the error for an entry."""
        place = None if self.offset is None else self.offset + at
        return InvalidEntryError(seq, Finding(Location(self.file, place, self.label, seq=seq), detail, text))

    def before(self, seq: int) -> "Frames":
        """Return the entries before one; their ends follow from the stated lengths."""
        at = 0
        for _ in range(self.first_seq, seq):
            msg_len, receipt_len = _LENGTHS.unpack_from(self.data, at + 42)
            at += ENTRY_HEADER_BYTES + msg_len + receipt_len
        return self._replace(data=self.data[:at])


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a part. Numbers are int64; byte fields have one row of bytes for each entry."""

    frames: Frames
    starts: Numbers
    stream_seq: Numbers
    entry_hash: Bytes
    msg_start: Numbers
    msg_end: Numbers
    receipt_end: Numbers
    profile_id: Bytes
    client_id: Bytes
    client_seq: Numbers
    prev_ack: Numbers
    has_auth_ref: Flags
    auth_ref: Bytes
    ct_hash: Bytes
    ct_start: Numbers
    ct_end: Numbers
    sig: Bytes
    leaf_hash: Bytes
    mmr_root: Bytes
    hub_ts: Numbers
    hub_sig: Bytes

    def __len__(self) -> int:
        return len(self.stream_seq)

    @property
    def file(self) -> str:
        return self.frames.file

    @property
    def label(self) -> Label:
        return self.frames.label

    def offset(self, nth: int) -> int | None:
        """Return the offset of an entry in its file."""
        first = self.frames.offset
        return None if first is None else first + int(self.starts[nth])

    def frame(self, nth: int) -> bytes:
        """Return the whole entry as stored."""
        return self.frames.data[self.starts[nth] : self.receipt_end[nth]]

    def msg_bytes(self, nth: int) -> bytes:
        return self.frames.data[self.msg_start[nth] : self.msg_end[nth]]

    def receipt_bytes(self, nth: int) -> bytes:
        return self.frames.data[self.msg_end[nth] : self.receipt_end[nth]]

    def ciphertext(self, nth: int) -> bytes:
        return self.frames.data[self.ct_start[nth] : self.ct_end[nth]]

    def receipt_ids(self) -> pa.Array:
        """Return the hashes of the receipts (QRY-028), as a column."""
        data = self.frames.data
        spans = zip(self.msg_end.tolist(), self.receipt_end.tolist(), strict=True)
        return pa.array([sha256(data[start:end]).digest() for start, end in spans], pa.binary())

    def leaves(self) -> list[bytes]:
        """Return the leaves as the receipts state them."""
        return rows(self.leaf_hash)


def rows(matrix: Bytes) -> list[bytes]:
    """Return the rows of a matrix as byte strings."""
    width = matrix.shape[1]
    data = matrix.tobytes()
    return [data[at : at + width] for at in range(0, len(data), width)]


def binary(matrix: Bytes, valid: Flags | None = None) -> pa.Array:
    """Return the rows of a matrix as an Arrow column, without a Python object for each."""
    count, width = matrix.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    nulls = (
        None if valid is None or bool(valid.all()) else pa.py_buffer(np.packbits(valid, bitorder="little"))
    )
    buffers = [nulls, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(matrix))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def parse(frames: Frames) -> Entries:
    """Parse entries; raise InvalidEntryError for the first that is not valid (FRM-004 to FRM-008).

    Everything but ``entry_hash`` is checked, which is the kernel's task.
    """
    starts, lengths, is_cut = _walk(frames)
    reader = _Reader(frames.data, np.array(starts[:-1], dtype=np.int64))
    entries = _read(frames, reader, starts, lengths)
    if not reader.plain.all():
        for nth in np.flatnonzero(~reader.plain):
            _judge(frames, frames.first_seq + int(nth), starts[nth])
    if is_cut:
        _judge(frames, frames.first_seq + len(lengths), starts[-1])
    return entries


def _walk(frames: Frames) -> tuple[list[int], list[int], bool]:
    """Return the starts of entries and the end, the message lengths, and whether data is cut off there."""
    data, size, at = frames.data, len(frames.data), 0
    starts: list[int] = [0]
    lengths: list[int] = []
    unpack, max_msg_bytes = _LENGTHS.unpack_from, frames.limits.max_msg_bytes
    while at + ENTRY_HEADER_BYTES <= size:
        msg_len, receipt_len = unpack(data, at + 42)
        at += ENTRY_HEADER_BYTES + msg_len + receipt_len
        if at > size or msg_len > max_msg_bytes or receipt_len > MAX_RECEIPT_BYTES:
            break
        lengths.append(msg_len)
        starts.append(at)
    return starts, lengths, starts[-1] < size


def _judge(frames: Frames, seq: int, at: int) -> None:
    """Decode an entry that is not well-formed with core, which raises the error."""
    try:
        frame, _ = Frame.read(frames.data, at, frames.limits)
        if (frame.label, frame.stream_seq) != (frames.label, seq):
            text = f"entry {frame.stream_seq} of {frame.label.hex()} is at the position of entry {seq}"
            raise frames.refused(seq, at, Detail.ENTRY_RECEIPT.value, text)
        frame.entry(frames.limits).msg(frames.limits)
    except ProtocolError as error:
        raise frames.refused(seq, at, error.detail.value, str(error)) from None
    raise frames.refused(seq, at, Detail.VALUE.value, "a number above 2^63 - 1 cannot be shown")


class _Reader:
    """Reads a field of all entries at once; ``plain`` becomes false for entries with an unexpected value."""

    def __init__(self, data: bytes, starts: Numbers) -> None:
        self._buffer: Bytes = np.frombuffer(data + _PADDING, dtype=np.uint8)
        self._last = len(data)
        self.plain: Flags = np.ones(len(starts), dtype=bool)

    def bytes(self, at: Numbers, width: int) -> Bytes:
        """Return ``width`` bytes at each offset."""
        windows = np.lib.stride_tricks.sliding_window_view(self._buffer, width)
        rows_at: Bytes = windows[np.minimum(at, self._last)]
        return rows_at

    def expect(self, at: Numbers, *values: int) -> None:
        """Expect these bytes at each offset."""
        inside = np.minimum(at, self._last)
        for nth, value in enumerate(values):
            self.plain &= self._buffer[inside + nth] == value

    def require(self, condition: Any) -> None:  # noqa: ANN401 - numpy's comparison
        """Expect a condition for each entry."""
        self.plain &= condition

    def number(self, at: Numbers, major: int = 0) -> tuple[Numbers, Numbers]:
        """Return the number in a CBOR head, and the offset of the next field."""
        at = np.minimum(at, self._last)
        head = self._buffer[at]
        info = (head & 31).astype(np.int64)
        size = _FOLLOWING[info]
        self.plain &= ((head >> 5) == major) & (size >= 0)
        size = np.maximum(size, 0)
        eight = self.bytes(at + 1, 8).copy().view(">u8").reshape(-1).astype(np.uint64)
        shift = (64 - 8 * np.maximum(size, 1)).astype(np.uint64)
        value = np.where(size == 0, info.astype(np.uint64), eight >> shift)
        self.plain &= (value >= _LEAST[info]) & (value <= _MOST)
        return np.minimum(value, _MOST).astype(np.int64), at + 1 + size

    def either(self, at: Numbers, value: int) -> Flags:
        """Return for which entries a byte has a value."""
        matches: Flags = self._buffer[np.minimum(at, self._last)] == value
        return matches

    def big_endian(self, at: Numbers, width: int) -> Numbers:
        """Return big-endian numbers of fixed width."""
        view = self.bytes(at, width).copy().view(f">u{width}").reshape(-1)
        return view.astype(np.uint64).astype(np.int64)


def _read(frames: Frames, reader: _Reader, starts: list[int], lengths: list[int]) -> Entries:
    start = np.array(starts[:-1], dtype=np.int64)
    end = np.array(starts[1:], dtype=np.int64)
    msg = start + ENTRY_HEADER_BYTES
    receipt = msg + np.array(lengths, dtype=np.int64)
    label = np.frombuffer(frames.label, dtype=np.uint8)
    seqs = np.arange(frames.first_seq, frames.first_seq + len(start), dtype=np.int64)
    reader.expect(start, 1, 0)
    for place in (start + 2, msg + 38, receipt + 4):
        reader.require((reader.bytes(place, HASH_BYTES) == label).all(axis=1))
    reader.require(reader.big_endian(start + 34, 8) == seqs)
    fields = _read_msg(reader, msg, receipt, frames.limits) | _read_receipt(reader, receipt, end, seqs)
    return Entries(
        frames=frames,
        starts=np.array(starts, dtype=np.int64),
        stream_seq=seqs,
        entry_hash=reader.bytes(start + 50, HASH_BYTES),
        msg_start=msg,
        msg_end=receipt,
        receipt_end=end,
        **fields,
    )


def _read_msg(reader: _Reader, msg: Numbers, end: Numbers, limits: Limits) -> dict[str, Any]:
    reader.expect(msg, _ARRAY_10, 1, 0x58, 0x20)
    reader.expect(msg + 36, 0x58, 0x20)
    reader.expect(msg + 70, 0x58, 0x20)
    client_seq, at = reader.number(msg + 104)
    prev_ack, at = reader.number(at)
    absent = reader.either(at, _NULL)
    reader.require(absent | (reader.either(at, 0x58) & reader.either(at + 1, 0x20)))
    auth_ref = np.where(absent[:, None], np.uint8(0), reader.bytes(at + 2, HASH_BYTES))
    at = np.where(absent, at + 1, at + 2 + HASH_BYTES)
    reader.expect(at, 0x58, 0x20)
    ct_hash = reader.bytes(at + 2, HASH_BYTES)
    size, ciphertext = reader.number(at + 2 + HASH_BYTES, major=2)
    reader.require(size <= limits.max_msg_bytes)
    sig = ciphertext + np.minimum(size, limits.max_msg_bytes)
    reader.expect(sig, 0x58, 0x40)
    reader.require(sig + 2 + _SIG_BYTES == end)
    hdr_len, body_len = reader.big_endian(ciphertext + 32, 4), reader.big_endian(ciphertext + 36, 4)
    reader.require((hdr_len <= limits.max_hdr_bytes) & (body_len <= limits.max_body_bytes))
    reader.require(size >= ENVELOPE_HEAD_BYTES + hdr_len + body_len)
    return {
        "profile_id": reader.bytes(msg + 4, HASH_BYTES),
        "client_id": reader.bytes(msg + 72, HASH_BYTES),
        "client_seq": client_seq,
        "prev_ack": prev_ack,
        "has_auth_ref": ~absent,
        "auth_ref": auth_ref,
        "ct_hash": ct_hash,
        "ct_start": ciphertext,
        "ct_end": sig,
        "sig": reader.bytes(sig + 2, _SIG_BYTES),
    }


def _read_receipt(reader: _Reader, receipt: Numbers, end: Numbers, seqs: Numbers) -> dict[str, Any]:
    reader.expect(receipt, _ARRAY_7, 1, 0x58, 0x20)
    seq, at = reader.number(receipt + 36)
    reader.require(seq == seqs)
    reader.expect(at, 0x58, 0x20)
    reader.expect(at + 34, 0x58, 0x20)
    hub_ts, sig = reader.number(at + 68)
    reader.expect(sig, 0x58, 0x40)
    reader.require(sig + 2 + _SIG_BYTES == end)
    return {
        "leaf_hash": reader.bytes(at + 2, HASH_BYTES),
        "mmr_root": reader.bytes(at + 36, HASH_BYTES),
        "hub_ts": hub_ts,
        "hub_sig": reader.bytes(sig + 2, _SIG_BYTES),
    }
