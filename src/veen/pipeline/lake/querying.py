"""SQL over a lake: its tables under their names, as the last commit has them; nothing can be changed."""

import re
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException

from veen.pipeline.failures import short
from veen.pipeline.lake import layout, tables
from veen.pipeline.lake.answers import own_names, rows_of
from veen.pipeline.lake.commits import Commits, State
from veen.pipeline.lake.errors import DamagedLakeError
from veen.pipeline.lake.gold import GOLD_TABLES, rows_files
from veen.pipeline.lake.holding import load
from veen.pipeline.lake.paths import spark_paths
from veen.pipeline.lake.questions import QuestionError, require_question

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Answer = TypeVar("Answer")

#: What Spark says of a file that was there when it made its plan.
_GONE: Final = "FILE_NOT_EXIST"


class Views:
    """The tables of a lake in a session; they follow the lake, whoever writes to it."""

    def __init__(self, spark: "SparkSession", root: Path) -> None:
        self._spark = spark
        self._root = root
        self._columns = {**tables.columns_by_table(), **GOLD_TABLES}
        #: Tables without a row are made when somebody asks for them: there are many, and each takes a while.
        self._empty: dict[str, str] = {}
        #: Tables of which a file is not there: whoever asks for others need not know.
        self._broken: dict[str, str] = {}
        self._files: dict[str, list[str]] = {}
        self._number = -1
        self.names: list[str] = []
        self._follow(load(root))

    def _follow(self, state: State) -> None:
        """Have the tables as a commit has them."""
        for table in sorted(self._columns):
            name, files = layout.view_name(table), _files(table, state)
            if name in self._files and self._files[name] == files:
                continue
            self._files[name] = files
            self._broken.pop(name, None)
            self._empty.pop(name, None)
            if files:
                self._register(name, table, files)
            else:
                self._empty[name] = table
        self.names = [name for name, files in self._files.items() if files]
        self._number = state.number

    def _register(self, name: str, table: str, files: list[str]) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - slow to import

        columns = from_arrow_schema(self._columns[table])
        if not files:
            found = self._spark.createDataFrame([], columns)
        else:
            try:
                found = self._spark.read.schema(columns).parquet(*spark_paths(self._root, files))
            except AnalysisException as error:
                self._broken[name] = short(str(error))
                return
        found.createOrReplaceTempView(name)

    def reload(self, *, always: bool = False) -> None:
        """Have the tables as they are now, if there was a commit since."""
        if always:
            self._files.clear()
        if always or Commits(self._root).numbers()[-1:] != [self._number]:
            self._follow(load(self._root))

    def query(self, text: str) -> "DataFrame":
        """Return what a question asks for; what would change anything is refused."""
        require_question(self._spark, text)
        asked = set(re.findall(r"\w+", text.lower()))
        self.reload(always=bool(asked & set(self._broken)))
        for name in asked & set(self._broken):
            raise DamagedLakeError(f"{name} is not whole: {self._broken[name]}")
        for name in asked & set(self._empty):
            self._register(name, self._empty.pop(name), [])
        try:
            return self._spark.sql(text)
        except AnalysisException as error:
            raise QuestionError(short(str(error))) from None

    def ask(self, text: str, use: Callable[["DataFrame"], Answer]) -> Answer:
        """Ask, and hand over what comes: once more, if files went away that a commit has replaced."""
        try:
            return use(self.query(text))
        except (PySparkException, Py4JError) as error:
            if _GONE not in str(error):
                raise
        self.reload(always=True)
        return use(self.query(text))

    def rows(self, text: str, most: int | None = None) -> tuple[list[str], Iterator[dict[str, Any]]]:
        """Return the columns of an answer and its rows, for JSON."""
        return self.ask(text, lambda found: _begun(found if most is None else found.limit(most)))


def _begun(found: "DataFrame") -> tuple[list[str], Iterator[dict[str, Any]]]:
    """Have the first row: files that are not there are missed before anything is told."""
    rows = rows_of(found)
    return own_names(found.columns), chain(list(islice(rows, 1)), rows)


def _files(table: str, state: State) -> list[str]:
    if table in GOLD_TABLES:
        return rows_files(table, state)
    return [fact.path for fact in state.of_table(table)]
