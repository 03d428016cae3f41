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
    #: The check that an object fails which is too large to be parsed at all.
    OVERSIZE: ClassVar[Detail] = Detail.FIELD_SIZE

    #: The canonical bytes, kept from decoding or made once: hashes are taken over these.
    _encoded: bytes | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check types and fixed lengths, then what the class itself demands."""
        self.SHAPE.check(self._lower(), None)
        self._validate()

    def _validate(self) -> None:
        """Refuse values that cannot occur; for subclasses."""

    @classmethod
    def max_bytes(cls, limits: Limits) -> int | None:  # noqa: ARG003 - for subclasses that have a limit
        """Return how large the encoding may be, if there is a limit of its own."""
        return None

    @classmethod
    def decode(cls, data: bytes, limits: Limits = DEFAULT_LIMITS) -> Self:
        """Decode one object and nothing else; ``encode`` gives ``data`` back."""
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
        most = cls.max_bytes(limits)
        if most is not None and size > most:
            raise ProtocolError(
                detail, f"{cls.SHAPE.name} of {size} bytes exceeds {most}", actual=size, max_allowed=most
            )

    @classmethod
    def _lift(cls, raw: Fields) -> Self:
        # The phases have checked all that the constructor checks: fill the fields without it.
        made = object.__new__(cls)
        fill = object.__setattr__
        name = ""
        try:
            for name, lift in cls.SHAPE.lifts:
                value = raw.get(name)
                fill(made, name, value if lift is None or value is None else lift(value))
        except ProtocolError as error:
            error.within(name)
            raise
        fill(made, "_encoded", raw.get(ENCODED))
        made._validate()
        return made

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

    Its raw value is a dict on the way in, and the object itself on the way out: an object that exists is
    valid, and is not taken apart again.
    """

    def __init__(self, cls: type[W]) -> None:
        self.cls = cls
        self.shape = cls.SHAPE
        self.name = cls.SHAPE.name
        self.sized = True
        self.versioned = cls.SHAPE.versioned

    def read(self, buf: bytes, pos: int) -> tuple[Fields, int]:
        """Read the object and keep its exact bytes beside its fields."""
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
        """Make the typed object."""
        return self.cls._lift(raw)  # noqa: SLF001 - the two classes of this module are one mechanism

    def lower(self, value: W) -> W:
        """Return the object, if it is one."""
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
    made: list[W] = []
    pos = 0
    while pos < len(data):
        raw, pos = kind.read(data, pos)
        kind.check(raw, limits)
        kind.versions(raw)
        made.append(kind.lift(raw))
    return made


def encode_sequence(objects: Sequence[Wire]) -> bytes:
    """Encode a CBOR Sequence: the objects one after the other."""
    return b"".join(item.encode() for item in objects)
