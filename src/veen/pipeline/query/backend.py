"""Execution backends of a query: Spark tasks, or this process for small queries; the bytes are the same."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from veen.pipeline.lake.layout import spark_paths
from veen.pipeline.query import local_backend
from veen.pipeline.query.event_sources import Sources
from veen.pipeline.query.result_rows import PARTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Transforms batches, independent of how rows are divided into batches.
Mapped = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
# What tasks report about the files that they wrote.
PartTuples = Iterable[tuple[str, int, bytes, bytes]]
T = TypeVar("T")
R = TypeVar("R")

# Tasks for each core where rows are divided by label: enough to even out skew.
_TASKS_EACH: Final = 16
_BATCH_ROWS: Final = 1 << 12


class Backend(Protocol[T]):
    """Tables and the operations on them."""

    def events(self, sources: Sources, columns: Sequence[str]) -> T:
        """Return the selected events, unordered."""

    def read(self, paths: Sequence[Path], schema: pa.Schema) -> T:
        """Return the rows of files."""

    def mapped(self, table: T, make: Mapped, schema: pa.Schema) -> T:
        """Return a table transformed batch by batch."""

    def with_copies(self, table: T, names: Mapping[str, str]) -> T:
        """Return a table with columns duplicated under other names."""

    def group_by(self, table: T, keys: Sequence[str]) -> T:
        """Return groups: their keys, ``count``, and ``earliest`` and ``latest`` of ``event_time``."""

    def collect(self, table: T, most: int) -> pa.Table | None:
        """Return all rows as a table in memory; None if there are more than ``most``."""

    def having(self, table: T, chosen: T, name: str) -> T:
        """Return the rows whose value in a column is among those of another table (a semi-join)."""

    def written(self, table: T, order: Sequence[str], write: Mapped) -> PartTuples:
        """Write rows in their order; return what tasks report about the files."""

    def by_label(self, table: T, size: int, make: Mapped, schema: pa.Schema) -> list[tuple[Any, ...]]:
        """Transform rows grouped by label and ordered, with ranges of ``size`` positions kept together."""

    def touched(self, table: T, size: int) -> list[tuple[str, int]]:
        """Return which ranges of ``size`` positions contain rows, by label."""

    def each(self, groups: Sequence[Sequence[Any]], do: Callable[[Any], Iterable[R]]) -> list[R]:
        """Return the results of ``do`` for all groups."""


class SparkBackend:
    """Runs the operations in Spark tasks."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    def events(self, sources: Sources, columns: Sequence[str]) -> "DataFrame":
        return sources.events(self._spark, columns)

    def read(self, paths: Sequence[Path], schema: pa.Schema) -> "DataFrame":
        files = spark_paths(paths[0].parent, (path.name for path in paths))
        return self._spark.read.schema(from_arrow_schema(schema)).parquet(*files)

    def mapped(self, table: "DataFrame", make: Mapped, schema: pa.Schema) -> "DataFrame":
        return table.mapInArrow(make, from_arrow_schema(schema))

    def with_copies(self, table: "DataFrame", names: Mapping[str, str]) -> "DataFrame":
        return table.select("*", *(sf.col(name).alias(other) for other, name in names.items()))

    def group_by(self, table: "DataFrame", keys: Sequence[str]) -> "DataFrame":
        return table.groupBy(*keys).agg(
            sf.count("*").alias("count"),
            sf.min("event_time").alias("earliest"),
            sf.max("event_time").alias("latest"),
        )

    def collect(self, table: "DataFrame", most: int) -> pa.Table | None:
        rows = table.limit(most + 1).toArrow()
        return rows if len(rows) <= most else None

    def having(self, table: "DataFrame", chosen: "DataFrame", name: str) -> "DataFrame":
        return table.join(chosen, name, "left_semi")

    def written(self, table: "DataFrame", order: Sequence[str], write: Mapped) -> PartTuples:
        return table.orderBy(*order).mapInArrow(write, from_arrow_schema(PARTS)).collect()

    def by_label(
        self, table: "DataFrame", size: int, make: Mapped, schema: pa.Schema
    ) -> list[tuple[Any, ...]]:
        tasks = _TASKS_EACH * self._spark.sparkContext.defaultParallelism
        spread = table.repartition(tasks, "label", sf.floor((sf.col("at") - 1) / size))
        placed = spread.sortWithinPartitions("label", "at")
        return list(placed.mapInArrow(make, from_arrow_schema(schema)).collect())

    def touched(self, table: "DataFrame", size: int) -> list[tuple[str, int]]:
        portion = sf.floor((sf.col("at") - 1) / size)
        portions = table.select("label", portion.alias("portion")).distinct().collect()
        return sorted((bytes(label).hex(), nth) for label, nth in portions)

    def each(self, groups: Sequence[Sequence[Any]], do: Callable[[Any], Iterable[R]]) -> list[R]:
        return self._spark.sparkContext.parallelize(groups, len(groups)).flatMap(do).collect()


