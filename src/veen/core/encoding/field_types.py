"""Field types: what a value may be on the wire, in JSON, and in a typed object."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast

from veen.core.crypto.hash import U64_MAX
from veen.core.encoding import cbor
from veen.core.errors import CborError, Detail, Fault, ProtocolError
from veen.core.limits import ENVELOPE_HEAD_BYTES, Limits
from veen.core.types import JsonValue
from veen.stdx.grammar import counted


class Kind(Protocol):
    """The type of a field."""

    name: str
    # Whether ``check`` and ``versions`` do anything; shapes skip the calls otherwise.
    sized: bool
    versioned: bool

    def read(self, buf: bytes, pos: int) -> tuple[Any, int]:
        """Read a raw value at ``pos``; raise CborError if the bytes do not encode one."""

    def check(self, raw: Any, limits: Limits | None) -> None:
        """Reject wrong lengths; ``limits`` is None for objects constructed here, which have no reader yet."""

    def versions(self, raw: Any) -> None:
        """Reject any ``ver`` other than 1."""

    def lift(self, raw: Any) -> Any:
        """Convert a checked raw value to the value of a typed object."""

    def lower(self, value: Any) -> Any:
        """Convert the value of a typed object to a raw one; a wrong Python type is a bug: TypeError."""

    def write(self, raw: Any) -> bytes:
        """Encode a raw value."""

    def to_json(self, raw: Any) -> JsonValue:
        """Return the JSON form of a raw value."""

    def from_json(self, value: JsonValue) -> Any:
        """Parse the JSON form into a raw value."""


def not_json(want: str, value: JsonValue) -> CborError:
    """Return the error for a JSON value of the wrong type."""
    return CborError(Fault.TYPE, 0, f"expected {want}, not {type(value).__name__}")


class Scalar:
    """Base of scalar kinds: raw and typed value are the same object, of one Python type."""

    python_type: type = object
    sized = False
    versioned = False

    def check(self, raw: Any, limits: Limits | None) -> None:
        """Nothing to check."""

    def versions(self, raw: Any) -> None:
        """No version inside."""

    def lift(self, raw: Any) -> Any:
        """Return the value."""
        return raw

    def lower(self, value: Any) -> Any:
        """Return the value if it is of ``python_type``."""
        if type(value) is not self.python_type:
            msg = f"expected {self.python_type.__name__}, not {type(value).__name__}"
            raise TypeError(msg)
        return value

    def to_json(self, raw: Any) -> JsonValue:
        """Return the value, which JSON has too."""
        return cast("JsonValue", raw)


class _Uint(Scalar):
    name = "uint"
    python_type = int
    read = staticmethod(cbor.read_uint)
    write = staticmethod(cbor.write_uint)

    def lower(self, value: Any) -> Any:
        if not 0 <= super().lower(value) <= U64_MAX:
            raise ProtocolError(Detail.VALUE, f"{value} is not an unsigned 64-bit integer")
        return value

    def from_json(self, value: JsonValue) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise not_json("an unsigned integer", value)
        if not 0 <= value <= U64_MAX:
            raise CborError(Fault.NEGATIVE if value < 0 else Fault.VALUE, 0)
        return value


class _Int(Scalar):
    """A signed integer, -(2^64 - 1) to 2^64 - 1."""

    name = "int"
    python_type = int
    read = staticmethod(cbor.read_int)
    write = staticmethod(cbor.write_int)

    def lower(self, value: Any) -> Any:
        if not -U64_MAX <= super().lower(value) <= U64_MAX:
            raise ProtocolError(Detail.VALUE, f"{value} is not a signed 64-bit integer")
        return value

    def from_json(self, value: JsonValue) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise not_json("an integer", value)
        if not -U64_MAX <= value <= U64_MAX:
            raise CborError(Fault.VALUE, 0)
        return value


class _Version(_Uint):
    name = "uint = 1"
    versioned = True

    def versions(self, raw: Any) -> None:
        if raw != 1:
            raise ProtocolError(Detail.VERSION, f"ver {raw} is not supported", expected=1, actual=raw)


class _Text(Scalar):
    name = "text"
    python_type = str
    read = staticmethod(cbor.read_text)
    write = staticmethod(cbor.write_text)

    def lower(self, value: Any) -> Any:
        cbor.write_text(super().lower(value))  # rejects text without a UTF-8 form
        return value

    def from_json(self, value: JsonValue) -> str:
        if not isinstance(value, str):
            raise not_json("text", value)
        cbor.write_text(value)  # JSON can carry lone surrogates
        return value


class _Constant(_Text):
    """A text field with one allowed value."""

    def __init__(self, value: str) -> None:
        self.value = value
        self.name = f'text = "{value}"'

    def lower(self, value: Any) -> Any:
        if value != self.value:
            raise ProtocolError(Detail.VALUE, f"{value!r} is not {self.value!r}")
        return value

    def read(self, buf: bytes, pos: int) -> tuple[str, int]:
        text, end = cbor.read_text(buf, pos)
        if text != self.value:
            raise CborError(Fault.VALUE, pos, f"{text!r} is not {self.value!r}")
        return text, end

    def from_json(self, value: JsonValue) -> str:
        if value != self.value:
            raise CborError(Fault.VALUE, 0, f"{value!r} is not {self.value!r}")
        return self.value


class _Bool(Scalar):
    name = "bool"
    python_type = bool
    read = staticmethod(cbor.read_bool)
    write = staticmethod(cbor.write_bool)

    def from_json(self, value: JsonValue) -> bool:
        if not isinstance(value, bool):
            raise not_json("true or false", value)
        return value


def hex_from_json(value: JsonValue) -> bytes:
    """Parse lowercase hex, strictly."""
    if not isinstance(value, str):
        raise not_json("lowercase hex", value)
    try:
        data = bytes.fromhex(value)
    except ValueError:
        data = b""
    if data.hex() != value:  # also rejects upper case, spaces and odd lengths
        raise CborError(Fault.VALUE, 0, "expected lowercase hex")
    return data


class _Bytes(Scalar):
    """A byte string of any size."""

    name = "bytes"
    python_type = bytes
    read = staticmethod(cbor.read_bytes)
    write = staticmethod(cbor.write_bytes)

    def to_json(self, raw: bytes) -> JsonValue:
        return raw.hex()

    def from_json(self, value: JsonValue) -> bytes:
        return hex_from_json(value)


class _Fixed(_Bytes):
    """A byte string of one size."""

    sized = True

    def __init__(self, size: int) -> None:
        self.size = size
        self.name = f"bytes({size})"
        self._head = cbor.head(cbor.MAJOR_BYTES, size)

    def read(self, buf: bytes, pos: int) -> tuple[bytes, int]:
        # Most fields of a message are of this kind: compare the expected head at once, else read as usual.
        start = pos + len(self._head)
        end = start + self.size
        if buf[pos:start] == self._head and end <= len(buf):
            return buf[start:end], end
        return cbor.read_bytes(buf, pos)

    def check(self, raw: Any, limits: Limits | None) -> None:  # noqa: ARG002 - one signature for all kinds
        if len(raw) != self.size:
            raise ProtocolError(
                Detail.FIELD_SIZE,
                f"{counted(len(raw), 'byte')} instead of {self.size}",
                expected=self.size,
                actual=len(raw),
            )

    def write(self, raw: bytes) -> bytes:
        return self._head + raw


def check_envelope(ciphertext: bytes, limits: Limits) -> None:
    """Check the lengths inside a ciphertext without opening it (CT-009, CT-012, CT-014; row 4)."""
    size = len(ciphertext)
    if size < ENVELOPE_HEAD_BYTES:
        raise ProtocolError(
            Detail.FIELD_SIZE,
            f"ciphertext of {counted(size, 'byte')}",
            expected=ENVELOPE_HEAD_BYTES,
            actual=size,
        )
    hdr_len = int.from_bytes(ciphertext[32:36], "big")
    body_len = int.from_bytes(ciphertext[36:40], "big")
    for name, actual, allowed in (
        ("hdr_len", hdr_len, limits.max_hdr_bytes),
        ("body_len", body_len, limits.max_body_bytes),
        ("ciphertext", size, limits.max_msg_bytes),
    ):
        if actual > allowed:
            raise ProtocolError(
                Detail.FIELD_SIZE, f"{name} {actual} exceeds {allowed}", actual=actual, max_allowed=allowed
            )
    needed = ENVELOPE_HEAD_BYTES + hdr_len + body_len
    if size < needed:
        raise ProtocolError(
            Detail.FIELD_SIZE,
            f"ciphertext of {size} bytes, its lengths add up to {needed}",
            expected=needed,
            actual=size,
        )


class _Ciphertext(_Bytes):
    """The ciphertext of a message: a reader checks the lengths inside; a signer may sign any bytes."""

    sized = True

    def check(self, raw: Any, limits: Limits | None) -> None:
        if limits is not None:
            check_envelope(raw, limits)


class _Nullable(_Fixed):
    """A fixed-size byte string or null: MSG.auth_ref, the only null of the core (CBOR-007)."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.name = f"bytes({size}) or null"

    def read(self, buf: bytes, pos: int) -> tuple[bytes | None, int]:  # type: ignore[override] # or null
        if buf[pos : pos + 1] == b"\xf6":
            return None, pos + 1
        return super().read(buf, pos)

    def check(self, raw: Any, limits: Limits | None) -> None:
        if raw is not None:
            super().check(raw, limits)

    def lower(self, value: Any) -> Any:
        return None if value is None else super().lower(value)

    def write(self, raw: bytes | None) -> bytes:
        return b"\xf6" if raw is None else super().write(raw)

    def to_json(self, raw: bytes | None) -> JsonValue:  # or null
        return None if raw is None else raw.hex()

    def from_json(self, value: JsonValue) -> bytes | None:  # type: ignore[override] # or null
        return None if value is None else hex_from_json(value)


