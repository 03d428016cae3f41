"""The error envelope: how a failure travels, in CBOR and in JSON."""

from typing import Any

import cbor2
import pytest

from tests import rawcbor as raw
from tests.builders import digest, error_envelope, full_error_envelope
from tests.expect import faulty, refused
from veen.core.errors import Detail, DetailValue, Fault, ProtocolError
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.types import JsonValue


def test_the_map() -> None:
    assert cbor2.loads(error_envelope().encode()) == {1: 1, 2: "E.FORMAT", 3: "no"}
    full = full_error_envelope()
    assert cbor2.loads(full.encode()) == {
        1: 1,
        2: "E.SIZE",
        3: "too long",
        4: {"field": "label", "actual": 33, "label": digest("label"), "expected": 32},
        5: 3,
        6: "r-1",
    }


def test_an_error_carries_stage_and_detail_enum() -> None:
    error = ProtocolError(Detail.FIELD_SIZE, "too long", field="label", actual=33)
    envelope = ErrorEnvelope.of(error, retry_after=2, request_id="r")
    assert envelope.code == "E.SIZE"
    assert envelope.message == "too long"
    assert envelope.detail == {
        "field": "label",
        "actual": 33,
        "stage": "structural",
        "detail_enum": "FIELD_SIZE",
    }
    assert (envelope.retry_after, envelope.request_id) == (2, "r")
    assert ErrorEnvelope.decode(envelope.encode()) == envelope


@pytest.mark.parametrize("detail", list(Detail))
def test_every_kind_of_error_can_travel(detail: Detail) -> None:
    envelope = ErrorEnvelope.of(ProtocolError(detail, "no"))
    assert ErrorEnvelope.from_json(ErrorEnvelope.decode(envelope.encode()).to_json()) == envelope


def test_codes_of_other_versions_are_kept_as_they_are() -> None:
    foreign = error_envelope(code="E.DUP")
    assert ErrorEnvelope.decode(foreign.encode()).code == "E.DUP"


# --- detail in CBOR -----------------------------------------------------------------------------------------


def with_detail(*pairs: tuple[bytes, bytes]) -> bytes:
    return raw.with_pair(error_envelope().encode(), 4, raw.mapping(pairs))


def test_keys_are_written_shorter_first_and_then_bytewise() -> None:
    detail: dict[str, DetailValue] = {"bb": 1, "a": 2, "c": 3, "aa": 4, "": 5, "a" * 24: 6}
    encoded = dict(raw.pairs(error_envelope(detail=detail).encode()))[raw.uint(4)]
    keys = [cbor2.loads(key) for key, _ in raw.pairs(encoded)]
    assert keys == ["", "a", "c", "aa", "bb", "a" * 24]


def test_keys_out_of_order_or_repeated_are_refused() -> None:
    a, b, aa = (raw.tstr(key) for key in ("a", "b", "aa"))
    one = raw.uint(1)
    assert ErrorEnvelope.decode(with_detail((a, one), (b, one), (aa, one))).detail == {
        "a": 1,
        "b": 1,
        "aa": 1,
    }
    for pairs in ([(b, one), (a, one)], [(aa, one), (b, one)]):
        with faulty(Fault.KEY_ORDER, field="detail"):
            ErrorEnvelope.decode(with_detail(*pairs))
    with faulty(Fault.DUPLICATE_KEY, field="detail"):
        ErrorEnvelope.decode(with_detail((a, one), (a, one)))
    with faulty(Fault.TYPE, field="detail"):
        ErrorEnvelope.decode(with_detail((raw.uint(1), one)))


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (raw.NULL, Fault.NULL),
        (raw.TRUE, Fault.BOOL),
        (b"\x80", Fault.TYPE),
        (b"\xa0", Fault.TYPE),
        (b"\x20", Fault.NEGATIVE),
        (b"\xf9\x00\x00", Fault.FLOAT),
        (b"\xc0\x00", Fault.TAG),
        (b"", Fault.TRUNCATED),
    ],
)
def test_values_are_numbers_texts_or_bytes(value: bytes, fault: Fault) -> None:
    with faulty(fault, field="detail"):
        ErrorEnvelope.decode(with_detail((raw.tstr("a"), value)))


