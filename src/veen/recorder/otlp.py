"""Events out of OpenTelemetry logs: requests of OTLP in JSON (ExportLogsServiceRequest)."""

import base64
import binascii
import time
from collections.abc import Iterator
from typing import Any, Final

from veen.recorder.jsonlines import BadLineError
from veen.recorder.packing import Captured, capture

#: Whom an event is about, unless somebody says otherwise.
SUBJECT: Final = "enduser.id"
_SERVICE: Final = "service.name"
_EVENT_NAME: Final = "event.name"
_NANO: Final = 1_000_000_000
#: The least number of each severity, the greatest first.
_SEVERITIES: Final = ((21, "fatal"), (17, "error"), (13, "warn"), (9, "info"), (5, "debug"), (1, "trace"))


def read_request(request: object, subject: str = SUBJECT) -> Iterator[Captured | BadLineError]:
    """Yield the events of a request; an error in the place of a record that is none.

    Raises BadLineError for what is no request at all.
    """
    for resource_logs in _objects(_object(request, "a request"), "resourceLogs"):
        resource = _attributes(_object(resource_logs.get("resource") or {}, "resource").get("attributes"))
        for scope_logs in _objects(resource_logs, "scopeLogs"):
            scope = _object(scope_logs.get("scope") or {}, "scope")
            for record in _objects(scope_logs, "logRecords"):
                try:
                    yield _read_record(record, resource, scope, subject)
                except BadLineError as error:
                    yield error
                except RecursionError:
                    yield BadLineError("values are nested too deeply")


def _read_record(
    record: dict[str, Any], resource: dict[str, Any], scope: dict[str, Any], subject: str
) -> Captured:
    attributes = _attributes(record.get("attributes"))
    number = _integer(record.get("severityNumber") or 0)
    severity = str(record.get("severityText") or _severity(number)).lower()
    nano = _integer(record.get("timeUnixNano") or 0) or _integer(record.get("observedTimeUnixNano") or 0)
    who = attributes.get(subject, resource.get(subject))
    event_type = record.get("eventName") or attributes.pop(_EVENT_NAME, None)
    payload = {
        "body": None if record.get("body") is None else _value(record["body"]),
        "severity": severity or None,
        "severity_number": number or None,
        "attributes": attributes or None,
        "time_unix_nano": nano or None,
        "trace_id": record.get("traceId") or None,
        "span_id": record.get("spanId") or None,
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
    return next((name for least, name in _SEVERITIES if number >= least), "")


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadLineError(f"{what} is a JSON object")
    return value


def _objects(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = value.get(name) or []
    if not isinstance(found, list):
        raise BadLineError(f"{name} is a list")
    return [_object(item, f"each of {name}") for item in found]


def _attributes(pairs: object) -> dict[str, Any]:
    """Read a list of keys and values."""
    found = {}
    for pair in _objects({"attributes": pairs}, "attributes"):
        if not isinstance(pair.get("key"), str):
            raise BadLineError("an attribute has a key")
        found[pair["key"]] = _value(pair.get("value") or {})
    return found


def _value(value: object) -> Any:  # noqa: ANN401 - any value, by its kind
    match value:
        case {"stringValue": str(text)}:
            return text
        case {"boolValue": bool(flag)}:
            return flag
        case {"intValue": found}:
            return _integer(found)
        case {"doubleValue": found}:
            return str(found)
        case {"bytesValue": str(text)}:
            return _bytes(text)
        case {"arrayValue": dict(inner)}:
            return [_value(item) for item in _objects(inner, "values")]
        case {"kvlistValue": dict(inner)}:
            return _attributes(inner.get("values"))
        case dict() if not value:
            return None
    raise BadLineError(f"{str(value)[:80]} is no value of OTLP")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise BadLineError(f"bytesValue is no base64: {error}") from None


def _integer(value: object) -> int:
    """Read an integer, which JSON has as text if it has 64 bits."""
    try:
        return int(value) if isinstance(value, int | str) else int(str(value))
    except ValueError:
        raise BadLineError(f"{str(value)[:40]!r} is no integer") from None
