"""Canonical JSON, character by character."""

from decimal import Decimal

from tests.reference.basics import Fields, Json, h, need

_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _string(text: str) -> str:
    made = ""
    for character in text:
        point = ord(character)
        need(not 0xD800 <= point <= 0xDFFF, "no surrogate stands alone")
        made += _SHORT.get(character) or (f"\\u00{point:02x}" if point < 0x20 else character)
    return f'"{made}"'


def _number(value: float) -> str:
    if isinstance(value, int):
        need(abs(value) < 10**1024, "at most 1024 digits")
        return str(value)
    text = format(Decimal(repr(value)), "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _text(value: Json, depth: int) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, str):
        return _string(value)
    need(depth < 64, "at most 64 inside one another")
    if isinstance(value, list):
        return "[" + ",".join(_text(item, depth + 1) for item in value) + "]"
    pairs = sorted((name.encode(errors="surrogatepass"), name) for name in value)
    return "{" + ",".join(_string(name) + ":" + _text(value[name], depth + 1) for _, name in pairs) + "}"


def canonical_json(r: Fields) -> Fields:
    """Return the text of a value and its hash."""
    text = _text(r["value"], 0)
    return {"text": text, "hash": h(text.encode())}
