"""SQL folds of overlays that have one: the same bytes as in one process, with any partitioning.

Each reads typed events; records are decoded once. Callers pass ``FORMS`` to ``fold_stream``.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from veen.core.types import StreamId
from veen.overlays.builtin.crdt import GCounter, LwwMap, OrSet
from veen.overlays.operations.paid_ledger import PaidLedger
from veen.overlays.overlay import Overlay
from veen.overlays.wallet.overlay import Wallets
from veen.pipeline.fold.sql_form import Folded, FoldRange
from veen.pipeline.fold_sql.crdt import (
    COUNTER_EVENTS,
    LWW_EVENTS,
    ORSET_EVENTS,
    fold_counters,
    fold_registers,
    fold_sets,
)
from veen.pipeline.fold_sql.events import from_place, kept, typed_events
from veen.pipeline.fold_sql.ledger import LEDGER_EVENTS, fold_ledger
from veen.pipeline.fold_sql.wallet import WALLET_EVENTS, fold_wallets
from veen.pipeline.open.typed_columns import EventTable


class TypedForm(NamedTuple):
    """A SQL fold: the events that it reads, and its function, which returns None if it cannot be exact."""

    table: EventTable
    fold: Callable[[DataFrame, Any, StreamId], Folded | None]
    # Whether a range can be folded without the events before it.
    ranges: bool = False

    def events(self, records: DataFrame) -> DataFrame:
        """Return records as typed events."""
        return typed_events(records, self.table)

    def __call__(
        self,
        spark: SparkSession,  # noqa: ARG002 - of the protocol
        records: DataFrame,
        overlay: Overlay,
        stretch: FoldRange,
    ) -> Folded | None:
        if stretch.has_copies or (stretch.since is not None and not self.ranges):
            return None
        with kept(self.events(from_place(records, stretch.since))) as events:
            return self.fold(events, overlay, stretch.stream_id)


# Overlays with a SQL fold.
FORMS: Final[dict[type[Overlay], TypedForm]] = {
    LwwMap: TypedForm(LWW_EVENTS, fold_registers, ranges=True),
    GCounter: TypedForm(COUNTER_EVENTS, fold_counters, ranges=True),
    OrSet: TypedForm(ORSET_EVENTS, fold_sets),
    PaidLedger: TypedForm(LEDGER_EVENTS, fold_ledger),
    Wallets: TypedForm(WALLET_EVENTS, fold_wallets),
}
