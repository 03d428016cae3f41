"""What a fold on Spark comes to, what is asked of it, and forms of it in SQL for single overlays."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql import DataFrame, SparkSession

from veen.core.types import StreamId
from veen.overlays.events import Outcome, Report
from veen.overlays.folding import Memory, Run, table_kinds
from veen.overlays.overlay import Key, Overlay
from veen.overlays.tree.reading import Place

if TYPE_CHECKING:
    from veen.pipeline.fold_state import FoldState


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

    def memory(self, overlay: Overlay) -> Memory:
        """Return the tables, to be read."""
        memory = Memory(table_kinds(overlay))
        memory.tables = self.tables
        return memory


@dataclass(frozen=True, slots=True)
class Stretch:
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


class Form(Protocol):
    """A fold of one overlay in SQL.

    ``records`` has the columns of ``veen.pipeline.records.RECORDS_SCHEMA``, in any order; only those of the
    overlay's schemas are in it. Counts of records that are unreadable, or of other schemas, are added later.
    """

    def __call__(
        self, spark: SparkSession, records: DataFrame, overlay: Overlay, stretch: Stretch
    ) -> Folded | None:
        """Fold; None if it can not be exact here, and another way is to be taken."""


_FORMS: Final[dict[type[Overlay], Form]] = {}


def register_form(overlay: type[Overlay]) -> Callable[[Form], Form]:
    """Return a decorator: the function folds this overlay where it can."""

    def registered(form: Form) -> Form:
        _FORMS[overlay] = form
        return form

    return registered


def form_of(overlay: Overlay) -> Form | None:
    """Return the form of an overlay; not of classes that are derived from it."""
    return _FORMS.get(type(overlay))
