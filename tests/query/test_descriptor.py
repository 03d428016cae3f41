"""Descriptors: what is filled in, what is refused and by which code, and that the normal form is one form."""

import hashlib
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.query import strategies
from veen.core.encoding import canonical_json
from veen.query import descriptor as descriptors
from veen.query.descriptor import Aggregate, Descriptor, Evidence, Filter, Mode, parse_descriptor
from veen.query.errors import QueryError
from veen.query.fields import DEFAULT_FIELDS

STREAM = "record/app/web"
LEAST: dict[str, Any] = {"scope": [STREAM]}


def new_id() -> str:
    return "q-new"


def parse(value: Any) -> Descriptor:
    return parse_descriptor(json.dumps(value).encode(), new_id)


def refused(data: bytes) -> QueryError:
    with pytest.raises(QueryError) as caught:
        parse_descriptor(data, new_id)
    return caught.value


# --- the normal form ----------------------------------------------------------------------------------------


def test_the_least_that_can_be_asked() -> None:
    made = parse(LEAST)
    assert made == Descriptor("q-new", (STREAM,), Filter(), DEFAULT_FIELDS, Evidence())
    assert made.encode() == (
        b'{"evidence":{"mode":"none"},"filter":{"event_type":null,"subject_id":null,"time":null},'
        b'"projection":["subject_id","principal_id","event_type","event_time","origin","receipt_id"],'
        b'"query_id":"q-new","scope":["record/app/web"],"version":1}'
    )


def test_everything_at_once() -> None:
    made = parse(
        {
            "version": 1,
            "query_id": "Audit:2026-01_a.b",
            "scope": ["record/b", "record/a"],
            "filter": {
                "subject_id": "alice",
                "event_type": ["x", "é", "login", "x"],
                "time": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"},
            },
            "evidence": {"mode": "spot", "sample_rate": 0.250},
            "aggregate": {"group_by": ["payload.a.b", "stream"], "metrics": ["max(event_time)", "count"]},
            "meta": {"reason": "yearly", "n": 1.50},
        }
    )
    assert (
        made.encode()
        == (
            '{"aggregate":{"group_by":["payload.a.b","stream"],"metrics":["max(event_time)","count"]},'
            '"evidence":{"mode":"spot","sample_rate":0.25},'
            '"filter":{"event_type":["login","x","é"],"subject_id":"alice",'
            '"time":{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T00:00:00Z"}},'
            '"meta":{"n":1.5,"reason":"yearly"},'
            '"projection":["payload.a.b","stream","max(event_time)","count"],'
            '"query_id":"Audit:2026-01_a.b","scope":["record/b","record/a"],"version":1}'
        ).encode()
    )
    assert made.evidence == Evidence(Mode.SPOT, Decimal("0.25"))
    assert made.aggregate == Aggregate(("payload.a.b", "stream"), ("max(event_time)", "count"))
    assert (made.filter.time_from, made.filter.time_to) == (1767225600, 1767225600)


SAME_AS_LEAST: dict[str, Any] = {
    "version 1.0": {"version": 1.0},
    "null id": {"query_id": None},
    "null filter": {"filter": None},
    "empty filter": {"filter": {}},
    "filter of nulls": {"filter": {"subject_id": None, "event_type": None, "time": None}},
    "times of null": {"filter": {"time": {"from": None, "to": None}}},
    "no times": {"filter": {"time": {}}},
    "null projection": {"projection": None},
    "star": {"projection": ["*"]},
    "star spelled out": {"projection": list(DEFAULT_FIELDS)},
    "null evidence": {"evidence": None},
    "evidence none": {"evidence": {"mode": "none"}},
    "null sample_rate": {"evidence": {"mode": "none", "sample_rate": None}},
    "null aggregate": {"aggregate": None},
    "null meta": {"meta": None},
}


