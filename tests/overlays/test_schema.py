"""Schemas: what is accepted encodes to itself, and what is refused is refused by name."""

from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.core.encoding.field_types import B32, BYTES, INT, TEXT, UINT, ListOf
from veen.core.encoding.shape import Field
from veen.core.objects import labels
from veen.overlays import registry
from veen.overlays.engine import encode_state, state_hash
from veen.overlays.errors import InvalidBodyError, OverlayError
from veen.overlays.schema import ANY, ANY_MAP, Inner, OrNull, Schema

ID = bytes(range(32))
PLAIN = Schema(
    "veen.test.v1",
    Field("id", B32),
    Field("count", UINT),
    Field("note", TEXT, optional=True),
    Field("limit", OrNull(UINT)),
    Field("change", INT, optional=True),
    Field("names", ListOf(BYTES), optional=True),
    Field("more", ANY_MAP, optional=True),
    Field("inner", Inner("inner", Field("code", TEXT), Field("why", TEXT, optional=True)), optional=True),
)
WITH_NULLS = Schema(
    "test.nulls.v1", Field("a", UINT), Field("b", TEXT, optional=True), Field("c", ANY), nulls=True
)
GOOD: dict[str, Any] = {"id": ID, "count": 1, "limit": None}


def encoded(**values: Any) -> bytes:
    return cbor2.dumps(values)


@pytest.mark.parametrize(
    "body",
    [
        GOOD,
        {**GOOD, "limit": 2**64 - 1, "change": -(2**64) + 1, "names": [b"", b"x"], "more": {"a": [1, None]}},
        {"id": ID, "count": 1, "note": None, "limit": 0, "change": None},
        {**GOOD, "inner": {"code": "NO"}},
        {**GOOD, "inner": {"code": "NO", "why": "because"}},
    ],
)
def test_what_is_accepted_encodes_to_itself(body: dict[str, Any]) -> None:
    data = cbor2.dumps(body)
    assert PLAIN.encode(PLAIN.decode(data)) == data


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "BODY.TRUNCATED"),
        (b"\x80", "BODY.TYPE"),
        (encoded(**GOOD) + b"\x00", "BODY.TRAILING"),
        (encoded(**GOOD)[:-1], "BODY.TRUNCATED"),
        (encoded(count=1, id=ID, limit=None), "BODY.KEY_ORDER"),
        (encoded(id=ID, count=1), "BODY.MISSING_KEY"),
        (encoded(**GOOD, other=1), "BODY.UNKNOWN_KEY"),
        (encoded(id=ID[1:], count=1, limit=None), "BODY.FIELD_SIZE"),
        (encoded(id=ID.hex(), count=1, limit=None), "BODY.TYPE"),
        (encoded(id=ID, count=-1, limit=None), "BODY.NEGATIVE"),
        (encoded(id=ID, count=True, limit=None), "BODY.BOOL"),
        (encoded(id=ID, count=None, limit=None), "BODY.NULL"),
        (encoded(id=ID, count=1.5, limit=None), "BODY.FLOAT"),
        (encoded(id=ID, count="1", limit=None), "BODY.TYPE"),
        (encoded(**GOOD, more=[1]), "BODY.TYPE"),
        (encoded(**GOOD, more={"b": 1, "a": 2}), "BODY.KEY_ORDER"),
        (encoded(**GOOD, more={"a": 0.5}), "BODY.FLOAT"),
        (encoded(**GOOD, inner={"why": "x"}), "BODY.MISSING_KEY"),
        (b"\xa1\x62id\x9f\xff", "BODY.TYPE"),
        (b"\xbf\xff", "BODY.INDEFINITE"),
        (encoded(**GOOD).replace(b"\x65count\x01", b"\x65count\x18\x01"), "BODY.NON_MINIMAL"),
        (encoded(id=ID, count=1, note="x", limit=None).replace(b"\x61x", b"\x61\xff"), "BODY.UTF8"),
    ],
)
def test_what_is_refused_is_refused_by_name(body: bytes, code: str) -> None:
    with pytest.raises(InvalidBodyError) as refused:
        PLAIN.decode(body)
    assert refused.value.code == code


@given(st.binary(max_size=80))
def test_decoding_is_total(data: bytes) -> None:
    for schema in registry.schemas().values():
        try:
            body = schema.decode(data)
        except InvalidBodyError:
            continue
        assert schema.encode(body) == data


