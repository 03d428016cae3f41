"""Rows of a summary tree: their keys, their contents, and the interface of their storage.

row     key                                  value
m       -                                    the end of the tree
l       epoch                                a label: its name, last number and root
c       epoch, chunk                         256 records: their outcomes and roots, counts before them
r       number of the report                 a report
h       name                                 a key at the end: summary, epoch, open nodes
n       name, epoch, first chunk, 63 - level a key over 2^level chunks
e       name, 2^64 - 1 - epoch               a key at the end of an epoch that is not its last

A name is the number of a table and a hash of a key: the rows of a table, and of a key, are adjacent.
Numbers are big-endian, so rows are in log order. Of nodes with the same start the largest is first.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol

from veen.core.crypto.hash import U64_MAX
from veen.core.encoding import cbor
from veen.core.encoding.cbor import Value
from veen.core.errors import CborError
from veen.overlays.errors import DamagedTreeError
from veen.overlays.event import Outcome, Report
from veen.overlays.monoid import Monoid, encode, frozen
from veen.overlays.overlay import Key

# Raise it when rows change; trees of another format are rebuilt.
FORMAT: Final = 1
# Numbers of a label in one chunk (OVR-005).
CHUNK: Final = 256
NAME_BYTES: Final = 16
ROOT_BYTES: Final = 32

META: Final = b"m"
LABEL, CHUNKS, REPORT, HEAD, NODE, PAST = b"l", b"c", b"r", b"h", b"n", b"e"
# Above the level of any node.
TOP: Final = 63
_LEVELS: Final = tuple(bytes((TOP - level,)) for level in range(TOP + 1))


class Rows(Protocol):
    """Storage of rows, in the order of their keys."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a row."""

    def put(self, key: bytes, value: bytes) -> None:
        """Write a row."""

    def seek(self, key: bytes) -> bytes | None:
        """Return the key of the first row at or after a key."""

    def seek_back(self, key: bytes) -> bytes | None:
        """Return the key of the last row at or before a key."""

    def name(self, data: bytes) -> bytes:
        """Return 16 bytes that stand for a key of a table."""


class MemoryRows:
    """Rows in memory, over other rows that are not changed."""

    def __init__(self, below: Rows | None = None, name: Callable[[bytes], bytes] | None = None) -> None:
        """``name`` computes names as the underlying rows do."""
        self._below = below
        self.name = name or (_name if below is None else below.name)
        self.values: dict[bytes, bytes] = {}
        self._order: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a row."""
        value = self.values.get(key)
        return self._below.get(key) if value is None and self._below is not None else value

    def put(self, key: bytes, value: bytes) -> None:
        """Write a row."""
        self.values[key] = value

    def seek(self, key: bytes) -> bytes | None:
        """Return the key of the first row at or after a key."""
        order = self._sorted()
        place = bisect_left(order, key)
        mine = order[place] if place < len(order) else None
        other = None if self._below is None else self._below.seek(key)
        return other if mine is None or (other is not None and other < mine) else mine

    def seek_back(self, key: bytes) -> bytes | None:
        """Return the key of the last row at or before a key."""
        order = self._sorted()
        place = bisect_right(order, key)
        mine = order[place - 1] if place else None
        other = None if self._below is None else self._below.seek_back(key)
        return other if mine is None or (other is not None and other > mine) else mine

    def _sorted(self) -> list[bytes]:
        if len(self._order) != len(self.values):  # rows are never removed
            self._order = sorted(self.values)
        return self._order


def _name(data: bytes) -> bytes:
    return blake2b(data, digest_size=NAME_BYTES).digest()


def scan(rows: Rows, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows with a prefix, in order, from a key on."""
    key = rows.seek(start or prefix)
    while key is not None and key.startswith(prefix):
        yield key, there(rows.get(key))
        key = rows.seek(key + b"\x00")


def there(data: bytes | None) -> bytes:
    """Return the value of a row that has to exist."""
    if data is None:
        raise DamagedTreeError("a row of the stored summaries is missing")
    return data


def number(value: int) -> bytes:
    """Return a number as it is encoded in keys."""
    return value.to_bytes(8, "big")


def name_of(rows: Rows, table: int, key: Key) -> bytes:
    """Return the name of a key of a table."""
    return table.to_bytes(2, "big") + rows.name(cbor.encode([table, key]))


def node_key(name: bytes, epoch: int, start: int, level: int) -> bytes:
    """Return the key of a node."""
    return NODE + name + number(epoch) + number(start) + _LEVELS[level]


def node_place(key: bytes) -> tuple[int, int, int]:
    """Return epoch, first chunk and level of a node."""
    return int.from_bytes(key[-17:-9], "big"), int.from_bytes(key[-9:-1], "big"), TOP - key[-1]


def past_key(name: bytes, epoch: int) -> bytes:
    """Return the row key of a past epoch; the next row is that of the epoch before it."""
    return PAST + name + number(U64_MAX - epoch)


def chunk_key(epoch: int, chunk: int) -> bytes:
    """Return the key of a chunk."""
    return CHUNKS + number(epoch) + number(chunk)


def decoded(data: bytes) -> Any:
    """Decode a value that this package wrote."""
    try:
        return cbor.decode(data, max_items=None)
    except CborError:
        raise DamagedTreeError("a row of the stored summaries is damaged") from None


