"""Parsing and validation of URL parameters."""

from typing import Final

from veen.core.encoding.hexadecimal import parse_hex32
from veen.core.errors import bad_request

# Digits of the largest 63-bit number.
_MAX_DIGITS: Final = 19


def hex32(text: str, name: str) -> bytes:
    """Return 32 bytes written in hex."""
    try:
        return parse_hex32(text, lower=True)
    except ValueError:
        raise bad_request(name, f"{name} must be 64 lowercase hex digits") from None


def number(text: str, name: str) -> int:
    """Return a decimal number."""
    if not text.isdecimal() or not text.isascii() or len(text) > _MAX_DIGITS:
        raise bad_request(name, f"{name} must be a number")
    return int(text)
