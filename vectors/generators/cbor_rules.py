"""Deterministic CBOR: one file for each way to break it (001 section 3.1)."""

from collections.abc import Iterator

from vectors.generators import fixed, raw
from vectors.generators.fixed import U64_MAX
from vectors.generators.scenario import CBOR_INVALID, Scenario

SCHEMA = raw.bstr(fixed.SCHEMA)
# Every width of a head, with values that are too small for it.
WIDTHS = ((1, (0, 1, 23)), (2, (0, 24, 255)), (4, (0, 256, 65_535)), (8, (0, 65_536, 2**32 - 1)))


def _hdr(expires_at: bytes) -> bytes:
    """Return a payload header with any bytes where an unsigned integer belongs."""
    return raw.keyed((1, SCHEMA), (5, expires_at))


def _error(code: bytes, message: bytes = raw.tstr("m")) -> bytes:
    return raw.keyed((1, raw.uint(1)), (2, code), (3, message))


def _receipt_items() -> list[bytes]:
    return [
        raw.uint(1),
        raw.bstr(bytes(32)),
        raw.uint(1),
        raw.bstr(bytes(32)),
        raw.bstr(bytes(32)),
        raw.uint(7),
        raw.bstr(bytes(64)),
    ]


def _stream_request(flag: bytes) -> bytes:
    return raw.keyed((1, raw.uint(1)), (2, raw.bstr(fixed.LABEL)), (3, raw.uint(1)), (7, flag))


def integers() -> Scenario:
    """Return integers at the edges of each width."""
    s = Scenario("cbor/integers", "An integer has the shortest head that holds it, from 0 to 2^64 - 1.")
    for value in (0, 1, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, U64_MAX):
        s.round_trip(f"{value}", "payload_hdr", _hdr(raw.uint(value)))
    for width, values in WIDTHS:
        for value in values:
            s.refuses(f"{value} in {width} bytes", CBOR_INVALID, "payload_hdr", _hdr(raw.uint(value, width)))
    return s


def lengths() -> Scenario:
    """Return longer heads than necessary on everything that has a length."""
    s = Scenario("cbor/length_heads", "Lengths of strings, arrays and maps have the shortest head as well.")
    text = raw.tstr("E.SIZE")
    receipt = _receipt_items()
    hdr = (raw.uint(1), SCHEMA)
    s.round_trip("byte string, shortest", "payload_hdr", raw.mapping(hdr))
    s.round_trip("text string, shortest", "error", _error(text))
    s.round_trip("array, shortest", "receipt", raw.array(*receipt))
    for width in (1, 2, 4, 8):
        if width > 1:  # one byte suffices for 32
            long = raw.mapping((raw.uint(1), raw.bstr(fixed.SCHEMA, width)))
            s.refuses(f"32 bytes with a length of {width} bytes", CBOR_INVALID, "payload_hdr", long)
        short = raw.mapping((raw.uint(1), raw.bstr(bytes(23), width)))
        s.refuses(f"23 bytes with a length of {width} bytes", CBOR_INVALID, "payload_hdr", short)
        s.refuses(
            f"text with a length of {width} bytes", CBOR_INVALID, "error", _error(raw.tstr("E.SIZE", width))
        )
        s.refuses(
            f"array with a length of {width} bytes", CBOR_INVALID, "receipt", raw.array(*receipt, width=width)
        )
        s.refuses(
            f"map with a length of {width} bytes", CBOR_INVALID, "payload_hdr", raw.mapping(hdr, width=width)
        )
        s.refuses(
            f"key in {width} bytes", CBOR_INVALID, "payload_hdr", raw.mapping((raw.uint(1, width), SCHEMA))
        )
    return s


def indefinite() -> Scenario:
    """Return indefinite lengths."""
    s = Scenario("cbor/indefinite", "Indefinite lengths are refused for strings, arrays and maps.")
    receipt = b"".join(_receipt_items())
    cases = (
        ("byte string in chunks", "payload_hdr", raw.keyed((1, b"\x5f" + SCHEMA + raw.BREAK))),
        ("byte string without chunks", "payload_hdr", raw.keyed((1, b"\x5f" + raw.BREAK))),
        ("text string in chunks", "error", _error(b"\x7f" + raw.tstr("E.SIZE") + raw.BREAK)),
        ("array", "receipt", b"\x9f" + receipt + raw.BREAK),
        ("map", "payload_hdr", b"\xbf" + raw.uint(1) + SCHEMA + raw.BREAK),
        ("map in a field", "error", _error(raw.tstr("E"))[:-2] + raw.tstr("m") + b"\x04\xbf\xff"),
        ("a break alone", "payload_hdr", raw.BREAK),
        ("a break for an integer", "payload_hdr", _hdr(raw.BREAK)),
        ("an indefinite integer", "payload_hdr", _hdr(b"\x1f")),
    )
    for name, kind, data in cases:
        s.refuses(name, CBOR_INVALID, kind, data)
    return s


