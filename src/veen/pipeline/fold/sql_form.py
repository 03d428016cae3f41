"""What a fold on Spark comes to, what is asked of it, and forms of it in SQL for single overlays."""

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
    """Return how many records there were of each outcome, before any."""
    return dict.fromkeys(Outcome, 0)


@dataclass(slots=True)
class Folded:
    """What the records of a stream amount to: as a fold in one process gives it."""

    #: Table -> key -> summary, of the overlay's tables (not of its indexes); one entry for every table.
    tables: dict[str, dict[Key, Any]]
    #: What became of the records that were folded; one entry for every outcome.
    counts: dict[Outcome, int] = field(default_factory=no_counts)
    #: What is wrong with events, in the order of the log.
    reports: list[Report] = field(default_factory=list)
    #: Epoch, first and last number of what was read; filled in by ``fold_stream``.
    runs: list[Run] = field(default_factory=list)
    #: To be gone on from, if that was asked for; filled in by ``fold_stream``.
    state: "FoldState | None" = None

    def memory(self, overlay: Overlay) -> MemoryTables:
        """Return the tables, to be read."""
        memory = MemoryTables(table_kinds(overlay))
        memory.tables = self.tables
        return memory


@dataclass(frozen=True, slots=True)
class FoldRange:
    """Which part of a stream is folded, and how.

    The records are all up to ``upto``, from the beginning of the stream. With ``since``, tables, counts and
    reports are those of the records from there on, as they counted given all that was before them.
    """

    #: The stream itself.
    stream_id: StreamId
    since: Place | None = None
    upto: Place | None = None
    #: Keys whose messages with a parent are copies of it.
    bridges: frozenset[bytes] = frozenset()
    #: Whether some records say that they are copies: which of them count depends on all before.
    has_copies: bool = False


class SqlFold(Protocol):
    """A fold of one overlay in SQL.

    ``records`` has the columns of ``veen.pipeline.open.records.RECORDS``, in any order; only those of the
    overlay's schemas are in it. Counts of records that are unreadable, or of other schemas, are added later.
    """

    def __call__(
        self, spark: SparkSession, records: DataFrame, overlay: Overlay, stretch: FoldRange
    ) -> Folded | None:
        """Fold; None if it can not be exact here, and another way is to be taken."""


#: By overlay; a class that is derived from one has no form unless it is named itself.
Forms = Mapping[type[Overlay], SqlFold]
