"""Canonical JSON: one text for one value, so that its hash names the value (QRY-004 to QRY-006).

Names are sorted by their UTF-8 bytes, there is no space, and strings escape only the quote, the backslash and
U+0000 to U+001F. Numbers are exact decimals without an exponent, in the fewest characters; ``-0`` is ``0``.
Sizes are bounded, because input is untrusted: ``1e999999999`` has eleven characters and a billion digits.
"""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn

from veen.core.errors import Detail, ProtocolError
from veen.core.types import JsonValue
from veen.stdx.json_object import unique_names

# What ``parse`` returns: a number is an int, or a Decimal if it has a fraction.
Json = None | bool | int | Decimal | str | list["Json"] | dict[str, "Json"]
# What ``encode`` accepts.
Encodable = None | bool | int | Decimal | str | Sequence["Encodable"] | Mapping[str, "Encodable"]

# A description for human readers: byte strings become hex in JSON.
Described = None | bool | int | str | bytes | list["Described"] | dict[str, "Described"]

# Nesting of objects and lists; four times the bound of CBOR.
MAX_DEPTH: Final = 64
# Digits of a number written without an exponent: enough for the shortest form of every double.
MAX_DIGITS: Final = 1024
_TOO_LARGE: Final = 10**MAX_DIGITS


def _reject(message: str) -> NoReturn:
    raise ProtocolError(Detail.VALUE, message)


# --- writing ------------------------------------------------------------------------------------------------


def encode(value: Encodable) -> bytes:
    """Return the canonical JSON of a value, in UTF-8.

    Floats are a TypeError: their decimal value depends on rounding. Lone surrogates, numbers of more than
    ``MAX_DIGITS`` digits and nesting beyond ``MAX_DEPTH`` are a ProtocolError.
    """
    try:
        return _text(value, MAX_DEPTH).encode()
    except UnicodeEncodeError:
        _reject("text with a lone surrogate has no UTF-8 form")


def quote(text: str) -> str:
    """Return a string of canonical JSON, quotes included; a lone surrogate fails when the text is encoded."""
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
                _reject(f"a number has more than {MAX_DIGITS} digits")
            return int.__repr__(value)
        case Decimal():
            return _decimal_text(value)
        case Mapping() | list() | tuple():
            if depth == 0:
                _reject(f"JSON is nested more than {MAX_DEPTH} deep")
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
        _reject(f"{value} is not a number")
    if not value:
        return "0"
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if len(digits) > MAX_DIGITS or abs(exponent) > MAX_DIGITS or len(digits) + exponent > MAX_DIGITS:
        _reject(f"a number has more than {MAX_DIGITS} digits")
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


# --- reading ------------------------------------------------------------------------------------------------


def _no_constant(name: str) -> NoReturn:
    _reject(f"{name} is not JSON")


def _repeated(_: str) -> ProtocolError:
    return ProtocolError(Detail.VALUE, "a name occurs twice in one object")


def _integer(text: str) -> int:
    if len(text.removeprefix("-")) > MAX_DIGITS:
        _reject(f"a number has more than {MAX_DIGITS} digits")
    return int(text)


def number(text: str) -> int | Decimal:
    """Parse a JSON number that has a point or an exponent."""
    if len(text) > MAX_DIGITS + len("-.e-1024"):
        _reject(f"a number has more than {MAX_DIGITS} digits")
    try:
        written = _decimal_text(Decimal(text))
    except InvalidOperation:  # an exponent beyond the range of Decimal
        _reject(f"a number has more than {MAX_DIGITS} digits")
    return Decimal(written) if "." in written else int(written)


def parse(data: bytes) -> Json:
    """Parse any JSON text strictly; a ProtocolError says what is wrong with it.

    Only UTF-8, no byte order mark, no repeated name, no NaN, no lone surrogate; the bounds are those of
    ``encode``.
    """
    try:
        value = json.loads(
            data.decode(),
            parse_constant=_no_constant,
            parse_float=number,
            parse_int=_integer,
            object_pairs_hook=unique_names(_repeated),
        )
    except UnicodeDecodeError:
        _reject("JSON is not UTF-8")
    except RecursionError:
        _reject(f"JSON is nested more than {MAX_DEPTH} deep")
    except ValueError as error:
        _reject(f"not JSON: {error}")
    _check(value, MAX_DEPTH)
    checked: Json = value
    return checked


def _check(value: Any, depth: int) -> None:  # noqa: ANN401 - the parser's output
    """Reject what the parser accepts: escaped lone surrogates, and deep nesting."""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            _reject("text with a lone surrogate has no UTF-8 form")
    elif isinstance(value, dict | list):
        if depth == 0:
            _reject(f"JSON is nested more than {MAX_DEPTH} deep")
        for item in value:
            _check(item, depth - 1)
        if isinstance(value, dict):
            for item in value.values():
                _check(item, depth - 1)


# --- descriptions -------------------------------------------------------------------------------------------


def for_json(value: Described) -> JsonValue:
    """Return the JSON form of a description."""
    match value:
        case bytes():
            return value.hex()
        case dict():
            return {name: for_json(item) for name, item in value.items()}
        case list():
            return [for_json(item) for item in value]
    return value
