"""Rows of a summary tree: their keys, what is in them, and where they may be kept.

row     key                                  value
m       -                                    how far the tree has come
l       epoch                                a label: its name, last number and root
c       epoch, chunk                         256 records: their outcomes and roots, counts before them
r       number of the report                 a report
h       name                                 a key at the end: summary, epoch, open nodes
n       name, epoch, first chunk, 63 - level a key over 2^level chunks
e       name, 2^64 - 1 - epoch               a key at the end of an epoch that is not its last

A name is the number of a table and a hash of a key: the rows of a table, and of a key, are side by side.
Numbers are big-endian: rows are in the order of the log. Of nodes that start together the largest is first.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol

from veen.core import cbor
from veen.core.cbor import Value
from veen.core.errors import CborError, VeenError
from veen.core.hashing import U64_MAX
from veen.overlays.events import Outcome, Report
from veen.overlays.monoids import Monoid, frozen
from veen.overlays.overlay import Key

#: Goes up when rows change; trees of another format are made anew.
FORMAT: Final = 1
#: Numbers of a label that make up a chunk (OVR-005).
CHUNK: Final = 256
NAME_BYTES: Final = 16
ROOT_BYTES: Final = 32

META: Final = b"m"
LABEL, CHUNKS, REPORT, HEAD, NODE, PAST = b"l", b"c", b"r", b"h", b"n", b"e"
_TOP: Final = 63
_LEVELS: Final = tuple(bytes((_TOP - level,)) for level in range(_TOP + 1))


class DamagedTreeError(VeenError):
    """Rows that are not what was written: nothing of the tree is to be believed."""


class Rows(Protocol):
    """Where rows are kept, in the order of their keys."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a row."""

    def put(self, key: bytes, value: bytes) -> None:
        """Write a row."""

    def seek(self, key: bytes) -> bytes | None:
        """Return the key of the first row at a key or behind it."""

    def name(self, data: bytes) -> bytes:
        """Return 16 bytes that stand for a key of a table."""


class MemoryRows:
    """Rows in memory, over others that are not changed."""

    def __init__(self, below: Rows | None = None) -> None:
        self._below = below
        self.values: dict[bytes, bytes] = {}
        self._order: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a row."""
        found = self.values.get(key)
        return self._below.get(key) if found is None and self._below is not None else found

    def put(self, key: bytes, value: bytes) -> None:
        """Write a row."""
        self.values[key] = value

    def seek(self, key: bytes) -> bytes | None:
        """Return the key of the first row at a key or behind it."""
        if len(self._order) != len(self.values):  # rows are never removed
            self._order = sorted(self.values)
        place = bisect_left(self._order, key)
        mine = self._order[place] if place < len(self._order) else None
        other = None if self._below is None else self._below.seek(key)
        return other if mine is None or (other is not None and other < mine) else mine

    def name(self, data: bytes) -> bytes:
        """Return 16 bytes that stand for a key of a table."""
        if self._below is not None:
            return self._below.name(data)
        return blake2b(data, digest_size=NAME_BYTES).digest()


def scan(rows: Rows, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows with a prefix, in order, from a key on."""
    found = rows.seek(start or prefix)
    while found is not None and found.startswith(prefix):
        yield found, there(rows.get(found))
        found = rows.seek(found + b"\x00")


def there(data: bytes | None) -> bytes:
    """Return the value of a row that has to be there."""
    if data is None:
        raise DamagedTreeError("a row of summaries is missing")
    return data


def number(value: int) -> bytes:
    """Return a number as it stands in keys."""
    return value.to_bytes(8, "big")


def name_of(rows: Rows, table: int, key: Key) -> bytes:
    """Return the name of a key of a table."""
    return table.to_bytes(2, "big") + rows.name(cbor.encode([table, key]))


def node_key(name: bytes, epoch: int, start: int, level: int) -> bytes:
    """Return the key of a node."""
    return NODE + name + number(epoch) + number(start) + _LEVELS[level]


def node_place(key: bytes) -> tuple[int, int, int]:
    """Return epoch, first chunk and level of a node."""
    return int.from_bytes(key[-17:-9], "big"), int.from_bytes(key[-9:-1], "big"), _TOP - key[-1]


def past_key(name: bytes, epoch: int) -> bytes:
    """Return the key of a past epoch; the next row is that of an epoch before it."""
    return PAST + name + number(U64_MAX - epoch)


def chunk_key(epoch: int, chunk: int) -> bytes:
    """Return the key of a chunk."""
    return CHUNKS + number(epoch) + number(chunk)


