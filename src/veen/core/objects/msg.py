"""MSG: what a client submits, what its ciphertext is bound to, and the header that only readers see.

Sections 4.1, 4.2 and 4.5 of document 001; decision C-08.
"""

import struct
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, Self

from veen.core.crypto import ed25519
from veen.core.crypto.hash import ZERO_32, sha256, tag_prefix, trunc_24, u64be
from veen.core.encoding import cbor
from veen.core.encoding.field_types import B32, B32_OR_NULL, B64, CIPHERTEXT, UINT, VER, check_envelope
from veen.core.encoding.shape import ENCODED, ArrayShape, Field, MapShape
from veen.core.encoding.wire_object import Wire
from veen.core.errors import CborError, Detail, ProtocolError
from veen.core.limits import DEFAULT_LIMITS, Limits
from veen.core.objects.labels import sized
from veen.core.types import AuthRef, Label, LeafHash, ProfileId, SchemaId, Signature, VerifyKey

_AAD_TAG: Final = tag_prefix("veen/aad")
_NONCE_TAG: Final = tag_prefix("veen/nonce")
_ATT_NONCE_TAG: Final = tag_prefix("veen/att-nonce")
_SEQ: Final = struct.Struct(">Q")
_SEQS: Final = struct.Struct(">QQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class MsgContext:
    """The plaintext fields of a message that its ciphertext is bound to.

    Changing any of them means sealing again (MSG-014).
    """

    profile_id: ProfileId
    label: Label
    client_id: VerifyKey
    client_seq: int
    prev_ack: int
    auth_ref: AuthRef | None

    def __post_init__(self) -> None:
        """Reject other lengths: the fields are hashed without separators, so their lengths must be fixed."""
        for name in ("profile_id", "label", "client_id", "auth_ref"):
            value = getattr(self, name)
            if value is None and name == "auth_ref":
                continue
            sized(B32.lower(value), name)
        UINT.lower(self.client_seq)
        UINT.lower(self.prev_ack)

    def aad(self) -> bytes:
        """Return the associated data of header and body."""
        return sha256(
            _AAD_TAG
            + self.profile_id
            + self.label
            + self.client_id
            + _SEQS.pack(self.client_seq, self.prev_ack)
            + (ZERO_32 if self.auth_ref is None else self.auth_ref)
        )

    def body_nonce(self) -> bytes:
        """Return the nonce of the body."""
        prev_ack, client_seq = _SEQ.pack(self.prev_ack), _SEQ.pack(self.client_seq)
        return trunc_24(sha256(_NONCE_TAG + self.label + prev_ack + self.client_id + client_seq))


def attachment_nonce(aad: bytes, index: int) -> bytes:
    """Return the nonce of attachment ``index``.

    The specification has msg_id here, which depends on the attachments themselves; the aad has the same size,
    is known to both sides before sealing, and separates messages just as well (C-08).
    """
    return trunc_24(sha256(_ATT_NONCE_TAG + aad + u64be(index)))


_SIG_TAG: Final = tag_prefix("veen/sig")
_LEAF_TAG: Final = tag_prefix("veen/leaf")
# The signature field on the wire: a two-byte head and 64 bytes.
_SIG_BYTES: Final = 66
_ARRAY_9: Final = b"\x89"
_ARRAY_10: Final = b"\x8a"
_SIG_HEAD: Final = b"\x58\x40"
_HEAD_32: Final = b"\x58\x20"
_VER_1: Final = b"\x01"
_NULL: Final = 0xF6


@dataclass(frozen=True, slots=True, kw_only=True)
class Msg(Wire):
    """A signed, sealed message on its way to a label."""

    OVERSIZE: ClassVar = Detail.SIZE_PREFILTER
    SHAPE: ClassVar = ArrayShape(
        "MSG",
        Field("ver", VER),
        Field("profile_id", B32),
        Field("label", B32),
        Field("client_id", B32),
        Field("client_seq", UINT),
        Field("prev_ack", UINT),
        Field("auth_ref", B32_OR_NULL),
        Field("ct_hash", B32),
        Field("ciphertext", CIPHERTEXT),
        Field("sig", B64),
    )

    profile_id: ProfileId
    label: Label
    client_id: VerifyKey
    client_seq: int
    prev_ack: int
    auth_ref: AuthRef | None
    ct_hash: bytes
    ciphertext: bytes
    sig: Signature

    @classmethod
    def max_bytes(cls, limits: Limits) -> int:
        """Return the limit on a message, padding included (MSG-010)."""
        return limits.max_msg_bytes

    @classmethod
    def decode(cls, data: bytes, limits: Limits = DEFAULT_LIMITS) -> Self:
        """Decode a message; anything unusual takes the general path, which reports what is wrong."""
        return cls.plain(data, limits) or super(Msg, cls).decode(data, limits)

    @classmethod
    def plain(cls, data: bytes, limits: Limits) -> Self | None:
        """Decode a message by its layout, in half the time; None if anything about it is unusual."""
        spans = _layout(data, 0) if len(data) <= limits.max_msg_bytes else None
        if spans is None or spans.end != len(data):
            return None
        ciphertext = data[spans.ciphertext : spans.sig - 2]
        try:
            check_envelope(ciphertext, limits)
        except ProtocolError:
            return None
        auth, hashed = spans.auth_ref, spans.ct_hash
        return cls._lift(
            {
                "profile_id": data[4:36],
                "label": data[38:70],
                "client_id": data[72:104],
                "client_seq": spans.client_seq,
                "prev_ack": spans.prev_ack,
                "auth_ref": None if auth is None else data[auth : auth + 32],
                "ct_hash": data[hashed : hashed + 32],
                "ciphertext": ciphertext,
                "sig": data[spans.sig :],
                ENCODED: data,
            }
        )

    @classmethod
    def sign(cls, key: ed25519.SigningKey, context: MsgContext, ciphertext: bytes) -> Self:
        """Sign a ciphertext that was sealed in this context; the key must be the context's client."""
        if key.public_key != context.client_id:
            msg = "the signing key is not the client of this context"
            raise ValueError(msg)
        ct_hash = sha256(CIPHERTEXT.lower(ciphertext))
        # The layout of SHAPE, inlined: this runs for every message sent, and costs a third of the general
        # encoder. A context that exists is valid, so its fields need no second check.
        signed = b"".join(
            (
                _VER_1,
                _HEAD_32,
                context.profile_id,
                _HEAD_32,
                context.label,
                _HEAD_32,
                context.client_id,
                cbor.write_uint(context.client_seq),
                cbor.write_uint(context.prev_ack),
                B32_OR_NULL.write(context.auth_ref),
                _HEAD_32,
                ct_hash,
                cbor.write_bytes(ciphertext),
            )
        )
        sig = key.sign(sha256(_SIG_TAG + _ARRAY_9 + signed))
        return cls._lift(
            {
                "profile_id": context.profile_id,
                "label": context.label,
                "client_id": context.client_id,
                "client_seq": context.client_seq,
                "prev_ack": context.prev_ack,
                "auth_ref": context.auth_ref,
                "ct_hash": ct_hash,
                "ciphertext": ciphertext,
                "sig": sig,
                ENCODED: _ARRAY_10 + signed + _SIG_HEAD + sig,
            }
        )

    def signing_digest(self) -> bytes:
        """Return the 32 bytes that are signed: the message as an array of its first nine fields (C-05)."""
        # The encoding is canonical, so dropping the last field is a slice and a shorter array head.
        return sha256(_SIG_TAG + _ARRAY_9 + self.encode()[1:-_SIG_BYTES])

    @property
    def context(self) -> MsgContext:
        """The context that the ciphertext is bound to."""
        return MsgContext(
            profile_id=self.profile_id,
            label=self.label,
            client_id=self.client_id,
            client_seq=self.client_seq,
            prev_ack=self.prev_ack,
            auth_ref=self.auth_ref,
        )

    @property
    def leaf_hash(self) -> LeafHash:
        """The leaf of this message in its label's MMR, which is also its msg_id (invariant I2)."""
        preimage = self.label + self.profile_id + self.ct_hash + self.client_id + u64be(self.client_seq)
        return LeafHash(sha256(_LEAF_TAG + preimage))

    def verify_ct_hash(self) -> None:
        """Check that ct_hash is the hash of the ciphertext (invariant I1; row 7)."""
        if sha256(self.ciphertext) != self.ct_hash:
            raise ProtocolError(Detail.CT_HASH, "ct_hash is not the hash of the ciphertext", field="ct_hash")

    def verify_signature(self) -> None:
        """Check the client's signature (row 9)."""
        ed25519.verify(self.client_id, self.signing_digest(), self.sig)

    def verify(self) -> None:
        """Check all that a message proves by itself: ciphertext hash, then signature."""
        self.verify_ct_hash()
        self.verify_signature()


def msg_end(buf: bytes, pos: int) -> int:
    """Return where the item at ``pos`` ends, without validating it: for splitting a sequence into messages.

    An item with the layout of a message takes a third of the time of any other.
    """
    spans = _layout(buf, pos)
    return cbor.item_end(buf, pos) if spans is None else spans.end


class _Spans(NamedTuple):
    """The two numbers of a message, and the offsets of the fields after them."""

    client_seq: int
    prev_ack: int
    auth_ref: int | None
    ct_hash: int
    ciphertext: int
    sig: int
    end: int


def _layout(buf: bytes, pos: int) -> _Spans | None:
    """Return the offsets of the fields if all heads of a message are at their offsets, else None."""
    heads = buf[pos : pos + 4], buf[pos + 36 : pos + 38], buf[pos + 70 : pos + 72]
    if heads != (_ARRAY_10 + _VER_1 + _HEAD_32, _HEAD_32, _HEAD_32):
        return None
    try:
        client_seq, at = cbor.read_uint(buf, pos + 104)
        prev_ack, at = cbor.read_uint(buf, at)
        auth_ref = None
        if buf[at] == _NULL:
            at += 1
        elif buf[at : at + 2] == _HEAD_32:
            auth_ref = at + 2
            at += 34
        else:
            return None
        size, body = cbor.read_bytes_head(buf, at + 34)
    except (IndexError, CborError):
        return None
    sig = body + size + 2
    if buf[at : at + 2] != _HEAD_32 or buf[sig - 2 : sig] != _SIG_HEAD or sig + 64 > len(buf):
        return None
    return _Spans(client_seq, prev_ack, auth_ref, at + 2, body, sig, sig + 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadHeader(Wire):
    """The encrypted header of a message: its schema and what it refers to."""

    SHAPE: ClassVar = MapShape(
        "payload_hdr",
        Field("schema", B32, key=1),
        Field("parent_id", B32, key=2, optional=True),
        Field("att_root", B32, key=3, optional=True),
        Field("cap_ref", B32, key=4, optional=True),
        Field("expires_at", UINT, key=5, optional=True),
    )

    schema: SchemaId
    parent_id: LeafHash | None = None
    att_root: bytes | None = None
    cap_ref: AuthRef | None = None
    expires_at: int | None = None

    def verify_cap_ref(self, auth_ref: AuthRef | None) -> None:
        """Check that a capability named inside is the one the message was admitted under (HDR-007)."""
        if self.cap_ref is not None and self.cap_ref != auth_ref:
            raise ProtocolError(
                Detail.AUTH_REF, "cap_ref does not match the auth_ref of the message", field="cap_ref"
            )
