"""Bodies as columns: every schema, every number, and what is refused."""

import json
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.overlays.histories import HISTORIES
from tests.overlays.logs import ident
from tests.pipeline.record_batches import batch_of
from tests.query.strategies import TEXT
from veen.core.crypto.hash import U64_MAX
from veen.core.encoding import canonical_json, cbor
from veen.overlays import registry
from veen.overlays.builtin.crdt import COUNTER, LWW, ORSET
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Decoder, Record
from veen.overlays.operations.paid_ledger import PAID
from veen.overlays.recorder.schemas import EVENT
from veen.overlays.schema import ANY
from veen.overlays.wallet import schemas as wal
from veen.pipeline.open.records import RECORDS
from veen.pipeline.open.typed_columns import (
    EventTable,
    arrow_schema,
    column_of,
    columns_of,
    decode,
    ints_of,
    numbers_of,
)

SCHEMAS = {
    schema.name: schema for name in registry.names() for schema in registry.overlay_class(name).schemas
}


def records_batch(records: list[Record]) -> pa.RecordBatch:
    """Return records as rows of the table of opened entries."""
    return batch_of(
        {"stream_id": b"s", "label": b"l", "receipt_id": b"r", **record._asdict()} for record in records
    )


def _as_json(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case Decimal():
            return int(value)
        case list():
            return [_as_json(item) for item in value]
    return value


def _histories() -> list[Record]:
    return [record for make in HISTORIES.values() for record in make(Random(5), 500)]


def test_columns_hold_what_bodies_hold() -> None:
    seen = set()
    by_schema: dict[bytes, list[dict[str, Any]]] = {}
    decoder = Decoder(SCHEMAS.values())
    for record in _histories():
        schema = decoder.schema_of(record)
        if schema is None:
            continue
        try:
            by_schema.setdefault(schema.schema_id, []).append(schema.decode(record.body))
        except InvalidBodyError:
            continue
    for schema in SCHEMAS.values():
        bodies = by_schema.get(schema.schema_id, [])
        table = pa.RecordBatch.from_arrays(columns_of(schema, bodies), schema=arrow_schema(schema))
        table.validate(full=True)
        for body, row in zip(bodies, table.to_pylist(), strict=True):
            shown = schema.to_json(body)
            for name, value in row.items():
                plain = _as_json(value)
                if plain != shown.get(name) and value != body[name]:  # nested: as text
                    texts = plain if isinstance(plain, list) else [plain]
                    found = [json.loads(text) for text in texts]
                    assert (found if isinstance(plain, list) else found[0]) == shown[name]
                seen.add((schema.name, name))
    assert {name for name, _ in seen} == set(SCHEMAS), "every schema is met"


def test_types_follow_from_kinds() -> None:
    assert arrow_schema(LWW) == pa.schema(
        [
            pa.field("key", pa.binary(), nullable=False),
            pa.field("ts", pa.decimal128(20, 0), nullable=False),
            pa.field("value", pa.binary(), nullable=False),
        ]
    )
    assert arrow_schema(ORSET).field("tomb") == pa.field("tomb", pa.list_(pa.binary()))
    assert arrow_schema(wal.LIMIT).field("daily_limit") == pa.field("daily_limit", pa.decimal128(20, 0))
    assert arrow_schema(wal.TRANSFER).field("metadata") == pa.field("metadata", pa.string())
    assert arrow_schema(PAID).field("operation_args") == pa.field("operation_args", pa.string())


def test_anything_can_be_null_and_a_map_can_not() -> None:
    columns = arrow_schema(EVENT)
    assert columns.field("payload").nullable
    assert not columns.field("origin").nullable
    body = EVENT.make(
        subject_id="s", principal_id="p", event_type="t", event_time=1, origin="o", payload=None
    )
    pa.RecordBatch.from_arrays(columns_of(EVENT, [body]), schema=columns).validate(full=True)


def test_nested_values_are_json_text() -> None:
    body = PAID.make(
        operation_type="t",
        operation_args={"b": [1, b"\x00\xff"], "a": "ü"},
        payer_account=ident(1),
        payee_account=ident(2),
        amount=1,
    )
    column = columns_of(PAID, [body])[1]
    assert column.to_pylist() == ['{"a":"ü","b":[1,"00ff"]}']


@pytest.mark.parametrize(
    "values",
    [
        [],
        [0, 1, U64_MAX, 2**63, 2**63 - 1],
        [-1, 0, -U64_MAX, U64_MAX, -(2**63)],
        [None, 5, None, U64_MAX, -7],
        [None],
    ],
)
def test_numbers_come_back(values: list[int | None]) -> None:
    column = numbers_of(values)
    column.validate(full=True)
    assert column.to_pylist() == [None if value is None else Decimal(value) for value in values]
    assert ints_of(column) == values
    assert ints_of(column.slice(1)) == values[1:]
    assert ints_of(pa.chunked_array([column, column])) == [*values, *values]


def test_sums_beyond_64_bits_come_back() -> None:
    sums = [Decimal(2**100), Decimal(-(2**90) - 1), None, Decimal(3)]
    assert ints_of(pa.array(sums, pa.decimal128(38, 0))) == [2**100, -(2**90) - 1, None, 3]
    assert ints_of(pa.array([1, None], pa.int64())) == [1, None]


@pytest.mark.parametrize("name", registry.names())
def test_what_is_refused_is_refused_as_in_process(name: str) -> None:
    schemas = registry.overlay_class(name).schemas
    decoder = Decoder(schemas)
    records = HISTORIES[name](Random(9), 300)
    records += [record._replace(cap_ref=ident("other")) for record in records[:3]]
    records += [record._replace(cap_ref=ident("one"), auth_ref=ident("one")) for record in records[:3]]
    kinds, bodies, codes, details = decode(schemas, records_batch(records))
    for nth, record in enumerate(records):
        schema = decoder.schema_of(record)
        assert kinds[nth] == (None if schema is None else schemas.index(schema))
        try:
            body = None if schema is None else decoder.decode(record, schema)
            wanted: tuple[str | None, str | None] = (None, None)
        except InvalidBodyError as error:
            body, wanted = None, (error.code, str(error))
        assert (bodies[nth], codes[nth], details[nth]) == (body, *wanted)


def test_a_table_of_events_has_a_row_for_each_record() -> None:
    table = EventTable((LWW, COUNTER), ("key", "ts", "delta"), [RECORDS.field("hub_ts")])
    good = LWW.encode(LWW.make(key=b"k", ts=U64_MAX, value=b"v"))
    count = COUNTER.encode(COUNTER.make(shard=ident(1), delta=3))
    rows = [
        Record(1, b"a" * 32, b"c", 1, 10, LWW.schema_id, good),
        Record(2, b"b" * 32, b"c", 2, 11, COUNTER.schema_id, count),
        Record(3, b"c" * 32, b"c", 3, 12, LWW.schema_id, b"\xff"),
        Record(4, b"d" * 32, b"c", 4, 13, None, b""),
    ]
    (made,) = table.batches([records_batch(rows)])
    made.validate(full=True)
    assert made.column("kind").to_pylist() == [0, 1, 0, None]
    assert made.column("key").to_pylist() == [b"k", None, None, None]
    assert ints_of(made.column("ts")) == [U64_MAX, None, None, None]
    assert ints_of(made.column("delta")) == [None, 3, None, None]
    assert made.column("hub_ts").to_pylist() == [10, 11, 12, 13]
    assert [code is not None for code in made.column("code").to_pylist()] == [False, False, True, False]


def test_numbers_that_fit_are_long_and_others_are_in_the_body() -> None:
    table = EventTable((LWW,), ("key", "ts"), longs=True)
    bodies = [LWW.encode(LWW.make(key=b"k", ts=ts, value=b"v")) for ts in (0, 2**63 - 1, 2**63, U64_MAX, 7)]
    rows = [Record(nth, b"a" * 32, b"c", 1, 10, LWW.schema_id, body) for nth, body in enumerate(bodies)]
    made = table.of(records_batch(rows))
    made.validate(full=True)
    assert made.column("ts").to_pylist() == [0, 2**63 - 1, None, None, 7]
    assert made.column("raw").to_pylist() == [None, None, bodies[2], bodies[3], None]
    assert table.of(records_batch(rows[:2])).column("raw").null_count == 2


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(0, 2**64 - 1), TEXT, st.binary(max_size=4)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.one_of(TEXT, st.integers(0, 9)), inner, max_size=3),
        ),
        max_leaves=8,
    )
)
def test_payloads_in_the_lake_are_canonical_already(value: Any) -> None:
    """What the lake makes of a payload can be put into a row as it is."""
    raw, _ = ANY.read(cbor.encode(value), 0)
    text = column_of(ANY, [raw]).to_pylist()[0]
    if raw is None:
        assert text is None
        return
    assert canonical_json.encode(canonical_json.parse(text.encode())) == text.encode()
