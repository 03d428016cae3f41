"""Deterministic CBOR, strictly (001 section 3.1; decision C-04).

One decoder that accepts exactly the canonical encodings, and one encoder. Readers have the form
``read_x(buf, pos) -> (value, next_pos)``; every rejection is a ``CborError`` with its own fault.

Why not a library: general decoders accept tags, floats, indefinite lengths and long heads, and do not
report which of them occurred; a strict pass would still be needed after them (ADR 0002). The tests
compare this module with cbor2 on generated data.

    allowed                       rejected, each with its own fault
    unsigned integers, shortest   longer heads, negative integers, reserved heads
    byte and text strings         indefinite lengths, text that is not UTF-8
    arrays, maps                  tags, floats, other simple values, repeated or unordered keys
    true, false, null             ... outside the fields that are typed so (veen.core.encoding.shape)
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, assert_never

from veen.core.errors import CborError, Fault
from veen.stdx.grammar import counted

MAJOR_UINT: Final = 0
MAJOR_NEGATIVE: Final = 1
MAJOR_BYTES: Final = 2
MAJOR_TEXT: Final = 3
MAJOR_ARRAY: Final = 4
MAJOR_MAP: Final = 5
MAJOR_TAG: Final = 6

FALSE: Final = 0xF4
TRUE: Final = 0xF5
NULL: Final = 0xF6
_SIMPLE_ONE_BYTE: Final = 0xF8
_FLOATS: Final = (0xF9, 0xFA, 0xFB)

_INLINE: Final = 24  # heads below this contain their argument
_INDEFINITE: Final = 31
# Additional information 24..27 -> (bytes of the argument, smallest argument that needs them).
_WIDTHS: Final = {24: (1, 24), 25: (2, 1 << 8), 26: (4, 1 << 16), 27: (8, 1 << 32)}

_HEAD_WIDTHS: Final = tuple((info, width, 1 << 8 * width) for info, (width, _) in _WIDTHS.items())
_HEADS: Final = tuple(bytes((first,)) for first in range(256))

# No core object nests deeper than 6; the bound is for free-form values (CBOR-020).
MAX_DEPTH: Final = 16
# Elements of one array or map, checked before anything is allocated for them.
MAX_ITEMS: Final = 65_536

# A free-form value. Maps have unsigned or text keys.
Value = None | bool | int | bytes | str | Sequence["Value"] | Mapping[int, "Value"] | Mapping[str, "Value"]


def _reject(buf: bytes, pos: int, want: str) -> NoReturn:
    """Raise the error for an item at ``pos`` that is not ``want``."""
    first = buf[pos]
    major, info = first >> 5, first & 31
    if major == MAJOR_TAG:
        fault = Fault.TAG
    elif major == MAJOR_NEGATIVE:
        fault = Fault.NEGATIVE
    elif first in _FLOATS:
        fault = Fault.FLOAT
    elif first == NULL:
        fault = Fault.NULL
    elif first in (TRUE, FALSE):
        fault = Fault.BOOL
    elif major == 7:
        fault = Fault.INDEFINITE if info == _INDEFINITE else Fault.SIMPLE
    else:
        fault = Fault.TYPE
    raise CborError(fault, pos, f"{fault}: expected {want}")


def _head(buf: bytes, pos: int, major: int, want: str) -> tuple[int, int]:
    """Read a head of one major type; return its argument and the offset of its content."""
    if pos >= len(buf):
        raise CborError(Fault.TRUNCATED, pos, f"input ends where {want} should be")
    first = buf[pos]
    if first >> 5 != major:
        _reject(buf, pos, want)
    info = first & 31
    if info < _INLINE:
        return info, pos + 1
    if info not in _WIDTHS:
        fault = Fault.INDEFINITE if info == _INDEFINITE else Fault.RESERVED
        raise CborError(fault, pos, f"{fault} in {want}")
    width, smallest = _WIDTHS[info]
    end = pos + 1 + width
    if end > len(buf):
        raise CborError(Fault.TRUNCATED, pos, f"input ends inside the head of {want}")
    argument = int.from_bytes(buf[pos + 1 : end], "big")
    if argument < smallest:
        raise CborError(Fault.NON_MINIMAL, pos)
    return argument, end


def read_uint(buf: bytes, pos: int) -> tuple[int, int]:
    """Read an unsigned integer, 0 to 2^64 - 1."""
    if pos < len(buf) and buf[pos] < _INLINE:  # the common case, without a call
        return buf[pos], pos + 1
    return _head(buf, pos, MAJOR_UINT, "an unsigned integer")


def read_int(buf: bytes, pos: int) -> tuple[int, int]:
    """Read a signed integer, -2^64 to 2^64 - 1: one field of the protocol may be negative (WAL-007)."""
    if pos < len(buf) and buf[pos] >> 5 == MAJOR_NEGATIVE:
        argument, end = _head(buf, pos, MAJOR_NEGATIVE, "an integer")
        return -1 - argument, end
    return _head(buf, pos, MAJOR_UINT, "an integer")


def read_bytes_head(buf: bytes, pos: int) -> tuple[int, int]:
    """Read the head of a byte string; return its length and the offset of its content."""
    return _head(buf, pos, MAJOR_BYTES, "a byte string")


def read_bytes(buf: bytes, pos: int) -> tuple[bytes, int]:
    """Read a byte string; its length is compared with the remaining input before anything is copied."""
    length, start = read_bytes_head(buf, pos)
    end = start + length
    if end > len(buf):
        raise CborError(
            Fault.TRUNCATED, pos, f"byte string of {counted(length, 'byte')}, {len(buf) - start} left"
        )
    return buf[start:end], end


def read_text(buf: bytes, pos: int) -> tuple[str, int]:
    """Read a text string; Python's strict UTF-8 rejects surrogates and overlong forms."""
    length, start = _head(buf, pos, MAJOR_TEXT, "a text string")
    end = start + length
    if end > len(buf):
        raise CborError(
            Fault.TRUNCATED, pos, f"text string of {counted(length, 'byte')}, {len(buf) - start} left"
        )
    try:
        return buf[start:end].decode(), end
    except UnicodeDecodeError:
        raise CborError(Fault.UTF8, pos) from None


