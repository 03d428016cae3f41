"""The range and result of a fold on Spark, and the interface of SQL folds of single overlays."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from veen.core.types import StreamId
from veen.overlays.engine import MemoryTables, Run, table_kinds
from veen.overlays.event import Outcome, Report
from veen.overlays.overlay import Key, Overlay
from veen.overlays.summary_tree.reader import Place

if TYPE_CHECKING:
    from veen.pipeline.fold.state import FoldState


def no_counts() -> dict[Outcome, int]:
    """Return a count of 0 for each outcome."""
    return dict.fromkeys(Outcome, 0)


@dataclass(slots=True)
class Folded:
    """The result of folding the records of a stream, the same as in one process."""

    # Table -> key -> summary, of the overlay's tables (not of its indexes); one entry for every table.
    tables: dict[str, dict[Key, Any]]
    # Folded records by outcome; one entry for every outcome.
    counts: dict[Outcome, int] = field(default_factory=no_counts)
    # In log order.
    reports: list[Report] = field(default_factory=list)
    # Epoch, first and last position of the records read; set by ``fold_stream``.
    runs: list[Run] = field(default_factory=list)
    # To resume from, if requested; set by ``fold_stream``.
    state: "FoldState | None" = None

    def memory(self, overlay: Overlay) -> MemoryTables:
        """Return the tables as the overlay reads them."""
        memory = MemoryTables(table_kinds(overlay))
        memory.tables = self.tables
        return memory


@dataclass(frozen=True, slots=True)
class FoldRange:
    """The range of a stream that is folded.

    The records are all those up to ``upto``, from the start of the stream. With ``since``, tables, counts and
    reports are those of the records from there on, given all records before them.
    """

    stream_id: StreamId
    since: Place | None = None
    upto: Place | None = None
    # Client keys whose messages are copies of their parents.
    bridges: frozenset[bytes] = frozenset()
    # Whether some records claim to be copies: which of them count depends on all before.
    has_copies: bool = False


class SqlFold(Protocol):
    """A fold of one overlay in SQL.

    ``records`` has the columns of ``veen.pipeline.open.records.RECORDS``, and only rows of the overlay's
    schemas, in any order. Counts of records that are unreadable, or of other schemas, are added later.
    """

    def __call__(
        self, spark: SparkSession, records: DataFrame, overlay: Overlay, stretch: FoldRange
    ) -> Folded | None:
        """Fold; None if the SQL cannot be exact here, so that another plan is needed."""


# By overlay class; not inherited by subclasses.
Forms = Mapping[type[Overlay], SqlFold]
