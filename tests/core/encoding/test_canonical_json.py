"""Canonical JSON: every rule by hand, every hostile text refused, and one text for one value."""

import json
import tracemalloc
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.query.strategies import TEXT
from veen.core.encoding import canonical_json
from veen.core.encoding.canonical_json import MAX_DEPTH, MAX_DIGITS
from veen.core.errors import ProtocolError

WRITTEN: dict[str, tuple[Any, str]] = {
    "null": (None, "null"),
    "true": (True, "true"),
    "false": (False, "false"),
    "zero": (0, "0"),
    "negative": (-7, "-7"),
    "beyond 64 bits": (2**64, "18446744073709551616"),
    "minus zero": (Decimal("-0"), "0"),
    "minus zero with a fraction": (Decimal("-0.000"), "0"),
    "zero with an exponent": (Decimal("0e999"), "0"),
    "trailing zeros": (Decimal("1.500"), "1.5"),
    "integral": (Decimal("100.00"), "100"),
    "positive exponent": (Decimal("1.5e3"), "1500"),
    "negative exponent": (Decimal("25e-3"), "0.025"),
    "negative fraction": (Decimal("-0.10"), "-0.1"),
    "more digits than a context has": (Decimal("1." + "3" * 60), "1." + "3" * 60),
    "the smallest double": (Decimal("5e-324"), "0." + "0" * 323 + "5"),
    "the longest number": (10**MAX_DIGITS - 1, "9" * MAX_DIGITS),
    "empty text": ("", '""'),
    "quote and backslash": ('"\\', '"\\"\\\\"'),
    "solidus": ("/", '"/"'),
    "short escapes": ("\b\f\n\r\t", '"\\b\\f\\n\\r\\t"'),
    "other control characters": ("\x00\x01\x0b\x1f", '"\\u0000\\u0001\\u000b\\u001f"'),
    "not escaped": ("\x7f\x80é\u2028\ufeff\uffff\U0001f512", '"\x7f\x80é\u2028\ufeff\uffff\U0001f512"'),
    "empty list": ([], "[]"),
    "empty object": ({}, "{}"),
    "order of a list is kept": ([3, 1, 2], "[3,1,2]"),
    "a tuple is a list": ((1, ("x",)), '[1,["x"]]'),
    "names are sorted": ({"b": 1, "a": 2, "B": 3, "": 4, "aa": 5}, '{"":4,"B":3,"a":2,"aa":5,"b":1}'),
    # UTF-16 would put U+10000 (d800 dc00) before U+FFFF; in UTF-8 ef bf bf is before f0 90 80 80.
    "names are sorted as UTF-8 sorts": (
        {"\U00010000": 1, "\uffff": 2, "é": 3, "z": 4},
        '{"z":4,"é":3,"\uffff":2,"\U00010000":1}',
    ),
    "names are escaped": ({'"\n': 1}, '{"\\"\\n":1}'),
}


@pytest.mark.parametrize(("value", "text"), WRITTEN.values(), ids=WRITTEN)
def test_what_is_written(value: Any, text: str) -> None:
    assert canonical_json.encode(value) == text.encode()
    assert canonical_json.encode(canonical_json.parse(text.encode())) == text.encode()


PARSED: dict[bytes, Any] = {
    b" \t\r\n[ 1 , 2 ] \n": [1, 2],
    b"1.0": 1,
    b"1e2": 100,
    b"1E+2": 100,
    b"12.50e1": 125,
    b"-0": 0,
    b"-0.0e7": 0,
    b"0e99999999": 0,
    b"0.10": Decimal("0.1"),
    b"1.5e-3": Decimal("0.0015"),
    b'"\\u0041\\/\\ud83d\\udd12"': "A/\U0001f512",
    '{"é":"\u2028"}'.encode(): {"é": "\u2028"},
}


