"""Refusals: what is wrong with a request, and how it is told."""

import re
from typing import Final

from veen.core.error_envelope import ErrorEnvelope
from veen.core.errors import Code, Detail, ProtocolError

#: What a client does that met a full queue or disk: try again after so many seconds.
RETRY_AFTER_SEC: Final = 1
#: Of any number that fits into 63 bits.
_MAX_DIGITS: Final = 19
_HEX32: Final = re.compile(r"[0-9a-f]{64}")


def envelope_of(error: ProtocolError) -> ErrorEnvelope:
    """Return an error as it travels; whoever was too fast is told when to come back (ERR-013)."""
    return ErrorEnvelope.of(error, retry_after=RETRY_AFTER_SEC if error.code is Code.RATE else None)


def unavailable(message: str, retry_after: int = RETRY_AFTER_SEC) -> ErrorEnvelope:
    """Return the answer when the hub can not decide now; nothing was written (C-67)."""
    return ErrorEnvelope(code=Code.UNAVAILABLE.value, message=message, retry_after=retry_after)


def bad_request(field: str, message: str) -> ProtocolError:
    """Return the error for a request that makes no sense."""
    return ProtocolError(Detail.VALUE, message, code=Code.BAD_REQUEST, field=field)


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
