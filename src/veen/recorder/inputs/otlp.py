"""Events from OpenTelemetry logs: requests of OTLP in JSON (ExportLogsServiceRequest)."""

import base64
import binascii
import time
from collections.abc import Iterator
from typing import Any, Final

from veen.recorder.errors import BadLineError
from veen.recorder.event import Captured, capture

# Attribute with the subject of an event, by default.
SUBJECT: Final = "enduser.id"
_SERVICE: Final = "service.name"
_EVENT_NAME: Final = "event.name"
_NANO: Final = 1_000_000_000
# Known names of each message of OTLP's logs. Some are ignored: schemas, counts of dropped items.
_REQUEST: Final = frozenset({"resourceLogs"})
_RESOURCE_LOGS: Final = frozenset({"resource", "scopeLogs", "schemaUrl"})
_RESOURCE: Final = frozenset({"attributes", "droppedAttributesCount", "entityRefs"})
_SCOPE_LOGS: Final = frozenset({"scope", "logRecords", "schemaUrl"})
_SCOPE: Final = frozenset({"name", "version", "attributes", "droppedAttributesCount"})
_RECORD: Final = frozenset(
    {
        "attributes",
        "body",
        "droppedAttributesCount",
        "eventName",
        "flags",
        "observedTimeUnixNano",
        "severityNumber",
        "severityText",
        "spanId",
        "timeUnixNano",
        "traceId",
    }
)
_PAIR: Final = frozenset({"key", "value"})
_VALUES: Final = frozenset({"values"})
_MOST_NAME: Final = 40
# The lowest number of each severity, in descending order.
_SEVERITIES: Final = ((21, "fatal"), (17, "error"), (13, "warn"), (9, "info"), (5, "debug"), (1, "trace"))


def read_request(request: object, subject: str = SUBJECT) -> Iterator[Captured | BadLineError]:
    """Yield the events of a request; an error in place of each record, or other item, that is not one.

    OTLP lets a receiver ignore unknown names, and an exporter discards what it has sent unless it gets an
    error. So nothing is ignored here: whatever is not recorded is reported. Raises BadLineError if it is not
    a request.
    """
    logs = _object(request, "a request")
    yield from _strangers(logs, _REQUEST, "a request")
    for resource_logs in _list(logs, "resourceLogs"):
        try:
            _object(resource_logs, "each of resourceLogs")
            yield from _strangers(resource_logs, _RESOURCE_LOGS, "resourceLogs")
            described = _part(resource_logs, "resource")
            yield from _strangers(described, _RESOURCE, "resource")
            resource = _attributes(described.get("attributes"))
            groups = _list(resource_logs, "scopeLogs")
        except (BadLineError, RecursionError) as error:
            yield from [_told(error)] * _count(resource_logs, "scopeLogs", "logRecords")
            continue
        for scope_logs in groups:
            yield from _read_scope(scope_logs, resource, subject)


def _read_scope(
    scope_logs: dict[str, Any], resource: dict[str, Any], subject: str
) -> Iterator[Captured | BadLineError]:
    try:
        _object(scope_logs, "each of scopeLogs")
        yield from _strangers(scope_logs, _SCOPE_LOGS, "scopeLogs")
        scope = _part(scope_logs, "scope")
        yield from _strangers(scope, _SCOPE, "scope")
        records = _list(scope_logs, "logRecords")
    except BadLineError as error:
        yield from [error] * _count(scope_logs, "logRecords")
        return
    for record in records:
        try:
            yield _read_record(_object(record, "each of logRecords"), resource, scope, subject)
        except (BadLineError, RecursionError) as error:
            yield _told(error)


def _strangers(described: dict[str, Any], known: frozenset[str], what: str) -> Iterator[BadLineError]:
    """Yield an error for each unknown name: its content is not recorded."""
    for name in sorted(described.keys() - known):
        yield BadLineError(f"OTLP logs have no {name[:_MOST_NAME]!r} in {what}; it is not recorded")


def _told(error: BadLineError | RecursionError) -> BadLineError:
    return error if isinstance(error, BadLineError) else BadLineError("values are nested too deeply")


def _count(container: object, *path: str) -> int:
    """Return how many records are lost with an unreadable item; at least 1."""
    if not path:
        return 1
    inside = container.get(path[0]) if isinstance(container, dict) else None
    return max(1, sum(_count(item, *path[1:]) for item in inside)) if isinstance(inside, list) else 1


