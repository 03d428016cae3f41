"""The Spark data source ``veen``: its columns and its readers."""

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
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from veen.core.types import Label
from veen.pipeline.datasource.columns import COLUMNS
from veen.pipeline.datasource.options import Options, for_batch, for_stream, parse
from veen.pipeline.datasource.plan import Group, batch_ranges, open_source, plan_groups, selected, steadily
from veen.pipeline.datasource.stream_reader import VeenStreamReader
from veen.pipeline.datasource.task import read_group
from veen.pipeline.errors import OptionError
from veen.pipeline.log.log import LabelHead, Log


def schema_of(names: tuple[str, ...] | None) -> StructType:
    """Return the schema of the named columns; None: of all."""
    selected_names = tuple(COLUMNS) if names is None else names
    _refuse_unknown(selected_names)
    return StructType([_field(name) for name in selected_names])


def _field(name: str) -> StructField:
    column = COLUMNS[name]
    return StructField(name, from_arrow_type(column.kind), nullable=column.nullable)


def _refuse_unknown(names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise OptionError(f"the source has no column {', '.join(unknown)}: there are {', '.join(COLUMNS)}")
    if len(set(names)) < len(names):
        raise OptionError(f"a column is named twice in {', '.join(names)}")


def check_schema(asked: StructType, columns: tuple[str, ...] | None) -> None:
    """Reject a schema that this source cannot fill exactly."""
    names = tuple(asked.names)
    _refuse_unknown(names)
    if columns is not None and columns != names:
        raise OptionError(f"columns is {', '.join(columns)}, but the schema is {', '.join(names)}")
    for field in asked.fields:
        ours = _field(field.name)
        if field.dataType != ours.dataType:
            kinds = f"{ours.dataType.simpleString()}, not {field.dataType.simpleString()}"
            raise OptionError(f"column {field.name} is {kinds}")
        if ours.nullable and not field.nullable:
            raise OptionError(f"column {field.name} can be null")


def arrow_schema(asked: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects of batches."""
    return to_arrow_schema(asked, timezone="UTC")


class VeenSource(DataSource):
    """A log: one row for each entry."""

    # The number of concurrent tasks. Planning runs in a process that cannot ask Spark; ``register`` sets it.
    parallelism: ClassVar[int] = os.cpu_count() or 1

    @classmethod
    def name(cls) -> str:
        return "veen"

    def schema(self) -> StructType:
        return schema_of(parse(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = for_batch(parse(self.options))
        check_schema(schema, options.columns)
        return VeenReader(options, arrow_schema(schema), self.parallelism)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = for_stream(parse(self.options))
        check_schema(schema, options.columns)
        return VeenStreamReader(options, arrow_schema(schema), self.parallelism)


class VeenReader(DataSourceReader):
    """The reader of a batch query.

    It accepts no filters (``pushFilters``): Spark plans a relation once, and would reuse the plan of one
    filter in queries with another (docs/explanation/spark-pushdown.md).
    """

    def __init__(self, options: Options, schema: pa.Schema, parallelism: int) -> None:
        self._options = options
        self._schema = schema
        self._parallelism = parallelism

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each task."""
        log = open_source(self._options)
        try:
            return [*steadily(log, lambda known: self._groups(log, known))]
        finally:
            log.close()

    def _groups(self, log: Log, known: Mapping[Label, LabelHead]) -> list[Group]:
        heads = selected(log, known, self._options)
        ranges = batch_ranges(log, known, heads, self._options)
        return plan_groups(log, heads, ranges, self._options, self._parallelism)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the entries of a partition. Where there is none, Spark passes an empty one of its own."""
        if not isinstance(partition, Group):
            return iter(())
        return read_group(partition, self._options, self._schema)


def register(spark: SparkSession) -> None:
    """Register the data source with a Spark session."""

    class Registered(VeenSource):
        parallelism = spark.sparkContext.defaultParallelism

    spark.dataSource.register(Registered)
