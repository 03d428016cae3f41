"""CBOR written by hand, valid or not: a correct encoder cannot produce invalid bytes."""

from typing import Final

NULL: Final = b"\xf6"
TRUE: Final = b"\xf5"
FALSE: Final = b"\xf4"
UNDEFINED: Final = b"\xf7"
BREAK: Final = b"\xff"

# Width of a head's argument in bytes -> additional information.
_INFO: Final = {1: 24, 2: 25, 4: 26, 8: 27}

UINT, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG = range(7)


def head(major: int, argument: int, width: int | None = None) -> bytes:
    """Return a head: the shortest, or one with an argument of ``width`` bytes."""
    if width is None and argument < 24:
        return bytes((major << 5 | argument,))
    if width is None:
        width = next(size for size in _INFO if argument < 1 << 8 * size)
    return bytes((major << 5 | _INFO[width],)) + argument.to_bytes(width, "big")


def uint(value: int, width: int | None = None) -> bytes:
    """Return an unsigned integer."""
    return head(UINT, value, width)


def bstr(value: bytes, width: int | None = None) -> bytes:
    """Return a byte string."""
    return head(BYTES, len(value), width) + value


def tstr(value: str | bytes, width: int | None = None) -> bytes:
    """Return a text string; bytes are used unchanged, so that they need not be UTF-8."""
    data = value.encode() if isinstance(value, str) else value
    return head(TEXT, len(data), width) + data


def array(*items: bytes, width: int | None = None) -> bytes:
    """Return an array of encoded items."""
    return head(ARRAY, len(items), width) + b"".join(items)


def mapping(*pairs: tuple[bytes, bytes], width: int | None = None) -> bytes:
    """Return a map of encoded pairs, in the order given."""
    return head(MAP, len(pairs), width) + b"".join(key + value for key, value in pairs)


def keyed(*pairs: tuple[int, bytes]) -> bytes:
    """Return a map with unsigned keys, in the order given."""
    return mapping(*((uint(key), value) for key, value in pairs))


def replaced(items: list[bytes], index: int, item: bytes) -> bytes:
    """Return the array of ``items`` with one of them replaced."""
    return array(*items[:index], item, *items[index + 1 :])


def split(encoded: bytes) -> list[bytes]:
    """Return the encoded elements of a canonical array, or the keys and values of a map in turn."""
    count, pos = _argument(encoded, 0)
    if encoded[0] >> 5 == MAP:
        count *= 2
    items = []
    for _ in range(count):
        end = _end(encoded, pos)
        items.append(encoded[pos:end])
        pos = end
    return items


def split_map(encoded: bytes) -> list[tuple[bytes, bytes]]:
    """Return the encoded pairs of a canonical map."""
    items = split(encoded)
    return list(zip(items[::2], items[1::2], strict=True))


def _argument(data: bytes, pos: int) -> tuple[int, int]:
    info = data[pos] & 31
    for width, code in _INFO.items():
        if info == code:
            return int.from_bytes(data[pos + 1 : pos + 1 + width], "big"), pos + 1 + width
    return info, pos + 1


def _end(data: bytes, pos: int) -> int:
    """Return where the item at ``pos`` ends."""
    major = data[pos] >> 5
    argument, pos = _argument(data, pos)
    if major in (BYTES, TEXT):
        return pos + argument
    for _ in range({ARRAY: argument, MAP: 2 * argument}.get(major, 0)):
        pos = _end(data, pos)
    return pos