def _read_record(
    record: dict[str, Any], resource: dict[str, Any], scope: dict[str, Any], subject: str
) -> Captured:
    attributes = _attributes(record.get("attributes"))
    number = _number(record, "severityNumber")
    severity = (_text(record, "severityText") or _severity(number)).lower()
    nano = _number(record, "timeUnixNano") or _number(record, "observedTimeUnixNano")
    who = attributes.get(subject, resource.get(subject))
    event_type = _text(record, "eventName")
    if not event_type and attributes.get(_EVENT_NAME):
        event_type = attributes.pop(_EVENT_NAME)
    payload = {
        "body": None if record.get("body") is None else _value(record["body"]),
        "severity": severity or None,
        "severity_number": number or None,
        "attributes": attributes or None,
        "time_unix_nano": nano or None,
        "trace_id": _text(record, "traceId") or None,
        "span_id": _text(record, "spanId") or None,
        "other": {name: value for name, value in record.items() if name not in _RECORD} or None,
    }
    about = {"resource": resource, "scope": scope.get("name")}
    return Captured(
        None,
        str(event_type or f"log.{severity or 'line'}"),
        None if who is None else str(who),
        nano // _NANO if nano else time.time(),
        str(resource[_SERVICE]) if resource.get(_SERVICE) else None,
        capture({name: value for name, value in payload.items() if value is not None}),
        capture({name: value for name, value in about.items() if value}),
    )


def _severity(number: int) -> str:
    return next((name for lowest, name in _SEVERITIES if number >= lowest), "")


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadLineError(f"{what} is not a JSON object")
    return value


def _part(value: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object; an empty one if it is absent or null."""
    return {} if value.get(name) is None else _object(value[name], name)


def _text(value: dict[str, Any], name: str) -> str:
    text = value.get(name)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise BadLineError(f"{name} is not text")
    return text


def _number(value: dict[str, Any], name: str) -> int:
    number = value.get(name)
    return 0 if number is None or number == "" else _integer(number)


def _list(value: dict[str, Any], name: str) -> list[Any]:
    """Return a list; an empty one if it is absent or null."""
    items = value.get(name)
    if items is None:
        return []
    if not isinstance(items, list):
        raise BadLineError(f"{name} is not a list")
    return items


def _attributes(pairs: object) -> dict[str, Any]:
    """Read a list of keys and values."""
    attributes: dict[str, Any] = {}
    for item in _list({"attributes": pairs}, "attributes"):
        pair = _object(item, "an attribute")
        if not isinstance(pair.get("key"), str) or not pair.keys() <= _PAIR:
            raise BadLineError("an attribute needs a key and a value")
        if pair["key"] in attributes:
            raise BadLineError(f"the attribute {pair['key'][:_MOST_NAME]!r} is repeated")
        attributes[pair["key"]] = None if pair.get("value") is None else _value(pair["value"])
    return attributes


def _value(value: object) -> Any:  # noqa: ANN401 - any value, by its kind
    match value:
        case dict() if len(value) > 1:
            raise BadLineError(f"{str(value)[:80]} is more than one OTLP value")
        case {"stringValue": str(text)}:
            return text
        case {"boolValue": bool(flag)}:
            return flag
        case {"intValue": number}:
            return _integer(number)
        case {"doubleValue": int() | float() | str() as number} if not isinstance(number, bool):
            return str(number)
        case {"bytesValue": str(text)}:
            return _bytes(text)
        case {"arrayValue": dict(inner)} if inner.keys() <= _VALUES:
            return [_value(item) for item in _list(inner, "values")]
        case {"kvlistValue": dict(inner)} if inner.keys() <= _VALUES:
            return _attributes(inner.get("values"))
        case dict() if not value:
            return None
    raise BadLineError(f"{str(value)[:80]} is not an OTLP value")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise BadLineError(f"bytesValue is not base64: {error}") from None


def _integer(value: object) -> int:
    """Parse an integer, which OTLP's JSON writes as text if it has 64 bits."""
    try:
        integer = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else None
    except ValueError:
        integer = None
    if integer is None:
        raise BadLineError(f"{str(value)[:40]!r} is not an integer")
    return integer
