"""Which columns a query asks for: by the option, by ``.schema(...)``, or all."""

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from veen.pipeline.source.columns import COLUMNS
from veen.pipeline.source.options import OptionError


def schema_of(names: tuple[str, ...] | None) -> StructType:
    """Return the schema of some columns, or of all."""
    chosen = tuple(COLUMNS) if names is None else names
    _refuse_unknown(chosen)
    return StructType([_field(name) for name in chosen])


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
    """Refuse a schema that this source can not fill exactly."""
    names = tuple(asked.names)
    _refuse_unknown(names)
    if columns is not None and columns != names:
        raise OptionError(f"columns says {', '.join(columns)}, but the schema {', '.join(names)}")
    for field in asked.fields:
        ours = _field(field.name)
        if field.dataType != ours.dataType:
            kinds = f"{ours.dataType.simpleString()}, not {field.dataType.simpleString()}"
            raise OptionError(f"column {field.name} is {kinds}")
        if ours.nullable and not field.nullable:
            raise OptionError(f"column {field.name} can be null")


def arrow_schema(asked: StructType) -> pa.Schema:
    """Return the schema that Spark expects of batches."""
    return to_arrow_schema(asked, timezone="UTC")
