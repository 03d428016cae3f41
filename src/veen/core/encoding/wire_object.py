"""The base of every wire object: an immutable typed value that encodes to exactly one byte string.

A subclass is a frozen dataclass whose fields are those of its ``SHAPE``, without ``ver``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Self, TypeVar

from veen.core.encoding import cbor
from veen.core.encoding.shape import ENCODED, ArrayShape, Fields, MapShape
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import DEFAULT_LIMITS, Limits
from veen.core.types import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """An object with a shape. Its constructor validates, so an object that exists is well-formed."""

    SHAPE: ClassVar[ArrayShape | MapShape]
    # The check that fails if an object is too large to be parsed.
    OVERSIZE: ClassVar[Detail] = Detail.FIELD_SIZE

    # The canonical bytes, cached by decoding or by the first encoding: hashes are computed over these.
    _encoded: bytes | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check types and fixed lengths, then the rules of the class."""
        self.SHAPE.check(self._lower(), None)
        self._validate()

    def _validate(self) -> None:
        """Reject impossible values; for subclasses."""

    @classmethod
    def max_bytes(cls, limits: Limits) -> int | None:  # noqa: ARG003 - for subclasses that have a limit
        """Return the maximum size of the encoding, if the class has one."""
        return None

    @classmethod
    def decode(cls, data: bytes, limits: Limits = DEFAULT_LIMITS) -> Self:
        """Decode exactly one object; its ``encode`` returns ``data``."""
        cls._check_bytes(len(data), limits, cls.OVERSIZE)  # before parsing: bounded work for any input
        raw, end = cls.SHAPE.read(data, 0)
        cbor.at_end(data, end)
        raw[ENCODED] = data
        return cls._judge(raw, limits)

    @classmethod
    def from_json(cls, value: JsonValue, limits: Limits = DEFAULT_LIMITS) -> Self:
        """Parse the JSON form (decision C-75) by the same rules."""
        return cls._judge(cls.SHAPE.from_json(value), limits)

    @classmethod
    def _judge(cls, raw: Fields, limits: Limits) -> Self:
        cls.check_raw(raw, limits)
        cls.SHAPE.versions(raw)
        return cls._lift(raw)

    @classmethod
    def check_raw(cls, raw: Fields, limits: Limits | None) -> None:
        """Check the lengths of all fields, and of the whole."""
        cls.SHAPE.check(raw, limits)
        if limits is not None and cls.max_bytes(limits) is not None:
            encoded = raw.get(ENCODED) or cls.SHAPE.write(raw)
            cls._check_bytes(len(encoded), limits, Detail.FIELD_SIZE)

    @classmethod
    def _check_bytes(cls, size: int, limits: Limits, detail: Detail) -> None:
        limit = cls.max_bytes(limits)
        if limit is not None and size > limit:
            raise ProtocolError(
                detail, f"{cls.SHAPE.name} of {size} bytes exceeds {limit}", actual=size, max_allowed=limit
            )

    @classmethod
    def _lift(cls, raw: Fields) -> Self:
        # The phases have made all checks of the constructor: set the fields without it.
        instance = object.__new__(cls)
        set_field = object.__setattr__
        name = ""
        try:
            for name, lift in cls.SHAPE.lifts:
                value = raw.get(name)
                set_field(instance, name, value if lift is None or value is None else lift(value))
        except ProtocolError as error:
            error.within(name)
            raise
        set_field(instance, "_encoded", raw.get(ENCODED))
        instance._validate()
        return instance

    def _lower(self) -> Fields:
        raw: Fields = {}
        for item in self.SHAPE.fields:
            if item.name == "ver":
                raw["ver"] = 1
                continue
            value = getattr(self, item.name)
            if value is not None or not item.optional:
                raw[item.name] = item.kind.lower(value)
        return raw

    def encode(self) -> bytes:
        """Return the canonical CBOR of this object."""
        encoded = self._encoded
        if encoded is None:
            encoded = self.SHAPE.write(self._lower())
            object.__setattr__(self, "_encoded", encoded)
        return encoded

    def to_json(self) -> JsonValue:
        """Return the JSON form of this object."""
        return self.SHAPE.to_json(self._lower())


W = TypeVar("W", bound=Wire)


class Nested(Generic[W]):
    """The kind of a field that holds another wire object, embedded and not wrapped.

    Its raw value is a dict when decoding, and the object itself when encoding: an object that exists is
    valid, and need not be converted.
    """

    def __init__(self, cls: type[W]) -> None:
        self.cls = cls
        self.shape = cls.SHAPE
        self.name = cls.SHAPE.name
        self.sized = True
        self.versioned = cls.SHAPE.versioned

    def read(self, buf: bytes, pos: int) -> tuple[Fields, int]:
        """Read the object; its exact bytes are stored with its fields."""
        raw, end = self.shape.read(buf, pos)
        raw[ENCODED] = buf[pos:end]
        return raw, end

    def check(self, raw: Fields | W, limits: Limits | None) -> None:
        """Check the lengths of its fields."""
        if not isinstance(raw, Wire):
            self.cls.check_raw(raw, limits)

    def versions(self, raw: Fields) -> None:
        """Check its version."""
        self.shape.versions(raw)

    def lift(self, raw: Fields) -> W:
        """Construct the typed object."""
        return self.cls._lift(raw)  # noqa: SLF001 - the two classes of this module are one mechanism

    def lower(self, value: W) -> W:
        """Return the object if it is of the class."""
        if not isinstance(value, self.cls):
            raise TypeError(f"expected {self.cls.__name__}, not {type(value).__name__}")
        return value

    def write(self, raw: Fields | W) -> bytes:
        """Return its bytes."""
        return raw.encode() if isinstance(raw, Wire) else self.shape.write(raw)

    def to_json(self, raw: W) -> JsonValue:
        """Return its JSON form."""
        return raw.to_json()

    def from_json(self, value: JsonValue) -> Fields:
        """Parse its JSON form."""
        return self.shape.from_json(value)


def decode_sequence(data: bytes, cls: type[W], limits: Limits = DEFAULT_LIMITS) -> list[W]:
    """Decode a CBOR Sequence (RFC 8742) of one kind of object, as in export files."""
    kind = Nested(cls)
    objects: list[W] = []
    pos = 0
    while pos < len(data):
        raw, pos = kind.read(data, pos)
        kind.check(raw, limits)
        kind.versions(raw)
        objects.append(kind.lift(raw))
    return objects


def encode_sequence(objects: Sequence[Wire]) -> bytes:
    """Encode a CBOR Sequence: the objects one after the other."""
    return b"".join(item.encode() for item in objects)
