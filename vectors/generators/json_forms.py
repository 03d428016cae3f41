"""The JSON form of objects: the same fields by the same rules (001 section 10.3)."""

from collections.abc import Iterator

from vectors.generators import fixed, samples
from vectors.generators.scenario import CBOR_INVALID, FIELD_SIZE, VERSION, Json, Scenario, ask

SCHEMA = fixed.SCHEMA.hex()


def numbers() -> Scenario:
    """Return integers in JSON."""
    s = Scenario("json/numbers", "An unsigned integer is a JSON integer from 0 to 2^64 - 1, written as one.")
    for value in (0, 2**53 + 1, fixed.U64_MAX):
        s.ok(f"{value}", "encode", type="payload_hdr", value={"schema": SCHEMA, "expires_at": value})
    wrong: tuple[tuple[str, Json], ...] = (
        ("negative", -1),
        ("2^64", 2**64),
        ("a fraction", 1.5),
        ("a whole number written as a fraction", 1.0),
        ("a string", "1"),
        ("true", True),
        ("null", None),
        ("a list", [1]),
        ("an object", {}),
    )
    for name, value in wrong:
        s.fails(
            name, CBOR_INVALID, "encode", type="payload_hdr", value={"schema": SCHEMA, "expires_at": value}
        )
    return s


def byte_strings() -> Scenario:
    """Return byte strings in JSON."""
    s = Scenario("json/hex", "A byte string is lowercase hex in JSON, two digits a byte, and nothing else.")
    s.ok("lowercase", "encode", type="payload_hdr", value={"schema": SCHEMA})
    wrong: tuple[tuple[str, Json], ...] = (
        ("upper case", SCHEMA.upper()),
        ("mixed case", SCHEMA[:-2] + "Aa"),
        ("odd length", SCHEMA[:-1]),
        ("a space between", SCHEMA[:2] + " " + SCHEMA[2:]),
        ("a space in front", " " + SCHEMA),
        ("a line end behind", SCHEMA + "\n"),
        ("0x in front", "0x" + SCHEMA),
        ("no hex", "zz" * 32),
        ("base64", "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg="),
        ("wide digits", "\uff11" * 64),
        ("an integer", 1),
        ("null", None),
        ("a list of bytes", [0] * 32),
    )
    for name, value in wrong:
        s.fails(name, CBOR_INVALID, "encode", type="payload_hdr", value={"schema": value})
    s.fails("31 bytes", FIELD_SIZE, "encode", type="payload_hdr", value={"schema": SCHEMA[:-2]})
    s.fails("no bytes", FIELD_SIZE, "encode", type="payload_hdr", value={"schema": ""})
    return s


def names() -> Scenario:
    """Return the names of fields in JSON."""
    s = Scenario("json/names", "A map has its fields' names in JSON, in any order; an array stays an array.")
    cap = fixed.AUTH_REF.hex()
    s.ok(
        "names in any order",
        "encode",
        type="payload_hdr",
        value={"expires_at": 1, "cap_ref": cap, "schema": SCHEMA},
    )
    receipt = ask("decode", type="receipt", data=samples.RECEIPT)["value"]
    s.ok("an array", "encode", type="receipt", value=receipt)
    by_name = {f"field{index}": item for index, item in enumerate(receipt)}
    cases: tuple[tuple[str, str, Json], ...] = (
        ("unknown name", "payload_hdr", {"schema": SCHEMA, "note": 1}),
        ("a key for a name", "payload_hdr", {"1": SCHEMA}),
        ("a name in upper case", "payload_hdr", {"Schema": SCHEMA}),
        ("missing name", "payload_hdr", {"expires_at": 1}),
        ("no names", "payload_hdr", {}),
        ("null for an absent field", "payload_hdr", {"schema": SCHEMA, "parent_id": None}),
        ("a list for a map", "payload_hdr", [SCHEMA]),
        ("a string for a map", "payload_hdr", SCHEMA),
        ("null for a map", "payload_hdr", None),
        ("a map for an array", "receipt", by_name),
        ("an array that is too short", "receipt", receipt[:-1]),
        ("an array that is too long", "receipt", [*receipt, None]),
        ("an empty list of witnesses", "checkpoint", [1, cap, cap, 1, cap, 0, cap * 2, []]),
        ("a bool for an integer", "receipt", [1, cap, True, cap, cap, 0, cap * 2]),
        ("a text for an array", "msg", "true"),
    )
    for name, kind, value in cases:
        s.fails(name, CBOR_INVALID, "encode", type=kind, value=value)
    s.fails("version 2", VERSION, "encode", type="receipt", value=[2, *receipt[1:]])
    s.fails(
        "wrong type before wrong version",
        CBOR_INVALID,
        "encode",
        type="receipt",
        value=[2, None, *receipt[2:]],
    )
    s.fails(
        "wrong size before wrong version", FIELD_SIZE, "encode", type="receipt", value=[2, "00", *receipt[2:]]
    )
    return s


def bools() -> Scenario:
    """Return bools in JSON."""
    s = Scenario(
        "json/bools", "A bool is true or false in JSON too; other requests than submit have one code."
    )
    base = {"ver": 1, "label": fixed.LABEL.hex(), "from_seq": 1}
    s.ok("true", "encode", type="stream_request", value={**base, "with_receipts": True})
    s.ok("false", "encode", type="stream_request", value={**base, "with_receipts": False})
    failure = CBOR_INVALID.in_request()
    wrong: tuple[tuple[str, Json], ...] = (("1", 1), ("0", 0), ("a text", "true"), ("null", None))
    for name, value in wrong:
        s.fails(name, failure, "encode", type="stream_request", value={**base, "with_receipts": value})
    s.fails("version 2", VERSION.in_request(), "encode", type="stream_request", value={**base, "ver": 2})
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    yield numbers()
    yield byte_strings()
    yield names()
    yield bools()
