"""SHA-256, tagged hashes and fixed-width integers (001 section 3.3)."""

from hashlib import sha256 as _sha256
from typing import Final

from veen.core.errors import Detail, ProtocolError

HASH_BYTES: Final = 32
U64_MAX: Final = 2**64 - 1
U32_MAX: Final = 2**32 - 1
ZERO_32: Final = bytes(32)


def sha256(data: bytes) -> bytes:
    """Return H(data), plain SHA-256."""
    return _sha256(data).digest()


def tag_prefix(tag: str) -> bytes:
    """Return the prefix that Ht adds to its data: the tag and a zero byte. Hot paths cache it."""
    return tag.encode() + b"\x00"


def tagged_hash(tag: str, data: bytes) -> bytes:
    """Return Ht(tag, data) = H(tag || 0x00 || data)."""
    return _sha256(tag_prefix(tag) + data).digest()


def u64be(value: int) -> bytes:
    """Return ``value`` as 8 bytes, big-endian."""
    if not 0 <= value <= U64_MAX:
        raise ProtocolError(Detail.VALUE, f"{value} does not fit in 64 bits")
    return value.to_bytes(8, "big")


def u32be(value: int) -> bytes:
    """Return ``value`` as 4 bytes, big-endian."""
    if not 0 <= value <= U32_MAX:
        raise ProtocolError(Detail.VALUE, f"{value} does not fit in 32 bits")
    return value.to_bytes(4, "big")


def trunc_24(data: bytes) -> bytes:
    """Return the first 24 bytes of a hash, as an XChaCha20-Poly1305 nonce."""
    return data[:24]
