"""Events of a lake without Spark, for queries of few row groups, where tasks would take longer to start.

Files, conditions and columns are the same as in ``event_sources``; tests compare the answers.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from veen.pipeline.errors import DamagedLakeError
from veen.pipeline.lake.commits import FileFact
from veen.pipeline.query.columns import EVENTS, ORDER, read_names
from veen.pipeline.query.event_sources import COPIED, NATIVE, Sources
from veen.pipeline.query.scope import COPIES_TABLE
from veen.query.timestamps import LAST_TIME

# The maximum of files whose footers are read; with more, Spark is faster.
_MOST_FILES: Final = 256
# The maximum of uncompressed bytes in row groups, which are all in memory at once.
_MOST_BYTES: Final = 64 << 20
_MOST_NUMBER: Final = (1 << 63) - 1


class Picked(NamedTuple):
    """Row groups of a file that may contain selected rows."""

    fact: FileFact
    groups: list[int]


def pick(sources: Sources, most_rows: int, most_bytes: int = _MOST_BYTES) -> list[Picked] | None:
    """Select row groups by minimum and maximum values in footers; None if they are too many."""
    picked, rows_left, room = list[Picked](), most_rows, most_bytes
    if len(sources.files) > _MOST_FILES:
        return None
    for fact in sources.files:
        metadata = _metadata(sources, fact)
        groups = [
            nth for nth in range(metadata.num_row_groups) if _may_hold(sources, fact, metadata.row_group(nth))
        ]
        rows_left -= sum(metadata.row_group(nth).num_rows for nth in groups)
        room -= sum(metadata.row_group(nth).total_byte_size for nth in groups)
        if rows_left < 0 or room < 0:
            return None
        if groups:
            picked.append(Picked(fact, groups))
    return picked


def _metadata(sources: Sources, fact: FileFact) -> pq.FileMetaData:
    with _reading(fact):
        return pq.read_metadata(sources.root / fact.path)


@contextmanager
def _reading(fact: FileFact) -> Iterator[None]:
    """Convert errors of reading: they name the damaged file; a missing file may have been replaced."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise DamagedLakeError(f"{fact.path} cannot be read: {str(error).splitlines()[0]}") from None


def _may_hold(sources: Sources, fact: FileFact, group: pq.RowGroupMetaData) -> bool:
    where = sources.filter
    bounds = {
        "event_time": (where.time_from, where.time_to),
        "stream_seq": (None, sources.scope.last(fact.label)),
        "subject_id": (where.subject_id, where.subject_id),
    }
    for nth in range(group.num_columns):
        column = group.column(nth)
        low, high = bounds.get(column.path_in_schema, (None, None))
        stats = column.statistics if (low, high) != (None, None) else None
        if stats is None or not stats.has_min_max:
            continue
        if (low is not None and stats.max < low) or (high is not None and stats.min > high):
            return False
    return True


def events(sources: Sources, picked: Sequence[Picked], columns: Sequence[str]) -> pa.Table:
    """Return the selected events, each once, in the order of rows if the columns determine it."""
    schema = pa.schema([EVENTS.field(name) for name in columns])
    found = [
        batch
        for item in picked
        if item.fact.table != COPIES_TABLE
        for batch in _natives(sources, item, columns)
    ]
    found += _copies(sources, [item for item in picked if item.fact.table == COPIES_TABLE], columns)
    return pa.Table.from_batches(found, schema)


def _read(sources: Sources, item: Picked, names: Sequence[str]) -> pa.Table:
    """Read row groups, without rows that are not selected."""
    where = sources.filter
    wanted = dict.fromkeys([*names, "subject_id", "event_type", "event_time", "stream_seq"])
    path = sources.root / item.fact.path
    with _reading(item.fact), pq.ParquetFile(path, page_checksum_verification=True) as file:
        table = file.read_row_groups(item.groups, columns=list(wanted))
    kept = pc.less_equal(table["stream_seq"], sources.scope.last(item.fact.label))
    if where.subject_id is not None:
        kept = pc.and_(kept, pc.equal(table["subject_id"], where.subject_id))
    if where.event_type is not None:
        kept = pc.and_(kept, pc.is_in(table["event_type"], pa.array(where.event_type, pa.string())))
    times = table["event_time"].cast(pa.int64())
    if where.time_from is not None:
        kept = pc.and_(kept, pc.greater_equal(times, where.time_from))
    if where.time_to is not None:
        kept = pc.and_(kept, pc.less_equal(times, where.time_to))
    return table.filter(kept)


def _natives(sources: Sources, item: Picked, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    made = ("stream", "origin_receipt", "origin_hub_id")
    raw = [NATIVE.get(name, name) for name in columns if name not in made]
    table = _read(sources, item, [*raw, "client_id", "principal_id"])
    signers = zip(table["principal_id"].to_pylist(), table["client_id"].to_pylist(), strict=True)
    table = table.filter(pa.array([said == key.hex() for said, key in signers], pa.bool_()))
    stream, arrays = sources.names[item.fact.label], []
    for name in columns:
        kind = EVENTS.field(name).type
        if name in made:
            value = stream if name == "stream" else None
            arrays.append(pa.repeat(pa.scalar(value, kind), len(table)))
            continue
        column = table[NATIVE.get(name, name)].combine_chunks().cast(kind)
        arrays.append(pc.min_element_wise(column, LAST_TIME + 1) if name == "hub_ts" else column)
    yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema([EVENTS.field(name) for name in columns]))


def _copies(sources: Sources, picked: Sequence[Picked], columns: Sequence[str]) -> list[pa.RecordBatch]:
    result_names, read = read_names(columns)
    batches: list[pa.RecordBatch] = []
    for item in picked:
        table = _read(sources, item, [COPIED.get(name, name) for name in read])
        for name in ("origin_epoch", "origin_stream_seq"):
            if name in table.column_names:
                table = table.filter(pc.less_equal(table[name], pa.scalar(_MOST_NUMBER, table[name].type)))
        arrays = [
            table[COPIED.get(name, name)].combine_chunks().cast(EVENTS.field(name).type) for name in read
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema([EVENTS.field(name) for name in read]))
        batches += sources.taken().events([batch], result_names)
    if not batches:
        return []
    joined = pa.Table.from_batches(batches).sort_by([(name, "ascending") for name in (*ORDER, "label", "at")])
    places = list(zip(*(joined[name].to_pylist() for name in ORDER), strict=True))
    first = [nth == 0 or places[nth - 1] != place for nth, place in enumerate(places)]
    kept = joined.filter(pa.array(first, pa.bool_())).select(list(columns))
    return list(kept.combine_chunks().to_batches())
