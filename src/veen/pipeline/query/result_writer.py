"""Write the rows of an answer: ordered, in canonical JSON, on disk, with the positions of their events.

The result does not depend on the number and order of partitions: their ranges of sort keys are disjoint,
which is checked where partitions meet.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from veen.pipeline.lake.table_files import TableFile, make_directory, remove_all
from veen.pipeline.query.backend import Backend, LocalBackend
from veen.pipeline.query.columns import (
    EVENTS,
    KEYED,
    ORDER,
    PLACES,
    ROWS,
    Needs,
    column_of,
    groups_of,
    keys_of,
    order_key,
    rows_of,
    with_paths,
)
from veen.pipeline.query.event_sources import Sources
from veen.pipeline.query.evidence import ROOTS
from veen.pipeline.query.result_rows import PartWriter, ResultRows, placed
from veen.query.descriptor import Aggregate, Mode
from veen.query.digest import sampled
from veen.query.fields import path_of

T = TypeVar("T")
R = TypeVar("R")

# Written beside the rows: the positions of their events, or the keys of groups.
_PLACES: Final = ".places"
_KEYS: Final = ".keys"
# The same for the sample.
_CHOSEN: Final = "chosen"
# Up to this many groups are ordered and written without tasks.
_FEW_GROUPS: Final = 10_000
_KEY: Final = pa.schema([KEYED.field("key")])


class ResultWriter(Generic[T]):
    """Writes an answer."""

    def __init__(self, work: Backend[T], sources: Sources, needs: Needs, out: Path) -> None:
        self._work = work
        self._sources = sources
        self._needs = needs
        self._out = out.resolve()
        # Files of the answer in order, without suffixes, and the index of the first row of each.
        self._parts: list[tuple[str, int]] = []

    def write(self) -> None:
        aggregate, needs = self._needs.aggregate, self._needs
        events = self._work.events(self._sources, needs.columns)
        if aggregate is None:
            fields = needs.descriptor.projection
            beside = [(_PLACES, PLACES)] if needs.has_evidence else []
            self._write_ordered(self._work, events, ORDER, beside, lambda batch: rows_of(batch, fields))
        else:
            self._write_groups(events, aggregate)

    def _write_groups(self, events: T, aggregate: Aggregate) -> None:
        """Write a row for each group; few groups in this process, faster than the start of a task."""
        keyed = self._keyed(events, aggregate, self._needs.columns)
        groups = self._work.group_by(keyed, self._needs.keys)
        few = self._work.collect(groups, _FEW_GROUPS)
        if few is None:
            self._write_keyed(self._work, groups, aggregate)
        else:
            self._write_keyed(LocalBackend(), few, aggregate)

    def _write_keyed(self, work: Backend[R], groups: R, aggregate: Aggregate) -> None:
        rows = work.mapped(groups, lambda batches: groups_of(batches, aggregate), KEYED)
        beside = [(_KEYS, _KEY)] if self._needs.has_evidence else []
        self._write_ordered(work, rows, ("key",), beside, lambda batch: batch)

    def _write_ordered(
        self,
        work: Backend[R],
        table: R,
        order: tuple[str, ...],
        beside: list[tuple[str, pa.Schema]],
        rows: Callable[[pa.RecordBatch], pa.RecordBatch],
    ) -> None:
        def columns_of(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
            return [rows(batch).select(ROWS.names), *(batch.select(schema.names) for _, schema in beside)]

        schemas = ((ResultRows.SUFFIX, ROWS), *beside)
        writer = PartWriter(str(self._out), schemas, order, columns_of)
        written = work.written(table, order, writer.write)
        parts = placed(self._out, written, [suffix for suffix, _ in schemas])
        self._parts = [(part.name, int(part.name)) for part in parts]

    # --- groups ---------------------------------------------------------------------------------------------

    def _keyed(self, events: T, aggregate: Aggregate, columns: Sequence[str]) -> T:
        """Return events with their group keys in separate columns."""
        fields = dict(zip(self._needs.keys, aggregate.group_by, strict=True))
        paths = {key: name for key, name in fields.items() if path_of(name)}
        plain = {key: column_of(name) for key, name in fields.items() if key not in paths}
        keyed = self._work.with_copies(events, plain)
        if not paths:
            return keyed
        kept = [EVENTS.field(name) for name in columns if name not in ("payload", "metadata")]
        copied = [EVENTS.field(name).with_name(key) for key, name in plain.items()]
        texts = [pa.field(key, pa.string()) for key in paths]
        schema = pa.schema([*kept, *copied, *texts])
        return self._work.mapped(keyed, lambda batches: with_paths(batches, paths), schema)

    def _behind(self, aggregate: Aggregate) -> T:
        """Return the events of an aggregate: all, or those of the groups in the sample."""
        needs = self._needs
        if needs.descriptor.evidence.mode is Mode.FULL:
            return self._work.events(self._sources, PLACES.names)
        chosen = self._work.read(self._chosen(_KEYS, _KEY), _KEY)
        columns = needs.columns_of(PLACES.names)
        events = self._keyed(self._work.events(self._sources, columns), aggregate, columns)
        group_by = aggregate.group_by
        schema = pa.schema([*PLACES, *_KEY])
        keyed = self._work.mapped(events, lambda batches: _with_key(batches, group_by), schema)
        behind = self._work.having(keyed, chosen, "key")
        return self._work.mapped(behind, _places_only, PLACES)

    # --- what evidence is about -----------------------------------------------------------------------------

    def places(self) -> list[Path]:
        """Return files with the positions of the events to verify, in order."""
        needs = self._needs
        if needs.aggregate is not None:
            return self._places_behind(needs.aggregate)
        if needs.descriptor.evidence.mode is Mode.FULL:
            return [self._out / f"{name}{_PLACES}" for name, _ in self._parts]
        return self._chosen(_PLACES, PLACES)

    def _places_behind(self, aggregate: Aggregate) -> list[Path]:
        events = self._behind(aggregate)
        place = self._out / "behind"
        writer = PartWriter(str(place), ((_PLACES, PLACES),), ORDER, lambda batch: [batch])
        parts = self._work.written(events, ORDER, writer.write)
        return [place / f"{part.name}{_PLACES}" for part in placed(place, parts, [_PLACES])]

    def _chosen(self, suffix: str, schema: pa.Schema) -> list[Path]:
        """Write the sample of the query, selected by row index (QRY-040)."""
        descriptor = self._needs.descriptor
        rate = descriptor.evidence.sample_rate
        assert rate is not None, "spot has a rate"
        path = self._out / f"{_CHOSEN}{suffix}"
        file = TableFile(self._out, path.name, schema)
        try:
            for name, start in self._parts:
                at = start
                with pq.ParquetFile(self._out / f"{name}{suffix}") as part:
                    for batch in part.iter_batches():
                        chosen = sampled(descriptor.query_id, range(at, at + len(batch)), rate)
                        file.add(batch.take(pa.array([index - at for index in chosen], pa.int64())))
                        at += len(batch)
            file.finish()
        finally:
            file.discard()
        return [path]

    def clean(self) -> None:
        """Remove the files beside the rows."""
        for suffix in (_PLACES, _KEYS, ROOTS):
            remove_all(sorted(self._out.rglob(f"*{suffix}")))
        make_directory(self._out)  # exists already, unless there are no rows


def _with_key(batches: Iterable[pa.RecordBatch], group_by: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield the positions of events with the sort key of their group's row."""
    for batch in batches:
        keys = pa.array([order_key(values) for values in keys_of(batch, group_by)], pa.binary())
        yield pa.RecordBatch.from_arrays(
            [*(batch.column(name) for name in PLACES.names), keys], schema=pa.schema([*PLACES, *_KEY])
        )


def _places_only(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(PLACES.names)
