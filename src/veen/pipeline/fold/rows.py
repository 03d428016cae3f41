"""The output of fold tasks: rows of tables, counts and reports, in one schema for all plans.

A row of a table has the position from which its summary counts, so that summaries of one key are merged in
log order wherever the rows come from. Rows that other tasks merge have one key each, as canonical bytes. Rows
for the driver have many keys, pickled, which costs a tenth.
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

# Kinds of rows.
TABLE: Final = 0
COUNTS: Final = 1
REPORTS: Final = 2
# Many keys of a table.
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
ROWS_DDL: Final = "kind int, name string, key binary, epoch bigint, seq bigint, value binary"
# A batch ends at either limit.
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
    """Yield the named tables; their summaries start at ``start``."""
    for name in names:
        kind = memory.kinds[name]
        for key, value in memory.tables[name].items():
            yield Row(TABLE, name, cbor.encode(key, max_items=None), *start, monoid.encode(kind, value))


def chunk_rows(name: str, pairs: Iterable[tuple[Key, Any]], start: Place) -> Iterator[Row]:
    """Yield rows with many keys of a table each, and their summaries."""
    remaining = iter(pairs)
    while part := list(islice(remaining, _CHUNK_KEYS)):
        yield Row(CHUNK, name, b"", *start, pickle.dumps(part, pickle.HIGHEST_PROTOCOL))


def pairs_of(row: Row) -> list[tuple[Key, Any]]:
    """Return the pairs in a row of many keys, which one of our own tasks wrote."""
    pairs: list[tuple[Key, Any]] = pickle.loads(row.value)  # noqa: S301
    return pairs


def chunked(rows: Iterable[Row], kinds: Mapping[str, Monoid]) -> Iterator[Row]:
    """Combine rows of one table into rows of many keys; pass other rows through."""
    for (kind, name), group in groupby(rows, key=lambda row: row[:2]):
        if kind == TABLE:
            pairs = ((key_of(row), monoid.decode(kinds[name], row.value)) for row in group)
            yield from chunk_rows(name, pairs, (0, 0))
        else:
            yield from group


def counts_row(counts: Mapping[Outcome, int]) -> Row:
    """Return the number of records of each outcome as a row."""
    return Row(COUNTS, "", b"", 0, 0, cbor.encode([counts.get(outcome, 0) for outcome in Outcome]))


def reports_row(reports: Iterable[Report]) -> Row:
    """Return the reports on one event as a row, in their order."""
    listed = list(reports)
    place = listed[0][:2]
    return Row(REPORTS, "", b"", *place, cbor.encode([list(item[2:]) for item in listed], max_items=None))


def reports_of(row: Row) -> Iterator[Report]:
    """Return the reports in a row."""
    decoded: Any = cbor.decode(row.value, max_items=None)
    return (Report(row.epoch, row.seq, *item) for item in decoded)


def counts_of(row: Row) -> Iterator[tuple[Outcome, int]]:
    """Return the counts in a row."""
    decoded: Any = cbor.decode(row.value)
    return zip(Outcome, decoded, strict=True)


def joined(rows: Iterable[Row], kinds: Mapping[str, Monoid]) -> Iterator[Row]:
    """Merge consecutive rows of one key; pass others through."""
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
    """Return the key in a row of a table."""
    key: Key = monoid.frozen(cbor.decode(row.key, max_items=None))
    return key
