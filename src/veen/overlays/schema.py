"""Schemas as data: one declaration gives the codec, the JSON form, the reference page and a table's columns.

A body is a map with text keys in the order of its declaration (C-03). Decoding is total: a body matches its
schema, or it is rejected with a code that never changes (OVR-021, OVR-030).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from veen.core.encoding import cbor
from veen.core.encoding.field_types import Kind, Scalar, not_json
from veen.core.encoding.shape import Field, Fields, NamedShape
from veen.core.errors import CborError, Fault, ProtocolError
from veen.core.limits import Limits
from veen.core.objects import labels
from veen.core.types import JsonValue, SchemaId
from veen.overlays.errors import InvalidBodyError, OverlayError

Check = Callable[[Fields], None]


class OrNull:
    """An optional field: its kind, or null, which also means that it is absent (OVR-020)."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.name = f"{kind.name} or null"
        self.sized = kind.sized
        self.versioned = False

    def read(self, buf: bytes, pos: int) -> tuple[Any, int]:
        """Read null or the value."""
        if buf[pos : pos + 1] == b"\xf6":
            return None, pos + 1
        return self.kind.read(buf, pos)

    def check(self, raw: Any, limits: Limits | None) -> None:
        """Check a value that is not null."""
        if raw is not None:
            self.kind.check(raw, limits)

    def versions(self, raw: Any) -> None:
        """No version inside."""

    def lift(self, raw: Any) -> Any:
        """Return what typed objects hold."""
        return None if raw is None else self.kind.lift(raw)

    def lower(self, value: Any) -> Any:
        """Return the raw value."""
        return None if value is None else self.kind.lower(value)

    def write(self, raw: Any) -> bytes:
        """Encode null or the value."""
        return b"\xf6" if raw is None else self.kind.write(raw)

    def to_json(self, raw: Any) -> JsonValue:
        """Return the JSON form."""
        return None if raw is None else self.kind.to_json(raw)

    def from_json(self, value: JsonValue) -> Any:
        """Parse the JSON form."""
        return None if value is None else self.kind.from_json(value)


class _Anything(Scalar):
    """Any deterministic CBOR: arguments and metadata that only the application interprets (CLI-106)."""

    name = "any"
    read = staticmethod(cbor.read_value)
    write = staticmethod(cbor.encode)

    def lower(self, value: Any) -> Any:
        """Return the value, if it can be encoded."""
        cbor.encode(value)
        return value

    def to_json(self, raw: Any) -> JsonValue:
        """Return plain JSON; byte strings as hex."""
        return _plain(raw)

    def from_json(self, value: JsonValue) -> Any:
        """Accept plain JSON; it has no byte strings, and fractions and negative numbers are rejected."""
        _no_fractions(value)
        cbor.encode(value)
        return value


class _AnyMap(_Anything):
    """A map of anything."""

    name = "map"

    def read(self, buf: bytes, pos: int) -> tuple[Any, int]:
        """Read a map."""
        cbor.read_map(buf, pos)  # rejects what is not a map
        return cbor.read_value(buf, pos)

    def lower(self, value: Any) -> Any:
        """Return the value, if it is a map."""
        if not isinstance(value, Mapping):
            raise TypeError(f"expected a map, not {type(value).__name__}")
        return super().lower(value)

    def from_json(self, value: JsonValue) -> Any:
        """Accept a JSON object."""
        if not isinstance(value, dict):
            raise not_json("an object", value)
        return super().from_json(value)


def _plain(value: Any) -> JsonValue:
    match value:
        case bytes():
            return value.hex()
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    return value  # type: ignore[no-any-return] # null, bool, int or text


def _no_fractions(value: JsonValue) -> None:
    match value:
        case float():
            raise CborError(Fault.FLOAT, 0, f"{value} is a fraction: write it as text or a scaled integer")
        case dict():
            for item in value.values():
                _no_fractions(item)
        case list():
            for item in value:
                _no_fractions(item)


class Inner:
    """A map inside a body, with fields of its own."""

    sized = True
    versioned = False

    def __init__(self, name: str, *fields: Field) -> None:
        self.name = name
        self.shape = _shape(name, fields)
        self.read = self.shape.read
        self.write = self.shape.write
        self.check = self.shape.check
        self.to_json = self.shape.to_json
        self.from_json = self.shape.from_json

    def versions(self, raw: Any) -> None:
        """No version inside."""

    def lift(self, raw: Fields) -> Fields:
        """Return the fields."""
        return raw

    def lower(self, value: Fields) -> Fields:
        """Return the fields with raw values."""
        return self.shape.lower(value)


