"""Ids, hashes and keys as text: 32 bytes are 64 hexadecimal digits."""

import re
from typing import Final

# As VEEN writes them: for patterns of file names and of API descriptions.
HEX32_PATTERN: Final = "[0-9a-f]{64}"
_LOWER: Final = re.compile(HEX32_PATTERN)
_ANY_CASE: Final = re.compile("[0-9a-fA-F]{64}")


def is_hex32(text: str, *, lower: bool = False) -> bool:
    """Report whether a text is 64 hexadecimal digits; with ``lower``, only in lower case."""
    return (_LOWER if lower else _ANY_CASE).fullmatch(text) is not None


def parse_hex32(text: str, *, lower: bool = False) -> bytes:
    """Parse 64 hexadecimal digits; with ``lower``, only in lower case.

    Raises:
        ValueError: The text is anything else.
    """
    if not is_hex32(text, lower=lower):
        raise ValueError(f"64 {'lowercase ' if lower else ''}hex digits were expected, not {text!r}")
    return bytes.fromhex(text)
