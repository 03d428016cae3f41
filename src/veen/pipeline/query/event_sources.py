"""Events of a lake as Spark tables: those that scope and filter select, in the needed columns.

Files come from the commit. Spark skips row groups that minimum and maximum values or Bloom filters rule out
(QRY-059).
"""

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from veen.overlays.recorder.schemas import EVENT
from veen.pipeline.lake import layout, tables
from veen.pipeline.lake.commits import FileFact, State
from veen.pipeline.lake.layout import spark_paths
from veen.pipeline.query.columns import EVENTS, ORDER, Copies, read_names
from veen.pipeline.query.scope import COPIES_TABLE, Scope
from veen.query.descriptor import Filter
from veen.query.timestamps import LAST_TIME

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

EVENTS_TABLE: Final = layout.schema_table(EVENT.name)
# No log that can be ingested has larger numbers.
_MOST: Final = (1 << 63) - 1
# The source columns of events, in both tables, where names differ.
_PLACE: Final = {"at": "stream_seq", "taken_at": "hub_ts", "own_receipt_id": "receipt_id"}
NATIVE: Final = {**_PLACE, "seq": "stream_seq"}
COPIED: Final = {**_PLACE, "stream": "origin_stream", "epoch": "origin_epoch", "seq": "origin_stream_seq"}


class Sources:
    """The tables of one query."""

    def __init__(self, root: Path, state: State, scope: Scope, where: Filter) -> None:
        self.root = root
        self.scope = scope
        self.filter = where
        # The labels in scope under their own name: of others only copies count.
        self.names = {
            fact.label: stream.name
            for stream in scope.streams
            if not stream.is_copied
            for fact in stream.labels
            if fact.label not in scope.by_origin
        }
        self.natives = [fact for fact in scope.files(state, EVENTS_TABLE) if fact.label in self.names]
        copied = {fact.label for stream in scope.streams if stream.takes_copies for fact in stream.labels}
        self.copies = [fact for fact in scope.files(state, COPIES_TABLE) if fact.label in copied]

    @property
    def files(self) -> list[FileFact]:
        """All files that may be read."""
        return [*self.natives, *self.copies]

    def events(self, spark: "SparkSession", columns: Sequence[str]) -> "DataFrame":
        """Return the selected events, each once, unordered."""
        found = []
        if self.natives:
            found.append(self._natives(spark, columns))
        if self.copies:
            found.append(self._copies(spark, columns))
        assert found, "where there is no file there is nothing for Spark to do"
        return reduce(lambda one, other: one.unionAll(other), found)

    def _read(self, spark: "SparkSession", table: str, files: Sequence[FileFact]) -> "DataFrame":
        columns = from_arrow_schema(tables.columns_by_table()[table])
        paths = spark_paths(self.root, (fact.path for fact in files))
        rows = spark.read.schema(columns).parquet(*paths)
        for condition in (*self._conditions(), *self._ends(files)):
            rows = rows.where(condition)
        return rows

    def _conditions(self) -> list["Column"]:
        where, conditions = self.filter, []
        if where.subject_id is not None:
            conditions.append(sf.col("subject_id") == sf.lit(where.subject_id))
        if where.event_type is not None:
            conditions.append(sf.col("event_type").isin(*where.event_type))
        if where.time_from is not None:
            conditions.append(sf.col("event_time") >= _number(where.time_from))
        if where.time_to is not None:
            conditions.append(sf.col("event_time") <= _number(where.time_to))
        return conditions

    def _ends(self, files: Sequence[FileFact]) -> list["Column"]:
        """Limit labels to the positions read, where a file contains later ones."""
        cut = sorted({fact.label for fact in files if fact.upto_seq > self.scope.last(fact.label)})
        return [
            (sf.col("label") != sf.lit(bytes.fromhex(label)))
            | (sf.col("stream_seq") <= self.scope.last(label))
            for label in cut
        ]

    def _natives(self, spark: "SparkSession", columns: Sequence[str]) -> "DataFrame":
        # The signer is the principal: a record that states another one is reported and not a row (SDR-002).
        rows = self._read(spark, EVENTS_TABLE, self.natives).where(
            sf.col("principal_id") == sf.lower(sf.hex("client_id"))
        )
        return rows.select(*(self._native(name) for name in columns))

    def _native(self, name: str) -> "Column":
        kind = from_arrow_schema(EVENTS)[name].dataType
        if name == "stream":
            names = [
                item
                for stream in self.scope.streams
                if not stream.is_copied
                for item in (sf.lit(stream.labels[0].stream), sf.lit(stream.name))
            ]
            return sf.element_at(sf.create_map(*names), sf.col("stream_id")).alias(name)
        if name in ("origin_receipt", "origin_hub_id"):
            return sf.lit(None).cast(kind).alias(name)
        column = sf.col(NATIVE.get(name, name)).cast(kind)
        if name == "hub_ts":
            column = sf.least(column, sf.lit(LAST_TIME + 1))  # as for copies
        return column.alias(name)

    def _copies(self, spark: "SparkSession", columns: Sequence[str]) -> "DataFrame":
        """Return copies as their originals; an event copied twice is one event."""
        rows = self._read(spark, COPIES_TABLE, self.copies).where(
            (sf.col("origin_epoch") <= _number(_MOST)) & (sf.col("origin_stream_seq") <= _number(_MOST))
        )
        result_names, read = read_names(columns)
        selected = rows.select(*(_copied(name) for name in read))
        copies = self.taken()
        schema = from_arrow_schema(pa.schema([EVENTS.field(name) for name in result_names]))
        events = selected.mapInArrow(lambda batches: copies.events(batches, result_names), schema)
        same = Window.partitionBy(*ORDER).orderBy("label", "at")
        once = events.withColumn("nth", sf.row_number().over(same)).where(sf.col("nth") == 1)
        return once.select(*columns)

    def taken(self) -> Copies:
        """Return which copies count."""
        named: dict[bytes, frozenset[str] | None] = {}
        for stream in sorted(self.scope.streams, key=lambda stream: not stream.is_copied):
            for fact in stream.labels:
                label = bytes.fromhex(fact.label)
                others = named.get(label) or frozenset()
                named[label] = others | {stream.name} if stream.is_copied else None
        return Copies(named, self.scope.by_origin, self.scope.origins or {})


def _copied(name: str) -> "Column":
    kind = from_arrow_schema(EVENTS)[name].dataType
    return sf.col(COPIED.get(name, name)).cast(kind).alias(name)


def _number(value: int) -> "Column":
    return sf.lit(value).cast("decimal(20,0)")