def reserved() -> Scenario:
    """Return reserved heads."""
    s = Scenario("cbor/reserved", "Additional information 28, 29 and 30 has no meaning and is refused.")
    for info in (28, 29, 30):
        s.refuses(f"integer {info}", CBOR_INVALID, "payload_hdr", _hdr(bytes((info,))))
        s.refuses(f"byte string {info}", CBOR_INVALID, "payload_hdr", raw.keyed((1, bytes((0x40 | info,)))))
        s.refuses(f"text string {info}", CBOR_INVALID, "error", _error(bytes((0x60 | info,))))
        s.refuses(f"array {info}", CBOR_INVALID, "receipt", bytes((0x80 | info,)) + bytes(9))
        s.refuses(f"map {info}", CBOR_INVALID, "payload_hdr", bytes((0xA0 | info,)) + bytes(9))
        s.refuses(f"simple value {info}", CBOR_INVALID, "payload_hdr", _hdr(bytes((0xE0 | info,))))
    return s


def tags() -> Scenario:
    """Return tags."""
    s = Scenario("cbor/tags", "Tags are refused, so there are no big integers either.")
    hdr = raw.mapping((raw.uint(1), SCHEMA))
    s.refuses("self-described CBOR", CBOR_INVALID, "payload_hdr", b"\xd9\xd9\xf7" + hdr)
    s.refuses("a tagged map", CBOR_INVALID, "payload_hdr", b"\xc1" + hdr)
    s.refuses("a tagged array", CBOR_INVALID, "receipt", b"\xc1" + raw.array(*_receipt_items()))
    s.refuses("a big integer", CBOR_INVALID, "payload_hdr", _hdr(b"\xc2" + raw.bstr(b"\x01" + bytes(8))))
    s.refuses("a small big integer", CBOR_INVALID, "payload_hdr", _hdr(b"\xc2\x41\x07"))
    s.refuses("a tagged integer", CBOR_INVALID, "payload_hdr", _hdr(b"\xc1\x07"))
    s.refuses("a tagged byte string", CBOR_INVALID, "payload_hdr", raw.keyed((1, b"\xd8\x40" + SCHEMA)))
    s.refuses("a tagged text", CBOR_INVALID, "error", _error(b"\xc0" + raw.tstr("E.SIZE")))
    s.refuses("a tagged key", CBOR_INVALID, "payload_hdr", raw.mapping((b"\xc1\x01", SCHEMA)))
    return s


def simple_values() -> Scenario:
    """Return floats, null, bools and other simple values where none belongs."""
    s = Scenario(
        "cbor/simple_values", "null and bools only in fields that are typed so; floats and others never."
    )
    for name, item in (
        ("half-precision 0.0", b"\xf9\x00\x00"),
        ("single-precision 1.0", b"\xfa\x3f\x80\x00\x00"),
        ("double-precision 1.0", b"\xfb\x3f\xf0\x00\x00\x00\x00\x00\x00"),
        ("not a number", b"\xf9\x7e\x00"),
        ("null", raw.NULL),
        ("true", raw.TRUE),
        ("false", raw.FALSE),
        ("undefined", raw.UNDEFINED),
        ("simple value 0", b"\xe0"),
        ("simple value 19", b"\xf3"),
        ("simple value 32 in two bytes", b"\xf8\x20"),
        ("false in two bytes", b"\xf8\x14"),
        ("null in two bytes", b"\xf8\x16"),
    ):
        s.refuses(f"{name} for an integer", CBOR_INVALID, "payload_hdr", _hdr(item))
        s.refuses(f"{name} for a byte string", CBOR_INVALID, "payload_hdr", raw.keyed((1, item)))
        s.refuses(f"{name} for a text", CBOR_INVALID, "error", _error(item))
        s.refuses(f"{name} for a map", CBOR_INVALID, "payload_hdr", item)
        s.refuses(f"{name} for an array", CBOR_INVALID, "receipt", item)
    return s


