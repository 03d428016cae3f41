"""Parameters of a URL, read and validated."""

from typing import Final

from veen.core.encoding.hexadecimal import parse_hex32
from veen.core.errors import bad_request

# Of any number that fits into 63 bits.
_MAX_DIGITS: Final = 19


def hex32(text: str, name: str) -> bytes:
    """Read 32 bytes that are written in hex."""
    try:
        return parse_hex32(text, lower=True)
    except ValueError:
        raise bad_request(name, f"{name} must be 64 lowercase hex digits") from None


def number(text: str, name: str) -> int:
    """Read a number of a URL."""
    if not text.isdecimal() or not text.isascii() or len(text) > _MAX_DIGITS:
        raise bad_request(name, f"{name} must be a number")
    return int(text)