class LocalBackend:
    """Runs the operations in this process."""

    def __init__(self, picked: Sequence[local_backend.Picked] = ()) -> None:
        """``picked``: the row groups of the lake to read."""
        self._picked = picked

    def events(self, sources: Sources, columns: Sequence[str]) -> pa.Table:
        return local_backend.events(sources, self._picked, columns)

    def read(self, paths: Sequence[Path], schema: pa.Schema) -> pa.Table:
        return pa.concat_tables(pq.read_table(path, partitioning=None) for path in paths).cast(schema)

    def mapped(self, table: pa.Table, make: Mapped, schema: pa.Schema) -> pa.Table:
        return pa.Table.from_batches(make(table.to_batches(max_chunksize=_BATCH_ROWS)), schema)

    def with_copies(self, table: pa.Table, names: Mapping[str, str]) -> pa.Table:
        for other, name in names.items():
            table = table.append_column(other, table[name])
        return table

    def group_by(self, table: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Return groups; without keys a single one, even if there are no rows."""
        if not keys:
            times = pc.min_max(table["event_time"])
            row = {"count": len(table), "earliest": times["min"].as_py(), "latest": times["max"].as_py()}
            return pa.Table.from_pylist([row])
        measures: list[Any] = [([], "count_all"), ("event_time", "min"), ("event_time", "max")]
        groups = table.group_by(list(keys), use_threads=False).aggregate(measures)
        groups = groups.select([*keys, "count_all", "event_time_min", "event_time_max"])
        return groups.rename_columns([*keys, "count", "earliest", "latest"])

    def collect(self, table: pa.Table, most: int) -> pa.Table | None:
        del most
        return table

    def having(self, table: pa.Table, chosen: pa.Table, name: str) -> pa.Table:
        return table.filter(pc.is_in(table[name], chosen[name].combine_chunks()))

    def written(self, table: pa.Table, order: Sequence[str], write: Mapped) -> PartTuples:
        return [tuple(row.values()) for row in self._made(table, order, write)]

    def by_label(self, table: pa.Table, size: int, make: Mapped, schema: pa.Schema) -> list[tuple[Any, ...]]:
        del size, schema  # all rows are together
        return [tuple(row.values()) for row in self._made(table, ("label", "at"), make)]

    def _made(self, table: pa.Table, order: Sequence[str], make: Mapped) -> Iterator[dict[str, Any]]:
        ordered = table.sort_by([(name, "ascending") for name in order])
        for batch in make(ordered.to_batches(max_chunksize=_BATCH_ROWS)):
            yield from batch.to_pylist()

    def touched(self, table: pa.Table, size: int) -> list[tuple[str, int]]:
        places = zip(table["label"].to_pylist(), table["at"].to_pylist(), strict=True)
        return sorted({(label.hex(), (at - 1) // size) for label, at in places})

    def each(self, groups: Sequence[Sequence[Any]], do: Callable[[Any], Iterable[R]]) -> list[R]:
        return [item for group in groups for item in do(group)]
