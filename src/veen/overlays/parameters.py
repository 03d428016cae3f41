"""Parameters of an overlay as text: what a command line and a certificate can say."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, get_type_hints

from veen.core.errors import ProtocolError
from veen.core.kinds import hex_from_json
from veen.core.types import JsonValue
from veen.overlays.overlay import Overlay


class ParameterError(ValueError):
    """A parameter that an overlay does not have, or not so."""


def _text(value: JsonValue) -> str:
    if not isinstance(value, str):
        raise ParameterError("takes text")
    return value


def _number(value: JsonValue) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ParameterError("takes a number")
    try:
        return int(value)
    except ValueError:
        raise ParameterError("takes a number") from None


def _flag(value: JsonValue) -> bool:
    if value not in (True, False, "true", "false"):
        raise ParameterError("is true or false")
    return value in (True, "true")


def _bytes(value: JsonValue) -> bytes:
    try:
        return hex_from_json(value)
    except ProtocolError:
        raise ParameterError("takes hex") from None


def _bytes_set(value: JsonValue) -> frozenset[bytes]:
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, list):
        raise ParameterError("takes hex, separated by commas")
    return frozenset(_bytes(item) for item in listed if item)


def _bytes_map(value: JsonValue) -> Mapping[bytes, bytes]:
    if isinstance(value, str):
        value = dict(item.partition(":")[::2] for item in value.split(",") if item)
    if not isinstance(value, dict):
        raise ParameterError("takes HEX:HEX, separated by commas")
    return {_bytes(key): _bytes(item) for key, item in value.items()}


def _or_none(read: Callable[[JsonValue], Any]) -> Callable[[JsonValue], Any]:
    return lambda value: None if value is None else read(value)


_READERS: Final[Mapping[Any, Callable[[JsonValue], Any]]] = {
    str: _text,
    int: _number,
    bool: _flag,
    bytes: _bytes,
    str | None: _or_none(_text),
    int | None: _or_none(_number),
    frozenset[bytes]: _bytes_set,
    Mapping[bytes, bytes]: _bytes_map,
}


def configured(overlay: type[Overlay], values: Mapping[str, JsonValue]) -> Overlay:
    """Return an overlay with parameters as ``Overlay.parameters`` gives them, or as a person writes them."""
    hints = get_type_hints(overlay)
    known = {item.name for item in fields(overlay)}
    given: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            has = ", ".join(sorted(known)) or "none"
            raise ParameterError(f"{overlay.name} has no parameter {name!r}; it has: {has}")
        if not value and not isinstance(value, bool | int | str):
            continue  # nothing is what is there without it
        reader = _READERS.get(hints[name])
        if reader is None:
            raise ParameterError(f"{name} of {overlay.name} can not be given as text")
        try:
            given[name] = reader(value)
        except ParameterError as error:
            raise ParameterError(f"{name} {error}") from None
    return overlay(**given)
