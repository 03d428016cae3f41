"""The framed log entry: one MSG and its RECEIPT (001 section 4.8.1; decision C-13).

    offset  bytes        what
    0       1            entry_ver = 1
    1       1            flags = 0
    2       32           label
    34      8            stream_seq, big-endian
    42      4            msg_len, big-endian
    46      4            receipt_len, big-endian
    50      32           entry_hash = H("veen/entry" || msg || receipt), without a separator
    82      msg_len      MSG
    ...     receipt_len  RECEIPT

The hash does not cover the header: a reader compares label and stream_seq with the receipt and rejects
any flag, so that no bit of an entry can change unnoticed.
"""

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from veen.core.crypto.hash import sha256
from veen.core.errors import CborError, Detail, Fault, ProtocolError
from veen.core.limits import DEFAULT_LIMITS, ENTRY_HEADER_BYTES, MAX_RECEIPT_BYTES, Limits
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
from veen.core.types import JsonValue, Label, VerifyKey
from veen.stdx.grammar import counted

_HEADER: Final = struct.Struct(">BB32sQII32s")
assert _HEADER.size == ENTRY_HEADER_BYTES == 82
_ENTRY_VER: Final = 1
_ENTRY_TAG: Final = b"veen/entry"


def entry_hash(msg: bytes, receipt: bytes) -> bytes:
    """Return the storage checksum of an entry; distinct from every hash on the wire."""
    return sha256(_ENTRY_TAG + msg + receipt)


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """The fixed header of an entry; enough to walk a log without decoding it."""

    label: Label
    stream_seq: int
    msg_len: int
    receipt_len: int
    entry_hash: bytes

    @classmethod
    def decode(cls, data: bytes, offset: int = 0, limits: Limits = DEFAULT_LIMITS) -> "EntryHeader":
        """Decode the header at ``offset``; lengths are bounded before that many bytes are read."""
        if len(data) - offset < ENTRY_HEADER_BYTES:
            raise ProtocolError(
                Detail.ENTRY_LENGTH,
                f"{counted(max(len(data) - offset, 0), 'byte')} left, a header has {ENTRY_HEADER_BYTES}",
            )
        version, flags, label, seq, msg_len, receipt_len, digest = _HEADER.unpack_from(data, offset)
        if version != _ENTRY_VER:
            raise ProtocolError(Detail.ENTRY_VERSION, f"entry_ver {version}", expected=1, actual=version)
        if flags != 0:
            raise ProtocolError(
                Detail.ENTRY_FLAGS, f"flags 0x{flags:02x}, none of which is defined", expected=0, actual=flags
            )
        for name, actual, allowed in (
            ("msg_len", msg_len, limits.max_msg_bytes),
            ("receipt_len", receipt_len, MAX_RECEIPT_BYTES),
        ):
            if actual > allowed:
                raise ProtocolError(
                    Detail.ENTRY_LENGTH, f"{name} {actual} exceeds {allowed}", field=name, max_allowed=allowed
                )
        return cls(Label(label), seq, msg_len, receipt_len, digest)

    @property
    def entry_len(self) -> int:
        """The length of the whole entry."""
        return ENTRY_HEADER_BYTES + self.msg_len + self.receipt_len


