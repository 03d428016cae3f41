"""CBOR without any rules: to take encodings apart, and to write what no encoder of ours would.

Knows definite lengths only, which is all that valid objects have.
"""

from collections.abc import Iterable

UINT, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, SIMPLE = range(8)
NULL, TRUE, FALSE, UNDEFINED = b"\xf6", b"\xf5", b"\xf4", b"\xf7"

_WIDTHS = {24: 1, 25: 2, 26: 4, 27: 8}


def head(major: int, argument: int, width: int | None = None) -> bytes:
    """Return a head; with ``width`` in bytes (0, 1, 2, 4, 8) also one that is longer than needed."""
    if width is None:
        width = next(
            w for w, end in ((0, 24), (1, 1 << 8), (2, 1 << 16), (4, 1 << 32), (8, 1 << 64)) if argument < end
        )
    if width == 0:
        return bytes((major << 5 | argument,))
    info = next(info for info, size in _WIDTHS.items() if size == width)
    return bytes((major << 5 | info,)) + argument.to_bytes(width, "big")


def uint(value: int, width: int | None = None) -> bytes:
    return head(UINT, value, width)


def bstr(value: bytes, width: int | None = None) -> bytes:
    return head(BYTES, len(value), width) + value


def tstr(value: str, width: int | None = None) -> bytes:
    encoded = value.encode()
    return head(TEXT, len(encoded), width) + encoded


def array(items: Iterable[bytes], width: int | None = None) -> bytes:
    parts = list(items)
    return head(ARRAY, len(parts), width) + b"".join(parts)


def mapping(pairs: Iterable[tuple[bytes, bytes]], width: int | None = None) -> bytes:
    parts = list(pairs)
    return head(MAP, len(parts), width) + b"".join(key + value for key, value in parts)


def read_head(data: bytes, pos: int) -> tuple[int, int, int]:
    """Return major type, argument and where the content begins."""
    major, info = data[pos] >> 5, data[pos] & 31
    width = _WIDTHS.get(info, 0)
    argument = int.from_bytes(data[pos + 1 : pos + 1 + width], "big") if width else info
    return major, argument, pos + 1 + width


def skip(data: bytes, pos: int) -> int:
    """Return where the item at ``pos`` ends."""
    major, argument, pos = read_head(data, pos)
    if major in (BYTES, TEXT):
        return pos + argument
    for _ in range({ARRAY: argument, MAP: 2 * argument, TAG: 1}.get(major, 0)):
        pos = skip(data, pos)
    return pos


def heads(data: bytes) -> list[int]:
    """Return where the heads of a valid item stand, nested ones too."""
    found = []
    pos = 0
    while pos < len(data):
        found.append(pos)
        major, argument, pos = read_head(data, pos)
        if major in (BYTES, TEXT):
            pos += argument
    return found


def elements(data: bytes) -> list[bytes]:
    """Return the encodings of the elements of an array; of a map its keys and values in turn."""
    major, argument, pos = read_head(data, 0)
    made = []
    for _ in range(argument * (2 if major == MAP else 1)):
        end = skip(data, pos)
        made.append(data[pos:end])
        pos = end
    return made


def pairs(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the encoded (key, value) pairs of a map."""
    parts = elements(data)
    return list(zip(parts[::2], parts[1::2], strict=True))


def with_element(data: bytes, index: int, encoded: bytes) -> bytes:
    """Return an array with one element replaced."""
    parts = elements(data)
    parts[index] = encoded
    return array(parts)


def with_pair(data: bytes, key: int, encoded: bytes) -> bytes:
    """Return a map with the value of one unsigned key replaced, or added in its place."""
    made = dict(pairs(data))
    made[uint(key)] = encoded
    return mapping(sorted(made.items()))


def without_pair(data: bytes, key: int) -> bytes:
    """Return a map without one of its unsigned keys."""
    made = dict(pairs(data))
    del made[uint(key)]
    return mapping(made.items())