@pytest.mark.parametrize("more", SAME_AS_LEAST.values(), ids=SAME_AS_LEAST)
def test_ways_to_say_the_same(more: dict[str, Any]) -> None:
    assert parse(LEAST | more) == parse(LEAST)


def test_an_aggregate_projects_its_groups_and_metrics() -> None:
    aggregate = {"metrics": ["count"], "group_by": ["origin"]}
    made = parse(LEAST | {"aggregate": aggregate})
    for projection in (["*"], ["origin", "count"]):
        assert parse(LEAST | {"aggregate": aggregate, "projection": projection}) == made
    assert made.projection == ("origin", "count")
    alone = parse(LEAST | {"aggregate": {"metrics": ["count"]}})
    assert alone.to_json()["aggregate"] == {"group_by": [], "metrics": ["count"]}
    assert parse(LEAST | {"aggregate": {"metrics": ["count"], "group_by": None}}) == alone


def test_an_empty_list_of_types_is_kept_it_selects_nothing() -> None:
    assert parse(LEAST | {"filter": {"event_type": []}}).filter.event_type == ()


@given(strategies.descriptors())
def test_the_normal_form_is_normal(value: dict[str, Any]) -> None:
    made = parse_descriptor(canonical_json.encode(value), new_id)
    stored = canonical_json.parse(made.encode())
    assert descriptors.normalize(stored, new_id) == made
    assert descriptors.from_json(stored) == made
    assert descriptors.from_json(stored).encode() == made.encode()


def test_a_stored_descriptor_must_be_normal() -> None:
    stored = parse(LEAST).to_json()
    descriptors.from_json(stored)
    loose: list[Any] = [
        None,
        [],
        LEAST,
        {key: item for key, item in stored.items() if key != "query_id"},
        {key: item for key, item in stored.items() if key != "version"},
        {key: item for key, item in stored.items() if key != "filter"},
        stored | {"projection": ["*"]},
        stored | {"meta": None},
        stored | {"query_id": None},
        stored | {"filter": {"subject_id": None, "event_type": ["b", "a"], "time": None}},
        stored | {"filter": {"subject_id": None, "event_type": None, "time": {"from": None, "to": None}}},
        stored | {"evidence": {"mode": "none", "sample_rate": None}},
    ]
    for value in loose:
        with pytest.raises(QueryError) as caught:
            descriptors.from_json(value)
        assert caught.value.error_code == "invalid_query_descriptor"


# --- what is refused ----------------------------------------------------------------------------------------

NOT_JSON: dict[str, bytes] = {
    "nothing": b"",
    "half": b'{"scope":["a"]',
    "not UTF-8": b'{"scope":["\xff"]}',
    "byte order mark": b'\xef\xbb\xbf{"scope":["a"]}',
    "a name twice": b'{"scope":["a"],"scope":["b"]}',
    "a name twice in the filter": b'{"scope":["a"],"filter":{"subject_id":"a","subject_id":null}}',
    "a name twice in meta": b'{"scope":["a"],"meta":{"a":1,"a":1}}',
    "NaN": b'{"scope":["a"],"evidence":{"mode":"spot","sample_rate":NaN}}',
    "lone surrogate": b'{"scope":["\\ud800"]}',
    "deep": b'{"scope":["a"],"meta":{"x":' + b"[" * 1000 + b"]" * 1000 + b"}}",
    "huge number": b'{"scope":["a"],"meta":{"x":1e999999999}}',
}


@pytest.mark.parametrize("data", NOT_JSON.values(), ids=NOT_JSON)
def test_not_json(data: bytes) -> None:
    assert refused(data).error_code == "invalid_json"


VERSIONS: list[Any] = [0, 2, -1, 1.5, "1", None, True, False, [], {}, [1], 10**100]


@pytest.mark.parametrize("version", VERSIONS, ids=repr)
def test_other_versions(version: Any) -> None:
    """Also with keys that only that version knows."""
    others: list[dict[str, Any]] = [{}, {"joins": []}, {"scope": 7}]
    for more in others:
        error = refused(json.dumps(LEAST | {"version": version} | more).encode())
        assert (error.error_code, error.status) == ("unsupported_version", 400)


