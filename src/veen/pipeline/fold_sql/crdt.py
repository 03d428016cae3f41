"""Registers, counters and sets in SQL: an aggregate per key, for rows in any order."""

from collections import Counter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls them

from veen.core.types import StreamId
from veen.overlays.builtin.crdt import COUNTER, LWW, ORSET, OrSet
from veen.overlays.engine import fold
from veen.overlays.event import Report
from veen.overlays.overlay import Overlay
from veen.pipeline.fold.sql_form import Folded
from veen.pipeline.fold_sql.events import GOOD, POSITION, fold_result, lists, positions, record_at, refusals
from veen.pipeline.open.typed_columns import EventTable, ints_of

LWW_EVENTS: Final = EventTable((LWW,), ("key", "ts", "value"))
COUNTER_EVENTS: Final = EventTable((COUNTER,), ("shard", "delta"))
ORSET_EVENTS: Final = EventTable((ORSET,), ("id", "elem", "tomb"))


def fold_registers(events: DataFrame, _overlay: Overlay, _stream_id: StreamId) -> Folded:
    """Fold registers: the greatest time and position of each key, with its value."""
    best = F.expr("max(struct(ts, epoch, stream_seq, msg_id, value)) as best")
    sums = events.filter(GOOD).groupBy("key").agg(best, F.expr("count(*) as count"))
    rows = sums.select("key", "best.*", "count").toArrow()
    keys, values = lists(rows, "key", "value")
    orders = zip(ints_of(rows.column("ts")), *lists(rows, *POSITION), strict=True)
    registers = dict(zip(keys, zip(orders, values, strict=True), strict=True))
    return fold_result({"registers": registers}, _total(rows), refusals(events), [])


def fold_counters(events: DataFrame, _overlay: Overlay, _stream_id: StreamId) -> Folded:
    """Fold counters: the sum of each shard."""
    total = F.expr("sum(cast(delta as decimal(28,0))) as total")
    rows = events.filter(GOOD).groupBy("shard").agg(total, F.expr("count(*) as count")).toArrow()
    (shards,) = lists(rows, "shard")
    table = dict(zip(shards, ints_of(rows.column("total")), strict=True))
    return fold_result({"shards": table}, _total(rows), refusals(events), [])


def _total(found: pa.Table) -> int:
    return sum(found.column("count").to_pylist())


# --- sets ---------------------------------------------------------------------------------------------------


def fold_sets(events: DataFrame, overlay: Overlay, stream_id: StreamId) -> Folded:
    """Fold a set: the first addition and the first tomb of each id; the earlier of the two decides."""
    valid = events.filter(GOOD)
    ids = _ids(valid).toArrow()
    # The driver has all of them in memory anyway: they are the state.
    places = [pc.fill_null(ids.column(name), 0).to_numpy() for name in ("stream_seq", "epoch")]
    ids = ids.take(pa.array(np.lexsort(places)))
    tables: dict[str, dict[Any, Any]] = {name: {} for name in overlay.tables}
    _enter(ids, tables)
    reused = [one for one, differs in zip(*lists(ids, "id", "differs"), strict=True) if differs]
    reports = _reused(valid, reused, stream_id) if reused else []
    return fold_result(tables, valid.count(), refusals(events), reports)


def _ids(events: DataFrame) -> DataFrame:
    """Return a row for each id: its first addition and tomb, and whether it has several elements."""
    place = F.struct(*POSITION)
    added = (
        events.filter("id is not null")
        .groupBy("id")
        .agg(
            F.min(F.struct(*POSITION, "elem")).alias("first"),
            (F.min("elem") != F.max("elem")).alias("differs"),
        )
    )
    removed = (
        events.filter("tomb is not null")
        .select(*POSITION, F.explode("tomb").alias("id"))
        .groupBy("id")
        .agg(F.min(place).alias("tomb"))
    )
    return added.join(removed, "id", "full_outer").select(
        "id", "differs", "first.*", *(F.col(f"tomb.{name}").alias(f"tomb_{name}") for name in POSITION)
    )


def _enter(ids: pa.Table, tables: dict[str, dict[Any, Any]]) -> None:
    """Enter ids, ordered by the position of their addition."""
    members, tombs, removed = tables["members"], tables["tombs"], Counter[bytes]()
    sizes = Counter[bytes]()
    tomb_places = zip(*lists(ids, *(f"tomb_{name}" for name in POSITION)), strict=True)
    rows = zip(*lists(ids, "id", "elem"), positions(ids), tomb_places, strict=True)
    for one, elem, place, tomb in rows:
        is_removed = tomb[0] is not None
        if is_removed:
            tombs[one] = (tomb,)
        if elem is None or (is_removed and tomb < place):
            continue
        members[elem, sizes[elem]] = (place, one)
        sizes[elem] += 1
        if is_removed:
            removed[elem] += 1
    tables["removed"] = dict(removed)
    tables["members.count"] = {elem: (count, 0, count - 1) for elem, count in sizes.items()}


def _reused(events: DataFrame, ids: list[bytes], stream_id: StreamId) -> list[Report]:
    """Return reports on additions whose id belongs to another element."""
    spark = events.sparkSession
    id_rows = spark.createDataFrame(pa.table({"id": pa.array(ids, pa.binary())}))
    rows = events.join(F.broadcast(id_rows), "id", "left_semi").select("id", "elem", *POSITION).toArrow()
    additions = sorted(zip(positions(rows), *lists(rows, "id", "elem"), strict=True))
    first: dict[bytes, bytes] = {}
    code, text = _said_of_reuse(stream_id)
    return [
        Report(place[0], place[1], place[2], code, text)
        for place, one, elem in additions
        if first.setdefault(one, elem) != elem
    ]


def _said_of_reuse(stream_id: StreamId) -> tuple[str, str]:
    """Return the overlay's report on an id in use."""
    bodies = [ORSET.encode(ORSET.make(id=bytes(32), elem=elem)) for elem in (b"a", b"b")]
    log = [
        record_at((0, seq, b""))._replace(schema=ORSET.schema_id, body=body)
        for seq, body in enumerate(bodies, 1)
    ]
    (report,) = fold(OrSet(), log, stream_id).reports
    return report.code, report.detail
