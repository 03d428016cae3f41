"""The columns of the table of decrypted entries, from which all other tables are derived.

Numbers assigned by the hub are ``bigint``; those written by senders are ``decimal(20,0)``, which holds every
unsigned 64-bit number.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from veen.overlays.event import Record

U64: Final = pa.decimal128(20, 0)


def _column(name: str, kind: pa.DataType, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable)


# One row for each entry. ``schema`` is null if it could not be opened; ``reason`` says why.
RECORDS: Final = pa.schema(
    [
        _column("stream_id", pa.binary(), nullable=True),
        _column("epoch", pa.int64()),
        _column("label", pa.binary()),
        _column("stream_seq", pa.int64()),
        _column("msg_id", pa.binary()),
        _column("client_id", pa.binary()),
        _column("client_seq", pa.int64()),
        _column("hub_ts", pa.int64()),
        # The hash of the receipt as the hub encoded it (QRY-028).
        _column("receipt_id", pa.binary()),
        _column("auth_ref", pa.binary(), nullable=True),
        _column("schema", pa.binary(), nullable=True),
        _column("parent_id", pa.binary(), nullable=True),
        _column("cap_ref", pa.binary(), nullable=True),
        _column("att_root", pa.binary(), nullable=True),
        _column("expires_at", U64, nullable=True),
        _column("body", pa.binary()),
        _column("reason", pa.string(), nullable=True),
    ]
)


def records_of(batch: pa.RecordBatch) -> Iterator[Record]:
    """Yield the fields of rows that folds read (C-105)."""
    columns: list[list[Any]] = [batch.column(name).to_pylist() for name in Record._fields]
    columns[-1] = [None if value is None else int(value) for value in columns[-1]]
    return map(Record._make, zip(*columns, strict=True))
