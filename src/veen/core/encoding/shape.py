"""Wire layouts as data: one declaration gives the CBOR codec, the JSON form and the reference page.

A shape lists fields by name and kind. Work on a received object runs in phases over the *whole* object,
because the first failing row of the admission table decides, wherever in the object it is:

    read      bytes -> raw values: canonical CBOR, types, arity, keys         row 3, CBOR_INVALID
    check     lengths, counts and the reader's limits                         row 4, FIELD_SIZE
    versions  every ``ver``                                                   row 5, VERSION
    lift      raw values -> typed objects, whose constructors validate

Raw values are decoded CBOR; that of a nested object is a dict by field name. In JSON (decision C-75)
byte strings are lowercase hex, arrays stay arrays, and maps have the fields' names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from veen.core.encoding import cbor
from veen.core.encoding.field_types import VER, Kind, Scalar, not_json
from veen.core.errors import CborError, Fault, ProtocolError
from veen.core.limits import Limits
from veen.core.types import JsonValue
from veen.stdx.grammar import counted

# Raw dicts of nested objects have the exact bytes they were read from under this key.
ENCODED: Final = "_encoded"

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a shape: its name, its kind, its key in a map, and whether it may be absent."""

    name: str
    kind: Kind
    key: int = 0
    optional: bool = False


class _Shape:
    """Base of arrays and maps: the phases that work on a dict of raw values."""

    def __init__(self, name: str, fields: tuple[Field, ...]) -> None:
        self.name = name
        self.fields = fields
        self._required = tuple(field.name for field in fields if not field.optional)
        self._checks = tuple((field.name, field.kind.check) for field in fields if field.kind.sized)
        self._versions = tuple((field.name, field.kind.versions) for field in fields if field.kind.versioned)
        self.versioned = bool(self._versions)
        self._lowers = tuple((field.name, field.kind.lower) for field in fields)
        # Fields of the typed object, with the conversion from raw; None where both are the same.
        self.lifts = tuple(
            (field.name, None if isinstance(field.kind, Scalar) else field.kind.lift)
            for field in fields
            if field.kind is not VER
        )

    def lower(self, values: Fields) -> Fields:
        """Convert the typed values that are present to raw ones."""
        return {name: lower(values[name]) for name, lower in self._lowers if name in values}

    def check(self, raw: Fields, limits: Limits | None) -> None:
        """Check the lengths of all fields, in order."""
        name = ""
        try:
            for name, check in self._checks:
                if name in raw:
                    check(raw[name], limits)
        except ProtocolError as error:
            error.within(name)
            raise

    def versions(self, raw: Fields) -> None:
        """Check the version here and in every nested object."""
        name = ""
        try:
            for name, versions in self._versions:
                if name in raw:
                    versions(raw[name])
        except ProtocolError as error:
            error.within(name)
            raise

    def _fields_from_json(self, pairs: Sequence[tuple[Field, JsonValue]]) -> Fields:
        raw = {}
        for field, value in pairs:
            try:
                raw[field.name] = field.kind.from_json(value)
            except ProtocolError as error:
                error.within(field.name)
                raise
        return raw


class ArrayShape(_Shape):
    """A wire object that is an array: fields by position; only the last may be absent (001 section 4)."""

    def __init__(self, name: str, *fields: Field) -> None:
        super().__init__(name, fields)
        assert all(not field.optional for field in fields[:-1]), "only a trailing field can be trimmed"
        self._readers = tuple((field.name, field.kind.read) for field in fields)
        self._writers = tuple((field.name, field.kind.write) for field in fields)
        self._arities = {len(self._required), len(fields)}

    def read(self, buf: bytes, pos: int) -> tuple[Fields, int]:
        """Read the array element by element."""
        count, end = cbor.read_array(buf, pos)
        if count not in self._arities:
            raise CborError(Fault.ARITY, pos, f"{counted(count, 'element')} in {self.name}")
        raw = {}
        name = ""
        try:
            for name, read in self._readers[:count]:
                raw[name], end = read(buf, end)
        except ProtocolError as error:
            error.within(name)
            raise
        return raw, end

    def write_fields(self, raw: Fields, count: int) -> bytes:
        """Encode the first ``count`` fields without a head: what signatures cover is such a prefix."""
        return b"".join([write(raw[name]) for name, write in self._writers[:count]])

    def write(self, raw: Fields) -> bytes:
        """Encode the array; an absent trailing field is omitted."""
        count = sum(field.name in raw for field in self.fields)
        return cbor.head(cbor.MAJOR_ARRAY, count) + self.write_fields(raw, count)

    def to_json(self, raw: Fields) -> JsonValue:
        """Return a JSON array."""
        return [field.kind.to_json(raw[field.name]) for field in self.fields if field.name in raw]

    def from_json(self, value: JsonValue) -> Fields:
        """Parse a JSON array."""
        if not isinstance(value, list):
            raise not_json("an array", value)
        if len(value) not in self._arities:
            raise CborError(Fault.ARITY, 0, f"{counted(len(value), 'element')} in {self.name}")
        return self._fields_from_json(list(zip(self.fields, value, strict=False)))