def read_bool(buf: bytes, pos: int) -> tuple[bool, int]:
    """Read true or false."""
    if pos >= len(buf):
        raise CborError(Fault.TRUNCATED, pos, "input ends where true or false should be")
    if buf[pos] not in (TRUE, FALSE):
        _reject(buf, pos, "true or false")
    return buf[pos] == TRUE, pos + 1


def _count(buf: bytes, pos: int, head: tuple[int, int], max_items: int | None) -> tuple[int, int]:
    count, start = head
    # An element has at least one byte, so there cannot be more elements than bytes.
    if count > len(buf) - start:
        raise CborError(
            Fault.TRUNCATED,
            pos,
            f"{counted(count, 'element')} declared, {counted(len(buf) - start, 'byte')} left",
        )
    if max_items is not None and count > max_items:
        raise CborError(Fault.ITEMS, pos)
    return count, start


def read_array(buf: bytes, pos: int, max_items: int | None = MAX_ITEMS) -> tuple[int, int]:
    """Read the head of an array; return the number of its elements, and where they begin."""
    return _count(buf, pos, _head(buf, pos, MAJOR_ARRAY, "an array"), max_items)


def read_map(buf: bytes, pos: int, max_items: int | None = MAX_ITEMS) -> tuple[int, int]:
    """Read the head of a map; return the number of its pairs, and where they begin."""
    return _count(buf, pos, _head(buf, pos, MAJOR_MAP, "a map"), max_items)


def at_end(buf: bytes, pos: int) -> None:
    """Reject bytes after the outermost item."""
    if pos != len(buf):
        raise CborError(Fault.TRAILING, pos)


