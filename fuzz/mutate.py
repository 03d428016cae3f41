"""Mutations that know CBOR: most results are nearly valid, which is where parsers fail.

Everything here depends on the random source alone, so a seed reproduces a run.
"""

from collections.abc import Callable, Sequence
from random import Random

from tests import rawcbor as raw

# Inputs grow when they are spliced and extended; larger ones find no other faults.
MAX_BYTES = 4_096

_INTERESTING = (0, 1, 23, 24, 31, 32, 33, 63, 64, 65, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**64 - 1)
# Short items of every kind, valid and invalid, in hex.
_ITEMS_HEX = """
    00 01 02 17 1800 1817 1818 18ff 190000 190100 1a00010000 1b0000000100000000 1bffffffffffffffff
    20 3863 3bffffffffffffffff 40 4100 5820 5f4100ff 5bffffffffffffffff 60 6161 61ff 7f6161ff
    7bffffffffffffffff 80 8100 9f00ff 9bffffffffffffffff a0 a10000 bf0000ff bbffffffffffffffff
    c000 c249010000000000000000 d9d9f700 f4 f5 f6 f7 f8ff f90000 fa00000000 fb0000000000000000 ff 1c 5d
"""
_ITEMS = tuple(map(bytes.fromhex, _ITEMS_HEX.split()))

Mutation = Callable[[Random, bytes, Sequence[bytes]], bytes]


def _place(random: Random, data: bytes) -> int:
    return random.randrange(len(data)) if data else 0


def _heads(data: bytes) -> list[int]:
    """Return the offsets of the heads of items, as far as the data can be parsed."""
    heads = []
    pos = 0
    while pos < len(data):
        heads.append(pos)
        major, argument, pos = raw.read_head(data, pos)
        if major in (raw.BYTES, raw.TEXT):
            pos += argument
    return heads


def _item(random: Random, data: bytes) -> tuple[int, int]:
    """Return start and end of a random item; in unreadable data, of a random range."""
    start = random.choice(_heads(data) or [0])
    try:
        end = raw.skip(data, start)
    except (IndexError, RecursionError):
        end = start + 1 + random.randrange(8)
    return start, min(end, len(data))


def flip_bit(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Flip one bit."""
    pos = _place(random, data)
    changed = bytes(byte ^ 1 << random.randrange(8) for byte in data[pos : pos + 1])
    return data[:pos] + changed + data[pos + 1 :]


def set_byte(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Set one byte."""
    pos = _place(random, data)
    byte = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
    return data[:pos] + bytes((byte,)) + data[pos + 1 :]


def truncate(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Remove the end."""
    return data[: _place(random, data)]


def extend(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Append bytes."""
    return data + random.choice((b"\x00", b"\xf6", random.randbytes(random.randrange(1, 40)), data))


def splice(random: Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """Join the beginning of one input to the end of another."""
    other = random.choice(corpus)
    return data[: _place(random, data)] + other[_place(random, other) :]


def delete_range(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Remove a range."""
    pos = _place(random, data)
    return data[:pos] + data[pos + random.randrange(1, 40) :]


def repeat_range(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Duplicate a range."""
    pos = _place(random, data)
    end = pos + random.randrange(1, 40)
    return data[:end] + data[pos:]


def replace_head(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Replace the head of an item, without its content."""
    start = random.choice(_heads(data) or [0])
    content = raw.read_head(data, start)[2] if start < len(data) else start
    major, argument = random.randrange(8), random.choice(_INTERESTING)
    width = random.choice([width for width in (1, 2, 4, 8) if argument < 1 << 8 * width])
    return data[:start] + raw.head(major, argument, width) + data[content:]


def change_length(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Change the length, count or value in a head, in its shortest encoding or a longer one."""
    start = random.choice(_heads(data) or [0])
    if start >= len(data):
        return data
    major, argument, content = raw.read_head(data, start)
    changed = random.choice((argument - 1, argument + 1, argument * 2, argument, random.choice(_INTERESTING)))
    changed = min(max(changed, 0), 2**64 - 1)
    widths = [width for width in (1, 2, 4, 8) if changed < 1 << 8 * width]
    return data[:start] + raw.head(major, changed, random.choice([None, *widths])) + data[content:]


def replace_item(random: Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """Replace an item by a short one of any kind, or by one of another input."""
    start, end = _item(random, data)
    if random.random() < 0.5:
        other = random.choice(_ITEMS)
    else:
        donor = random.choice(corpus)
        first, last = _item(random, donor)
        other = donor[first:last]
    return data[:start] + other + data[end:]


def swap_items(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Swap two items."""
    (first, first_end), (second, second_end) = sorted((_item(random, data), _item(random, data)))
    if first_end > second:
        return data
    return (
        data[:first]
        + data[second:second_end]
        + data[first_end:second]
        + data[first:first_end]
        + data[second_end:]
    )


def change_container(random: Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    """Duplicate or remove an element of a container, and adjust its count."""
    containers = [pos for pos in _heads(data) if data[pos] >> 5 in (raw.ARRAY, raw.MAP)]
    if not containers:
        return data
    start = random.choice(containers)
    major = data[start] >> 5
    try:
        end = raw.skip(data, start)
        parts = raw.elements(data[start:end])
    except (IndexError, RecursionError):
        return data
    step = 2 if major == raw.MAP else 1
    groups = [b"".join(parts[pos : pos + step]) for pos in range(0, len(parts), step)]
    if groups:
        index = random.randrange(len(groups))
        groups[index : index + 1] = [groups[index]] * random.choice((0, 2))
    return data[:start] + raw.head(major, len(groups)) + b"".join(groups) + data[end:]


def insert_tag(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Insert a tag before an item."""
    start = random.choice(_heads(data) or [0])
    return data[:start] + random.choice((b"\xc0", b"\xd8\x18")) + data[start:]


MUTATIONS: tuple[Mutation, ...] = (
    flip_bit,
    set_byte,
    truncate,
    extend,
    splice,
    delete_range,
    repeat_range,
    replace_head,
    change_length,
    replace_item,
    swap_items,
    change_container,
    insert_tag,
)


def mutate(random: Random, corpus: Sequence[bytes]) -> bytes:
    """Return an input with one to four mutations."""
    data = random.choice(corpus)
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
        data = random.choice(MUTATIONS)(random, data, corpus)[:MAX_BYTES]
    return data
