"""The error envelope: how a failure is reported on the wire (001 section 10.6; decision C-66)."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final

from veen.core.encoding import cbor
from veen.core.encoding.field_types import BYTES, TEXT, UINT, VER, Kind, hex_from_json
from veen.core.encoding.shape import Field, MapShape
from veen.core.encoding.wire_object import Wire
from veen.core.errors import CborError, Code, DetailValue, Fault, ProtocolError
from veen.core.limits import Limits
from veen.core.types import JsonValue

# The one key whose value is a byte string by definition; in JSON it is plain hex.
_BYTES_KEY: Final = "label"
# When to retry after a full queue or disk, in seconds.
RETRY_AFTER_SEC: Final = 1
_KINDS: Final[Mapping[type, Kind]] = {str: TEXT, bytes: BYTES, int: UINT}


class _Detail:
    """The machine-readable map: text keys in order of their encoded bytes; uint, text or bytes.

    JSON has no bytes. Where text is usual (all keys but ``label``) a byte string is written as
    {"hex": "..."}; under ``label`` hex is usual, and a text is written as {"text": "..."}.
    """

    name = "map"
    sized = False
    versioned = False

    def read(self, buf: bytes, pos: int) -> tuple[dict[str, DetailValue], int]:
        """Read the pairs; keys ascend by their encoded bytes."""
        count, end = cbor.read_map(buf, pos)
        pairs: dict[str, DetailValue] = {}
        previous = None
        for _ in range(count):
            start = end
            key, end = cbor.read_text(buf, end)
            cbor.check_key_order(previous, buf[start:end], start)
            previous = buf[start:end]
            pairs[key], end = self._read_value(buf, end)
        return pairs, end

    def _read_value(self, buf: bytes, pos: int) -> tuple[DetailValue, int]:
        major = buf[pos] >> 5 if pos < len(buf) else cbor.MAJOR_UINT
        if major == cbor.MAJOR_TEXT:
            return cbor.read_text(buf, pos)
        if major == cbor.MAJOR_BYTES:
            return cbor.read_bytes(buf, pos)
        return cbor.read_uint(buf, pos)

    def check(self, raw: Any, limits: Limits | None) -> None:
        """No lengths are fixed inside."""

    def versions(self, raw: Any) -> None:
        """No version inside."""

    def lift(self, raw: dict[str, DetailValue]) -> Mapping[str, DetailValue]:
        """Return the map, read-only."""
        return MappingProxyType(raw)

    def lower(self, value: Mapping[str, DetailValue]) -> dict[str, DetailValue]:
        """Return the map; reject what it cannot hold."""
        return {TEXT.lower(key): _KINDS.get(type(item), UINT).lower(item) for key, item in value.items()}

    def write(self, raw: dict[str, DetailValue]) -> bytes:
        """Encode the map in key order."""
        return cbor.encode(raw)

    def to_json(self, raw: dict[str, DetailValue]) -> JsonValue:
        """Return a JSON object."""
        return {key: _value_to_json(key, item) for key, item in raw.items()}

    def from_json(self, value: JsonValue) -> dict[str, DetailValue]:
        """Parse a JSON object."""
        if not isinstance(value, dict):
            raise CborError(Fault.TYPE, 0, "expected an object")
        return {TEXT.from_json(key): _value_from_json(key, item) for key, item in value.items()}


def _value_to_json(key: str, item: DetailValue) -> JsonValue:
    if isinstance(item, bytes):
        return item.hex() if key == _BYTES_KEY else {"hex": item.hex()}
    if isinstance(item, str) and key == _BYTES_KEY:
        return {"text": item}
    return item


def _value_from_json(key: str, value: JsonValue) -> DetailValue:
    match value:
        case {"hex": text, **rest} if not rest and key != _BYTES_KEY:
            return hex_from_json(text)
        case {"text": text, **rest} if not rest and key == _BYTES_KEY:
            return TEXT.from_json(text)
        case str() if key == _BYTES_KEY:
            return hex_from_json(value)
        case str():
            return TEXT.from_json(value)
    return UINT.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEnvelope(Wire):
    """An error on the wire. Codes that this version does not know are preserved (C-60)."""

    SHAPE: ClassVar = MapShape(
        "error",
        Field("ver", VER, key=1),
        Field("code", TEXT, key=2),
        Field("message", TEXT, key=3),
        Field("detail", _Detail(), key=4, optional=True),
        Field("retry_after", UINT, key=5, optional=True),
        Field("request_id", TEXT, key=6, optional=True),
    )

    code: str
    message: str
    detail: Mapping[str, DetailValue] | None = None
    retry_after: int | None = None
    request_id: str | None = None

    def _validate(self) -> None:
        if self.detail is not None:
            object.__setattr__(self, "detail", MappingProxyType(dict(self.detail)))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the encoded bytes: a read-only mapping cannot be pickled."""
        return type(self).decode, (self.encode(),)

    def field(self, name: str) -> DetailValue | None:
        """Return a machine-readable detail."""
        return (self.detail or {}).get(name)

    @property
    def detail_enum(self) -> str:
        """Which check failed; empty if that is not stated."""
        return str(self.field("detail_enum") or "")

    @classmethod
    def of(
        cls, error: ProtocolError, *, retry_after: int | None = None, request_id: str | None = None
    ) -> "ErrorEnvelope":
        """Return the envelope of an error: stage and detail_enum inside ``detail`` (ADM-004)."""
        detail: dict[str, DetailValue] = {**error.fields}
        detail["stage"] = error.stage.value
        detail["detail_enum"] = error.detail.value
        return cls(
            code=error.code.value,
            message=error.message,
            detail=detail,
            retry_after=retry_after,
            request_id=request_id,
        )


def envelope_of(error: ProtocolError) -> ErrorEnvelope:
    """Return the envelope of an error, with retry_after if a rate was exceeded (ERR-013)."""
    return ErrorEnvelope.of(error, retry_after=RETRY_AFTER_SEC if error.code is Code.RATE else None)


def unavailable(message: str, retry_after: int = RETRY_AFTER_SEC) -> ErrorEnvelope:
    """Return the error for a request that cannot be decided now; nothing was written (C-67)."""
    return ErrorEnvelope(code=Code.UNAVAILABLE.value, message=message, retry_after=retry_after)