@pytest.mark.parametrize(("data", "value"), PARSED.items(), ids=repr)
def test_what_is_read(data: bytes, value: Any) -> None:
    found = canonical_json.parse(data)
    assert found == value
    assert type(found) is type(value)


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "space": b" ",
    "half": b'{"a":',
    "two values": b"1 2",
    "a comma too many": b"[1,]",
    "single quotes": b"'a'",
    "a comment": b"1 // one",
    "leading zero": b"01",
    "plus": b"+1",
    "a point and no digits": b"1.",
    "no digit before the point": b".5",
    "hex": b"0x10",
    "NaN": b"NaN",
    "Infinity": b"[Infinity]",
    "minus Infinity": b"-Infinity",
    "True": b"True",
    "byte order mark": b"\xef\xbb\xbf1",
    "UTF-16": "[1]".encode("utf-16"),
    "UTF-32 without mark": "[1]".encode("utf-32-le"),
    "latin-1": b'"\xe9"',
    "overlong": b'"\xc0\xaf"',
    "surrogate in UTF-8": b'"\xed\xa0\x80"',
    "beyond Unicode": b'"\xf4\x90\x80\x80"',
    "high surrogate": b'"\\ud800"',
    "low surrogate": b'["\\udc00"]',
    "surrogates in the wrong order": b'{"a":"\\udc00\\ud800"}',
    "surrogate in a name": b'{"\\ud800":1}',
    "a control character": b'"\x01"',
    "a newline in text": b'"\n"',
    "NUL": b"\x00",
    "an unknown escape": b'"\\x41"',
    "a name twice": b'{"a":1,"b":2,"a":1}',
    "a name twice, written differently": b'{"a":1,"\\u0061":2}',
    "a name twice, inside": b'[{"x":{"a":1,"a":2}}]',
    "a number as a name": b"{1:2}",
    "too deep": b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
    "far too deep": b"[" * 200_000 + b"]" * 200_000,
    "deep and not closed": b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a digit too many": b"1" * (MAX_DIGITS + 1),
    "a negative digit too many": b"-" + b"1" * (MAX_DIGITS + 1),
    "a hundred thousand digits": b"1" * 100_000,
    "a hundred thousand decimals": b"0." + b"1" * 100_000,
    "an exponent too large": b"1e%d" % MAX_DIGITS,
    "a huge exponent": b"1e999999999",
    "a huge negative exponent": b"1e-999999999",
    "an exponent that decimals do not have": b"1e99999999999999999999",
    "an endless exponent": b"1e" + b"9" * 10_000,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        canonical_json.parse(data)


def test_a_huge_exponent_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        for exponent in (10**5, 10**9, 10**17):
            assert canonical_json.parse(b"0e%d" % exponent) == 0
            for text in (b"1e%d", b"1e-%d"):
                with pytest.raises(ProtocolError):
                    canonical_json.parse(text % exponent)
            with pytest.raises(ProtocolError):
                canonical_json.encode(Decimal((0, (1,), exponent)))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


NOT_JSON: dict[str, Any] = {
    "float": 1.5,
    "float in a list": [1.0],
    "bytes": b"x",
    "set": {1},
    "a number as a name": {1: 2},
    "none as a name": {None: 2},
    "object": object(),
}


@pytest.mark.parametrize("value", NOT_JSON.values(), ids=NOT_JSON)
def test_what_is_no_json_is_our_own_mistake(value: Any) -> None:
    with pytest.raises(TypeError):
        canonical_json.encode(value)


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = {"a": value}
    return value


REFUSED: dict[str, Any] = {
    "lone surrogate": "\ud800",
    "lone surrogate in a name": {"\udfff": 1},
    "NaN": Decimal("NaN"),
    "signalling NaN": Decimal("sNaN"),
    "Infinity": [Decimal("-Infinity")],
    "too deep": _nested(MAX_DEPTH + 1),
    "far too deep": _nested(5_000),
    "an int too long": 10**MAX_DIGITS,
    "a negative int too long": -(10**MAX_DIGITS),
    "a decimal too long": Decimal("1e1024"),
    "too many decimals": Decimal("1e-1025"),
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_values_without_a_canonical_form_are_refused(value: Any) -> None:
    with pytest.raises(ProtocolError):
        canonical_json.encode(value)


def test_the_deepest_that_is_allowed() -> None:
    value = _nested(MAX_DEPTH)
    assert canonical_json.parse(canonical_json.encode(value)) == value


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.decimals(allow_nan=False, allow_infinity=False, places=6),
        TEXT,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=20,
)


@given(VALUES)
def test_a_value_comes_back_and_has_one_text(value: Any) -> None:
    text = canonical_json.encode(value)
    found = canonical_json.parse(text)
    assert found == value
    assert canonical_json.encode(found) == text


@given(VALUES, st.randoms(use_true_random=False))
def test_the_order_of_names_does_not_matter(value: Any, random: Any) -> None:
    def shuffled(item: Any) -> Any:
        if isinstance(item, dict):
            names = list(item)
            random.shuffle(names)
            return {name: shuffled(item[name]) for name in names}
        return [shuffled(inner) for inner in item] if isinstance(item, list) else item

    text = canonical_json.encode(value)
    assert canonical_json.encode(shuffled(value)) == text


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), TEXT),
        lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
        max_leaves=20,
    )
)
def test_python_agrees_where_there_are_no_fractions(value: Any) -> None:
    theirs = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert canonical_json.encode(value) == theirs.encode()


@given(st.binary(max_size=64))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    try:
        value = canonical_json.parse(data)
    except ProtocolError:
        return
    assert canonical_json.parse(canonical_json.encode(value)) == value


@given(st.from_regex(r"-?(0|[1-9][0-9]{0,6})(\.[0-9]{1,6})?([eE][+-]?[0-9]{1,2})?", fullmatch=True))
def test_numbers_are_exact_and_minimal(text: str) -> None:
    written = canonical_json.encode(canonical_json.parse(text.encode())).decode()
    assert Decimal(written) == Decimal(text)
    assert "e" not in written.lower()
    assert "." not in written or written[-1] not in "0."
    assert written != "-0"
