"""RECEIPT: the hub's signed statement that a message is in the log (001 section 4.3)."""

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from veen.core.crypto import ed25519
from veen.core.crypto.hash import sha256, tag_prefix
from veen.core.encoding import cbor
from veen.core.encoding.field_types import B32, B64, UINT, VER
from veen.core.encoding.shape import ENCODED, ArrayShape, Field
from veen.core.encoding.wire_object import Wire
from veen.core.errors import CborError, Detail, ProtocolError
from veen.core.limits import DEFAULT_LIMITS, Limits
from veen.core.objects.labels import sized
from veen.core.objects.msg import Msg
from veen.core.types import Label, LeafHash, NodeHash, Signature, VerifyKey

_SIG_TAG: Final = tag_prefix("veen/sig")
_VER_1: Final = b"\x01"
_HEAD_32: Final = b"\x58\x20"
_ARRAY_6: Final = b"\x86"
_ARRAY_7: Final = b"\x87"
_SIG_HEAD: Final = b"\x58\x40"
_SIG_BYTES: Final = 66
# The bytes before the fields of fixed length, in order.
_HEADS: Final = (_ARRAY_7 + _VER_1 + _HEAD_32, _HEAD_32, _HEAD_32, _SIG_HEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(Wire):
    """The position of a message in its label's log, the root after it, and the time."""

    SHAPE: ClassVar = ArrayShape(
        "RECEIPT",
        Field("ver", VER),
        Field("label", B32),
        Field("stream_seq", UINT),
        Field("leaf_hash", B32),
        Field("mmr_root", B32),
        Field("hub_ts", UINT),
        Field("hub_sig", B64),
    )

    label: Label
    stream_seq: int
    leaf_hash: LeafHash
    mmr_root: NodeHash
    hub_ts: int
    hub_sig: Signature

    @classmethod
    def decode(cls, data: bytes, limits: Limits = DEFAULT_LIMITS) -> Self:
        """Decode a receipt; anything unusual takes the general path, which reports what is wrong."""
        return cls._plain(data) or super(Receipt, cls).decode(data, limits)

    @classmethod
    def _plain(cls, data: bytes) -> Self | None:
        """Decode a receipt by its layout, in a third of the time; None if anything about it is unusual."""
        try:
            stream_seq, leaf = cbor.read_uint(data, 36)
            hub_ts, sig = cbor.read_uint(data, leaf + 68)
        except (IndexError, CborError):
            return None
        heads = data[:4], data[leaf : leaf + 2], data[leaf + 34 : leaf + 36], data[sig : sig + 2]
        if heads != _HEADS or len(data) != sig + _SIG_BYTES:
            return None
        return cls._lift(
            {
                "label": data[4:36],
                "stream_seq": stream_seq,
                "leaf_hash": data[leaf + 2 : leaf + 34],
                "mmr_root": data[leaf + 36 : leaf + 68],
                "hub_ts": hub_ts,
                "hub_sig": data[sig + 2 :],
                ENCODED: data,
            }
        )

    def _validate(self) -> None:
        if self.stream_seq == 0:
            raise ProtocolError(Detail.VALUE, "stream_seq counts from 1", field="stream_seq")

    @classmethod
    def sign(
        cls,
        key: ed25519.SigningKey,
        *,
        label: Label,
        stream_seq: int,
        leaf_hash: LeafHash,
        mmr_root: NodeHash,
        hub_ts: int,
    ) -> Self:
        """Sign a receipt with the hub's key."""
        raw = {
            "label": label,
            "stream_seq": UINT.lower(stream_seq),
            "leaf_hash": leaf_hash,
            "mmr_root": mmr_root,
            "hub_ts": UINT.lower(hub_ts),
        }
        for name in ("label", "leaf_hash", "mmr_root"):
            sized(B32.lower(raw[name]), name)
        # The layout of SHAPE, inlined: this runs for every message that a hub accepts, in its only sequencer.
        signed = b"".join(
            (
                _VER_1,
                _HEAD_32,
                label,
                cbor.write_uint(stream_seq),
                _HEAD_32,
                leaf_hash,
                _HEAD_32,
                mmr_root,
                cbor.write_uint(hub_ts),
            )
        )
        sig = key.sign(sha256(_SIG_TAG + _ARRAY_6 + signed))
        return cls._lift({**raw, "hub_sig": sig, ENCODED: _ARRAY_7 + signed + _SIG_HEAD + sig})

    def signing_digest(self) -> bytes:
        """Return the 32 bytes that are signed: the receipt as an array of its first six fields (C-05)."""
        return sha256(_SIG_TAG + _ARRAY_6 + self.encode()[1:-_SIG_BYTES])

    def verify_signature(self, hub_pk: VerifyKey) -> None:
        """Check the hub's signature."""
        ed25519.verify(hub_pk, self.signing_digest(), self.hub_sig)

    def verify_msg(self, msg: Msg) -> None:
        """Check that this is the receipt of ``msg``: same label, its leaf (invariant I2)."""
        if self.label != msg.label:
            raise ProtocolError(Detail.LEAF_HASH, "receipt and message have different labels", field="label")
        if self.leaf_hash != msg.leaf_hash:
            raise ProtocolError(Detail.LEAF_HASH, "leaf_hash does not match the message", field="leaf_hash")

    def contradicts(self, other: "Receipt") -> bool:
        """Report whether two receipts cannot both be true: equivocation, if both are signed (RCPT-009)."""
        same_position = (self.label, self.stream_seq) == (other.label, other.stream_seq)
        return same_position and (self.leaf_hash, self.mmr_root) != (other.leaf_hash, other.mmr_root)
