"""Canonical JSON: one text for one value, so that its hash names the value (QRY-004 to QRY-006).

Names are sorted by their UTF-8 bytes, there is no space, and strings escape only the quote, the backslash and
U+0000 to U+001F. Numbers are exact decimals without an exponent, in the fewest characters; ``-0`` is ``0``.
Sizes are bounded, because texts come from strangers: ``1e999999999`` is eleven characters, a billion digits.
"""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn

from veen.core.errors import Detail, ProtocolError
from veen.core.types import JsonValue

#: What ``parse`` gives: a number is an int, or a Decimal if it has a fraction.
Json = None | bool | int | Decimal | str | list["Json"] | dict[str, "Json"]
#: What ``encode`` takes.
Encodable = None | bool | int | Decimal | str | Sequence["Encodable"] | Mapping[str, "Encodable"]

#: A description for people: byte strings become hex in JSON.
Described = None | bool | int | str | bytes | list["Described"] | dict[str, "Described"]

#: Objects and lists inside one another; four times as many as CBOR may have here.
MAX_DEPTH: Final = 64
#: Digits of a number when it is written out: room for every double as people write them.
MAX_DIGITS: Final = 1024
_TOO_LARGE: Final = 10**MAX_DIGITS


def _refuse(message: str) -> NoReturn:
    raise ProtocolError(Detail.VALUE, message)


# --- writing ------------------------------------------------------------------------------------------------


def encode(value: Encodable) -> bytes:
    """Return the canonical JSON of a value, in UTF-8.

    Floats are a TypeError: what they stand for depends on who rounds. Lone surrogates, numbers of more than
    ``MAX_DIGITS`` digits and nesting beyond ``MAX_DEPTH`` are a ProtocolError.
    """
    try:
        return _text(value, MAX_DEPTH).encode()
    except UnicodeEncodeError:
        _refuse("text with a lone surrogate has no UTF-8 form")


def quote(text: str) -> str:
    """Return a string of canonical JSON, quotes included; a lone surrogate is found when it is encoded."""
    return encode_basestring(text)


def _text(value: Encodable, depth: int) -> str:
    match value:
        case str():
            return encode_basestring(value)
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            if not -_TOO_LARGE < value < _TOO_LARGE:
                _refuse(f"a number has more than {MAX_DIGITS} digits")
            return int.__repr__(value)
        case Decimal():
            return _decimal_text(value)
        case Mapping() | list() | tuple():
            if depth == 0:
                _refuse(f"JSON is nested more than {MAX_DEPTH} deep")
            return _container(value, depth - 1)
        case _:
            raise TypeError(f"{type(value).__name__} has no canonical JSON")


def _container(value: Mapping[str, Encodable] | Sequence[Encodable], depth: int) -> str:
    if not isinstance(value, Mapping):
        return f"[{','.join([_text(item, depth) for item in value])}]"
    for name in value:
        if not isinstance(name, str):
            raise TypeError("a name in an object must be text")
    # Code points sort as their UTF-8 bytes do.
    pairs = [f"{encode_basestring(name)}:{_text(value[name], depth)}" for name in sorted(value)]
    return f"{{{','.join(pairs)}}}"


def _decimal_text(value: Decimal) -> str:
    if not value.is_finite():
        _refuse(f"{value} is not a number")
    if not value:
        return "0"
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if len(digits) > MAX_DIGITS or abs(exponent) > MAX_DIGITS or len(digits) + exponent > MAX_DIGITS:
        _refuse(f"a number has more than {MAX_DIGITS} digits")
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


# --- reading ------------------------------------------------------------------------------------------------


def _no_constant(name: str) -> NoReturn:
    _refuse(f"{name} is not JSON")


def _no_repeats(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) != len(pairs):
        _refuse("a name occurs twice in one object")
    return made


def _integer(text: str) -> int:
    if len(text.removeprefix("-")) > MAX_DIGITS:
        _refuse(f"a number has more than {MAX_DIGITS} digits")
    return int(text)


def number(text: str) -> int | Decimal:
    """Return a number that is written in JSON with a point or an exponent."""
    if len(text) > MAX_DIGITS + len("-.e-1024"):
        _refuse(f"a number has more than {MAX_DIGITS} digits")
    try:
        written = _decimal_text(Decimal(text))
    except InvalidOperation:  # an exponent that decimals themselves do not have
        _refuse(f"a number has more than {MAX_DIGITS} digits")
    return Decimal(written) if "." in written else int(written)


def parse(data: bytes) -> Json:
    """Return the value of any JSON text, strictly; a ProtocolError says what is wrong with it.

    Only UTF-8, no byte order mark, no name twice, no NaN, no lone surrogate, bounded as ``encode`` is.
    """
    try:
        value = json.loads(
            data.decode(),
            parse_constant=_no_constant,
            parse_float=number,
            parse_int=_integer,
            object_pairs_hook=_no_repeats,
        )
    except UnicodeDecodeError:
        _refuse("JSON is not UTF-8")
    except RecursionError:
        _refuse(f"JSON is nested more than {MAX_DEPTH} deep")
    except ValueError as error:
        _refuse(f"not JSON: {error}")
    _check(value, MAX_DEPTH)
    checked: Json = value
    return checked


def _check(value: Any, depth: int) -> None:  # noqa: ANN401 - what the parser gave
    """Refuse what the parser lets pass: lone surrogates that were escaped, and deep nesting."""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            _refuse("text with a lone surrogate has no UTF-8 form")
    elif isinstance(value, dict | list):
        if depth == 0:
            _refuse(f"JSON is nested more than {MAX_DEPTH} deep")
        for item in value:
            _check(item, depth - 1)
        if isinstance(value, dict):
            for item in value.values():
                _check(item, depth - 1)


# --- descriptions -------------------------------------------------------------------------------------------


def for_json(value: Described) -> JsonValue:
    """Return a description as JSON has it."""
    match value:
        case bytes():
            return value.hex()
        case dict():
            return {name: for_json(item) for name, item in value.items()}
        case list():
            return [for_json(item) for item in value]
    return value