def check_key_order(previous: bytes | None, current: bytes, pos: int) -> None:
    """Reject a key that is not greater than the previous one, by encoded bytes."""
    if previous is None or current > previous:
        return
    raise CborError(Fault.DUPLICATE_KEY if current == previous else Fault.KEY_ORDER, pos)


def _read_key(buf: bytes, pos: int) -> tuple[int | str, int]:
    if pos < len(buf) and buf[pos] >> 5 == MAJOR_TEXT:
        return read_text(buf, pos)
    return read_uint(buf, pos)


def _read_map_value(
    buf: bytes, pos: int, depth: int, *, listed: bool, max_items: int | None
) -> tuple[Value, int]:
    count, pos = read_map(buf, pos, max_items)
    pairs: dict[Any, Value] = {}
    previous = None
    for _ in range(count):
        start = pos
        key, pos = _read_key(buf, pos)
        encoded = buf[start:pos]
        if not listed:
            check_key_order(previous, encoded, start)
        elif key in pairs:
            raise CborError(Fault.DUPLICATE_KEY, start)
        previous = encoded
        pairs[key], pos = _read_value(buf, pos, depth, listed=listed, max_items=max_items)
    return pairs, pos


def _read_array_value(
    buf: bytes, pos: int, depth: int, *, listed: bool, max_items: int | None
) -> tuple[Value, int]:
    count, pos = read_array(buf, pos, max_items)
    items: list[Value] = []
    for _ in range(count):
        item, pos = _read_value(buf, pos, depth, listed=listed, max_items=max_items)
        items.append(item)
    return items, pos


def _read_value(
    buf: bytes, pos: int, depth: int, *, listed: bool, max_items: int | None = MAX_ITEMS
) -> tuple[Value, int]:
    if pos >= len(buf):
        raise CborError(Fault.TRUNCATED, pos)
    first = buf[pos]
    major = first >> 5
    if major == MAJOR_UINT:
        return read_uint(buf, pos)
    if major == MAJOR_BYTES:
        return read_bytes(buf, pos)
    if major == MAJOR_TEXT:
        return read_text(buf, pos)
    if major in (MAJOR_ARRAY, MAJOR_MAP):
        if depth == 0:
            raise CborError(Fault.DEPTH, pos)
        read = _read_array_value if major == MAJOR_ARRAY else _read_map_value
        return read(buf, pos, depth - 1, listed=listed, max_items=max_items)
    if first in (TRUE, FALSE):
        return first == TRUE, pos + 1
    if first == NULL:
        return None, pos + 1
    _reject(buf, pos, "a value")


def read_value(buf: bytes, pos: int) -> tuple[Value, int]:
    """Read a free-form value inside another object; its maps have ascending keys."""
    return _read_value(buf, pos, MAX_DEPTH, listed=False)


def item_end(buf: bytes, pos: int) -> int:
    """Return where the item at ``pos`` ends, without validating it: for splitting a sequence into items.

    Any well-formed item of definite length is accepted, including those that no shape allows.
    """
    pending = 1
    while pending:
        if pos >= len(buf):
            raise CborError(Fault.TRUNCATED, pos)
        initial = buf[pos]
        pos += 1
        major, info = initial >> 5, initial & 31
        if info < 24:
            argument = info
        elif info < 28:
            width = 1 << (info - 24)
            argument = int.from_bytes(buf[pos : pos + width], "big")
            pos += width
        else:
            raise CborError(Fault.INDEFINITE if info == 31 else Fault.RESERVED, pos - 1)
        pending -= 1
        if major in (MAJOR_BYTES, MAJOR_TEXT):
            pos += argument
        elif major == MAJOR_ARRAY:
            pending += argument
        elif major == MAJOR_MAP:
            pending += 2 * argument
        elif major == MAJOR_TAG:
            pending += 1
        if pos > len(buf) or pending > len(buf) - pos:  # every item has at least one byte
            raise CborError(Fault.TRUNCATED, len(buf))
    return pos