def bools() -> Scenario:
    """Return bools where they belong, and other values in their place."""
    s = Scenario(
        "cbor/bools", "A field that is typed bool holds true or false in one byte, and nothing else."
    )
    s.round_trip("true", "stream_request", _stream_request(raw.TRUE))
    s.round_trip("false", "stream_request", _stream_request(raw.FALSE))
    failure = CBOR_INVALID.in_request()
    for name, item in (
        ("null", raw.NULL),
        ("undefined", raw.UNDEFINED),
        ("the integer 1", raw.uint(1)),
        ("the integer 0", raw.uint(0)),
        ("a text", raw.tstr("true")),
        ("true in two bytes", b"\xf8\x15"),
        ("a float", b"\xf9\x3c\x00"),
        ("nothing", b""),
    ):
        s.refuses(name, failure, "stream_request", _stream_request(item))
    return s


def negatives() -> Scenario:
    """Return negative integers."""
    s = Scenario("cbor/negative", "Negative integers do not occur, neither as values nor as keys.")
    for name, item in (
        ("-1", b"\x20"),
        ("-24", b"\x37"),
        ("-100", b"\x38\x63"),
        ("-2^32", b"\x3a\xff\xff\xff\xff"),
        ("-2^64", b"\x3b" + b"\xff" * 8),
    ):
        s.refuses(f"{name} for an integer", CBOR_INVALID, "payload_hdr", _hdr(item))
        s.refuses(
            f"{name} for a key",
            CBOR_INVALID,
            "payload_hdr",
            raw.mapping((item, raw.uint(1)), (b"\x01", SCHEMA)),
        )
    s.refuses("-1 for ver", CBOR_INVALID, "receipt", raw.replaced(_receipt_items(), 0, b"\x20"))
    return s


def keys() -> Scenario:
    """Return maps with keys that are unknown, repeated, unordered, missing or not integers."""
    s = Scenario("cbor/keys", "Map keys are known unsigned integers in ascending order, each once.")
    schema, expires = (1, SCHEMA), (5, raw.uint(9))
    s.round_trip("two known keys", "payload_hdr", raw.keyed(schema, expires))
    for name, data in (
        ("unknown key above", raw.keyed(schema, (6, raw.uint(0)))),
        ("unknown key below", raw.keyed((0, raw.uint(0)), schema)),
        ("unknown large key", raw.keyed(schema, (U64_MAX, raw.uint(0)))),
        ("key twice, same value", raw.keyed(schema, schema)),
        ("key twice, other value", raw.keyed(schema, expires, (5, raw.uint(10)))),
        ("keys descending", raw.keyed(expires, schema)),
        ("key missing", raw.keyed(expires)),
        ("empty map", raw.keyed()),
        ("text key", raw.mapping((raw.tstr("schema"), SCHEMA))),
        ("text key behind", raw.mapping((raw.uint(1), SCHEMA), (raw.tstr("5"), raw.uint(9)))),
        ("byte string key", raw.mapping((raw.bstr(b"\x01"), SCHEMA))),
        ("null key", raw.mapping((raw.NULL, SCHEMA))),
        ("bool key", raw.mapping((raw.TRUE, SCHEMA))),
        ("array key", raw.mapping((raw.array(raw.uint(1)), SCHEMA))),
        ("float key", raw.mapping((b"\xf9\x3c\x00", SCHEMA))),
        ("key without value", b"\xa1\x01"),
        ("fewer pairs than said", b"\xa2\x01" + SCHEMA),
        ("more pairs than said", b"\xa1\x01" + SCHEMA + b"\x05\x09"),
    ):
        s.refuses(name, CBOR_INVALID, "payload_hdr", data)
    return s


def ends() -> Scenario:
    """Return input that ends too early or too late."""
    s = Scenario("cbor/ends", "An object is the whole input: no byte is missing, none follows.")
    hdr = raw.keyed((1, SCHEMA), (5, raw.uint(1000)))
    receipt = raw.array(*_receipt_items())
    s.refuses("no input", CBOR_INVALID, "payload_hdr", b"")
    s.refuses("no input for an array", CBOR_INVALID, "receipt", b"")
    for name, data in (
        ("a zero byte behind", hdr + b"\x00"),
        ("a null behind", hdr + raw.NULL),
        ("the object twice", hdr + hdr),
        ("a break behind", hdr + raw.BREAK),
        ("only the map head", hdr[:1]),
        ("ends after a key", hdr[:2]),
        ("ends inside a length", hdr[:3]),
        ("ends after a length", hdr[:4]),
        ("ends inside a byte string", hdr[:20]),
        ("ends before the last pair", hdr[:36]),
        ("ends after the last key", hdr[:37]),
        ("ends inside an integer", hdr[:-1]),
    ):
        s.refuses(name, CBOR_INVALID, "payload_hdr", data)
    s.refuses("receipt and a zero byte", CBOR_INVALID, "receipt", receipt + b"\x00")
    s.refuses("receipt without its last byte", CBOR_INVALID, "receipt", receipt[:-1])
    s.refuses("receipt without its signature", CBOR_INVALID, "receipt", receipt[:-66])
    return s


