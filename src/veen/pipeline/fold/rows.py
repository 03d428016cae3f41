"""What tasks of a fold hand over: rows of tables, counts and reports, in one form for all ways of folding.

A row of a table says from where on its summary counts, so that summaries of one key join in the order of the
log wherever the rows come from. Rows that other tasks are to join have one key each, as canonical bytes. What
goes to the driver has many, as Python writes them down itself: that costs a tenth.
"""

import pickle
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from typing import Any, Final, NamedTuple

import pyarrow as pa

from veen.core.encoding import cbor
from veen.overlays import monoid
from veen.overlays.engine import MemoryTables
from veen.overlays.event import Outcome, Report
from veen.overlays.monoid import Monoid
from veen.overlays.overlay import Key
from veen.overlays.summary_tree.reader import Place

#: Kinds of rows.
TABLE: Final = 0
COUNTS: Final = 1
REPORTS: Final = 2
#: Many keys of a table.
CHUNK: Final = 3

ROWS: Final = pa.schema(
    [
        pa.field("kind", pa.int32()),
        pa.field("name", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("epoch", pa.int64()),
        pa.field("seq", pa.int64()),
        pa.field("value", pa.binary()),
    ]
)
#: The same for Spark.
ROWS_DDL: Final = "kind int, name string, key binary, epoch bigint, seq bigint, value binary"
#: So many at once, or so much.
_BATCH_ROWS: Final = 2000
_BATCH_BYTES: Final = 4 << 20
_CHUNK_KEYS: Final = 1000


class Row(NamedTuple):
    """A row of ``ROWS``."""

    kind: int
    name: str
    key: bytes
    epoch: int
    seq: int
    value: bytes


def batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches."""
    part: list[Row] = []
    size = 0
    for row in rows:
        part.append(row)
        size += len(row.key) + len(row.value)
        if len(part) == _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _batch(part)
            part, size = [], 0
    if part:
        yield _batch(part)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, ROWS.types, strict=True)], schema=ROWS
    )


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """Yield the rows of a batch."""
    return map(Row._make, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def table_rows(memory: MemoryTables, names: Iterable[str], start: Place) -> Iterator[Row]:
    """Yield some tables; their summaries are of records from a place on."""
    for name in names:
        kind = memory.kinds[name]
        for key, value in memory.tables[name].items():
            yield Row(TABLE, name, cbor.encode(key, most=None), *start, monoid.encode(kind, value))


def chunk_rows(name: str, pairs: Iterable[tuple[Key, Any]], start: Place) -> Iterator[Row]:
    """Yield keys of a table with their summaries, many in a row."""
    left = iter(pairs)
    while part := list(islice(left, _CHUNK_KEYS)):
        yield Row(CHUNK, name, b"", *start, pickle.dumps(part, pickle.HIGHEST_PROTOCOL))


def pairs_of(row: Row) -> list[tuple[Key, Any]]:
    """Return what a row of many keys says; a task of our own has written it."""
    found: list[tuple[Key, Any]] = pickle.loads(row.value)  # noqa: S301
    return found


def chunked(rows: Iterable[Row], kinds: Mapping[str, Monoid]) -> Iterator[Row]:
    """Put keys of one table together; other rows are left as they are."""
    for (kind, name), group in groupby(rows, key=lambda row: row[:2]):
        if kind == TABLE:
            pairs = ((key_of(row), monoid.decode(kinds[name], row.value)) for row in group)
            yield from chunk_rows(name, pairs, (0, 0))
        else:
            yield from group


def counts_row(counts: Mapping[Outcome, int]) -> Row:
    """Return how many records there were of each outcome."""
    return Row(COUNTS, "", b"", 0, 0, cbor.encode([counts.get(outcome, 0) for outcome in Outcome]))


def reports_row(reports: Iterable[Report]) -> Row:
    """Return what is wrong with one event, in the order in which it was found."""
    listed = list(reports)
    place = listed[0][:2]
    return Row(REPORTS, "", b"", *place, cbor.encode([list(item[2:]) for item in listed], most=None))


def reports_of(row: Row) -> Iterator[Report]:
    """Yield what a row of reports says."""
    said: Any = cbor.decode(row.value, most=None)
    return (Report(row.epoch, row.seq, *item) for item in said)


def counts_of(row: Row) -> Iterator[tuple[Outcome, int]]:
    """Yield what a row of counts says."""
    said: Any = cbor.decode(row.value)
    return zip(Outcome, said, strict=True)


def joined(rows: Iterable[Row], kinds: Mapping[str, Monoid]) -> Iterator[Row]:
    """Join rows of one key that follow each other; others are left as they are."""
    last: Row | None = None
    summary: Any = None
    for row in rows:
        kind = kinds.get(row.name)
        if last is not None and kind is not None and row[:3] == last[:3] and row.kind == TABLE:
            if summary is None:
                summary = monoid.decode(kind, last.value)
            summary = kind.merge(summary, monoid.decode(kind, row.value))
            continue
        if last is not None:
            yield last if summary is None else _rewritten(last, summary, kinds)
        last, summary = row, None
    if last is not None:
        yield last if summary is None else _rewritten(last, summary, kinds)


def _rewritten(row: Row, summary: Any, kinds: Mapping[str, Monoid]) -> Row:  # noqa: ANN401 - of any kind
    return row._replace(value=monoid.encode(kinds[row.name], summary))


def key_of(row: Row) -> Key:
    """Return the key of a row of a table."""
    found: Key = monoid.frozen(cbor.decode(row.key, most=None))
    return found
