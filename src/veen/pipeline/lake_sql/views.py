"""Read-only SQL over a lake: its tables as temporary views of the last commit."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException

from veen.pipeline.errors import DamagedLakeError, LakeQueryError
from veen.pipeline.lake import layout, tables
from veen.pipeline.lake.commits import Commits
from veen.pipeline.lake.committed_files import Committed, CommittedFile, require_sizes
from veen.pipeline.lake.lake import load
from veen.pipeline.lake.layout import spark_paths
from veen.pipeline.lake_jobs.file_hashes import require_committed
from veen.pipeline.lake_jobs.gold import GOLD_TABLES, rows_files
from veen.pipeline.lake_sql.json_rows import own_names, rows_of
from veen.pipeline.lake_sql.read_only import parse_question
from veen.pipeline.spark.failures import short

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Answer = TypeVar("Answer")

# Spark's error for a file that was removed after planning.
_GONE: Final = "FILE_NOT_EXIST"
# How often a lake may change while its files are compared; a difference after that is damage.
_MOST_ROUNDS: Final = 5


class Views:
    """The tables of a lake in a session; they follow commits of any process.

    A view is created when a query needs it, and its files are compared with the commit each time.
    """

    def __init__(self, spark: "SparkSession", root: Path, *, checked: bool = False) -> None:
        """``checked``: compare files by hash, not only by name and size."""
        self._spark = spark
        self._root = root
        self._checked = checked
        self._columns = {**tables.columns_by_table(), **GOLD_TABLES}
        self._tables = {layout.view_name(table): table for table in self._columns}
        # The files behind each view of the session.
        self._made: dict[str, list[str]] = {}
        self._state = load(root)

    @property
    def names(self) -> list[str]:
        """The tables that have files."""
        states = {f"{layout.GOLD}/{overlay}" for overlay, _ in self._state.gold}
        names = {*self._state.tables(), *states}
        return sorted(name for name, table in self._tables.items() if table in names)

    def reload(self, *, always: bool = False) -> bool:
        """Load the last commit; return whether there was a new one."""
        before = self._state.number
        if always:
            self._made.clear()
        if always or Commits(self._root).numbers()[-1:] != [before]:
            self._state = load(self._root)
        return self._state.number != before

    def _have(self, names: Iterable[str]) -> None:
        """Create views, after checking that their files are as committed."""
        kept_files = {name: self._kept(self._tables[name]) for name in names}
        files = [item for listed in kept_files.values() for item in listed]
        if self._checked:
            require_committed(self._spark.sparkContext, self._root, files)
        else:
            require_sizes(self._root, files)
        for name, listed in kept_files.items():
            paths = [item.path for item in listed]
            if self._made.get(name) != paths:
                self._read(name, paths).createOrReplaceTempView(name)
                self._made[name] = paths

    def _kept(self, table: str) -> Sequence[Committed]:
        if table in GOLD_TABLES:
            return [
                CommittedFile(path, None, digest) for path, digest in rows_files(table, self._state).items()
            ]
        return self._state.of_table(table)

    def _read(self, name: str, paths: Sequence[str] = ()) -> "DataFrame":
        from pyspark.sql.pandas.types import from_arrow_schema

        columns = from_arrow_schema(self._columns[self._tables[name]])
        if not paths:
            return self._spark.createDataFrame([], columns)
        return self._spark.read.schema(columns).parquet(*spark_paths(self._root, paths))

    def _have_now(self, names: Iterable[str]) -> None:
        """Create views of the last commit, retrying if another commit has replaced files meanwhile."""
        for tries_left in reversed(range(_MOST_ROUNDS)):
            try:
                self._have(names)
            except (DamagedLakeError, AnalysisException) as error:
                if self.reload() and tries_left:
                    continue
                if isinstance(error, DamagedLakeError):
                    raise
                raise DamagedLakeError(short(str(error))) from None
            return

    def query(self, text: str) -> "DataFrame":
        """Run a query; reject statements that would change anything."""
        question = parse_question(self._spark, text)
        self.reload()
        names = sorted(question.names & self._tables.keys())
        self._have_now(names)
        if question.is_overview:  # needs no files
            for name in {*self.names} - self._made.keys():
                self._read(name).createOrReplaceTempView(name)
        try:
            return self._spark.sql(text)
        except AnalysisException as error:
            raise LakeQueryError(short(str(error))) from None

    def ask(self, text: str, use: Callable[["DataFrame"], Answer]) -> Answer:
        """Run a query and consume its result; retry if a commit has removed files meanwhile."""
        try:
            return use(self.query(text))
        except (PySparkException, Py4JError) as error:
            if _GONE not in str(error):
                raise
        self.reload(always=True)
        return use(self.query(text))

    def rows(self, text: str, most: int | None = None) -> tuple[list[str], Iterator[dict[str, Any]]]:
        """Return the columns and rows of a result, for JSON."""
        return self.ask(text, lambda found: _begun(found if most is None else found.limit(most)))


def _begun(table: "DataFrame") -> tuple[list[str], Iterator[dict[str, Any]]]:
    """Fetch the first row, so that missing files are detected before anything is returned."""
    rows = rows_of(table)
    return own_names(table.columns), chain(list(islice(rows, 1)), rows)
