"""Bodies: JSON for display, deterministic CBOR in messages, and the attachments that a body declares.

A body that has attachments is a map with an ``attachments`` list: id, size and name of each (ATT-001).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from veen.client.errors import BodyError
from veen.core.crypto.hash import U64_MAX
from veen.core.encoding import cbor
from veen.core.encoding.cbor import Value
from veen.core.errors import CborError, Detail, ProtocolError
from veen.core.types import Coid

ATTACHMENTS: Final = "attachments"
# The schema of a body that is sent without one.
DEFAULT_SCHEMA: Final = "veen.value.v1"
_COID_BYTES: Final = 32


def encode_body(value: Value) -> bytes:
    """Encode a body; floats and integers outside of 0 to 2^64 - 1 are rejected (CLI-021)."""
    check_value(value, "the body")
    try:
        return cbor.encode(value)
    except CborError as error:
        raise BodyError(f"the body cannot be encoded: {error.message}") from None


def check_value(value: object, where: str, depth: int = cbor.MAX_DEPTH) -> None:
    """Reject a value that deterministic CBOR cannot represent; too deep nesting is left to the encoder.

    Raises:
        BodyError: A value cannot be represented; the text says which.
    """
    match value:
        case float():
            hint = "" if math.isfinite(value) else "; it is not a finite number"
            raise BodyError(
                f"{where} contains the fraction {value}: write it as text or as a scaled integer{hint}"
            )
        case bool() | None | str() | bytes():
            return
        case int() if not 0 <= value <= U64_MAX:
            raise BodyError(
                f"{where} contains {value}: integers are from 0 to {U64_MAX}; write others as text"
            )
        case int():
            return
        case Mapping() | Sequence() if depth == 0:
            return
        case Mapping():
            for key, item in value.items():
                if type(key) not in (int, str):
                    raise BodyError(f"{where} has the key {key!r}: keys are text or integers")
                check_value(item, f"{where}.{key}", depth - 1)
        case Sequence():
            for index, item in enumerate(value):
                check_value(item, f"{where}[{index}]", depth - 1)
        case _:
            raise BodyError(
                f"{where} contains a value of type {type(value).__name__}, which CBOR cannot represent"
            )


def decode_body(data: bytes) -> Value:
    """Decode a CBOR body, whose keys may be in the order of a schema; return any other body unchanged."""
    try:
        return cbor.decode_listed(data)
    except CborError:
        return data


def to_json(value: object) -> Any:  # noqa: ANN401 - JSON
    """Convert a body for JSON: bytes as hex, keys as text."""
    match value:
        case bytes():
            return value.hex()
        case Mapping():
            return {str(key): to_json(item) for key, item in value.items()}
        case str():
            return value
        case Sequence():
            return [to_json(item) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class Attachment:
    """An attachment as a body declares it.

    Attributes:
        coid: The id of the sealed content.
        size: Size of the content in bytes.
        name: The name of the file; empty if there is none.
    """

    coid: Coid
    size: int
    name: str = ""


def with_attachments(value: Value, attachments: Sequence[Attachment]) -> Value:
    """Return a body that declares attachments; a body that is not a map becomes the field ``body`` of one."""
    declarations: list[Value] = [
        {"coid": bytes(item.coid), "name": item.name, "size": item.size} for item in attachments
    ]
    if value is None:
        return {ATTACHMENTS: declarations}
    if isinstance(value, Mapping):
        named = {str(key): item for key, item in value.items()}
        if ATTACHMENTS in named:
            raise BodyError(f"the body has its own field {ATTACHMENTS!r}: rename it")
        return {**named, ATTACHMENTS: declarations}
    return {"body": value, ATTACHMENTS: declarations}


def attachments_of(value: Value) -> tuple[Attachment, ...]:
    """Return the attachments that a body declares; empty if it has no list of them."""
    declarations = value.get(ATTACHMENTS) if isinstance(value, Mapping) else None  # type: ignore[call-overload] # int keys
    if not isinstance(declarations, Sequence) or isinstance(declarations, str | bytes):
        return ()
    return tuple(map(_attachment, declarations))


def _attachment(value: object) -> Attachment:
    match value:
        case {"coid": bytes(coid), "size": int(size), **rest} if len(coid) == _COID_BYTES:
            name = rest.get("name", "")
            return Attachment(Coid(coid), size, name if isinstance(name, str) else "")
    raise ProtocolError(
        Detail.ATT_ROOT, "the body declares an attachment without id or size", field=ATTACHMENTS
    )
