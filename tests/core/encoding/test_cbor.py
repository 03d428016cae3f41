"""Deterministic CBOR: exactly the canonical encodings are accepted, and every other one says why not."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import rawcbor as raw
from tests.expect import faulty
from veen.core.encoding import cbor
from veen.core.errors import CborError, Fault

# --- accepted -----------------------------------------------------------------------------------------------

#: RFC 8949 appendix A, as far as it is of the allowed types.
ACCEPTED: list[tuple[str, cbor.Value]] = [
    ("00", 0),
    ("01", 1),
    ("0a", 10),
    ("17", 23),
    ("1818", 24),
    ("1819", 25),
    ("1864", 100),
    ("18ff", 255),
    ("190100", 256),
    ("1903e8", 1000),
    ("19ffff", 65_535),
    ("1a00010000", 65_536),
    ("1a000f4240", 1_000_000),
    ("1affffffff", 2**32 - 1),
    ("1b0000000100000000", 2**32),
    ("1b000000e8d4a51000", 1_000_000_000_000),
    ("1bffffffffffffffff", 2**64 - 1),
    ("40", b""),
    ("4401020304", b"\x01\x02\x03\x04"),
    ("5818" + "ab" * 24, b"\xab" * 24),
    ("60", ""),
    ("6161", "a"),
    ("6449455446", "IETF"),
    ("62225c", '"\\'),
    ("62c3bc", "ü"),
    ("63e6b0b4", "水"),
    ("64f0908591", "\U00010151"),
    ("80", []),
    ("83010203", [1, 2, 3]),
    ("8301820203820405", [1, [2, 3], [4, 5]]),
    ("98190102030405060708090a0b0c0d0e0f101112131415161718181819", list(range(1, 26))),
    ("a0", {}),
    ("a201020304", {1: 2, 3: 4}),
    ("a26161016162820203", {"a": 1, "b": [2, 3]}),
    ("826161a161626163", ["a", {"b": "c"}]),
    ("f4", False),
    ("f5", True),
    ("f6", None),
]


@pytest.mark.parametrize(("encoded", "value"), ACCEPTED)
def test_a_canonical_encoding_and_its_value_are_one_to_one(encoded: str, value: cbor.Value) -> None:
    assert cbor.decode(bytes.fromhex(encoded)) == value
    assert cbor.encode(value).hex() == encoded


def test_a_bool_is_not_the_integer_that_it_equals() -> None:
    assert cbor.decode(b"\xf5") is True
    assert cbor.encode(True) != cbor.encode(1)  # noqa: FBT003 - the value itself is under test


def test_keys_are_ordered_by_their_encoded_bytes_and_not_by_value() -> None:
    # 24 needs two bytes and so sorts after every key of one byte; integers sort before text.
    encoded = bytes.fromhex("a4170118180261620362616104")
    assert cbor.decode(encoded) == {23: 1, 24: 2, "b": 3, "aa": 4}
    mixed: Any = {"aa": 4, "b": 3, 24: 2, 23: 1}
    assert cbor.encode(mixed) == encoded


def test_both_kinds_of_sequences_encode_as_arrays() -> None:
    assert cbor.encode((1, (2, 3))) == cbor.encode([1, [2, 3]])


# --- refused ------------------------------------------------------------------------------------------------

#: Every way to be wrong, at least once: what is wrong, the bytes, the fault, where it is seen.
REFUSED: list[tuple[str, str, Fault, int]] = [
    ("nothing", "", Fault.TRUNCATED, 0),
    ("head of one byte cut off", "18", Fault.TRUNCATED, 0),
    ("head of eight bytes cut off", "1b00000000000000", Fault.TRUNCATED, 0),
    ("byte string cut off", "430102", Fault.TRUNCATED, 0),
    ("text cut off", "626f", Fault.TRUNCATED, 0),
    ("element too many", "810100", Fault.TRAILING, 2),
    ("array cut off", "8301", Fault.TRUNCATED, 0),
    ("array cut off inside an element", "818201", Fault.TRUNCATED, 1),
    ("value of a pair missing", "a101", Fault.TRUNCATED, 2),
    ("key missing", "a20000", Fault.TRUNCATED, 3),
    ("bytes after the item", "0000", Fault.TRAILING, 1),
    ("bytes after a string", "4100ff", Fault.TRAILING, 2),
    ("0 in two bytes", "1800", Fault.NON_MINIMAL, 0),
    ("23 in two bytes", "1817", Fault.NON_MINIMAL, 0),
    ("255 in three bytes", "1900ff", Fault.NON_MINIMAL, 0),
    ("65535 in five bytes", "1a0000ffff", Fault.NON_MINIMAL, 0),
    ("2^32-1 in nine bytes", "1b00000000ffffffff", Fault.NON_MINIMAL, 0),
    ("long length of a byte string", "580100", Fault.NON_MINIMAL, 0),
    ("long length of a text", "780161", Fault.NON_MINIMAL, 0),
    ("long count of an array", "980100", Fault.NON_MINIMAL, 0),
    ("long count of a map", "b8010000", Fault.NON_MINIMAL, 0),
    ("long key", "a1180100", Fault.NON_MINIMAL, 1),
    ("byte string of indefinite length", "5f4100ff", Fault.INDEFINITE, 0),
    ("text of indefinite length", "7f6161ff", Fault.INDEFINITE, 0),
    ("array of indefinite length", "9f00ff", Fault.INDEFINITE, 0),
    ("map of indefinite length", "bf0000ff", Fault.INDEFINITE, 0),
    ("integer of indefinite length", "1f", Fault.INDEFINITE, 0),
    ("break alone", "ff", Fault.INDEFINITE, 0),
    ("reserved head 28", "1c", Fault.RESERVED, 0),
    ("reserved head 29 of a string", "5d", Fault.RESERVED, 0),
    ("reserved head 30 of a map", "be", Fault.RESERVED, 0),
    ("tag", "c000", Fault.TAG, 0),
    ("bignum", "c249010000000000000000", Fault.TAG, 0),
    ("tag in an array", "81c000", Fault.TAG, 1),
    ("self-described CBOR", "d9d9f700", Fault.TAG, 0),
    ("half float", "f90000", Fault.FLOAT, 0),
    ("single float", "fa47c35000", Fault.FLOAT, 0),
    ("double float", "fb3ff199999999999a", Fault.FLOAT, 0),
    ("minus one", "20", Fault.NEGATIVE, 0),
    ("large negative", "3bffffffffffffffff", Fault.NEGATIVE, 0),
    ("undefined", "f7", Fault.SIMPLE, 0),
    ("unassigned simple value", "e0", Fault.SIMPLE, 0),
    ("simple value of two bytes", "f8ff", Fault.SIMPLE, 0),
    ("true as a simple value of two bytes", "f815", Fault.SIMPLE, 0),
    ("reserved simple head", "fc", Fault.SIMPLE, 0),
    ("repeated key", "a201000100", Fault.DUPLICATE_KEY, 3),
    ("repeated text key", "a2616100616100", Fault.DUPLICATE_KEY, 4),
    ("keys descend", "a202000100", Fault.KEY_ORDER, 3),
    ("longer text key first", "a262616100616200", Fault.KEY_ORDER, 5),
    ("text key before an integer", "a26161000000", Fault.KEY_ORDER, 4),
    ("byte string as key", "a1410000", Fault.TYPE, 1),
    ("array as key", "a18000", Fault.TYPE, 1),
    ("null as key", "a1f600", Fault.NULL, 1),
    ("bool as key", "a1f500", Fault.BOOL, 1),
    ("lone continuation byte", "6180", Fault.UTF8, 0),
    ("overlong form", "62c080", Fault.UTF8, 0),
    ("surrogate", "63eda080", Fault.UTF8, 0),
    ("beyond U+10FFFF", "64f4908080", Fault.UTF8, 0),
    ("17 levels", "81" * 17 + "00", Fault.DEPTH, 16),
    ("17 levels of maps", "a100" * 17 + "00", Fault.DEPTH, 32),
]


@pytest.mark.parametrize(
    ("encoded", "fault", "offset"), [pytest.param(*case[1:], id=case[0]) for case in REFUSED]
)
def test_bytes_that_are_not_canonical_are_refused_by_name(encoded: str, fault: Fault, offset: int) -> None:
    with faulty(fault, offset=offset):
        cbor.decode(bytes.fromhex(encoded))


def test_the_table_has_every_fault_that_free_form_values_can_have() -> None:
    only_in_typed_objects = {
        Fault.ARITY,
        Fault.UNKNOWN_KEY,
        Fault.MISSING_KEY,
        Fault.EMPTY,
        Fault.VALUE,
    }
    needs_much_input = {Fault.ITEMS}
    assert {case[2] for case in REFUSED} == set(Fault) - only_in_typed_objects - needs_much_input


@pytest.mark.parametrize("encoded", ["81" * 16 + "00", "a100" * 16 + "00", "81a100" * 8 + "00"])
def test_16_levels_are_accepted(encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert cbor.encode(cbor.decode(data)) == data


def test_the_number_of_elements_is_bounded() -> None:
    assert cbor.MAX_ITEMS == 65_536
    most = raw.head(raw.ARRAY, cbor.MAX_ITEMS) + bytes(cbor.MAX_ITEMS)
    assert cbor.decode(most) == [0] * cbor.MAX_ITEMS
    for major in (raw.ARRAY, raw.MAP):
        with faulty(Fault.ITEMS, offset=0):
            cbor.decode(raw.head(major, cbor.MAX_ITEMS + 1) + bytes(2 * cbor.MAX_ITEMS + 2))


@pytest.mark.parametrize("major", [raw.BYTES, raw.TEXT, raw.ARRAY, raw.MAP])
@pytest.mark.parametrize("declared", [2**64 - 1, 2**63, 2**40, 2**32, 70_000])
def test_a_length_beyond_the_input_is_refused_before_anything_is_allocated(major: int, declared: int) -> None:
    data = raw.head(major, declared) + bytes(16)
    tracemalloc.start()
    try:
        with pytest.raises(CborError) as caught:
            cbor.decode(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.fault == Fault.TRUNCATED
    assert peak < 32_768


def test_a_length_one_beyond_the_input_is_refused_and_the_exact_one_accepted() -> None:
    for major, content in ((raw.BYTES, bytes(300)), (raw.TEXT, b"a" * 300), (raw.ARRAY, bytes(300))):
        cbor.decode(raw.head(major, 300) + content)
        with faulty(Fault.TRUNCATED, offset=0):
            cbor.decode(raw.head(major, 301) + content)


# --- typed readers ------------------------------------------------------------------------------------------

Reader = Callable[[bytes, int], tuple[Any, int]]

READERS: list[tuple[Reader, bytes, Any]] = [
    (cbor.read_uint, b"\x18\x18", 24),
    (cbor.read_bytes, b"\x41\x00", b"\x00"),
    (cbor.read_text, b"\x61a", "a"),
    (cbor.read_bool, b"\xf5", True),
    (cbor.read_bool, b"\xf4", False),
    (cbor.read_array, b"\x81\x00", 1),
    (cbor.read_map, b"\xa1\x00\x00", 1),
]

OTHER_ITEMS = {
    "00": Fault.TYPE,
    "4100": Fault.TYPE,
    "6161": Fault.TYPE,
    "8100": Fault.TYPE,
    "a10000": Fault.TYPE,
    "20": Fault.NEGATIVE,
    "c000": Fault.TAG,
    "f5": Fault.BOOL,
    "f6": Fault.NULL,
    "f7": Fault.SIMPLE,
    "f90000": Fault.FLOAT,
    "ff": Fault.INDEFINITE,
}


@pytest.mark.parametrize(("read", "encoded", "value"), READERS)
def test_a_reader_returns_its_value_and_where_the_next_item_begins(
    read: Reader, encoded: bytes, value: object
) -> None:
    padding = b"\xff\xff"
    got, end = read(padding + encoded + padding, 2)
    assert got == value
    consumed = 1 if read in (cbor.read_array, cbor.read_map) else len(encoded)
    assert end == 2 + consumed


@pytest.mark.parametrize(("read", "encoded", "value"), READERS)
def test_a_reader_refuses_items_of_every_other_type(read: Reader, encoded: bytes, value: object) -> None:
    for other, fault in OTHER_ITEMS.items():
        data = bytes.fromhex(other)
        if data[0] >> 5 == encoded[0] >> 5 and (data[0] >> 5 != 7 or fault == Fault.BOOL):
            continue
        with faulty(fault, offset=0):
            read(data, 0)
    with faulty(Fault.TRUNCATED, offset=len(encoded)):
        read(encoded, len(encoded))
    assert read(encoded, 0)[0] == value


# --- encoding refuses what it could not read back -----------------------------------------------------------


def nested(levels: int) -> cbor.Value:
    value: cbor.Value = 0
    for _ in range(levels):
        value = [value]
    return value


def test_numbers_outside_64_bits_are_not_encoded() -> None:
    with faulty(Fault.NEGATIVE):
        cbor.encode(-1)
    with faulty(Fault.VALUE):
        cbor.encode(2**64)
    with faulty(Fault.VALUE):
        cbor.encode({"a": [2**64]})


def test_text_without_a_utf_8_form_is_not_encoded() -> None:
    with faulty(Fault.UTF8):
        cbor.encode("\ud800")
    with faulty(Fault.UTF8):
        cbor.encode({"\udfff": 1})


def test_what_could_not_be_read_back_is_not_encoded() -> None:
    assert cbor.decode(cbor.encode(nested(16))) == nested(16)
    with faulty(Fault.DEPTH):
        cbor.encode(nested(17))
    with faulty(Fault.DEPTH):
        cbor.encode({1: nested(16)})
    assert cbor.decode(cbor.encode({1: nested(15)})) == {1: nested(15)}
    most = [0] * cbor.MAX_ITEMS
    assert cbor.decode(cbor.encode(most)) == most
    with faulty(Fault.ITEMS):
        cbor.encode([*most, 0])
    with faulty(Fault.ITEMS):
        cbor.encode(dict.fromkeys(range(cbor.MAX_ITEMS + 1)))
    for key in (b"bytes", None, True):
        wrong: Any = {key: 1}
        with pytest.raises(TypeError):
            cbor.encode(wrong)


def test_types_outside_the_data_model_are_a_mistake_of_the_caller() -> None:
    for value in (1.5, object(), {1, 2}):
        wrong: Any = value
        with pytest.raises((AssertionError, TypeError)):
            cbor.encode(wrong)


# --- against another implementation -------------------------------------------------------------------------

uints = st.integers(min_value=0, max_value=2**64 - 1)
scalars = st.one_of(st.none(), st.booleans(), uints, st.binary(max_size=300), st.text(max_size=100))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=30),
        st.dictionaries(uints, inner, max_size=30),
        st.dictionaries(st.text(max_size=30), inner, max_size=30),
    ),
    max_leaves=60,
)


@given(values)
def test_what_we_encode_another_implementation_encodes_the_same(value: Any) -> None:
    encoded = cbor.encode(value)
    assert encoded == cbor2.dumps(value, canonical=True)
    assert cbor2.loads(encoded) == value
    assert cbor.decode(encoded) == value


@given(values)
def test_what_another_implementation_encodes_canonically_we_accept(value: Any) -> None:
    encoded = cbor2.dumps(value, canonical=True)
    decoded = cbor.decode(encoded)
    assert decoded == value
    assert cbor.encode(decoded) == encoded


def test_keys_in_the_order_of_a_schema() -> None:
    data = bytes.fromhex("a3616201") + bytes.fromhex("616102") + bytes.fromhex("616382a1617a05a1617906")
    with pytest.raises(CborError) as caught:
        cbor.decode(data)
    assert caught.value.fault is Fault.KEY_ORDER
    assert cbor.decode_listed(data) == {"b": 1, "a": 2, "c": [{"z": 5}, {"y": 6}]}
    twice = bytes.fromhex("a2616101616102")
    with pytest.raises(CborError) as caught:
        cbor.decode_listed(twice)
    assert caught.value.fault is Fault.DUPLICATE_KEY
    with pytest.raises(CborError) as caught:
        cbor.decode_listed(data + b"\x00")
    assert caught.value.fault is Fault.TRAILING
