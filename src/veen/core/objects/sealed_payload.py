"""Ciphertext: sealing for a reader, and opening (001 sections 4.2 and 4.6; decisions C-06 to C-12).

offset          bytes      what
0               32         enc, the ephemeral X25519 public key of this message
32              4          hdr_len, big-endian
36              4          body_len, big-endian
40              hdr_len    payload header, sealed by HPKE
40 + hdr_len    body_len   body, sealed under an exported key
then                       zeros up to a multiple of pad_block
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt as aead_decrypt,
)
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_encrypt as aead_encrypt,
)
from nacl.exceptions import CryptoError

from veen.core.crypto import hpke
from veen.core.crypto.hash import U64_MAX, sha256, u32be, u64be
from veen.core.encoding.field_types import check_envelope
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import DEFAULT_LIMITS, ENVELOPE_HEAD_BYTES, Limits
from veen.core.objects import attachment as att
from veen.core.objects.msg import Msg, MsgContext, PayloadHeader, attachment_nonce
from veen.core.types import Coid, RandomBytes, ReaderPublicKey, ReaderSecretKey

_BODY_KEY: Final = b"veen/body-k"
_ATT_KEY: Final = b"veen/att-k"


@dataclass(frozen=True, slots=True)
class Envelope:
    """The parts of a ciphertext, none of them opened yet."""

    enc: bytes
    hdr: bytes
    body: bytes
    padding: bytes

    @classmethod
    def parse(cls, ciphertext: bytes, limits: Limits = DEFAULT_LIMITS) -> "Envelope":
        """Split a ciphertext by its own lengths (row 4)."""
        check_envelope(ciphertext, limits)
        hdr_end = ENVELOPE_HEAD_BYTES + int.from_bytes(ciphertext[32:36], "big")
        body_end = hdr_end + int.from_bytes(ciphertext[36:40], "big")
        return cls(
            enc=ciphertext[:32],
            hdr=ciphertext[ENVELOPE_HEAD_BYTES:hdr_end],
            body=ciphertext[hdr_end:body_end],
            padding=ciphertext[body_end:],
        )

    def verify_padding(self, pad_block: int) -> None:
        """Check that what follows the body is zeros up to a multiple of ``pad_block`` (row 6a, C-11)."""
        size = ENVELOPE_HEAD_BYTES + len(self.hdr) + len(self.body) + len(self.padding)
        _check_padding(self.padding, size, pad_block)


def verify_padding(ciphertext: bytes, pad_block: int) -> None:
    """Check the padding of a ciphertext whose lengths were checked when its message was decoded (row 6a)."""
    hdr_len, body_len = int.from_bytes(ciphertext[32:36], "big"), int.from_bytes(ciphertext[36:40], "big")
    _check_padding(ciphertext[ENVELOPE_HEAD_BYTES + hdr_len + body_len :], len(ciphertext), pad_block)


def _check_padding(padding: bytes, size: int, pad_block: int) -> None:
    if padding.count(0) != len(padding):
        raise ProtocolError(Detail.CT_PADDING, "padding has a non-zero byte", field="ciphertext")
    if pad_block > 0 and size % pad_block:
        raise ProtocolError(
            Detail.CT_PADDING,
            f"ciphertext of {size} bytes is not a multiple of {pad_block}",
            field="ciphertext",
            expected=pad_block,
            actual=size,
        )


class Sealed(NamedTuple):
    """The result of sealing: a ciphertext to sign, and sealed attachments to store by their coid."""

    ciphertext: bytes
    attachments: tuple[bytes, ...] = ()
    coids: tuple[Coid, ...] = ()
    att_root: bytes | None = None

    @property
    def ct_hash(self) -> bytes:
        """The hash of the ciphertext, padding included."""
        return sha256(self.ciphertext)


@dataclass(frozen=True, slots=True)
class OpenedPayload:
    """The decrypted payload of a message."""

    header: PayloadHeader
    body: bytes
    _context: hpke.Context = field(repr=False)
    _aad: bytes = field(repr=False)

    def open_attachments(
        self, sealed: Sequence[bytes], sizes: Sequence[int], limits: Limits = DEFAULT_LIMITS
    ) -> tuple[bytes, ...]:
        """Open all attachments of the message; ``sizes`` are those that its body declares (ATT-009)."""
        att.check_counts(sealed, sizes, limits)
        att.verify_root(self.header.att_root, [att.coid(item) for item in sealed])
        return tuple(self.open_attachment(index, item) for index, item in enumerate(sealed))

    def seal_again(self, index: int, plaintext: bytes) -> bytes:
        """Return the ciphertext of an attachment of this message: equal content gives equal bytes."""
        nonce, key = attachment_nonce(self._aad, index), _att_key(self._context, index)
        return aead_encrypt(plaintext, b"", nonce, key)

    def open_attachment(self, index: int, sealed: bytes) -> bytes:
        """Open one attachment by its index, for readers that do not need all of them."""
        try:
            return aead_decrypt(
                sealed, b"", attachment_nonce(self._aad, index), _att_key(self._context, index)
            )
        except (CryptoError, ValueError):  # ValueError: shorter than a tag
            raise ProtocolError(Detail.ATT_AEAD, f"attachment {index} does not open with this key") from None


def _att_key(context: hpke.Context, index: int) -> bytes:
    return context.export(_ATT_KEY + u64be(index))


def pad(ciphertext: bytes, pad_block: int, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Append zeros up to a multiple of ``pad_block``; 0 means none."""
    if pad_block < 0:
        raise ProtocolError(Detail.VALUE, f"pad_block {pad_block} is negative", field="pad_block")
    missing = -len(ciphertext) % pad_block if pad_block else 0
    if (
        len(ciphertext) + missing > limits.max_msg_bytes
    ):  # check before allocating: a profile may name any block
        raise _too_large("ciphertext", len(ciphertext) + missing, limits.max_msg_bytes)
    return ciphertext + bytes(missing)


