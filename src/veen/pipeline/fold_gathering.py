"""Putting together what the tasks of a fold have handed over, in whatever order it comes."""

from typing import Any

import pyarrow as pa

from veen.overlays import monoids
from veen.overlays.folding import Summary, memory_of
from veen.overlays.monoids import Monoid
from veen.overlays.overlay import Key, Overlay
from veen.pipeline.fold_rows import (
    CHUNK,
    COUNTS,
    REPORTS,
    counts_of,
    joined,
    key_of,
    pairs_of,
    reports_of,
    rows_of,
)
from veen.pipeline.fold_state import whole_fold

#: Rows of one key in the order of the log, and reports too.
_ORDER = [(name, "ascending") for name in ("kind", "name", "key", "epoch", "seq")]


def gathered(table: pa.Table, overlay: Overlay) -> Summary:
    """Return what rows of tables, counts and reports amount to."""
    summary, kinds = whole_fold(overlay).empty(), memory_of(overlay).kinds
    rows = (row for batch in table.sort_by(_ORDER).to_batches() for row in rows_of(batch))
    for row in joined(rows, kinds):
        if row.kind == COUNTS:
            for outcome, count in counts_of(row):
                summary.counts[outcome] += count
        elif row.kind == REPORTS:
            summary.reports += reports_of(row)
        elif row.kind == CHUNK:
            _add(summary.tables[row.name], kinds[row.name], pairs_of(row))
        else:
            summary.tables[row.name][key_of(row)] = monoids.decode(kinds[row.name], row.value)
    return summary


def _add(table: dict[Key, Any], kind: Monoid, pairs: list[tuple[Key, Any]]) -> None:
    for key, value in pairs:
        known = table.get(key)
        table[key] = value if known is None else kind.merge(known, value)