def test_no_detail_is_not_an_empty_detail() -> None:
    empty = error_envelope(detail={})
    assert empty.encode() != error_envelope().encode()
    assert ErrorEnvelope.decode(empty.encode()).detail == {}
    assert ErrorEnvelope.decode(error_envelope().encode()).detail is None


# --- detail in JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "json"),
    [
        ("actual", 5, 5),
        ("field", "label", "label"),
        ("field", "00ff", "00ff"),
        ("actual", b"\x00\xff", {"hex": "00ff"}),
        ("actual", b"", {"hex": ""}),
        ("label", b"\x00\xff", "00ff"),
        ("label", b"", ""),
        ("label", "00ff", {"text": "00ff"}),
        ("label", "", {"text": ""}),
        ("label", 7, 7),
    ],
)
def test_bytes_and_texts_stay_apart_in_json(key: str, value: DetailValue, json: JsonValue) -> None:
    envelope = error_envelope(detail={key: value})
    form: Any = envelope.to_json()
    assert form["detail"] == {key: json}
    assert ErrorEnvelope.from_json(form) == envelope
    assert ErrorEnvelope.from_json(form).encode() == envelope.encode()


@pytest.mark.parametrize(
    ("key", "json", "fault"),
    [
        ("actual", {"hex": "FF"}, Fault.VALUE),
        ("actual", {"hex": 1}, Fault.TYPE),
        ("actual", {"hex": "ff", "more": 1}, Fault.TYPE),
        ("actual", {"text": "x"}, Fault.TYPE),
        ("actual", {}, Fault.TYPE),
        ("actual", [], Fault.TYPE),
        ("actual", None, Fault.TYPE),
        ("actual", True, Fault.TYPE),
        ("actual", 1.5, Fault.TYPE),
        ("actual", -1, Fault.NEGATIVE),
        ("actual", 2**64, Fault.VALUE),
        ("actual", "\ud800", Fault.UTF8),
        ("label", "FF", Fault.VALUE),
        ("label", "not hex", Fault.VALUE),
        ("label", {"hex": "ff"}, Fault.TYPE),
        ("label", {"text": 1}, Fault.TYPE),
        ("label", {"text": "\ud800"}, Fault.UTF8),
        ("\ud800", 1, Fault.UTF8),
    ],
)
def test_ambiguous_or_impossible_json_is_refused(key: str, json: Any, fault: Fault) -> None:
    with faulty(fault, field="detail"):
        ErrorEnvelope.from_json({"ver": 1, "code": "E.SIZE", "message": "no", "detail": {key: json}})


def test_detail_must_be_an_object_in_json() -> None:
    not_objects: list[JsonValue] = [[], "x", 1, None]
    for wrong in not_objects:
        with faulty(Fault.TYPE, field="detail"):
            ErrorEnvelope.from_json({"ver": 1, "code": "E.SIZE", "message": "no", "detail": wrong})


# --- constructing -------------------------------------------------------------------------------------------


def test_a_constructor_refuses_what_could_not_travel() -> None:
    for wrong in (-1, 2**64):
        with refused(Detail.VALUE):
            error_envelope(detail={"actual": wrong})
    with faulty(Fault.UTF8):
        error_envelope(detail={"field": "\ud800"})
    with faulty(Fault.UTF8):
        error_envelope(detail={"\ud800": 1})
    with faulty(Fault.UTF8):
        error_envelope(message="\ud800")
    for bad in ({"a": None}, {"a": True}, {"a": 1.5}, {"a": [1]}, {1: 1}):
        detail: Any = bad
        with pytest.raises(TypeError):
            error_envelope(detail=detail)


def test_detail_can_not_be_changed_behind_the_encoding() -> None:
    detail: dict[str, DetailValue] = {"actual": 1}
    envelope = error_envelope(detail=detail)
    before = envelope.encode()
    detail["actual"] = 2
    assert envelope.detail == {"actual": 1}
    changed: Any = envelope.detail
    with pytest.raises(TypeError):
        changed["actual"] = 3
    decoded: Any = ErrorEnvelope.decode(before).detail
    with pytest.raises(TypeError):
        decoded["actual"] = 3
    assert envelope.encode() == before