LONG = "a" * 70_000
INVALID: dict[str, Any] = {
    "a list": [LEAST],
    "a string": "scope",
    "null": None,
    "no scope": {},
    "null scope": {"scope": None},
    "empty scope": {"scope": []},
    "scope a string": {"scope": STREAM},
    "scope of numbers": {"scope": [1]},
    "scope with null": {"scope": [STREAM, None]},
    "scope with an empty name": {"scope": [""]},
    "scope with a long name": {"scope": ["é" * 257]},
    "scope twice": {"scope": [STREAM, STREAM]},
    "scope twice, once by its id": {"scope": [STREAM, hashlib.sha256(STREAM.encode()).hexdigest()]},
    "scope too long": {"scope": [f"record/{number}" for number in range(257)]},
    "unknown key": LEAST | {"limit": 5},
    "a key in upper case": LEAST | {"Filter": {}},
    "empty id": LEAST | {"query_id": ""},
    "id with a space": LEAST | {"query_id": "a b"},
    "id with a newline": LEAST | {"query_id": "a\n"},
    "id not ASCII": LEAST | {"query_id": "é"},
    "id with another digit": LEAST | {"query_id": "٣"},
    "id with a slash": LEAST | {"query_id": "../x"},
    "id too long": LEAST | {"query_id": "a" * 129},
    "id a number": LEAST | {"query_id": 7},
    "filter a list": LEAST | {"filter": []},
    "filter with an unknown key": LEAST | {"filter": {"origin": "web"}},
    "subject a number": LEAST | {"filter": {"subject_id": 7}},
    "subject a list": LEAST | {"filter": {"subject_id": ["alice"]}},
    "type a string": LEAST | {"filter": {"event_type": "login"}},
    "types with null": LEAST | {"filter": {"event_type": [None]}},
    "too many types": LEAST | {"filter": {"event_type": [f"{number}" for number in range(1025)]}},
    "time a string": LEAST | {"filter": {"time": "2026-01-01T00:00:00Z"}},
    "time with an unknown key": LEAST | {"filter": {"time": {"until": None}}},
    "from a number": LEAST | {"filter": {"time": {"from": 1}}},
    "a fraction of a second": LEAST | {"filter": {"time": {"from": "2026-01-01T00:00:00.0Z"}}},
    "from after to": LEAST
    | {"filter": {"time": {"from": "2026-01-01T00:00:01Z", "to": "2026-01-01T00:00:00Z"}}},
    "empty projection": LEAST | {"projection": []},
    "projection a string": LEAST | {"projection": "*"},
    "projection of an unknown field": LEAST | {"projection": ["body"]},
    "star and others": LEAST | {"projection": ["*", "origin"]},
    "star twice": LEAST | {"projection": ["*", "*"]},
    "projection twice": LEAST | {"projection": ["origin", "origin"]},
    "projection of a metric": LEAST | {"projection": ["count"]},
    "projection too long": LEAST | {"projection": [f"payload.{number}" for number in range(65)]},
    "payload and nothing": LEAST | {"projection": ["payload."]},
    "an empty part": LEAST | {"projection": ["payload.a..b"]},
    "a path into text": LEAST | {"projection": ["subject_id.x"]},
    "a long path": LEAST | {"projection": ["payload." + "x" * 249]},
    "evidence a string": LEAST | {"evidence": "none"},
    "no mode": LEAST | {"evidence": {}},
    "unknown mode": LEAST | {"evidence": {"mode": "some"}},
    "mode a list": LEAST | {"evidence": {"mode": ["none"]}},
    "mode in upper case": LEAST | {"evidence": {"mode": "FULL"}},
    "unknown key of evidence": LEAST | {"evidence": {"mode": "none", "rate": 1}},
    "spot without a rate": LEAST | {"evidence": {"mode": "spot"}},
    "spot with a null rate": LEAST | {"evidence": {"mode": "spot", "sample_rate": None}},
    "rate 0": LEAST | {"evidence": {"mode": "spot", "sample_rate": 0}},
    "negative rate": LEAST | {"evidence": {"mode": "spot", "sample_rate": -0.5}},
    "rate above 1": LEAST | {"evidence": {"mode": "spot", "sample_rate": 1.0000001}},
    "rate as text": LEAST | {"evidence": {"mode": "spot", "sample_rate": "0.5"}},
    "rate true": LEAST | {"evidence": {"mode": "spot", "sample_rate": True}},
    "rate of full": LEAST | {"evidence": {"mode": "full", "sample_rate": 1}},
    "rate of none": LEAST | {"evidence": {"mode": "none", "sample_rate": 0.5}},
    "aggregate a list": LEAST | {"aggregate": ["count"]},
    "aggregate of nothing": LEAST | {"aggregate": {}},
    "unknown key of aggregate": LEAST | {"aggregate": {"metrics": ["count"], "having": 1}},
    "no metrics": LEAST | {"aggregate": {"metrics": []}},
    "metrics a string": LEAST | {"aggregate": {"metrics": "count"}},
    "unknown metric": LEAST | {"aggregate": {"metrics": ["sum(payload.n)"]}},
    "min of another": LEAST | {"aggregate": {"metrics": ["min(hub_commit_time)"]}},
    "metrics twice": LEAST | {"aggregate": {"metrics": ["count", "count"]}},
    "groups a string": LEAST | {"aggregate": {"metrics": ["count"], "group_by": "origin"}},
    "groups twice": LEAST | {"aggregate": {"metrics": ["count"], "group_by": ["origin", "origin"]}},
    "unknown group": LEAST | {"aggregate": {"metrics": ["count"], "group_by": ["host"]}},
    "groups of star": LEAST | {"aggregate": {"metrics": ["count"], "group_by": ["*"]}},
    "groups of receipts": LEAST | {"aggregate": {"metrics": ["count"], "group_by": ["receipt_id"]}},
    "groups of payloads": LEAST | {"aggregate": {"metrics": ["count"], "group_by": ["payload"]}},
    "groups of metadata": LEAST | {"aggregate": {"metrics": ["count"], "group_by": ["metadata"]}},
    "receipts of an aggregate": LEAST | {"aggregate": {"metrics": ["count"]}, "projection": ["receipt_id"]},
    "other projection of an aggregate": LEAST
    | {"aggregate": {"metrics": ["count"], "group_by": ["origin"]}, "projection": ["origin"]},
    "meta a string": LEAST | {"meta": "because"},
    "meta a list": LEAST | {"meta": []},
    "too large": LEAST | {"meta": {"x": LONG}},
}