class MapShape(_Shape):
    """A wire object that is a map: unsigned keys, ascending; absent fields are left out (001 section 3.1)."""

    def __init__(self, name: str, *fields: Field) -> None:
        super().__init__(name, fields)
        self._by_name: Mapping[str, Field] = {field.name: field for field in fields}
        self._number_keys()

    def _number_keys(self) -> None:
        keys = [field.key for field in self.fields]
        assert keys == sorted(set(keys)), "keys are declared in ascending order"
        self._by_key: Mapping[int, Field] = {field.key: field for field in self.fields}

    def _read_key(self, buf: bytes, pos: int) -> tuple[int, Field, int]:
        """Read a key: its ordinal, which must ascend, its field, and where it ends."""
        key, end = cbor.read_uint(buf, pos)
        field = self._by_key.get(key)
        if field is None:
            raise CborError(Fault.UNKNOWN_KEY, pos, f"unknown key {key} in {self.name}")
        return key, field, end

    def _write_key(self, field: Field) -> bytes:
        return cbor.write_uint(field.key)

    def read(self, buf: bytes, pos: int) -> tuple[Fields, int]:
        """Read the pairs; reject unknown, repeated, unordered and missing keys."""
        count, end = cbor.read_map(buf, pos)
        raw: Fields = {}
        previous = -1
        for _ in range(count):
            start = end
            key, field, end = self._read_key(buf, end)
            if key <= previous:
                raise CborError(Fault.DUPLICATE_KEY if key == previous else Fault.KEY_ORDER, start)
            previous = key
            try:
                raw[field.name], end = field.kind.read(buf, end)
            except ProtocolError as error:
                error.within(field.name)
                raise
        self._all_there(raw, pos)
        return raw, end

    def _all_there(self, raw: Fields, pos: int) -> None:
        for name in self._required:
            if name not in raw:
                error = CborError(Fault.MISSING_KEY, pos, f"{name} is missing in {self.name}")
                error.within(name)
                raise error

    def write(self, raw: Fields) -> bytes:
        """Encode the fields that are present, in key order."""
        present = [field for field in self.fields if field.name in raw]
        pairs = (self._write_key(field) + field.kind.write(raw[field.name]) for field in present)
        return cbor.head(cbor.MAJOR_MAP, len(present)) + b"".join(pairs)

    def to_json(self, raw: Fields) -> JsonValue:
        """Return a JSON object."""
        return {field.name: field.kind.to_json(raw[field.name]) for field in self.fields if field.name in raw}

    def from_json(self, value: JsonValue) -> Fields:
        """Parse a JSON object; the order of its names does not matter."""
        if not isinstance(value, dict):
            raise not_json("an object", value)
        for name in value:
            if name not in self._by_name:
                raise CborError(Fault.UNKNOWN_KEY, 0, f"unknown name {name!r} in {self.name}")
        raw = self._fields_from_json([(self._by_name[name], item) for name, item in value.items()])
        self._all_there(raw, 0)
        return raw


class NamedShape(MapShape):
    """A body whose keys are the names of its fields, in the order in which they are listed (C-03)."""

    def _number_keys(self) -> None:
        self._ordinals = {field.name: ordinal for ordinal, field in enumerate(self.fields)}
        encoded = ((field, cbor.write_text(field.name)) for field in self.fields)
        self._plan = tuple((field.name, key, len(key), field.kind.read) for field, key in encoded)

    def read(self, buf: bytes, pos: int) -> tuple[Fields, int]:
        """Read the pairs: in one pass if they are valid, else key by key to report what is wrong."""
        count, end = cbor.read_map(buf, pos)
        raw: Fields = {}
        try:
            for name, key, size, read in self._plan:
                if buf.startswith(key, end):
                    raw[name], end = read(buf, end + size)
        except ProtocolError:
            return super().read(buf, pos)
        if len(raw) != count or any(name not in raw for name in self._required):
            return super().read(buf, pos)
        return raw, end

    def _read_key(self, buf: bytes, pos: int) -> tuple[int, Field, int]:
        name, end = cbor.read_text(buf, pos)
        field = self._by_name.get(name)
        if field is None:
            raise CborError(Fault.UNKNOWN_KEY, pos, f"unknown key {name!r} in {self.name}")
        return self._ordinals[name], field, end

    def _write_key(self, field: Field) -> bytes:
        return cbor.write_text(field.name)
