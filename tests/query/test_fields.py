"""Rows: the values of fields, the fast encoder beside the plain one, and their order."""

import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.query import reference, strategies
from veen.core.encoding import canonical_json
from veen.query import descriptor as descriptors
from veen.query.digest import RowsHasher
from veen.query.fields import BASE_FIELDS, DEFAULT_FIELDS, Encoder, Event, is_field
from veen.query.timestamps import LAST_TIME

EVENT = Event(
    stream="record/app/web",
    epoch=3,
    seq=17,
    hub_ts=1_700_000_000,
    subject_id='al"ice',
    principal_id="ab" * 32,
    event_type="http.request",
    event_time=1_699_999_999,
    origin="web-1",
    payload='{"a":{"b":[1,{"c":2}],"n":null},"status":200,"ä":"ö"}',
    metadata='{"trace":"t1"}',
    receipt_id=bytes(range(32)),
)
EVERY = (*strategies.BASE, "payload", "metadata", *strategies.PATHS)


def test_the_row_of_all_fields_that_have_one_value() -> None:
    assert Encoder(BASE_FIELDS).encode(EVENT) == (
        b'{"event_time":"2023-11-14T22:13:19Z","event_type":"http.request","hub_commit_seq":17,'
        b'"hub_commit_time":"2023-11-14T22:13:20Z","origin":"web-1","principal_id":"' + b"ab" * 32 + b'",'
        b'"receipt_id":"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",'
        b'"stream":"record/app/web","subject_id":"al\\"ice"}'
    )


PATHS: dict[str, Any] = {
    "payload": {"a": {"b": [1, {"c": 2}], "n": None}, "status": 200, "ä": "ö"},
    "payload.status": 200,
    "payload.ä": "ö",
    "payload.a.b": [1, {"c": 2}],
    "payload.a.b.c": None,  # lists are not entered
    "payload.a.b.0": None,
    "payload.a.n": None,
    "payload.a.n.x": None,
    "payload.status.x": None,
    "payload.x.y.z": None,
    "metadata": {"trace": "t1"},
    "metadata.trace": "t1",
    "metadata.status": None,
}


@pytest.mark.parametrize(("field", "value"), PATHS.items())
def test_paths(field: str, value: Any) -> None:
    assert is_field(field)
    assert reference.field(EVENT, field) == value
    assert json.loads(Encoder([field]).encode(EVENT)) == {field: value}


@pytest.mark.parametrize(
    "text", ["true", "false", "null", "0", "18446744073709551615", '"\\n"', "[]", '{"b":true}']
)
def test_a_single_value_under_a_path(text: str) -> None:
    row = Encoder(["payload.a"]).encode(EVENT._replace(payload=f'{{"a":{text}}}'))
    assert row == f'{{"payload.a":{text}}}'.encode()


def test_without_metadata_and_with_a_payload_that_is_no_object() -> None:
    bare = EVENT._replace(payload='"text"', metadata=None)
    fields = ("payload", "payload.a", "metadata", "metadata.a")
    expected = b'{"metadata":null,"metadata.a":null,"payload":"text","payload.a":null}'
    assert Encoder(fields).encode(bare) == expected


def test_a_payload_of_null_is_null_in_the_lake() -> None:
    absent = EVENT._replace(payload=None)
    fields = ("payload", "payload.a")
    assert Encoder(fields).encode(absent) == b'{"payload":null,"payload.a":null}'


def test_a_hub_whose_clock_is_beyond_all_dates() -> None:
    late = EVENT._replace(hub_ts=LAST_TIME + 1)
    assert Encoder(["hub_commit_time"]).encode(late) == b'{"hub_commit_time":null}'


@pytest.mark.parametrize("text", ["1.5", '{"a":1e3}', "NaN", '{"a":-Infinity}'])
def test_a_payload_that_can_not_be_is_not_guessed_at(text: str) -> None:
    """Two readers could write such a number differently."""
    with pytest.raises(ValueError, match="fractions"):
        Encoder(["payload.a"]).encode(EVENT._replace(payload=text))


@given(strategies.events("record/é", 1, 2), st.lists(st.sampled_from(EVERY), min_size=1, unique=True))
def test_the_fast_encoder_writes_canonical_rows(event: Event, fields: list[str]) -> None:
    row = {name: reference.field(event, name) for name in fields}
    assert Encoder(fields).encode(event) == canonical_json.encode(row)


# --- answers ------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(strategies.logs(), strategies.descriptors(), st.randoms(use_true_random=False))
def test_the_parts_give_the_answer_of_the_reference(
    log: list[Event], value: dict[str, Any], random: Any
) -> None:
    """What the reference selects is encoded and hashed by the parts, in whatever order it comes."""
    value.pop("aggregate", None)
    query = descriptors.normalize(value, lambda: "q-1")
    form: Any = query.to_json()
    rows = reference.answer(form, log)
    random.shuffle(log)
    hasher, encoder = RowsHasher(), Encoder(query.projection)
    hasher.extend(map(encoder.encode, reference.contributing(form, log)))
    assert (hasher.count, hasher.rows_hash) == (len(rows), reference.rows_hash(rows))


def test_the_reference_counts_nothing_too() -> None:
    query = descriptors.normalize(
        {"scope": ["s"], "aggregate": {"metrics": list(descriptors.METRICS)}}, lambda: "q-1"
    )
    form: Any = query.to_json()
    assert reference.answer(form, []) == [{"count": 0, "min(event_time)": None, "max(event_time)": None}]
    form["aggregate"]["group_by"] = ["origin"]
    assert reference.answer(form, []) == []


def test_default_fields() -> None:
    assert DEFAULT_FIELDS == (
        "subject_id",
        "principal_id",
        "event_type",
        "event_time",
        "origin",
        "receipt_id",
    )
    assert all(map(is_field, DEFAULT_FIELDS))


def test_events_cross_processes() -> None:
    assert pickle.loads(pickle.dumps(EVENT)) == EVENT  # noqa: S301 - our own bytes
