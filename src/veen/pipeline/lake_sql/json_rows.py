"""SQL results as JSON: all values of a column in one form, without loss."""

import datetime as dt
import decimal
import json
import math
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    DayTimeIntervalType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantVal,
    YearMonthIntervalType,
)

from veen.pipeline.errors import LakeError
from veen.pipeline.lake.table_files import make_directory
from veen.stdx.atomic_file import rename

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

# Numbers that JSON cannot represent.
_FLOATS: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}


def own_names(names: Iterable[str]) -> list[str]:
    """Make names unique, ignoring case: ``a``, ``a_2``."""
    listed = list(names)
    taken = {name.lower() for name in listed}
    used: set[str] = set()
    found = []
    for name in listed:
        other, nth = name, 1
        while other.lower() in used or (nth > 1 and other.lower() in taken):
            nth += 1
            other = f"{name}_{nth}"
        used.add(other.lower())
        found.append(other)
    return found


def named(table: "DataFrame") -> "DataFrame":
    """Return a result with unique column names."""
    return table.toDF(*own_names(table.columns))


def rows_of(found: "DataFrame") -> Iterator[dict[str, Any]]:
    """Yield the rows of a result for JSON, without loading all of them into memory."""
    table = _without_intervals(named(found))
    names = table.columns
    row: Row
    for row in table.toLocalIterator():
        yield dict(zip(names, map(plain, row), strict=True))


def write_parquet(table: "DataFrame", place: Path) -> int:
    """Write a result as a Parquet directory, which must not exist; return the number of rows.

    Spark writes files with Hadoop's modes, readable by others: so it writes into a private directory first.
    """
    if place.exists():
        raise LakeError(f"{place} exists already; choose another path for the answer")
    make_directory(place.parent)
    with tempfile.TemporaryDirectory(prefix=".veen-", dir=place.parent.resolve()) as hidden:
        written = Path(hidden) / "rows"
        named(table).write.parquet(f"file://{written}")
        for path in written.iterdir():
            path.chmod(0o600)
        written.chmod(0o700)
        rename(written, place)
    return sum(pq.read_metadata(path).num_rows for path in place.glob("*.parquet"))


def _without_intervals(table: "DataFrame") -> "DataFrame":
    """Convert intervals to text: Python supports only some of them."""
    columns = []
    for field in table.schema.fields:
        column = sf.col("`" + field.name.replace("`", "``") + "`")
        kind = _shown_type(field.dataType)
        columns.append(column if kind == field.dataType else column.cast(kind).alias(field.name))
    return table.select(*columns)


def _shown_type(kind: DataType) -> DataType:
    match kind:
        case YearMonthIntervalType() | DayTimeIntervalType() | CalendarIntervalType():
            return StringType()
        case ArrayType():
            return ArrayType(_shown_type(kind.elementType), kind.containsNull)
        case MapType():
            return MapType(_shown_type(kind.keyType), _shown_type(kind.valueType), kind.valueContainsNull)
        case StructType():
            return StructType(
                [
                    StructField(field.name, _shown_type(field.dataType), field.nullable)
                    for field in kind.fields
                ]
            )
    return kind


def plain(value: Any) -> Any:  # noqa: ANN401 - of any column
    """Return a value for JSON: bytes as hex, decimals with fractional digits as text."""
    match value:
        case bytes() | bytearray():
            return bytes(value).hex()
        case decimal.Decimal():
            # Spark gives every value of a column the column's scale.
            return int(value) if value.as_tuple().exponent == 0 else f"{value:f}"
        case float():
            return value if math.isfinite(value) else _FLOATS.get(value, "NaN")
        case dt.date() | dt.time():
            return value.isoformat()
        case dict():
            return {_key(key): plain(item) for key, item in value.items()}
        case VariantVal():
            return plain(json.loads(value.toJson()))
        case list() | tuple():
            items = [plain(item) for item in value]
            names = getattr(value, "__fields__", None)  # of a row
            return items if names is None else dict(zip(own_names(names), items, strict=True))
        case None | bool() | int() | str():
            return value
    return str(value)


def _key(key: Any) -> str:  # noqa: ANN401 - of any column
    key_value = plain(key)
    return key_value if isinstance(key_value, str) else json.dumps(key_value)
