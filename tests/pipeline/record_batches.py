"""Batches of records, from rows that name only what matters."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from veen.pipeline.open.records import RECORDS


def batch_of(rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    """Return rows as a batch; what a row does not name is null."""
    listed = list(rows)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row.get(name) for row in listed], kind)
            for name, kind in zip(RECORDS.names, RECORDS.types, strict=True)
        ],
        schema=RECORDS,
    )