def _too_large(field: str, actual: int, allowed: int) -> ProtocolError:
    message = f"{field} of {actual} bytes exceeds {allowed}"
    return ProtocolError(
        Detail.FIELD_SIZE, message, field=field, actual=min(actual, U64_MAX), max_allowed=allowed
    )


class Sealer:
    """One message being sealed: attachments one by one, then header and body, for one reader key.

    Each sealer draws a fresh ephemeral key: a rebuilt message is sealed again (C-07). Only the
    ids of attachments are retained, so memory hardly depends on their number and size.
    """

    def __init__(
        self,
        context: MsgContext,
        *,
        recipient: ReaderPublicKey,
        random: RandomBytes,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._context = context
        self._aad = context.aad()
        self._limits = limits
        self._enc, self._hpke = hpke.setup_sender(recipient, ReaderSecretKey(random(hpke.KEY_BYTES)))
        self._coids: list[Coid] = []

    @property
    def coids(self) -> Sequence[Coid]:
        """The ids of the attachments so far."""
        return self._coids

    def attach(self, plaintext: bytes) -> bytes:
        """Seal the next attachment; return its ciphertext, which is stored by its hash."""
        index = len(self._coids)
        att.check_size(index, len(plaintext), self._limits)
        sealed = aead_encrypt(plaintext, b"", attachment_nonce(self._aad, index), _att_key(self._hpke, index))
        self._coids.append(att.coid(sealed))
        return sealed

    def finish(self, *, header: PayloadHeader, body: bytes, pad_block: int) -> Sealed:
        """Seal header and body; with attachments, the header's att_root is theirs."""
        if len(body) > self._limits.max_plain_body_bytes:
            raise _too_large("body", len(body), self._limits.max_plain_body_bytes)
        coids = tuple(self._coids)
        if coids and header.att_root is None:
            header = replace(header, att_root=att.att_root(coids))
        elif coids:
            att.verify_root(header.att_root, coids)
        sealed_hdr = self._hpke.seal(self._aad, header.encode())
        if len(sealed_hdr) > self._limits.max_hdr_bytes:
            raise _too_large("header", len(sealed_hdr), self._limits.max_hdr_bytes)
        nonce = self._context.body_nonce()
        sealed_body = aead_encrypt(body, self._aad, nonce, self._hpke.export(_BODY_KEY))
        lengths = u32be(len(sealed_hdr)) + u32be(len(sealed_body))
        ciphertext = pad(self._enc + lengths + sealed_hdr + sealed_body, pad_block, self._limits)
        return Sealed(ciphertext, coids=coids, att_root=header.att_root)


def seal(
    context: MsgContext,
    *,
    recipient: ReaderPublicKey,
    header: PayloadHeader,
    body: bytes,
    pad_block: int,
    random: RandomBytes,
    attachments: Sequence[bytes] = (),
    limits: Limits = DEFAULT_LIMITS,
) -> Sealed:
    """Seal a message whose attachments, if any, are in memory; see ``Sealer`` for large ones."""
    sealer = Sealer(context, recipient=recipient, random=random, limits=limits)
    sealed = tuple(map(sealer.attach, attachments)) if attachments else ()
    payload = sealer.finish(header=header, body=body, pad_block=pad_block)
    return payload._replace(attachments=sealed) if sealed else payload


def open_msg(
    msg: Msg, key: hpke.ReaderKey, *, pad_block: int, limits: Limits = DEFAULT_LIMITS
) -> OpenedPayload:
    """Open a message with a reader key. Verify message and receipt first: opening proves no origin."""
    envelope = Envelope.parse(msg.ciphertext, limits)  # rows 4, 6a and 7, in admission's order
    envelope.verify_padding(pad_block)
    msg.verify_ct_hash()
    context = msg.context
    aad = context.aad()
    ctx = hpke.setup_receiver(envelope.enc, key)
    header = PayloadHeader.decode(ctx.open(aad, envelope.hdr), limits)
    try:
        body = aead_decrypt(envelope.body, aad, context.body_nonce(), ctx.export(_BODY_KEY))
    except (CryptoError, ValueError):  # ValueError: shorter than a tag
        raise ProtocolError(Detail.BODY_AEAD, "body does not open with this key") from None
    return OpenedPayload(header, body, ctx, aad)