@pytest.mark.parametrize("value", INVALID.values(), ids=INVALID)
def test_invalid_descriptors(value: Any) -> None:
    error = refused(json.dumps(value).encode())
    assert (error.error_code, error.status) == ("invalid_query_descriptor", 400)
    assert 10 < len(error.message) < 400


def test_a_descriptor_that_grows_is_refused() -> None:
    """Each of these numbers has a thousand digits when it is written out."""
    data = (
        json.dumps(LEAST | {"meta": {"x": []}}).replace("[]}", f"[{','.join(['1e999'] * 9000)}]}}").encode()
    )
    assert len(data) < descriptors.MAX_DESCRIPTOR_BYTES
    assert refused(data).error_code == "invalid_query_descriptor"


def test_the_text_itself_is_bounded() -> None:
    data = json.dumps(LEAST).encode()
    padded = data + b" " * (descriptors.MAX_DESCRIPTOR_BYTES - len(data))
    assert parse_descriptor(padded, new_id) == parse(LEAST)
    assert refused(padded + b" ").error_code == "invalid_query_descriptor"


def test_a_rate_of_one_is_a_rate() -> None:
    made = parse(LEAST | {"evidence": {"mode": "spot", "sample_rate": 1.0}})
    assert made.to_json()["evidence"] == {"mode": "spot", "sample_rate": 1}


