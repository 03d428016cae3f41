"""Kinds of fields: which bytes, JSON values and Python values each accepts."""

from typing import Any

import pytest

from tests import rawcbor as raw
from tests.builders import digest
from tests.expect import faulty, refused
from veen.core.encoding.field_types import (
    B16,
    B32,
    B32_OR_NULL,
    B64,
    BOOL,
    BYTES,
    CIPHERTEXT,
    TEXT,
    UINT,
    VER,
    Kind,
    ListOf,
    constant,
)
from veen.core.errors import Detail, Fault
from veen.core.limits import DEFAULT_LIMITS, Limits

#: kind, its raw value, the encoding and the JSON form.
FORMS: list[tuple[Kind, Any, bytes, Any]] = [
    (UINT, 2**64 - 1, raw.uint(2**64 - 1), 2**64 - 1),
    (VER, 1, raw.uint(1), 1),
    (TEXT, "ü", raw.tstr("ü"), "ü"),
    (constant("sha256"), "sha256", raw.tstr("sha256"), "sha256"),
    (BOOL, True, raw.TRUE, True),
    (BOOL, False, raw.FALSE, False),
    (BYTES, b"", b"\x40", ""),
    (BYTES, b"\x0a\xff", b"\x42\x0a\xff", "0aff"),
    (B16, bytes(16), b"\x50" + bytes(16), "00" * 16),
    (B32, digest("x"), b"\x58\x20" + digest("x"), digest("x").hex()),
    (B64, bytes(64), b"\x58\x40" + bytes(64), "00" * 64),
    (B32_OR_NULL, digest("x"), b"\x58\x20" + digest("x"), digest("x").hex()),
    (B32_OR_NULL, None, raw.NULL, None),
    (CIPHERTEXT, bytes(40), b"\x58\x28" + bytes(40), "00" * 40),
]
IDS = [f"{kind.name} {value!r:.12}" for kind, value, _, _ in FORMS]


@pytest.mark.parametrize(("kind", "value", "encoded", "json"), FORMS, ids=IDS)
def test_a_value_has_one_encoding_and_one_json_form(
    kind: Kind, value: Any, encoded: bytes, json: Any
) -> None:
    assert kind.read(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))
    assert kind.write(value) == encoded
    assert kind.to_json(value) == json
    parsed = kind.from_json(json)
    assert parsed == value
    assert type(parsed) is type(value)
    kind.check(value, DEFAULT_LIMITS)
    kind.versions(value)
    assert kind.lift(kind.lower(value)) == value


# --- JSON ---------------------------------------------------------------------------------------------------

JSON_REFUSED: list[tuple[str, Kind, Any, Fault]] = [
    ("bool as number", UINT, True, Fault.TYPE),
    ("number with a fraction", UINT, 1.0, Fault.TYPE),
    ("number as text", UINT, "1", Fault.TYPE),
    ("null as number", UINT, None, Fault.TYPE),
    ("negative number", UINT, -1, Fault.NEGATIVE),
    ("number beyond 64 bits", UINT, 2**64, Fault.VALUE),
    ("bool as version", VER, True, Fault.TYPE),
    ("number as text field", TEXT, 1, Fault.TYPE),
    ("null as text", TEXT, None, Fault.TYPE),
    ("text with half a surrogate pair", TEXT, "\ud83d", Fault.UTF8),
    ("another text than the constant", constant("sha256"), "sha512", Fault.VALUE),
    ("constant in upper case", constant("sha256"), "SHA256", Fault.VALUE),
    ("null for the constant", constant("sha256"), None, Fault.VALUE),
    ("1 for true", BOOL, 1, Fault.TYPE),
    ("0 for false", BOOL, 0, Fault.TYPE),
    ("text for true", BOOL, "true", Fault.TYPE),
    ("null for false", BOOL, None, Fault.TYPE),
    ("upper case hex", BYTES, "0A", Fault.VALUE),
    ("mixed case hex", BYTES, "0aFF", Fault.VALUE),
    ("half a byte of hex", BYTES, "0", Fault.VALUE),
    ("hex with spaces", BYTES, "0a ff", Fault.VALUE),
    ("hex with a newline", BYTES, "0a\n", Fault.VALUE),
    ("hex with a prefix", BYTES, "0x0a", Fault.VALUE),
    ("hex in other digits", BYTES, "\u0660\u0661", Fault.VALUE),
    ("not hex", BYTES, "zz", Fault.VALUE),
    ("number as bytes", BYTES, 10, Fault.TYPE),
    ("list as bytes", BYTES, [0, 1], Fault.TYPE),
    ("null as bytes", BYTES, None, Fault.TYPE),
    ("null where bytes are not optional", B32, None, Fault.TYPE),
    ("upper case where null is possible", B32_OR_NULL, "AA" * 32, Fault.VALUE),
    ("object as list", ListOf(UINT), {}, Fault.TYPE),
    ("text as list", ListOf(TEXT), "abc", Fault.TYPE),
    ("wrong element", ListOf(UINT), [1, -1], Fault.NEGATIVE),
    ("empty list", ListOf(UINT, may_be_empty=False), [], Fault.EMPTY),
]


