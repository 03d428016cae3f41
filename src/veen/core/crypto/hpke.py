"""HPKE base mode, the one suite of the profile (RFC 9180; 001 section 3.2; decision C-07).

DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305, with exporter. A context seals or opens
exactly one message and exports keys: the receiver of a message cannot know a higher sequence number.

The primitives are libsodium's and OpenSSL's; this module is the key schedule. A library that
has one, pyhpke, takes about twice the time of all primitives together (ADR 0003, ``make bench``); the
tests use it as a second implementation.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from nacl.bindings import crypto_scalarmult, crypto_scalarmult_base
from nacl.exceptions import RuntimeError as SodiumError

from veen.core.errors import Detail, ProtocolError
from veen.core.types import ReaderPublicKey, ReaderSecretKey
from veen.stdx.grammar import counted

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12

_KEM_SUITE: Final = b"KEM\x00\x20"  # DHKEM(X25519, HKDF-SHA256)
_HPKE_SUITE: Final = b"HPKE\x00\x20\x00\x01\x00\x03"  # that KEM, HKDF-SHA256, ChaCha20-Poly1305
_MODE_BASE: Final = b"\x00"


def _labeled(suite: bytes, label: bytes) -> bytes:
    """Return the prefix of the input of LabeledExtract (RFC 9180 section 4)."""
    return b"HPKE-v1" + suite + label


def _sized_label(suite: bytes, label: bytes, length: int) -> bytes:
    """Return the prefix of the info of LabeledExpand."""
    assert length <= KEY_BYTES, "one HMAC block is enough for all that the suite derives"
    return length.to_bytes(2, "big") + _labeled(suite, label)


_EAE_PRK: Final = _labeled(_KEM_SUITE, b"eae_prk")
_SHARED_SECRET: Final = _sized_label(_KEM_SUITE, b"shared_secret", KEY_BYTES)
_PSK_ID_HASH: Final = _labeled(_HPKE_SUITE, b"psk_id_hash")
_INFO_HASH: Final = _labeled(_HPKE_SUITE, b"info_hash")
_SECRET: Final = _labeled(_HPKE_SUITE, b"secret")
_KEY: Final = _sized_label(_HPKE_SUITE, b"key", KEY_BYTES)
_BASE_NONCE: Final = _sized_label(_HPKE_SUITE, b"base_nonce", _NONCE_BYTES)
_EXP: Final = _sized_label(_HPKE_SUITE, b"exp", KEY_BYTES)
_SEC: Final = _sized_label(_HPKE_SUITE, b"sec", KEY_BYTES)


_HMAC_BLOCK: Final = 64
_IPAD: Final = bytes(byte ^ 0x36 for byte in range(256))
_OPAD: Final = bytes(byte ^ 0x5C for byte in range(256))


def _pads(key: bytes) -> tuple[bytes, bytes]:
    """Return the inner and outer block of HMAC (RFC 2104) for a key of at most 64 bytes."""
    block = key.ljust(_HMAC_BLOCK, b"\x00")
    return block.translate(_IPAD), block.translate(_OPAD)


def _hmac(pads: tuple[bytes, bytes], data: bytes) -> bytes:
    """Return HMAC-SHA256 by two calls of SHA-256.

    ``hmac.digest`` looks up its algorithm on every call, which doubles the cost, and a message needs seven
    calls. The tests compare both.
    """
    return sha256(pads[1] + sha256(pads[0] + data).digest()).digest()


_NO_KEY: Final = _pads(b"")
# HKDF-Expand numbers its blocks; the suite needs only the first.
_FIRST_BLOCK: Final = b"\x01"


@lru_cache(maxsize=8)
def _schedule_inputs(info: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the inputs of the last three steps of the key schedule, which are the same for all messages."""
    context = _MODE_BASE + _hmac(_NO_KEY, _PSK_ID_HASH) + _hmac(_NO_KEY, _INFO_HASH + info)
    return _KEY + context + _FIRST_BLOCK, _BASE_NONCE + context + _FIRST_BLOCK, _EXP + context + _FIRST_BLOCK


