"""SQL over a lake: its tables under their names, as the last commit has them; nothing can be changed."""

import datetime as dt
import decimal
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veen.pipeline.lake import layout, tables
from veen.pipeline.lake.commits import State
from veen.pipeline.lake.errors import LakeError
from veen.pipeline.lake.gold import GOLD_TABLES, rows_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

#: What only looks.
_LOOKING: Final = ("Show", "Describe", "Explain")
#: What may stand for a change in a plan that is not run yet.
_CHANGING: Final = (
    "org.apache.spark.sql.catalyst.plans.logical.Command",
    "org.apache.spark.sql.catalyst.plans.logical.ParsedStatement",
)


class Views:
    """The tables of a lake in a session."""

    def __init__(self, spark: "SparkSession", root: Path, state: State) -> None:
        self._spark = spark
        self._root = root.resolve()
        self._columns = {**tables.columns_by_table(), **GOLD_TABLES}
        #: Tables without a row are made when somebody asks for them: there are many, and each takes a while.
        self._empty: dict[str, str] = {}
        self.names: list[str] = []
        for table in sorted(self._columns):
            name, files = layout.view_name(table), _files(table, state)
            if files:
                self._register(name, table, files)
                self.names.append(name)
            else:
                self._empty[name] = table

    def _register(self, name: str, table: str, files: list[str]) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - slow to import

        columns = from_arrow_schema(self._columns[table])
        if files:
            found = self._spark.read.schema(columns).parquet(
                *(f"file://{self._root}/{path}" for path in files)
            )
        else:
            found = self._spark.createDataFrame([], columns)
        found.createOrReplaceTempView(name)

    def query(self, text: str) -> "DataFrame":
        """Run a query; what would change anything is refused."""
        _require_reading(self._spark, text)
        for name in set(re.findall(r"\w+", text.lower())) & set(self._empty):
            self._register(name, self._empty.pop(name), [])
        return self._spark.sql(text)


def _files(table: str, state: State) -> list[str]:
    if table in GOLD_TABLES:
        return rows_files(table, state)
    return [fact.path for fact in state.of_table(table)]


def _require_reading(spark: "SparkSession", text: str) -> None:
    """Refuse all that is no question: looked up in the plan, because a question can hide a command."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - the parser is not to be had otherwise
    assert jvm is not None
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)  # noqa: SLF001
    kinds = [jvm.java.lang.Class.forName(name) for name in _CHANGING]
    for node in _nodes(plan):
        name = node.getClass().getSimpleName()
        if any(kind.isInstance(node) for kind in kinds) and not name.startswith(_LOOKING):
            raise LakeError(f"a lake is read with SQL, and changed by ingest and compact alone ({name})")


def _nodes(plan: Any) -> Iterator[Any]:  # noqa: ANN401 - an object of the JVM
    yield plan
    children = plan.children()
    for nth in range(children.size()):
        yield from _nodes(children.apply(nth))


def plain(value: Any) -> Any:  # noqa: ANN401 - of any column
    """Return a value for JSON: bytes as hex, numbers without a fraction as such."""
    match value:
        case bytes() | bytearray():
            return bytes(value).hex()
        case decimal.Decimal():
            return int(value) if value == value.to_integral_value() else str(value)
        case dt.date() | dt.time():
            return value.isoformat()
        case dt.timedelta():
            return value.total_seconds()
        case dict():
            return {str(plain(key)): plain(item) for key, item in value.items()}
        case list() | tuple():
            as_dict = getattr(value, "asDict", None)
            return plain(as_dict()) if as_dict is not None else [plain(item) for item in value]
    return value


def rows_of(found: "DataFrame") -> Iterator[dict[str, Any]]:
    """Yield the rows of an answer, for JSON; not all of them are in memory at once."""
    names = found.columns
    row: Row
    for row in found.toLocalIterator():
        yield dict(zip(names, map(plain, row), strict=True))