class KeyHead(NamedTuple):
    """A key at the end of the tree."""

    key: Key
    summary: Any
    # Epoch of its last change, and its nodes in that epoch that are not joined yet (first chunk, level).
    epoch: int
    spine: list[tuple[int, int]]
    # Whether its summary was ever too large to be stored with every chunk.
    large: bool

    def encode(self, kind: Monoid) -> bytes:
        """Return the value of the row."""
        fields: Value = [self.key, kind.pack(self.summary), self.epoch, self.spine, self.large]
        return cbor.encode(fields, max_items=None)

    @classmethod
    def decode(cls, data: bytes, kind: Monoid) -> "KeyHead":
        """Return what a row holds."""
        key, packed, epoch, spine, large = decoded(data)
        nodes = [(start, level) for start, level in spine]
        return cls(frozen(key), kind.unpack(packed), epoch, nodes, large)


class Leaf:
    """The row of a key in a chunk, decoded as far as needed.

    First and last index in the chunk, lengths, the summary of the chunk, the summary of all before it if that
    is small, and the cells by their indexes if there are several.
    """

    _HEAD: Final = struct.Struct(">BBII")
    _UNKNOWN: Final = 2**32 - 1

    def __init__(self, data: bytes, kind: Monoid) -> None:
        self._data = data
        self._kind = kind
        self.first, self.last, self._size, before = self._HEAD.unpack_from(data)
        # Whether the row has the summary of all before the chunk.
        self.knows_before = before != self._UNKNOWN
        self._before_end = self._HEAD.size + self._size + (before if self.knows_before else 0)

    @classmethod
    def encode(
        cls, kind: Monoid, summary: Any, cells: Sequence[tuple[int, Any]], before: bytes | None
    ) -> bytes:
        """Return the value of the row; ``before`` is None if it is too large."""
        packed = encode(kind, summary)
        size = cls._UNKNOWN if before is None else len(before)
        head = cls._HEAD.pack(cells[0][0], cells[-1][0], len(packed), size)
        several = [[place, kind.pack(cell)] for place, cell in cells] if len(cells) > 1 else None
        return head + packed + (before or b"") + (cbor.encode(several) if several else b"")

    def summary(self) -> Any:
        """Return the summary of the chunk."""
        start = self._HEAD.size
        return self._kind.unpack(decoded(self._data[start : start + self._size]))

    def before_bytes(self) -> bytes | None:
        """Return the encoded summary of all before the chunk; None if it was too large."""
        return self._data[self._HEAD.size + self._size : self._before_end] if self.knows_before else None

    def before(self) -> list[Any]:
        """Return the summary of all before the chunk, if there is one and it was small."""
        data = self.before_bytes()
        return [self._kind.unpack(decoded(data))] if data else []

    def cells(self) -> list[tuple[int, Any]]:
        """Return the cells with their indexes in the chunk."""
        parts = self._data[self._before_end :]
        if not parts:
            return [(self.first, self.summary())]
        return [(place, self._kind.unpack(cell)) for place, cell in decoded(parts)]

    def part(self, first: int, last: int) -> list[Any]:
        """Return the summaries between two indexes of the chunk, in order."""
        if first <= self.first and self.last <= last:
            return [self.summary()]
        if last < self.first or self.last < first:
            return []
        return [cell for place, cell in self.cells() if first <= place <= last]


def node_summary(data: bytes, level: int, kind: Monoid) -> Any:
    """Return the summary of a node."""
    return Leaf(data, kind).summary() if level == 0 else kind.unpack(decoded(data))


class LabelRow(NamedTuple):
    """The folded part of a label."""

    epoch: int
    label: bytes
    upto_seq: int
    mmr_root: bytes

    def encode(self) -> bytes:
        """Return the value of the row."""
        return cbor.encode([self.label, self.upto_seq, self.mmr_root])

    @classmethod
    def decode(cls, key: bytes, data: bytes) -> "LabelRow":
        """Return what a row holds."""
        label, upto_seq, root = decoded(data)
        return cls(int.from_bytes(key[1:], "big"), label, upto_seq, root)


class Tally:
    """How many records had which outcome, and how many reports there were."""

    def __init__(self, counts: Mapping[Outcome, int] | None = None, reports: int = 0) -> None:
        self.counts = dict(counts or dict.fromkeys(Outcome, 0))
        self.reports = reports

    def pack(self) -> Value:
        """Return it as a row holds it."""
        return [self.counts[outcome] for outcome in Outcome] + [self.reports]

    @classmethod
    def unpack(cls, value: Any) -> "Tally":
        """Return what a row holds."""
        *counts, reports = value
        return cls(dict(zip(Outcome, counts, strict=True)), reports)


OUTCOMES: Final = tuple(Outcome)


class Chunk:
    """The records of a chunk: the tally before them, their outcomes, and the root after each."""

    def __init__(self, before: Tally, outcomes: bytes = b"", roots: bytes = b"") -> None:
        self.before = before
        self.outcomes = bytearray(outcomes)
        self.roots = bytearray(roots)

    def encode(self) -> bytes:
        """Return the value of the row."""
        return cbor.encode([self.before.pack(), bytes(self.outcomes), bytes(self.roots)])

    @classmethod
    def decode(cls, data: bytes) -> "Chunk":
        """Return what a row holds."""
        before, outcomes, roots = decoded(data)
        return cls(Tally.unpack(before), outcomes, roots)

    def counts(self, first: int, last: int) -> dict[Outcome, int]:
        """Return the number of records by outcome between two indexes."""
        part = self.outcomes[first : last + 1]
        return {outcome: part.count(nth) for nth, outcome in enumerate(OUTCOMES)}

    def root(self, place: int) -> bytes:
        """Return the root after a record."""
        return bytes(self.roots[place * ROOT_BYTES : (place + 1) * ROOT_BYTES])


def encode_report(report: Report) -> bytes:
    """Return the value of a report's row."""
    return cbor.encode(list(report))


def decode_report(data: bytes) -> Report:
    """Return the report of a row."""
    return Report(*decoded(data))