class ListOf:
    """An array of one kind; ``max_length`` is a limit (row 4), or a function of the reader's limits.

    ``max_items`` bounds what is read at all; None is for files, which are as long as they are.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        max_length: int | Callable[[Limits], int] | None = None,
        may_be_empty: bool = True,
        max_items: int | None = cbor.MAX_ITEMS,
    ) -> None:
        self.kind = kind
        self.max_items = max_items
        self.max_length = max_length
        self.may_be_empty = may_be_empty
        self.name = f"[{kind.name}]"
        self.sized = max_length is not None or kind.sized
        self.versioned = kind.versioned

    def _not_empty(self, count: int, pos: int) -> None:
        if count == 0 and not self.may_be_empty:
            raise CborError(Fault.EMPTY, pos)

    def read(self, buf: bytes, pos: int) -> tuple[list[Any], int]:
        """Read the elements one by one."""
        count, start = cbor.read_array(buf, pos, self.max_items)
        self._not_empty(count, pos)
        read = self.kind.read
        items = []
        pos = start
        for _ in range(count):
            item, pos = read(buf, pos)
            items.append(item)
        return items, pos

    def check(self, raw: Sequence[Any], limits: Limits | None) -> None:
        """Reject too many elements, then check each."""
        max_length = self.max_length
        if callable(max_length):
            max_length = None if limits is None else max_length(limits)
        if max_length is not None and len(raw) > max_length:
            raise ProtocolError(
                Detail.FIELD_SIZE,
                f"{len(raw)} elements, at most {max_length}",
                actual=len(raw),
                max_allowed=max_length,
            )
        for item in raw:
            self.kind.check(item, limits)

    def versions(self, raw: Sequence[Any]) -> None:
        """Check the version of each element."""
        for item in raw:
            self.kind.versions(item)

    def lift(self, raw: Sequence[Any]) -> tuple[Any, ...]:
        """Return the elements as a tuple."""
        return tuple(map(self.kind.lift, raw))

    def lower(self, value: Sequence[Any]) -> list[Any]:
        """Return the elements as raw values; typed objects hold tuples, so that they cannot be changed."""
        if type(value) is not tuple:
            raise TypeError(f"expected tuple, not {type(value).__name__}")
        self._not_empty(len(value), 0)
        return list(map(self.kind.lower, value))

    def write(self, raw: Sequence[Any]) -> bytes:
        """Encode head and elements."""
        return cbor.head(cbor.MAJOR_ARRAY, len(raw)) + b"".join(map(self.kind.write, raw))

    def to_json(self, raw: Sequence[Any]) -> JsonValue:
        """Return a JSON array."""
        return [self.kind.to_json(item) for item in raw]

    def from_json(self, value: JsonValue) -> list[Any]:
        """Parse a JSON array."""
        if not isinstance(value, list):
            raise not_json("an array", value)
        self._not_empty(len(value), 0)
        return [self.kind.from_json(item) for item in value]


VER: Final = _Version()
UINT: Final = _Uint()
INT: Final = _Int()
TEXT: Final = _Text()
BOOL: Final = _Bool()
BYTES: Final = _Bytes()
B16: Final = _Fixed(16)
B32: Final = _Fixed(32)
B64: Final = _Fixed(64)
B32_OR_NULL: Final = _Nullable(32)
CIPHERTEXT: Final = _Ciphertext()


def constant(value: str) -> Kind:
    """Return the kind of a text field that has exactly one allowed value."""
    return _Constant(value)