def test_values_that_were_never_json_are_refused_too() -> None:
    with pytest.raises(QueryError) as caught:
        descriptors.normalize({"scope": ["\ud800"]}, new_id)
    assert caught.value.error_code == "invalid_json"


def test_as_much_as_is_allowed() -> None:
    made = parse(
        {
            "query_id": "a" * 128,
            "scope": [f"record/{number}" for number in range(256)],
            "filter": {"event_type": [f"t{number}" for number in range(1024)]},
            "aggregate": {
                "metrics": list(descriptors.METRICS),
                "group_by": [f"payload.{n}" for n in range(64)],
            },
        }
    )
    assert descriptors.from_json(canonical_json.parse(made.encode())) == made
    parse({"scope": ["é" * 256], "projection": ["payload." + "x" * 248]})


def test_new_ids_are_ids() -> None:
    made = [descriptors.new_query_id(bytes), descriptors.new_result_id(lambda count: b"\xab" * count)]
    assert made == ["q-" + "0" * 32, "r-" + "ab" * 16]
    assert all(map(descriptors.is_id, made))


# --- whatever comes -----------------------------------------------------------------------------------------

ANYTHING = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.decimals(allow_nan=False, allow_infinity=False, places=3),
        st.text(max_size=5),
        st.sampled_from(("*", "count", "receipt_id", "payload.a", "spot", "2026-01-01T00:00:00Z", STREAM)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ("mode", "sample_rate", "from", "to", "time", "metrics", "group_by", "event_type")
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=6,
)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"x":', b"}")])
def test_a_descriptor_leaves_room_for_what_it_is_shown_in(opening: bytes, closing: bytes) -> None:
    def nested(depth: int) -> bytes:
        return b'{"scope":["a"],"meta":{"x":' + opening * (depth - 2) + b"0" + closing * (depth - 2) + b"}}"

    found = parse_descriptor(nested(descriptors.MAX_DEPTH), new_id)
    shown: canonical_json.Json = {"ok": True, "answer": [{"descriptor": found.to_json()}]}
    assert canonical_json.parse(canonical_json.encode(shown)) == shown
    for depth in (descriptors.MAX_DEPTH + 1, canonical_json.MAX_DEPTH):
        with pytest.raises(QueryError, match="deeper than 60") as caught:
            parse_descriptor(nested(depth), new_id)
        assert caught.value.error_code == "invalid_query_descriptor"


def attempt(data: bytes) -> Descriptor | QueryError:
    try:
        return parse_descriptor(data, new_id)
    except QueryError as error:
        return error


@given(
    strategies.descriptors(),
    st.sampled_from(
        ("query_id", "version", "scope", "filter", "projection", "evidence", "aggregate", "meta", "other")
    ),
    ANYTHING,
)
def test_anything_is_a_query_or_an_error_of_400(value: dict[str, Any], key: str, other: Any) -> None:
    found = attempt(canonical_json.encode(value | {key: other}))
    if isinstance(found, QueryError):
        assert found.status == 400
    else:
        assert descriptors.from_json(canonical_json.parse(found.encode())) == found


@given(st.binary(max_size=40), strategies.descriptors(), st.data())
def test_damaged_text_is_a_query_or_an_error_of_400(
    junk: bytes, value: dict[str, Any], data: st.DataObject
) -> None:
    text = canonical_json.encode(value)
    start, end = sorted(data.draw(st.integers(0, len(text))) for _ in range(2))
    found = attempt(text[:start] + junk + text[end:])
    assert isinstance(found, Descriptor) or found.status == 400
