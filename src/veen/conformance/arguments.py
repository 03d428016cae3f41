"""Arguments of a request, with their types checked."""

import json

from veen.conformance.errors import MalformedRequestError
from veen.core.encoding import canonical_json
from veen.core.encoding.canonical_json import Json
from veen.core.encoding.field_types import hex_from_json
from veen.core.errors import ProtocolError
from veen.core.types import JsonValue

_U64_END = 1 << 64


class Arguments:
    """The fields of one request."""

    def __init__(self, fields: dict[str, JsonValue], line: bytes = b"") -> None:
        """Wrap the JSON object of a request; ``line`` is its original text."""
        self._fields = fields
        self._line = line

    def json(self, name: str) -> JsonValue:
        """Return a field unchanged."""
        if name not in self._fields:
            raise MalformedRequestError(f"{name} is missing")
        return self._fields[name]

    def exact(self, name: str) -> Json:
        """Return a field with its numbers exactly as written, not converted to doubles."""
        self.json(name)
        try:
            field: Json = json.loads(self._line, parse_float=canonical_json.number)[name]
        except RecursionError:  # the stack is slightly deeper than in the first parse
            raise MalformedRequestError("nested too deeply") from None
        return field

    def has(self, name: str) -> bool:
        """Whether a field is present and not null."""
        return self._fields.get(name) is not None

    def objects(self, name: str) -> "list[Arguments]":
        """Return a list of objects, each as arguments."""
        items = self._list(name)
        if not all(isinstance(item, dict) for item in items):
            raise MalformedRequestError(f"{name} must be a list of objects")
        return [Arguments(item) for item in items if isinstance(item, dict)]

    def hex(self, name: str) -> bytes:
        """Return a field of lowercase hex as bytes."""
        return _hex(self.json(name), name)

    def hex_or_none(self, name: str) -> bytes | None:
        """Return a field of lowercase hex, or None if it is null or absent."""
        value = self._fields.get(name)
        return None if value is None else _hex(value, name)

    def key(self, name: str) -> bytes:
        """Return a 32-byte seed or key."""
        return _key(self.hex(name), name)

    def keys(self, name: str) -> list[bytes]:
        """Return a list of 32-byte seeds or keys."""
        return [_key(item, name) for item in self.hexes(name)]

    def hexes(self, name: str) -> list[bytes]:
        """Return a list of byte strings."""
        return [_hex(item, name) for item in self._list(name)]

    def uint(self, name: str) -> int:
        return _uint(self.json(name), name)

    def uints_or_none(self, name: str) -> list[int] | None:
        """Return a list of unsigned integers, or None if it is null."""
        if self.json(name) is None:
            return None
        return [_uint(item, name) for item in self._list(name)]

    def text(self, name: str) -> str:
        """Return a text that can be encoded as UTF-8."""
        value = self.json(name)
        if not isinstance(value, str) or not _has_utf8(value):
            raise MalformedRequestError(f"{name} must be text")
        return value

    def _list(self, name: str) -> list[JsonValue]:
        value = self.json(name)
        if not isinstance(value, list):
            raise MalformedRequestError(f"{name} must be a list")
        return value


def _has_utf8(value: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _hex(value: JsonValue, name: str) -> bytes:
    try:
        return hex_from_json(value)
    except ProtocolError:
        raise MalformedRequestError(f"{name} must be lowercase hex") from None


def _key(value: bytes, name: str) -> bytes:
    if len(value) != 32:
        raise MalformedRequestError(f"{name} must have 32 bytes")
    return value


def _uint(value: JsonValue, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _U64_END:
        raise MalformedRequestError(f"{name} must be an unsigned 64-bit integer")
    return value
