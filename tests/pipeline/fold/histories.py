"""Histories of overlays as tables of records, in any order; and what one process makes of them."""

from collections.abc import Iterable
from itertools import pairwise
from random import Random

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tests.overlays.histories import BRIDGE, HISTORIES, PARAMETERS
from tests.overlays.histories_wallet import OWN_STREAM
from tests.pipeline.record_batches import batch_of
from veen.core.types import StreamId
from veen.overlays import registry
from veen.overlays.engine import Fold, Summary, annotate
from veen.overlays.event import Record
from veen.overlays.overlay import Overlay
from veen.overlays.summary_tree.reader import Place
from veen.pipeline.fold.inputs import RECORDS_SCHEMA
from veen.pipeline.fold.sql_form import Folded

BRIDGES = frozenset({BRIDGE})
NONE: frozenset[bytes] = frozenset()


def made(name: str) -> Overlay:
    """Return an overlay, configured as its history needs it."""
    return registry.overlay_class(name)(**PARAMETERS.get(name, {}))


def history(name: str, count: int = 120, seed: int = 5, *, copies: bool = True) -> list[Record]:
    """Return a history of an overlay in three epochs; without copies, if these are not wanted."""
    found = HISTORIES[name](Random(seed), count)
    if not copies:
        found = [item._replace(parent_id=None) for item in found]
    cuts = [0, count // 3, count // 3 + 1, count]
    return [
        record._replace(epoch=10 + nth * nth, stream_seq=seq)
        for nth, (first, last) in enumerate(pairwise(cuts))
        for seq, record in enumerate(found[first:last], 1)
    ]


def batch(records: Iterable[Record]) -> pa.RecordBatch:
    """Return records as rows."""
    return batch_of({**record._asdict(), "label": bytes(32), "receipt_id": bytes(32)} for record in records)


def frame(spark: SparkSession, records: Iterable[Record], parts: int = 2, seed: int = 1) -> DataFrame:
    """Return records as a table in so many parts, in no order at all."""
    rows = list(records)
    Random(seed).shuffle(rows)
    table = pa.Table.from_batches([batch(rows)])
    return spark.createDataFrame(table, schema=RECORDS_SCHEMA).repartition(parts)


def expected(
    overlay: Overlay,
    records: Iterable[Record],
    bridges: frozenset[bytes] = NONE,
    *,
    since: Place | None = None,
    upto: Place | None = None,
    stream_id: StreamId = OWN_STREAM,
) -> Summary:
    """Return what one process makes of records."""
    folding = Fold(overlay)
    summary, runs = folding.empty(), folding.empty()
    for item in annotate(overlay, records, stream_id, bridges):
        place = (item.epoch, item.stream_seq)
        if upto is not None and place > upto:
            break
        folding.step(runs, item)
        if since is None or place >= since:
            if since is not None and not summary.runs:
                summary.runs = [(item.epoch, item.stream_seq, item.stream_seq - 1)]
            folding.step(summary, item)
    summary.runs = runs.runs
    return summary


def same(overlay: Overlay, found: Folded, wanted: Summary) -> None:
    """Check that a fold has come to the same bytes."""
    folding = Fold(overlay)
    summary = Summary(found.runs, found.counts, found.tables, found.reports)
    assert folding.encode(summary) == folding.encode(wanted)
    assert folding.view(summary, 0) == folding.view(wanted, 0)
