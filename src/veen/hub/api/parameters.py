"""Parameters of a URL, read and validated."""

import re
from typing import Final

from veen.core.errors import bad_request

#: Of any number that fits into 63 bits.
_MAX_DIGITS: Final = 19
_HEX32: Final = re.compile(r"[0-9a-f]{64}")


def hex32(text: str, name: str) -> bytes:
    """Read 32 bytes that are written in hex."""
    if not _HEX32.fullmatch(text):
        raise bad_request(name, f"{name} is 64 lowercase hex digits")
    return bytes.fromhex(text)


def number(text: str, name: str) -> int:
    """Read a number of a URL."""
    if not text.isdecimal() or not text.isascii() or len(text) > _MAX_DIGITS:
        raise bad_request(name, f"{name} is a number")
    return int(text)