@pytest.mark.parametrize(
    ("kind", "json", "fault"), [pytest.param(*case[1:], id=case[0]) for case in JSON_REFUSED]
)
def test_json_is_as_strict_as_cbor(kind: Kind, json: Any, fault: Fault) -> None:
    with faulty(fault):
        kind.from_json(json)


# --- bytes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "size"), [(B16, 16), (B32, 32), (B64, 64), (B32_OR_NULL, 32)])
def test_a_fixed_length_is_judged_after_reading_because_it_is_another_row(kind: Kind, size: int) -> None:
    for wrong in (0, size - 1, size + 1, 200):
        value, _ = kind.read(raw.bstr(bytes(wrong)), 0)
        with refused(Detail.FIELD_SIZE) as caught:
            kind.check(value, DEFAULT_LIMITS)
        assert caught.value.fields == {"expected": size, "actual": wrong}


@pytest.mark.parametrize(("kind", "size"), [(B16, 16), (B32, 32), (B64, 64)])
def test_a_fixed_length_string_is_not_null_nor_cut_off_nor_has_a_long_head(kind: Kind, size: int) -> None:
    with faulty(Fault.NULL):
        kind.read(raw.NULL, 0)
    with faulty(Fault.TRUNCATED):
        kind.read(raw.bstr(bytes(size))[:-1], 0)
    with faulty(Fault.NON_MINIMAL):
        kind.read(raw.bstr(bytes(size), width=2), 0)


def test_any_version_can_be_read_and_only_1_is_supported() -> None:
    for version in (0, 2, 2**64 - 1):
        value, _ = VER.read(raw.uint(version), 0)
        with refused(Detail.VERSION) as caught:
            VER.versions(value)
        assert caught.value.fields == {"expected": 1, "actual": version}


def test_a_constant_refuses_every_other_text() -> None:
    with faulty(Fault.VALUE, offset=0):
        constant("sha256").read(raw.tstr("sha257"), 0)
    with faulty(Fault.TYPE, offset=0):
        constant("sha256").read(raw.bstr(b"sha256"), 0)


def test_a_list_has_a_limit_of_its_own_or_of_the_readers_registry() -> None:
    fixed = ListOf(UINT, max_length=2)
    of_registry = ListOf(UINT, max_length=lambda limits: limits.max_cap_stream_ids)
    three, _ = fixed.read(raw.array([raw.uint(1)] * 3), 0)
    with refused(Detail.FIELD_SIZE) as caught:
        fixed.check(three, DEFAULT_LIMITS)
    assert caught.value.fields == {"actual": 3, "max_allowed": 2}
    fixed.check(three[:2], DEFAULT_LIMITS)
    of_registry.check(three, DEFAULT_LIMITS)
    of_registry.check(three, Limits(max_cap_stream_ids=3))
    with refused(Detail.FIELD_SIZE):
        of_registry.check(three, Limits(max_cap_stream_ids=2))


def test_a_list_checks_each_of_its_elements() -> None:
    value, _ = ListOf(B32).read(raw.array([raw.bstr(bytes(32)), raw.bstr(bytes(31))]), 0)
    with refused(Detail.FIELD_SIZE):
        ListOf(B32).check(value, None)
    with refused(Detail.VERSION):
        ListOf(VER).versions([1, 2])
    with faulty(Fault.EMPTY, offset=0):
        ListOf(UINT, may_be_empty=False).read(b"\x80", 0)
    with faulty(Fault.EMPTY):
        ListOf(UINT, may_be_empty=False).lower(())


# --- Python values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (UINT, True),
        (UINT, 1.0),
        (UINT, None),
        (UINT, "1"),
        (TEXT, b"text"),
        (TEXT, None),
        (BOOL, 1),
        (BYTES, "00"),
        (BYTES, bytearray(4)),
        (BYTES, memoryview(b"1234")),
        (B32, None),
        (B32_OR_NULL, "00"),
        (ListOf(UINT), [1]),
        (ListOf(UINT), None),
        (ListOf(UINT), ("1",)),
    ],
)
def test_a_wrong_python_type_is_a_mistake_of_the_program_and_not_of_the_peer(kind: Kind, wrong: Any) -> None:
    with pytest.raises(TypeError):
        kind.lower(wrong)


def test_values_that_have_no_encoding_are_refused_before_they_are_in_an_object() -> None:
    for number in (-1, 2**64):
        with refused(Detail.VALUE):
            UINT.lower(number)
    with faulty(Fault.UTF8):
        TEXT.lower("\udc00")
    with refused(Detail.VALUE):
        constant("sha256").lower("sha512")
