"""Parameters of an overlay as text, for the command line and for certificates."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, get_type_hints

from veen.core.encoding.field_types import hex_from_json
from veen.core.encoding.wire_object import W
from veen.core.errors import ProtocolError
from veen.core.objects.capability import CapToken
from veen.core.objects.control_record import RevocationRecord
from veen.core.types import JsonValue
from veen.overlays.errors import ParameterError
from veen.overlays.operations.delegation import KnownToken
from veen.overlays.operations.recovery import RecoveryPolicy
from veen.overlays.overlay import Overlay
from veen.overlays.registry import overlay_class


def _text(value: JsonValue) -> str:
    if not isinstance(value, str):
        raise ParameterError("must be text")
    return value


def _number(value: JsonValue) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ParameterError("must be a number")
    try:
        return int(value)
    except ValueError:
        raise ParameterError("must be a number") from None


def _flag(value: JsonValue) -> bool:
    if value not in (True, False, "true", "false"):
        raise ParameterError("must be true or false")
    return value in (True, "true")


def _bytes(value: JsonValue) -> bytes:
    try:
        return hex_from_json(value)
    except ProtocolError:
        raise ParameterError("must be hex") from None


def _bytes_set(value: JsonValue) -> frozenset[bytes]:
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, list):
        raise ParameterError("must be hex values separated by commas")
    return frozenset(_bytes(item) for item in listed if item)


def _bytes_map(value: JsonValue) -> Mapping[bytes, bytes]:
    if isinstance(value, dict):
        return {_bytes(key): _bytes(item) for key, item in value.items()}
    pairs = [item.split(":") for item in value.split(",")] if isinstance(value, str) else [[]]
    if any(len(pair) != 2 for pair in pairs):
        raise ParameterError("must be HEX:HEX, separated by commas")
    return {_bytes(key): _bytes(item) for key, item in pairs}


def _listed(value: JsonValue, separator: str = ",") -> list[JsonValue]:
    if isinstance(value, str):
        return [item for item in value.split(separator) if item]
    if not isinstance(value, list):
        raise ParameterError("must be a list")
    return value


def _pair(value: JsonValue, separator: str, form: str) -> tuple[JsonValue, JsonValue]:
    """Read a pair: text with a separator, or a list of two."""
    parts = value.split(separator, 1) if isinstance(value, str) else value
    if not isinstance(parts, list) or len(parts) != 2:
        raise ParameterError(f"must be {form}")
    return parts[0], parts[1]


def _policy(value: JsonValue) -> RecoveryPolicy:
    """Read THRESHOLD:GUARDIAN,GUARDIAN; or [[guardian, ...], threshold]."""
    first, second = _pair(value, ":", "THRESHOLD:HEX,HEX")
    guardians, threshold = (second, first) if isinstance(value, str) else (first, second)
    return RecoveryPolicy(_bytes_set(guardians), _number(threshold))


def _policies(value: JsonValue) -> Mapping[bytes, RecoveryPolicy]:
    """Read TARGET:THRESHOLD:GUARDIAN,GUARDIAN, separated by semicolons; or an object."""
    if isinstance(value, dict):
        return {_bytes(key): _policy(item) for key, item in value.items()}
    pairs = (_pair(item, ":", "TARGET:THRESHOLD:HEX,HEX") for item in _listed(value, ";"))
    return {_bytes(target): _policy(item) for target, item in pairs}


def _known(value: JsonValue) -> tuple[KnownToken, ...]:
    """Read TOKEN@ISSUED_AT, separated by commas; or a list of pairs."""
    pairs = (_pair(item, "@", "TOKEN@ISSUED_AT") for item in _listed(value))
    return tuple(KnownToken(_wire(CapToken, token), _number(when)) for token, when in pairs)


def _revocations(value: JsonValue) -> tuple[RevocationRecord, ...]:
    return tuple(_wire(RevocationRecord, item) for item in _listed(value))


def _wire(cls: type[W], value: JsonValue) -> W:
    try:
        return cls.decode(_bytes(value))
    except ProtocolError as error:
        raise ParameterError(f"must be the hex of a {cls.SHAPE.name}: {error.message}") from None


def _inner(value: JsonValue) -> Overlay:
    """Read the name of an overlay; or its name, version and parameters."""
    name, version, values = value if isinstance(value, list) and len(value) == 3 else (value, None, {})
    try:
        overlay = overlay_class(_text(name))
    except KeyError:
        raise ParameterError(f"must be an overlay, and there is none named {name}") from None
    if version not in (None, overlay.version) or not isinstance(values, dict):
        raise ParameterError(f"must be version {overlay.version} of {name}")
    return configured(overlay, values)


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
    RecoveryPolicy | None: _or_none(_policy),
    Mapping[bytes, RecoveryPolicy]: _policies,
    tuple[KnownToken, ...]: _known,
    tuple[RevocationRecord, ...]: _revocations,
    Overlay | None: _or_none(_inner),
}


def configured(overlay: type[Overlay], values: Mapping[str, JsonValue]) -> Overlay:
    """Return an overlay with parameters as ``Overlay.parameters`` returns them, or as text."""
    hints = get_type_hints(overlay)
    known = {item.name for item in fields(overlay)}
    parameters: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            has = ", ".join(sorted(known)) or "none"
            raise ParameterError(f"{overlay.name} has no parameter {name!r}; it has: {has}")
        reader = _READERS.get(hints[name])
        if reader is None:
            if value is None or value in ([], {}):
                continue  # the default
            raise ParameterError(f"{name} of {overlay.name} cannot be given as text")
        try:
            parameters[name] = reader(value)
        except ParameterError as error:
            raise ParameterError(f"{name} {error}") from None
    try:
        return overlay(**parameters)
    except ParameterError:
        raise
    except ValueError as error:
        raise ParameterError(str(error)) from None