def declared_lengths() -> Scenario:
    """Return lengths far beyond the input."""
    s = Scenario(
        "cbor/declared_lengths", "A length beyond the input is refused before anything is allocated for it."
    )
    huge = ((1, 255), (2, 65_535), (4, 2**32 - 1), (8, 2**63), (8, U64_MAX))
    for width, length in huge:
        data = raw.keyed((1, raw.head(raw.BYTES, length, width)))
        s.refuses(f"byte string of {length}", CBOR_INVALID, "payload_hdr", data)
        s.refuses(f"text of {length}", CBOR_INVALID, "error", _error(raw.head(raw.TEXT, length, width)))
        s.refuses(f"array of {length}", CBOR_INVALID, "receipt", raw.head(raw.ARRAY, length, width))
        s.refuses(f"map of {length}", CBOR_INVALID, "payload_hdr", raw.head(raw.MAP, length, width))
        pages = raw.keyed((1, raw.uint(1)), (2, raw.bstr(fixed.LABEL)), (3, raw.uint(1)))
        items = b"\xa4" + pages[1:] + b"\x05" + raw.head(raw.ARRAY, length, width)
        s.refuses(f"list of {length}", CBOR_INVALID, "stream_response", items)
    return s


def utf8() -> Scenario:
    """Return text that is UTF-8, and text that is not."""
    s = Scenario(
        "cbor/utf8", "Text is valid UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF."
    )
    for name, text in (
        ("ASCII", "E.SIZE"),
        ("empty", ""),
        ("two bytes", "\u00e9"),
        ("three bytes", "\u20ac"),
        ("four bytes", "\U0001f512"),
        ("a NUL", "\x00"),
        ("the last code point", "\U0010ffff"),
        ("not normalised", "e\u0301"),
    ):
        s.round_trip(name, "error", _error(raw.tstr(text)))
    for name, data in (
        ("a lone continuation byte", b"\x80"),
        ("a byte that never occurs", b"\xff"),
        ("overlong NUL", b"\xc0\x80"),
        ("overlong slash in three bytes", b"\xe0\x80\xaf"),
        ("a high surrogate", b"\xed\xa0\x80"),
        ("a surrogate pair", b"\xed\xa0\xbd\xed\xb4\x92"),
        ("above the last code point", b"\xf4\x90\x80\x80"),
        ("a sequence cut short", b"\xe2\x82"),
        ("Latin-1", b"caf\xe9"),
    ):
        s.refuses(f"{name} in a code", CBOR_INVALID, "error", _error(raw.tstr(data)))
        s.refuses(f"{name} in a message", CBOR_INVALID, "error", _error(raw.tstr("E.SIZE"), raw.tstr(data)))
    return s


def depth() -> Scenario:
    """Return deep nesting."""
    s = Scenario("cbor/depth", "Nesting is bounded: a decoder refuses depth, it does not run out of stack.")
    head = raw.keyed((1, raw.uint(1)), (2, raw.tstr("E")), (3, raw.tstr("m")))
    for levels in (1, 16, 17, 1000):
        arrays = raw.mapping((raw.tstr("a"), b"\x81" * levels + b"\x00"))
        s.refuses(
            f"{levels} arrays in a detail", CBOR_INVALID, "error", b"\xa4" + head[1:] + b"\x04" + arrays
        )
        maps = raw.mapping((raw.tstr("a"), b"\xa1\x61a" * levels + b"\x00"))
        s.refuses(f"{levels} maps in a detail", CBOR_INVALID, "error", b"\xa4" + head[1:] + b"\x04" + maps)
        s.refuses(f"{levels} arrays for a map", CBOR_INVALID, "payload_hdr", b"\x81" * levels + b"\x00")
        s.refuses(f"{levels} arrays for an array", CBOR_INVALID, "receipt", b"\x81" * levels + b"\x00")
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    yield integers()
    yield lengths()
    yield indefinite()
    yield reserved()
    yield tags()
    yield simple_values()
    yield bools()
    yield negatives()
    yield keys()
    yield ends()
    yield declared_lengths()
    yield utf8()
    yield depth()
