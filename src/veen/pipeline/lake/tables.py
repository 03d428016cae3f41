"""The tables of a lake: their columns, and the conversion of entries to rows."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

import pyarrow as pa

from veen.core.types import StreamId
from veen.overlays.registry import schemas
from veen.overlays.schema import Schema
from veen.pipeline.lake import layout
from veen.pipeline.log.entry_columns import Entries, binary
from veen.pipeline.open.records import RECORDS
from veen.pipeline.open.typed_columns import arrow_schema, columns_of, decode


def _field(name: str, kind: pa.DataType, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable)


# All fields of a message and its receipt, and nothing else: the exact bytes of both follow from a row.
BRONZE: Final = pa.schema(
    [
        _field("stream_id", pa.binary(), nullable=True),
        _field("epoch", pa.int64()),
        _field("label", pa.binary()),
        _field("stream_seq", pa.int64()),
        _field("profile_id", pa.binary()),
        _field("client_id", pa.binary()),
        _field("client_seq", pa.int64()),
        _field("prev_ack", pa.int64()),
        _field("auth_ref", pa.binary(), nullable=True),
        _field("ct_hash", pa.binary()),
        _field("ciphertext", pa.binary()),
        _field("sig", pa.binary()),
        _field("leaf_hash", pa.binary()),
        _field("mmr_root", pa.binary()),
        _field("hub_ts", pa.int64()),
        _field("hub_sig", pa.binary()),
    ]
)

# Position and sender of an event: the first columns of every table of typed bodies.
PLACE: Final = (
    "stream_id",
    "epoch",
    "label",
    "stream_seq",
    "msg_id",
    "client_id",
    "client_seq",
    "hub_ts",
    "receipt_id",
)

# Bodies that do not match their schema.
REJECTED: Final = pa.schema(
    [
        *(RECORDS.field(name) for name in PLACE),
        _field("schema_name", pa.string()),
        _field("code", pa.string()),
        _field("detail", pa.string()),
    ]
)


@cache
def typed_schema(schema: Schema) -> pa.Schema:
    """Return the columns of a schema's table: the position of the event, then the fields of its body.

    A field whose name collides with one of the former gets the prefix ``body_``.
    """
    fields = (
        item.with_name(f"body_{item.name}") if item.name in PLACE else item for item in arrow_schema(schema)
    )
    return pa.schema([*(RECORDS.field(name) for name in PLACE), *fields])


@cache
def _known() -> tuple[Schema, ...]:
    return tuple(schemas().values())


@cache
def columns_by_table() -> dict[str, pa.Schema]:
    """Return the columns of all tables that a slice of a log can have."""
    found = {layout.ENTRIES: BRONZE, layout.RECORDS: RECORDS, layout.REJECTED: REJECTED}
    return found | {layout.schema_table(schema.name): typed_schema(schema) for schema in _known()}


def bronze(entries: Entries, stream_id: StreamId | None, epoch: int) -> pa.RecordBatch:
    """Return entries as rows."""
    count, data = len(entries), entries.frames.data
    spans = zip(entries.ct_start.tolist(), entries.ct_end.tolist(), strict=True)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(stream_id, pa.binary()), count),
            pa.repeat(pa.scalar(epoch, pa.int64()), count),
            pa.repeat(pa.scalar(bytes(entries.label), pa.binary()), count),
            pa.array(entries.stream_seq),
            binary(entries.profile_id),
            binary(entries.client_id),
            pa.array(entries.client_seq),
            pa.array(entries.prev_ack),
            binary(entries.auth_ref, entries.has_auth_ref),
            binary(entries.ct_hash),
            pa.array([data[start:end] for start, end in spans], pa.binary()),
            binary(entries.sig),
            binary(entries.leaf_hash),
            binary(entries.mmr_root),
            pa.array(entries.hub_ts),
            binary(entries.hub_sig),
        ],
        schema=BRONZE,
    )


def typed(records: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the typed rows of records, by table: those of each schema, and the rejected ones."""
    known = _known()
    found = decode(known, records)
    places: dict[int, list[int]] = {}
    refused: list[int] = []
    for place, kind in enumerate(found.kinds):
        if kind is None:
            continue
        if found.codes[place] is None:
            places.setdefault(kind, []).append(place)
        else:
            refused.append(place)
    for kind, rows in sorted(places.items()):
        schema = known[kind]
        bodies = [body for row in rows if (body := found.bodies[row]) is not None]
        columns = [*_placed(records, rows), *columns_of(schema, bodies)]
        yield (
            layout.schema_table(schema.name),
            pa.RecordBatch.from_arrays(columns, schema=typed_schema(schema)),
        )
    if refused:
        kinds = [kind for row in refused if (kind := found.kinds[row]) is not None]
        said = [
            pa.array([known[kind].name for kind in kinds], pa.string()),
            pa.array([found.codes[row] for row in refused], pa.string()),
            pa.array([found.details[row] for row in refused], pa.string()),
        ]
        columns = [*_placed(records, refused), *said]
        yield layout.REJECTED, pa.RecordBatch.from_arrays(columns, schema=REJECTED)


def _placed(records: pa.RecordBatch, rows: Sequence[int]) -> list[pa.Array]:
    if len(rows) == len(records):
        return [records.column(name) for name in PLACE]
    chosen = pa.array(rows, pa.int64())
    return [records.column(name).take(chosen) for name in PLACE]