def decoded(data: bytes) -> Any:
    """Decode a value of ours."""
    try:
        return cbor.decode(data)
    except CborError:
        raise DamagedTreeError("a row of summaries is damaged") from None


class Head(NamedTuple):
    """A key at the end of the tree."""

    key: Key
    summary: Any
    #: When it was touched last, and its nodes there that are not joined yet (first chunk, level).
    epoch: int
    spine: list[tuple[int, int]]

    def encode(self, kind: Monoid) -> bytes:
        """Return the value of the row."""
        return cbor.encode([self.key, kind.pack(self.summary), self.epoch, self.spine])

    @classmethod
    def decode(cls, data: bytes, kind: Monoid) -> "Head":
        """Return what the row holds."""
        key, packed, epoch, spine = decoded(data)
        return cls(frozen(key), kind.unpack(packed), epoch, [(start, level) for start, level in spine])


class Leaf(NamedTuple):
    """A key in a chunk: its summary, and its cells by the place in the chunk."""

    summary: Any
    cells: list[tuple[int, Any]]

    def encode(self, kind: Monoid) -> bytes:
        """Return the value of the row; a single cell is the summary."""
        several = [[place, kind.pack(cell)] for place, cell in self.cells] if len(self.cells) > 1 else []
        parts = cbor.encode(several) if several else b""
        summary = cbor.encode(kind.pack(self.summary))
        ends = bytes((self.cells[0][0], self.cells[-1][0]))
        return ends + len(summary).to_bytes(4, "big") + summary + parts

    @classmethod
    def decode(cls, data: bytes, kind: Monoid) -> "Leaf":
        """Return what the row holds."""
        summary = leaf_summary(data, kind)
        parts = data[6 + int.from_bytes(data[2:6], "big") :]
        if not parts:
            return cls(summary, [(data[0], summary)])
        return cls(summary, [(place, kind.unpack(cell)) for place, cell in decoded(parts)])


def leaf_summary(data: bytes, kind: Monoid) -> Any:
    """Return the summary of a leaf, without its cells."""
    return kind.unpack(decoded(data[6 : 6 + int.from_bytes(data[2:6], "big")]))


def leaf_part(data: bytes, kind: Monoid, first: int, last: int) -> list[Any]:
    """Return what a leaf has between two places of the chunk, in order."""
    if first <= data[0] and data[1] <= last:
        return [leaf_summary(data, kind)]
    return [cell for place, cell in Leaf.decode(data, kind).cells if first <= place <= last]


def node_summary(data: bytes, level: int, kind: Monoid) -> Any:
    """Return the summary of a node."""
    return leaf_summary(data, kind) if level == 0 else kind.unpack(decoded(data))


class LabelRow(NamedTuple):
    """How far a label was folded."""

    epoch: int
    label: bytes
    upto_seq: int
    mmr_root: bytes

    def encode(self) -> bytes:
        """Return the value of the row."""
        return cbor.encode([self.label, self.upto_seq, self.mmr_root])

    @classmethod
    def decode(cls, key: bytes, data: bytes) -> "LabelRow":
        """Return what the row holds."""
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
    """The records of a chunk: the tally before them, their outcomes and the roots behind them."""

    def __init__(self, before: Tally, outcomes: bytes = b"", roots: bytes = b"") -> None:
        self.before = before
        self.outcomes = bytearray(outcomes)
        self.roots = bytearray(roots)

    def encode(self) -> bytes:
        """Return the value of the row."""
        return cbor.encode([self.before.pack(), bytes(self.outcomes), bytes(self.roots)])

    @classmethod
    def decode(cls, data: bytes) -> "Chunk":
        """Return what the row holds."""
        before, outcomes, roots = decoded(data)
        return cls(Tally.unpack(before), outcomes, roots)

    def counts(self, first: int, last: int) -> dict[Outcome, int]:
        """Return the outcomes between two places."""
        part = self.outcomes[first : last + 1]
        return {outcome: part.count(nth) for nth, outcome in enumerate(OUTCOMES)}

    def root(self, place: int) -> bytes:
        """Return the root behind a record."""
        return bytes(self.roots[place * ROOT_BYTES : (place + 1) * ROOT_BYTES])


def encode_report(report: Report) -> bytes:
    """Return the value of a report's row."""
    return cbor.encode(list(report))


def decode_report(data: bytes) -> Report:
    """Return the report of a row."""
    return Report(*decoded(data))
