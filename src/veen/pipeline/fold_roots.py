"""The roots that the records of a stream make up: what was folded is what they stand for, and no more."""

from collections.abc import Iterator
from itertools import chain, groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from veen.core import cbor
from veen.core.mmr import Peaks, join, subtrees
from veen.core.types import NodeHash
from veen.pipeline.fold_survey import IncompleteError

#: Leaves of a run: a whole tree, so that the driver gets one hash for so many.
_RUN: Final = 1 << 14
_TREES: Final = pa.schema(
    [pa.field("epoch", pa.int64()), pa.field("first", pa.int64()), pa.field("trees", pa.binary())]
)


def roots_of(records: DataFrame, partitions: int = 0) -> dict[int, bytes]:
    """Return the root of each epoch's label after its last record; they are all from its first on."""
    tasks = partitions or records.sparkSession.sparkContext.defaultParallelism
    run = sf.expr(f"(stream_seq - 1) div {_RUN}")
    apart = records.select("epoch", "stream_seq", "msg_id").repartition(tasks, "epoch", run)
    ordered = apart.sortWithinPartitions("epoch", "stream_seq")
    rows = ordered.mapInArrow(_trees, "epoch bigint, first bigint, trees binary").toArrow().to_pylist()
    rows.sort(key=lambda row: (row["epoch"], row["first"]))
    return {epoch: _root(list(group)) for epoch, group in groupby(rows, key=lambda row: row["epoch"])}


def _trees(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the trees over runs of records that follow each other."""
    columns = ((item.to_pylist() for item in batch.columns) for batch in given)
    leaves = chain.from_iterable(zip(*each, strict=True) for each in columns)
    for (epoch, _), group in groupby(leaves, key=lambda row: (row[0], (row[1] - 1) // _RUN)):
        run = list(group)
        first = run[0][1]
        if [row[1] for row in run] != list(range(first, first + len(run))):
            raise IncompleteError(f"entries of epoch {epoch} behind {first} are missing, or there twice")
        found = cbor.encode([list(tree) for tree in subtrees(first, (row[2] for row in run))])
        yield pa.RecordBatch.from_pylist([{"epoch": epoch, "first": first, "trees": found}], _TREES)


def _root(rows: list[dict[str, Any]]) -> bytes:
    peaks = Peaks.empty()
    for row in rows:
        if row["first"] != peaks.size + 1:
            raise IncompleteError(f"entry {peaks.size + 1} of epoch {row['epoch']} is missing")
        trees: Any = cbor.decode(row["trees"])
        peaks = join(peaks, ((height, NodeHash(node)) for height, node in trees))
    return bytes(peaks.root)
