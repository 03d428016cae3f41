"""Canonical JSON: the one text of a value (QRY-005, QRY-006)."""

from collections.abc import Iterator

from vectors.generators.scenario import VALUE, Json, Scenario

_OP = "canonical_json"


def texts() -> Scenario:
    """Return strings and names."""
    s = Scenario(
        "canonical_json/texts",
        "Only quote, backslash and U+0000 to U+001F are escaped; names are sorted by their UTF-8 bytes.",
    )
    cases: tuple[tuple[str, Json], ...] = (
        ("empty", ""),
        ("quote and backslash", '"\\'),
        ("a solidus is not escaped", "/"),
        ("short escapes", "\b\f\n\r\t"),
        ("other control characters", "".join(map(chr, range(32)))),
        ("delete, and what is beyond ASCII, is not escaped", "\x7f\x80\u00e9\u2028\ufeff\uffff\U0001f512"),
        ("composed and decomposed are two texts", ["\u00e9", "e\u0301"]),
        ("names in order", {"b": 1, "a": 2, "B": 3, "": 4, "aa": 5}),
        ("UTF-16 would order these names the other way", {"\U00010000": 1, "\uffff": 2}),
        ("names are escaped too", {'"\n': 1}),
        ("names inside", {"b": [{"d": 1, "c": {"f": 2, "e": 3}}], "a": []}),
    )
    for name, value in cases:
        s.ok(name, _OP, value=value)
    return s


def values() -> Scenario:
    """Return numbers, constants and lists."""
    s = Scenario(
        "canonical_json/values",
        "Numbers have no exponent, no needless zero and no sign if they are zero; lists keep their order.",
    )
    cases: tuple[tuple[str, Json], ...] = (
        ("null", None),
        ("true", True),
        ("false", False),
        ("zero", 0),
        ("minus zero", -0.0),
        ("negative", -17),
        ("2^64", 2**64),
        ("a fraction", 0.1),
        ("a negative fraction", -2.5),
        ("a whole number written as a fraction", 5.0),
        ("a whole number written with an exponent", 1e22),
        ("a small number", 2.5e-7),
        ("the smallest double", 5e-324),
        ("1024 digits", 10**1023),
        ("a list", [3, [1, []], {}, "x"]),
        (
            "a digest",
            {
                "version": 1,
                "row_count": 2,
                "query_id": "q-1",
                "result_id": "r-1",
                "evidence_policy": {"sample_rate": 0.25, "mode": "spot"},
                "executed_at": "2023-11-14T22:13:20Z",
            },
        ),
    )
    for name, value in cases:
        s.ok(name, _OP, value=value)
    return s


def _nested(depth: int) -> Json:
    value: Json = []
    for _ in range(depth - 1):
        value = [value]
    return value


def refused() -> Scenario:
    """Return values that have no canonical form."""
    s = Scenario(
        "canonical_json/refused",
        "A lone surrogate has no UTF-8 form; nesting beyond 64 and more than 1024 digits are refused.",
    )
    s.ok("64 lists inside one another", _OP, value=_nested(64))
    cases: tuple[tuple[str, Json], ...] = (
        ("a high surrogate", "\ud800"),
        ("a low surrogate", ["a\udc00"]),
        ("surrogates in the wrong order", "\udc00\ud800"),
        ("a surrogate in a name", {"\ud800": 1}),
        ("65 lists inside one another", _nested(65)),
        ("1025 digits", 10**1024),
        ("1025 digits, negative", -(10**1024)),
    )
    for name, value in cases:
        s.fails(name, VALUE, _OP, value=value)
    return s


def scenarios() -> Iterator[Scenario]:
    """Return everything about canonical JSON."""
    yield texts()
    yield values()
    yield refused()