class Frame(NamedTuple):
    """An entry as the bytes that were written; its two objects are not parsed yet."""

    label: Label
    stream_seq: int
    msg_bytes: bytes
    receipt_bytes: bytes

    @classmethod
    def read(cls, data: bytes, offset: int = 0, limits: Limits = DEFAULT_LIMITS) -> tuple["Frame", int]:
        """Read the frame at ``offset``; return it and the offset of the next one (FRM-004 to FRM-007)."""
        header = EntryHeader.decode(data, offset, limits)
        end = offset + header.entry_len
        if end > len(data):
            raise ProtocolError(
                Detail.ENTRY_LENGTH,
                f"entry of {counted(header.entry_len, 'byte')}, {len(data) - offset} left",
                expected=header.entry_len,
                actual=len(data) - offset,
            )
        split = end - header.receipt_len
        msg_bytes = data[offset + ENTRY_HEADER_BYTES : split]
        receipt_bytes = data[split:end]
        if entry_hash(msg_bytes, receipt_bytes) != header.entry_hash:
            raise ProtocolError(
                Detail.ENTRY_HASH, "entry_hash does not match the stored bytes", field="entry_hash"
            )
        return cls(header.label, header.stream_seq, msg_bytes, receipt_bytes), end

    @property
    def frame_len(self) -> int:
        """The length of the framed bytes."""
        return ENTRY_HEADER_BYTES + len(self.msg_bytes) + len(self.receipt_bytes)

    def entry(self, limits: Limits = DEFAULT_LIMITS) -> "Entry":
        """Decode the receipt, which must belong to the header (FRM-008)."""
        receipt = Receipt.decode(self.receipt_bytes, limits)
        if (receipt.label, receipt.stream_seq) != (self.label, self.stream_seq):
            raise ProtocolError(
                Detail.ENTRY_RECEIPT,
                "receipt has another label or stream_seq than the entry header",
                label=self.label,
                stream_seq=self.stream_seq,
            )
        return Entry(self.msg_bytes, receipt)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry: its two objects as the exact bytes that are stored."""

    msg_bytes: bytes
    receipt: Receipt

    @classmethod
    def decode(cls, data: bytes, offset: int = 0, limits: Limits = DEFAULT_LIMITS) -> tuple["Entry", int]:
        """Decode the entry at ``offset``; return it and the offset of the next one (FRM-004 to FRM-008).

        The message stays as bytes: serving and scanning need not decode it; ``msg`` does.
        """
        frame, end = Frame.read(data, offset, limits)
        return frame.entry(limits), end

    @classmethod
    def decode_one(cls, data: bytes, limits: Limits = DEFAULT_LIMITS) -> "Entry":
        """Decode exactly one entry, including its message."""
        entry, end = cls.decode(data, 0, limits)
        if end != len(data):
            raise ProtocolError(
                Detail.ENTRY_LENGTH, f"{counted(len(data) - end, 'byte')} after the entry", expected=end
            )
        entry.msg(limits)
        return entry

    def encode(self) -> bytes:
        """Return the framed bytes."""
        receipt_bytes = self.receipt.encode()
        header = _HEADER.pack(
            _ENTRY_VER,
            0,
            self.receipt.label,
            self.receipt.stream_seq,
            len(self.msg_bytes),
            len(receipt_bytes),
            self.entry_hash,
        )
        return header + self.msg_bytes + receipt_bytes

    @property
    def entry_len(self) -> int:
        """The length of the framed bytes."""
        return ENTRY_HEADER_BYTES + len(self.msg_bytes) + len(self.receipt.encode())

    @property
    def entry_hash(self) -> bytes:
        """The checksum over message and receipt bytes."""
        return entry_hash(self.msg_bytes, self.receipt.encode())

    def msg(self, limits: Limits = DEFAULT_LIMITS) -> Msg:
        """Decode the message."""
        return Msg.decode(self.msg_bytes, limits)

    def verify(self, hub_pk: VerifyKey, limits: Limits = DEFAULT_LIMITS) -> Msg:
        """Check all that an entry proves by itself (001 section 7): both signatures, I1, I2, I10, I11.

        The root (I3), the sequences (I6, I8, I9) and the epoch (I12) need the log around the entry.
        """
        msg = self.msg(limits)
        self.receipt.verify_signature(hub_pk)
        msg.verify()
        self.receipt.verify_msg(msg)
        return msg

    def to_json(self) -> JsonValue:
        """Return the header by its field names, and both objects in their own JSON form."""
        return self._json_header() | {"msg": self.msg().to_json(), "receipt": self.receipt.to_json()}

    def _json_header(self) -> dict[str, JsonValue]:
        return {
            "entry_ver": _ENTRY_VER,
            "flags": 0,
            "label": self.receipt.label.hex(),
            "stream_seq": self.receipt.stream_seq,
            "msg_len": len(self.msg_bytes),
            "receipt_len": len(self.receipt.encode()),
            "entry_hash": self.entry_hash.hex(),
        }

    @classmethod
    def from_json(cls, value: JsonValue, limits: Limits = DEFAULT_LIMITS) -> "Entry":
        """Parse the JSON form; reject a header that does not match its two objects."""
        if not isinstance(value, dict) or not {"msg", "receipt"} <= value.keys():
            raise CborError(Fault.TYPE, 0, "expected an object with msg and receipt")
        msg = Msg.from_json(value["msg"], limits)
        entry = cls(msg.encode(), Receipt.from_json(value["receipt"], limits))
        header = entry._json_header()
        declared = {name: item for name, item in value.items() if name not in ("msg", "receipt")}
        # By type too: in Python True == 1 == 1.0, in JSON they are three different things.
        if declared != header or any(type(declared[name]) is not type(header[name]) for name in header):
            raise ProtocolError(Detail.ENTRY_RECEIPT, "the header does not match message and receipt")
        return entry
