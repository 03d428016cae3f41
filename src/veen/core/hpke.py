"""HPKE base mode, the one suite of the profile (RFC 9180; 001 section 3.2; decision C-07).

DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305, with exporter. A context seals or opens
exactly one message and exports keys: the receiver of a message can not know a higher sequence number.

The primitives are libsodium's and OpenSSL's; what is written here is the key schedule. The library
that has one, pyhpke, takes about twice the time of all primitives together (ADR 0003, ``make bench``);
it is the second implementation in the tests.
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

KEY_BYTES: Final = 32
ENC_BYTES: Final = 32
_NONCE_BYTES: Final = 12

_KEM_SUITE: Final = b"KEM\x00\x20"  # DHKEM(X25519, HKDF-SHA256)
_HPKE_SUITE: Final = b"HPKE\x00\x20\x00\x01\x00\x03"  # that KEM, HKDF-SHA256, ChaCha20-Poly1305
_MODE_BASE: Final = b"\x00"


def _labeled(suite: bytes, label: bytes) -> bytes:
    """Return what LabeledExtract puts before its input (RFC 9180 section 4)."""
    return b"HPKE-v1" + suite + label


def _sized_label(suite: bytes, label: bytes, length: int) -> bytes:
    """Return what LabeledExpand puts before its info."""
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


def _hmac(key: bytes, data: bytes) -> bytes:
    """Return HMAC-SHA256 (RFC 2104) under a key of at most 64 bytes.

    Two calls of SHA-256, because ``hmac.digest`` looks its algorithm up each time, which costs as much
    again; a message needs seven of them. The tests compare both.
    """
    block = key.ljust(_HMAC_BLOCK, b"\x00")
    return sha256(block.translate(_OPAD) + sha256(block.translate(_IPAD) + data).digest()).digest()


def _expand(prk: bytes, label: bytes, info: bytes) -> bytes:
    """Return the first block of HKDF-Expand, which is all that is ever needed."""
    return _hmac(prk, label + info + b"\x01")


@lru_cache(maxsize=8)
def _schedule_context(info: bytes) -> bytes:
    """Return the part of the key schedule that no message changes."""
    return _MODE_BASE + _hmac(b"", _PSK_ID_HASH) + _hmac(b"", _INFO_HASH + info)


@dataclass(frozen=True, slots=True)
class Context:
    """The keys of one message; none of them is ever shown."""

    _key: bytes = field(repr=False)
    _nonce: bytes = field(repr=False)
    _exporter_secret: bytes = field(repr=False)

    def seal(self, aad: bytes, plaintext: bytes) -> bytes:
        """Encrypt the one message of this context (sequence number 0)."""
        return ChaCha20Poly1305(self._key).encrypt(self._nonce, plaintext, aad)

    def open(self, aad: bytes, ciphertext: bytes) -> bytes:
        """Decrypt the one message of this context; raise HDR_AEAD if it is not from it."""
        try:
            return ChaCha20Poly1305(self._key).decrypt(self._nonce, ciphertext, aad)
        except InvalidTag:
            raise ProtocolError(Detail.HDR_AEAD, "payload header does not open with this key") from None

    def export(self, label: bytes) -> bytes:
        """Return the 32-byte key of this context for ``label``."""
        return _expand(self._exporter_secret, _SEC, label)


def public_key(secret: ReaderSecretKey) -> ReaderPublicKey:
    """Return the X25519 public key of a secret."""
    return ReaderPublicKey(crypto_scalarmult_base(_sized(secret, "secret key")))


def _sized(key: bytes, what: str) -> bytes:
    if len(key) != KEY_BYTES:
        raise ProtocolError(Detail.FIELD_SIZE, f"{what} of {len(key)} bytes instead of {KEY_BYTES}")
    return key


def _agree(secret: bytes, public: bytes) -> bytes:
    try:
        return crypto_scalarmult(secret, public)
    except SodiumError:  # libsodium refuses the all-zero result (RFC 9180 section 7.1.4)
        raise ProtocolError(Detail.DH_ZERO, "public key of small order") from None


def _context(shared: bytes, enc: bytes, recipient: bytes, info: bytes) -> Context:
    """Run Decap's or Encap's last step and the key schedule (RFC 9180 sections 4.1 and 5.1)."""
    secret = _expand(_hmac(b"", _EAE_PRK + shared), _SHARED_SECRET, enc + recipient)
    schedule = _schedule_context(info)
    prk = _hmac(secret, _SECRET)
    return Context(
        _expand(prk, _KEY, schedule),
        _expand(prk, _BASE_NONCE, schedule)[:_NONCE_BYTES],
        _expand(prk, _EXP, schedule),
    )


def setup_sender(
    recipient: ReaderPublicKey, ephemeral: ReaderSecretKey, info: bytes = b""
) -> tuple[bytes, Context]:
    """Return ``enc`` and the context for one message to ``recipient``; ``ephemeral`` is never used again."""
    enc = public_key(ephemeral)
    shared = _agree(ephemeral, _sized(recipient, "recipient key"))
    return enc, _context(shared, enc, recipient, info)


def setup_receiver(enc: bytes, secret: ReaderSecretKey, info: bytes = b"") -> Context:
    """Return the context of a message from its ``enc``."""
    recipient = public_key(secret)
    return _context(_agree(secret, _sized(enc, "enc")), enc, recipient, info)