@given(st.data())
def test_a_changed_byte_is_refused_or_is_another_body(data: st.DataObject) -> None:
    body = bytearray(encoded(id=ID, count=1, note="some text", limit=7, more={"a": 1}))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    try:
        found = PLAIN.decode(bytes(body))
    except InvalidBodyError:
        return
    assert PLAIN.encode(found) == bytes(body)


def test_absent_fields_are_left_out_or_written_as_null() -> None:
    assert PLAIN.encode(PLAIN.make(**GOOD)) == encoded(**GOOD)
    assert WITH_NULLS.encode(WITH_NULLS.make(a=1, c=None)) == encoded(a=1, b=None, c=None)
    for data in (encoded(a=1, c=None), encoded(a=1, b=None, c=None)):
        assert WITH_NULLS.encode(WITH_NULLS.decode(data)) == data


def test_making_a_body_refuses_what_the_schema_does() -> None:
    for values, code in (
        ({"count": 1, "limit": None}, "BODY.MISSING_KEY"),
        ({**GOOD, "colour": 1}, "BODY.UNKNOWN_KEY"),
        ({**GOOD, "id": b"short"}, "BODY.FIELD_SIZE"),
        ({**GOOD, "count": "1"}, "BODY.TYPE"),
    ):
        with pytest.raises(InvalidBodyError) as refused:
            PLAIN.make(**values)
        assert refused.value.code == code


def test_json() -> None:
    form: Any = {"count": 1, "id": ID.hex(), "limit": None, "names": ["00ff"], "more": {"b": [1], "a": None}}
    body = PLAIN.from_json(form)
    assert body["names"] == [b"\x00\xff"]
    assert PLAIN.to_json(body) == form
    assert PLAIN.decode(PLAIN.encode(body)) == body
    mistakes: list[Any] = [
        {**form, "count": "1"},
        {**form, "id": "zz"},
        {**form, "id": ID.hex().upper()},
        {**form, "more": {"a": 0.5}},
        {**form, "more": {"a": -1}},
        {**form, "colour": 1},
        {"count": 1},
        [],
    ]
    for wrong in mistakes:
        with pytest.raises(InvalidBodyError):
            PLAIN.from_json(wrong)


@pytest.mark.parametrize("name", registry.schemas())
def test_ids_follow_the_rule(name: str) -> None:
    schema = registry.schemas()[name]
    assert schema.schema_id == labels.schema_id(name)
    is_operation = name.split(".", maxsplit=1)[0] not in ("wallet", "rpc", "crdt", "recorder", "veen")
    assert schema.nulls == is_operation, "the operation profiles write null, others leave out"


@pytest.mark.parametrize(
    ("name", "fields", "text"),
    [
        ("", (), "the name of a schema is text"),
        (5, (), "the name of a schema is text"),
        ("a.v1", ("choice",), "schema a.v1: 'choice' is not a field"),
        ("a.v1", (Field("choice", str),), "is not a field: write Field("),  # type: ignore[arg-type]
        ("a.v1", (Field("choice", TEXT), Field("choice", INT)), "has two fields 'choice'"),
    ],
)
def test_a_wrong_declaration_is_one_clear_line(name: Any, fields: Any, text: str) -> None:
    with pytest.raises(OverlayError) as caught:
        Schema(name, *fields)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


class TestStates:
    def test_a_state_has_one_encoding(self) -> None:
        assert encode_state({b"b": 1, b"a": -1}) == encode_state({b"a": -1, b"b": 1})
        assert encode_state({b"a": [True, None, "x", (1,)]}) == bytes.fromhex("a1416184f5f66178810" + "1")
        assert cbor2.loads(encode_state({"EUR": -(2**64), "a": {b"": 2**64 - 1}})) == {
            "EUR": -(2**64),
            "a": {b"": 2**64 - 1},
        }

    def test_classes_keep_hashes_apart(self) -> None:
        assert state_hash("orset", []) != state_hash("lww.map", [])

    @pytest.mark.parametrize("value", [2**64, -(2**64) - 1, [{"a": 2**64}]])
    def test_a_number_beyond_64_bits_has_no_encoding(self, value: Any) -> None:
        with pytest.raises(InvalidBodyError) as caught:
            encode_state(value)
        assert caught.value.code == "STATE.OVERFLOW"

    @pytest.mark.parametrize("value", [0.5, {1, 2}, object()])
    def test_what_is_no_state(self, value: Any) -> None:
        with pytest.raises(TypeError):
            encode_state(value)


def test_anything_is_what_json_says() -> None:
    assert ANY.to_json({"a": [b"\x01", {1: True}]}) == {"a": ["01", {"1": True}]}