ANY: Final = _Anything()
ANY_MAP: Final = _AnyMap()


def _shape(name: str, fields: Iterable[Field]) -> NamedShape:
    return NamedShape(
        name,
        *(Field(item.name, OrNull(item.kind), optional=True) if item.optional else item for item in fields),
    )


def _check_declaration(name: Any, fields: Sequence[Any]) -> None:
    """Raise OverlayError for a schema that is declared wrongly, with what to write instead."""
    if not isinstance(name, str) or not name:
        raise OverlayError(f'the name of a schema is text, such as "example.vote.v1", not {name!r}')
    for item in fields:
        if not isinstance(item, Field) or isinstance(item.kind, type) or not hasattr(item.kind, "read"):
            raise OverlayError(
                f'schema {name}: {item!r} is not a field: write Field("choice", TEXT),'
                " with TEXT, INT or another type of veen.overlays"
            )
    names = [item.name for item in fields]
    for field_name in names:
        if names.count(field_name) > 1:
            raise OverlayError(f"schema {name} has two fields {field_name!r}: rename one of them")


class Schema:
    """A schema: its name and id, its fields in their order, and the conditions between them."""

    def __init__(self, name: str, *fields: Field, nulls: bool = False, checks: Iterable[Check] = ()) -> None:
        """``nulls``: absent fields are written as null, as in the operation profiles; else they are omitted.

        Raises:
            OverlayError: The name or a field cannot be used.
        """
        _check_declaration(name, fields)
        self.name = name
        self.schema_id: SchemaId = labels.schema_id(name)
        self.fields = fields
        self.nulls = nulls
        self._shape = _shape(name, fields)
        self._checks = tuple(checks)
        self._optional = tuple(field.name for field in fields if field.optional)

    def decode(self, data: bytes) -> Fields:
        """Decode a body; ``encode`` of the returned fields gives ``data`` back."""
        try:
            raw, end = self._shape.read(data, 0)
            cbor.at_end(data, end)
            self._shape.check(raw, None)
        except ProtocolError as error:
            raise _rejected(error) from None
        self.validate(raw)
        return raw

    def validate(self, raw: Fields) -> None:
        """Check the conditions between fields."""
        for check in self._checks:
            check(raw)

    def encode(self, body: Fields) -> bytes:
        """Encode fields from ``decode`` or ``make``."""
        return self._shape.write(body)

    def make(self, **values: Any) -> Fields:
        """Return a valid body from Python values; None is absent."""
        unknown = sorted(set(values) - {field.name for field in self.fields})
        if unknown:
            raise InvalidBodyError("BODY.UNKNOWN_KEY", f"{self.name} has no {', '.join(unknown)}")
        present = self._present(values)
        return self._complete(
            {
                field.name: _lowered(field, present[field.name])
                for field in self.fields
                if field.name in present
            }
        )

    def _complete(self, raw: Fields) -> Fields:
        missing = [field.name for field in self.fields if not field.optional and field.name not in raw]
        if missing:
            raise InvalidBodyError("BODY.MISSING_KEY", f"{self.name} needs {', '.join(missing)}")
        try:
            self._shape.check(raw, None)
        except ProtocolError as error:
            raise _rejected(error) from None
        self.validate(raw)
        if not self.nulls:
            return self._present(raw)
        return {field.name: raw.get(field.name) for field in self.fields}

    def from_json(self, value: JsonValue) -> Fields:
        """Parse the JSON form: byte strings as hex, names in any order; absent fields may be null."""
        try:
            return self._complete(self._shape.from_json(value))
        except ProtocolError as error:
            raise _rejected(error) from None

    def to_json(self, body: Fields) -> dict[str, JsonValue]:
        """Return the JSON form; fields that are absent or null are omitted."""
        form = self._shape.to_json(body)
        assert isinstance(form, dict)
        return self._present(form)

    def _present(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that are present: an optional one that is null is not."""
        return {name: item for name, item in values.items() if item is not None or name not in self._optional}


def _lowered(field: Field, value: Any) -> Any:
    try:
        return field.kind.lower(value)
    except TypeError as error:
        raise InvalidBodyError("BODY.TYPE", f"{field.name}: {error}") from None


def _rejected(error: ProtocolError) -> InvalidBodyError:
    field = error.fields.get("field")
    where = f"{field}: " if isinstance(field, str) else ""
    kind = error.fault.name if isinstance(error, CborError) else error.detail.value
    return InvalidBodyError(f"BODY.{kind}", f"{where}{error.message}")
