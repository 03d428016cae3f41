"""Bodies as typed columns: the kind of a field in its schema determines the type of its column.

============================  ==================  ==========================================================
kind                          column              remark
============================  ==================  ==========================================================
uint, int                     ``decimal(20,0)``   holds every 64-bit number, and its negative
text                          ``string``
bool                          ``boolean``
byte strings of any size      ``binary``          also the encoded body of another schema
lists                         ``array``           of the column of their elements
maps, any                     ``string``          the JSON form, without spaces, names sorted; bytes as hex
============================  ==================  ==========================================================

Optional fields are null where they are absent. Decoding is that of ``veen.overlays.event``: it is total, and
invalid bodies are rejected with the same code and text.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veen.core.encoding.field_types import Kind, ListOf, Scalar
from veen.core.encoding.shape import Fields
from veen.overlays.errors import InvalidBodyError
from veen.overlays.schema import ANY, OrNull, Schema

NUMBER: Final = pa.decimal128(20, 0)
_WORD: Final = (1 << 64) - 1
_BYTES_OF_NUMBER: Final = 16
_TYPES: Final[Mapping[type, pa.DataType]] = {
    int: NUMBER,
    str: pa.string(),
    bytes: pa.binary(),
    bool: pa.bool_(),
}


def arrow_type(kind: Kind) -> pa.DataType:
    """Return the type of the column for values of a kind."""
    if isinstance(kind, OrNull):
        return arrow_type(kind.kind)
    if isinstance(kind, ListOf):
        return pa.list_(arrow_type(kind.kind))
    known = _TYPES.get(kind.python_type) if isinstance(kind, Scalar) else None
    return pa.string() if known is None else known


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the columns of a schema's bodies, named like its fields."""
    return pa.schema(
        [
            pa.field(field.name, arrow_type(field.kind), nullable=field.optional or _may_be_null(field.kind))
            for field in schema.fields
        ]
    )


def _may_be_null(kind: Kind) -> bool:
    """Return whether null is a value of a kind; it is one of ``any``, without a text."""
    return kind is ANY or isinstance(kind, OrNull)


def columns_of(schema: Schema, bodies: Sequence[Fields]) -> list[pa.Array]:
    """Return decoded bodies as columns, in the order of ``arrow_schema``."""
    return [column_of(field.kind, [body.get(field.name) for body in bodies]) for field in schema.fields]


def column_of(kind: Kind, values: list[Any]) -> pa.Array:
    """Return values of a kind, or None, as a column."""
    shaped = _plain_of(kind)
    if shaped is not None:
        values = [None if value is None else shaped(value) for value in values]
    return _array(arrow_type(kind), values)


def _array(kind: pa.DataType, values: list[Any]) -> pa.Array:
    return numbers_of(values) if kind == NUMBER else pa.array(values, kind)


def _plain_of(kind: Kind) -> Callable[[Any], Any] | None:
    """Return the function that converts a value for its column; None if no conversion is needed."""
    if isinstance(kind, OrNull):
        return _plain_of(kind.kind)
    if isinstance(kind, ListOf):
        inner = _plain_of(kind.kind)
        return None if inner is None else lambda values: [inner(value) for value in values]
    if isinstance(kind, Scalar) and kind.python_type in _TYPES:
        return None
    return lambda value: json.dumps(
        kind.to_json(value), ensure_ascii=False, sort_keys=True, separators=(",", ":")
    )


def numbers_of(values: Sequence[int | None]) -> pa.Array:
    """Return numbers of up to 64 bits and a sign as decimals, many times faster than one by one."""
    count = len(values)
    words = np.zeros((count, 2), dtype="<u8")
    try:
        words[:, 0] = np.array(values, dtype="<u8")
        valid = None
    except (TypeError, OverflowError, ValueError):  # some are absent or negative
        words[:, 0] = [0 if value is None else value & _WORD for value in values]
        words[:, 1] = [_WORD if value is not None and value < 0 else 0 for value in values]
        present = np.fromiter((value is not None for value in values), np.bool_, count)
        valid = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(NUMBER, count, [valid, pa.py_buffer(words)])


def ints_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column of integers, or of decimals without a fraction, as Python integers; null is None."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in ints_of(chunk)]
    if not pa.types.is_decimal128(column.type):
        return column.to_pylist()  # type: ignore[no-any-return] # pyarrow has no types
    data = column.buffers()[1]
    first = column.offset * _BYTES_OF_NUMBER
    words = np.frombuffer(data, "<i8", 2 * len(column), first).reshape(-1, 2)
    if not words[:, 1].any():
        integers: list[Any] = words[:, 0].view("<u8").tolist()
    else:
        integers = [high * (1 << 64) + (low & _WORD) for low, high in words.tolist()]
    if column.null_count:
        integers = [
            value if valid else None for value, valid in zip(integers, column.is_valid(), strict=True)
        ]
    return integers


# --- decoding -----------------------------------------------------------------------------------------------


def schema_numbers(schemas: Iterable[Schema]) -> dict[bytes, int]:
    """Return the index of each schema by its id."""
    return {schema.schema_id: place for place, schema in enumerate(schemas)}


class Typed(NamedTuple):
    """Records as typed columns; a rejected body has nulls, and the reason."""

    # The index of each record's schema among the requested ones; None: another schema.
    kinds: list[int | None]
    # The decoded bodies; None if rejected or of another schema.
    bodies: list[Fields | None]
    codes: list[str | None]
    details: list[str | None]