def decode(data: bytes, *, max_items: int | None = MAX_ITEMS) -> Value:
    """Decode one free-form value; map keys must be unsigned or text, ascending by encoded bytes.

    ``max_items`` bounds the elements of each array and map; None is for data that VEEN has written itself.
    """
    value, pos = _read_value(data, 0, MAX_DEPTH, listed=False, max_items=max_items)
    at_end(data, pos)
    return value


def decode_listed(data: bytes) -> Value:
    """Decode one free-form value whose map keys may be in any order, without repetition.

    Bodies of overlays have their keys in the order in which their schema lists them (C-03); a reader without
    the schema cannot know it.
    """
    value, pos = _read_value(data, 0, MAX_DEPTH, listed=True)
    at_end(data, pos)
    return value


def head(major: int, argument: int) -> bytes:
    """Return the shortest head of a major type with this argument."""
    top = major << 5
    if argument < _INLINE:
        return _HEADS[top | argument]
    for info, width, end in _HEAD_WIDTHS:
        if argument < end:
            return _HEADS[top | info] + argument.to_bytes(width, "big")
    raise CborError(Fault.VALUE, 0, f"{argument} does not fit in 64 bits")


def write_uint(value: int) -> bytes:
    """Encode an unsigned integer."""
    return head(MAJOR_UINT, value)


def write_int(value: int) -> bytes:
    """Encode a signed integer."""
    return head(MAJOR_UINT, value) if value >= 0 else head(MAJOR_NEGATIVE, -1 - value)


def write_bytes(value: bytes) -> bytes:
    """Encode a byte string."""
    return head(MAJOR_BYTES, len(value)) + value


def write_text(value: str) -> bytes:
    """Encode a text string."""
    try:
        encoded = value.encode()
    except UnicodeEncodeError:  # a lone surrogate, as JSON can carry it
        raise CborError(Fault.UTF8, 0) from None
    return head(MAJOR_TEXT, len(encoded)) + encoded


def write_bool(value: bool) -> bytes:  # noqa: FBT001 - a value to encode, not a switch
    """Encode true or false."""
    return b"\xf5" if value else b"\xf4"


def encode(value: Value, *, max_items: int | None = MAX_ITEMS) -> bytes:
    """Encode a free-form value canonically; maps are sorted by their encoded keys.

    The bounds of decoding apply here too, so that every encoding can be decoded.
    """
    return _encode(value, MAX_DEPTH, max_items)


def _encode(value: Value, depth: int, max_items: int | None) -> bytes:
    match value:
        case None:
            return b"\xf6"
        case bool():
            return write_bool(value)
        case int():
            if value < 0:
                raise CborError(Fault.NEGATIVE, 0)
            return write_uint(value)
        case bytes():
            return write_bytes(value)
        case str():
            return write_text(value)
        case list() | tuple() | Sequence() | Mapping():  # common types first: isinstance with an ABC is slow
            return _encode_container(value, depth, max_items)
    assert_never(value)


def _encode_container(
    value: Sequence[Value] | Mapping[Any, Value], depth: int, max_items: int | None
) -> bytes:
    if depth == 0:
        raise CborError(Fault.DEPTH, 0)
    if max_items is not None and len(value) > max_items:
        raise CborError(Fault.ITEMS, 0)
    if isinstance(value, list | tuple | Sequence):
        return head(MAJOR_ARRAY, len(value)) + b"".join(
            [_encode(item, depth - 1, max_items) for item in value]
        )
    if any(type(key) not in (int, str) for key in value):
        raise TypeError("map keys are int or str")
    pairs = sorted(
        (_encode(key, 0, max_items), _encode(item, depth - 1, max_items)) for key, item in value.items()
    )
    return head(MAJOR_MAP, len(pairs)) + b"".join(key + item for key, item in pairs)
