"""Damage done to bytes, by a random source alone: a seed names a run.

Most of what is made here is nearly right, which is where parsers go wrong.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

#: No parser needs more than this to go wrong.
_MAX_BYTES: Final = 8192
#: Short items of every kind, good and bad.
ITEMS: Final = tuple(
    bytes.fromhex(text)
    for text in (
        *(
            "00",
            "17",
            "1817",
            "18ff",
            "190000",
            "1b0000000100000000",
            "1bffffffffffffffff",
            "20",
            "40",
            "5820",
        ),
        *("5f4100ff", "5bffffffffffffffff", "60", "61ff", "7f6161ff", "7bffffffffffffffff", "80", "9f00ff"),
        *(
            "9bffffffffffffffff",
            "a0",
            "a10000",
            "a200000000",
            "bf0000ff",
            "bbffffffffffffffff",
            "c000",
            "d9d9f700",
        ),
        *("f4", "f6", "f7", "f8ff", "f90000", "fb0000000000000000", "ff", "1c", "5d", ""),
    )
)
#: Containers in containers, far deeper than anything that is sent.
NESTED: Final = (b"\x81" * 5000, b"\xa1\x00" * 5000, b"\x9f" * 5000, b"\x81" * 20 + b"\x00")

Mutation = Callable[[Random, bytes, Sequence[bytes]], bytes]


def _place(random: Random, data: bytes) -> int:
    return random.randrange(len(data)) if data else 0


def flip_bit(random: Random, data: bytes, _: Sequence[bytes] = ()) -> bytes:
    """Flip one bit."""
    at = _place(random, data)
    return data[:at] + bytes(byte ^ 1 << random.randrange(8) for byte in data[at : at + 1]) + data[at + 1 :]


def _set_byte(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(random, data)
    return (
        data[:at] + bytes((random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256))),)) + data[at + 1 :]
    )


def _cut(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: _place(random, data)]


def _extend(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data + random.choice((b"\x00", b"\xf6", random.randbytes(random.randrange(1, 40)), data))


def _splice(random: Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    other = random.choice(corpus)
    return data[: _place(random, data)] + other[_place(random, other) :]


def _drop(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(random, data)
    return data[:at] + data[at + random.randrange(1, 40) :]


def _repeat(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(random, data)
    return data[: at + random.randrange(1, 40)] + data[at:]


def _insert(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(random, data)
    return data[:at] + random.choice(ITEMS) + data[at:]


def _overwrite(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at, item = _place(random, data), random.choice(ITEMS)
    return data[:at] + item + data[at + len(item) :]


def _count_more(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Say of the outermost item that it holds more or less than it does."""
    change = random.choice((-2, -1, 1, 2))
    return bytes(byte & 0xE0 | (byte + change) & 0x1F for byte in data[:1]) + data[1:]


MUTATIONS: Final[tuple[Mutation, ...]] = (
    flip_bit,
    _set_byte,
    _cut,
    _extend,
    _splice,
    _drop,
    _repeat,
    _insert,
    _overwrite,
    _count_more,
)


def mutate(random: Random, corpus: Sequence[bytes]) -> bytes:
    """Return one of the inputs with one to four kinds of damage; never one that is as it was."""
    data = random.choice(corpus)
    while data in corpus:
        for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
            data = random.choice(MUTATIONS)(random, data, corpus)[:_MAX_BYTES]
    return data