def decode(schemas: Sequence[Schema], batch: pa.RecordBatch) -> Typed:
    """Decode the bodies of records (``schema``, ``body``, ``cap_ref``, ``auth_ref``); never raises."""
    numbers = schema_numbers(schemas)
    kinds = [numbers.get(name) for name in batch.column("schema").to_pylist()]
    bodies: list[Any] = batch.column("body").to_pylist()
    codes: list[str | None] = [None] * len(kinds)
    details: list[str | None] = [None] * len(kinds)
    refused = _refused_refs(batch)
    readers = [schema.decode for schema in schemas]
    for place, kind in enumerate(kinds):
        if kind is None:
            bodies[place] = None
            continue
        try:
            if place in refused:
                raise InvalidBodyError("BODY.CAP_REF", CAP_REF_TEXT)  # noqa: TRY301 - one way to be refused
            bodies[place] = readers[kind](bodies[place])
        except InvalidBodyError as error:
            bodies[place], codes[place], details[place] = None, error.code, str(error)
    return Typed(kinds, bodies, codes, details)


# The text that ``veen.overlays.event`` has for such a record.
CAP_REF_TEXT: Final = "cap_ref is not the auth_ref of the message"


def _refused_refs(batch: pa.RecordBatch) -> frozenset[int]:
    """Return the indexes of records that name another capability than they were admitted under (OPP-005)."""
    named = batch.column("cap_ref")
    if named.null_count == len(named):
        return frozenset()
    pairs = zip(named.to_pylist(), batch.column("auth_ref").to_pylist(), strict=True)
    return frozenset(place for place, (cap, auth) in enumerate(pairs) if cap is not None and cap != auth)


# Position and id of an event: columns of every table of events.
_PLACE: Final = (
    pa.field("epoch", pa.int64()),
    pa.field("stream_seq", pa.int64()),
    pa.field("msg_id", pa.binary()),
)
_VERDICT: Final = (pa.field("code", pa.string()), pa.field("detail", pa.string()))


class EventTable:
    """A table of decoded events: its schemas, the selected fields, and further columns of the records.

    Columns: ``epoch``, ``stream_seq``, ``msg_id``; the requested columns of the records; ``kind``, the index
    of the schema; the fields; and ``code`` and ``detail``, which are null unless the body was rejected. With
    ``longs``, numbers are ``bigint``, which costs a fraction; one that does not fit is null, and ``raw`` has
    the body.
    """

    def __init__(
        self,
        schemas: Sequence[Schema],
        fields: Sequence[str],
        extras: Sequence[pa.Field] = (),
        *,
        longs: bool = False,
    ) -> None:
        self.schemas = tuple(schemas)
        self.fields = {name: _kind_named(name, self.schemas) for name in fields}
        self.extras = tuple(extras)
        kinds = {name: arrow_type(kind) for name, kind in self.fields.items()}
        self.longs = [name for name, kind in kinds.items() if longs and kind == NUMBER]
        self.arrow = pa.schema(
            [
                *_PLACE,
                *self.extras,
                pa.field("kind", pa.int32()),
                *(pa.field(name, pa.int64() if name in self.longs else kind) for name, kind in kinds.items()),
                *([pa.field("raw", pa.binary())] if self.longs else []),
                *_VERDICT,
            ]
        )
        assert len(set(self.arrow.names)) == len(self.arrow.names), "a field is named as a column of records"

    @property
    def reads(self) -> list[str]:
        """The columns of records that it is computed from."""
        names = [field.name for field in (*_PLACE, *self.extras)]
        return list(dict.fromkeys([*names, "schema", "body", "cap_ref", "auth_ref"]))

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return records as events; ``kind`` is null for other schemas."""
        kinds, bodies, codes, details = decode(self.schemas, batch)
        listed = [body or {} for body in bodies]
        columns = [batch.column(field.name) for field in (*_PLACE, *self.extras)]
        columns.append(pa.array(kinds, pa.int32()))
        large: set[int] = set()
        for name, kind in self.fields.items():
            values = [body.get(name) for body in listed]
            columns.append(_longs(values, large) if name in self.longs else column_of(kind, values))
        if self.longs:
            raw = batch.column("body")
            is_large = np.zeros(len(raw), np.bool_)
            is_large[list(large)] = True
            columns.append(pc.if_else(pa.array(is_large), raw, pa.scalar(None, raw.type)))
        columns += [pa.array(codes, pa.string()), pa.array(details, pa.string())]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of records as batches of events."""
        return map(self.of, batches)


def _longs(values: list[int | None], large: set[int]) -> pa.Array:
    """Return numbers of 64 bits; larger ones are null, and their indexes are added to ``large``."""
    try:
        return pa.array(values, pa.int64())
    except (OverflowError, pa.ArrowInvalid):
        fitting = [value if value is None or _fits(value) else None for value in values]
        large |= {nth for nth, value in enumerate(values) if value is not None and fitting[nth] is None}
        return pa.array(fitting, pa.int64())


def _fits(value: int) -> bool:
    return -(1 << 63) <= value < 1 << 63


def _kind_named(name: str, schemas: Iterable[Schema]) -> Kind:
    """Return the kind of a field; all schemas that have it agree on its column."""
    kinds = [field.kind for schema in schemas for field in schema.fields if field.name == name]
    assert kinds, f"no schema has a field {name}"
    assert len({str(arrow_type(kind)) for kind in kinds}) == 1, f"{name} is of several types"
    return kinds[0]
