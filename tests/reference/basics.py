"""A second implementation of the protocol, for tests only: hashes and the one way to refuse.

Nothing under tests/reference imports veen. It is written to be read beside the specification, with plain
hashlib, cbor2, cryptography and pyhpke, and has no other aim than to agree or to disagree.
"""

from hashlib import sha256
from typing import Any

Json = Any
Fields = dict[str, Any]


class Refused(Exception):  # noqa: N818 - a verdict, not a fault of the program
    """The input breaks a rule; the reference does not say which."""


def need(condition: object, what: str) -> None:
    """Refuse unless the condition holds."""
    if not condition:
        raise Refused(what)


def h(data: bytes) -> bytes:
    """SHA-256."""
    return sha256(data).digest()


def ht(tag: str, data: bytes) -> bytes:
    """Tagged hash: tag, a zero byte, data."""
    return h(tag.encode("utf-8") + bytes([0]) + data)


def u64(number: int) -> bytes:
    return number.to_bytes(8, "big")


def u32(number: int) -> bytes:
    return number.to_bytes(4, "big")


def hexed(value: Json) -> Json:
    """Return a value with all byte strings as lowercase hex."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple):
        return [hexed(item) for item in value]
    if isinstance(value, dict):
        return {name: hexed(item) for name, item in value.items()}
    return value


def unhexed(value: Json) -> bytes:
    """Return the bytes of lowercase hex."""
    need(isinstance(value, str), "hex is text")
    need(all(digit in "0123456789abcdef" for digit in value) and len(value) % 2 == 0, "lowercase hex")
    return bytes.fromhex(value)


def sized(data: bytes, size: int = 32) -> bytes:
    """Return data of the right size."""
    need(len(data) == size, f"{size} bytes")
    return data