class Context:
    """The keys of one message; its repr does not show them."""

    __slots__ = ("_exporter_secret", "_key", "_nonce")

    def __init__(self, key: bytes, nonce: bytes, exporter_secret: bytes) -> None:
        self._key = key
        self._nonce = nonce
        self._exporter_secret = exporter_secret

    def seal(self, aad: bytes, plaintext: bytes) -> bytes:
        """Encrypt the one message of this context (sequence number 0)."""
        return ChaCha20Poly1305(self._key).encrypt(self._nonce, plaintext, aad)

    def open(self, aad: bytes, ciphertext: bytes) -> bytes:
        """Decrypt the one message of this context; raise HDR_AEAD if it was not sealed in it."""
        try:
            return ChaCha20Poly1305(self._key).decrypt(self._nonce, ciphertext, aad)
        except InvalidTag:
            raise ProtocolError(Detail.HDR_AEAD, "payload header does not open with this key") from None

    def export(self, label: bytes) -> bytes:
        """Return the 32-byte key of this context for ``label``."""
        return _hmac(_pads(self._exporter_secret), _SEC + label + _FIRST_BLOCK)


def public_key(secret: ReaderSecretKey) -> ReaderPublicKey:
    """Return the X25519 public key of a secret."""
    return ReaderPublicKey(crypto_scalarmult_base(_sized(secret, "secret key")))


@dataclass(frozen=True, slots=True)
class ReaderKey:
    """The key pair that messages are sealed to; its repr does not show the secret."""

    public_key: ReaderPublicKey
    _secret: bytes = field(repr=False)

    @classmethod
    def from_secret(cls, secret: ReaderSecretKey) -> "ReaderKey":
        """Derive the pair from 32 secret bytes; this takes a fifth of the time of opening a message."""
        return cls(public_key(secret), secret)

    def agree(self, enc: bytes) -> bytes:
        """Return the secret shared with the sender of ``enc``."""
        return _agree(self._secret, _sized(enc, "enc"))


def _sized(key: bytes, what: str) -> bytes:
    if len(key) != KEY_BYTES:
        raise ProtocolError(
            Detail.FIELD_SIZE, f"{what} of {counted(len(key), 'byte')} instead of {KEY_BYTES}"
        )
    return key


def _agree(secret: bytes, public: bytes) -> bytes:
    try:
        return crypto_scalarmult(secret, public)
    except SodiumError:  # libsodium rejects the all-zero result (RFC 9180 section 7.1.4)
        raise ProtocolError(Detail.DH_ZERO, "public key of small order") from None


def _context(shared: bytes, enc: bytes, recipient: bytes, info: bytes) -> Context:
    """Run the last step of Encap or Decap, and the key schedule (RFC 9180 sections 4.1 and 5.1)."""
    eae_prk = _hmac(_NO_KEY, _EAE_PRK + shared)
    secret = _hmac(_pads(eae_prk), _SHARED_SECRET + enc + recipient + _FIRST_BLOCK)
    prk = _pads(_hmac(_pads(secret), _SECRET))
    key, nonce, exporter = _schedule_inputs(info)
    return Context(_hmac(prk, key), _hmac(prk, nonce)[:_NONCE_BYTES], _hmac(prk, exporter))


def setup_sender(
    recipient: ReaderPublicKey, ephemeral: ReaderSecretKey, info: bytes = b""
) -> tuple[bytes, Context]:
    """Return ``enc`` and the context for one message to ``recipient``; ``ephemeral`` must not be reused."""
    enc = public_key(ephemeral)
    shared = _agree(ephemeral, _sized(recipient, "recipient key"))
    return enc, _context(shared, enc, recipient, info)


def setup_receiver(enc: bytes, key: ReaderKey, info: bytes = b"") -> Context:
    """Return the context of a message from its ``enc``."""
    return _context(key.agree(enc), enc, key.public_key, info)
