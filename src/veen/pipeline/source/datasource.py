"""The format ``veen`` of Spark, and what its readers are made of."""

import os
from collections.abc import Iterator, Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from veen.core.types import Label
from veen.pipeline.logs import LabelHead, Log
from veen.pipeline.source.looking import opened, selected, steadily
from veen.pipeline.source.options import Options, for_batch, for_stream, parse
from veen.pipeline.source.planning import Group, plan_groups
from veen.pipeline.source.ranges import batch_ranges
from veen.pipeline.source.reading import read_group
from veen.pipeline.source.schema import arrow_schema, check_schema, schema_of
from veen.pipeline.source.streaming import VeenStreamReader


class VeenSource(DataSource):
    """A log: one row for each entry."""

    #: How many tasks run at once; the process that plans has no way to ask. ``register`` sets it.
    parallelism: ClassVar[int] = os.cpu_count() or 1

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "veen"

    def schema(self) -> StructType:
        """Return the columns that are asked for."""
        return schema_of(parse(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        options = for_batch(parse(self.options))
        check_schema(schema, options.columns)
        return VeenReader(options, arrow_schema(schema), self.parallelism)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream."""
        options = for_stream(parse(self.options))
        check_schema(schema, options.columns)
        return VeenStreamReader(options, arrow_schema(schema), self.parallelism)


class VeenReader(DataSourceReader):
    """Reads what the options of a batch ask for.

    It takes no filters (``pushFilters``): Spark plans a relation once, and would use the plan for one filter
    in queries with another (docs/explanation/spark-pushdown.md).
    """

    def __init__(self, options: Options, schema: pa.Schema, parallelism: int) -> None:
        self._options = options
        self._schema = schema
        self._parallelism = parallelism

    def partitions(self) -> list[InputPartition]:
        """Return what tasks are to read."""
        log = opened(self._options)
        try:
            return [*steadily(log, lambda known: self._groups(log, known))]
        finally:
            log.close()

    def _groups(self, log: Log, known: Mapping[Label, LabelHead]) -> list[Group]:
        heads = selected(log, known, self._options)
        ranges = batch_ranges(log, known, heads, self._options)
        return plan_groups(log, heads, ranges, self._options, self._parallelism)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the entries of a partition; Spark makes one up where there are none."""
        if not isinstance(partition, Group):
            return iter(())
        return read_group(partition, self._options, self._schema)


def register(spark: SparkSession) -> None:
    """Make the format known to a session."""

    class Registered(VeenSource):
        parallelism = spark.sparkContext.defaultParallelism

    spark.dataSource.register(Registered)
