"""The keys and names of all vectors: public, simple, and not for any other use.

A seed or secret key is one byte repeated, so that a reader recognises it in a hex dump.
"""

from hashlib import sha256
from typing import Final

from vectors.generators.scenario import ask
from veen.core.crypto.ed25519 import SigningKey

CLIENT_SEED: Final = bytes([0x11]) * 32
OTHER_CLIENT_SEED: Final = bytes([0x12]) * 32
HUB_SEED: Final = bytes([0x21]) * 32
OTHER_HUB_SEED: Final = bytes([0x22]) * 32
ISSUER_SEED: Final = bytes([0x31]) * 32
WITNESS_SEEDS: Final = (bytes([0x41]) * 32, bytes([0x42]) * 32, bytes([0x43]) * 32)
READER_SK: Final = bytes([0x51]) * 32
OTHER_READER_SK: Final = bytes([0x52]) * 32
EPHEMERAL_SK: Final = bytes([0x61]) * 32

ZERO_32: Final = bytes(32)
U64_MAX: Final = 2**64 - 1


def h(data: bytes) -> bytes:
    """Return H(data)."""
    return sha256(data).digest()


def ht(tag: str, data: bytes) -> bytes:
    """Return Ht(tag, data)."""
    return h(tag.encode() + b"\x00" + data)


def u64(value: int) -> bytes:
    """Return u64be(value)."""
    return value.to_bytes(8, "big")


def u32(value: int) -> bytes:
    """Return u32be(value)."""
    return value.to_bytes(4, "big")


def key(seed: bytes) -> SigningKey:
    """Return the Ed25519 key of a seed."""
    return SigningKey.from_seed(seed)


def reader_pk(secret: bytes) -> bytes:
    """Return the X25519 public key of a secret."""
    return bytes.fromhex(ask("public_keys", seed=secret)["x25519"])


CLIENT_ID: Final = key(CLIENT_SEED).public_key
HUB_PK: Final = key(HUB_SEED).public_key
ISSUER_PK: Final = key(ISSUER_SEED).public_key
READER_PK: Final = reader_pk(READER_SK)

HUB_ID: Final = ht("veen/hub-id", HUB_PK)
ROUTING_KEY: Final = ht("veen/routing_key", HUB_ID)
STREAM_ID: Final = h(b"test")
SCHEMA: Final = h(b"chat.v1")
LABEL: Final = ht("veen/label", ROUTING_KEY + STREAM_ID + u64(0))
# epoch_sec 0, pad_block 0.
PROFILE_ID: Final = bytes.fromhex(ask("profile_id", epoch_sec=0, pad_block=0)["profile_id"])
AUTH_REF: Final = h(b"an auth_ref")
HUB_TS: Final = 1_700_000_000


def leaf(number: int) -> bytes:
    """Return the leaf that stands for entry ``number`` in vectors about ranges: H(u64be(number))."""
    return h(u64(number))


def leaves(count: int) -> list[bytes]:
    """Return the first ``count`` leaves."""
    return [leaf(number) for number in range(1, count + 1)]
