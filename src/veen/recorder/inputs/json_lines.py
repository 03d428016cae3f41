"""Events from lines of JSON, as most programs can log."""

import datetime as dt
import json
import time
from dataclasses import dataclass
from typing import Any, Final

from veen.recorder.errors import BadLineError
from veen.recorder.event import LEFT_OUT, Captured, capture
from veen.stdx.json_object import unique_names

# Units per second.
UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
# Keys of a line that a feed set aside.
_ASIDE: Final = frozenset({"stream", "reason", "event"})
_EVENT: Final = frozenset({"event_type", "subject_id", "event_time", "origin", "payload", "metadata"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The mapping from fields of a line to fields of an event; dots lead into objects."""

    time: str = "event_time"
    type: str = "event_type"
    subject: str = "subject_id"
    origin: str = "origin"
    # The unit of a time that is a number.
    unit: str = "s"
    # The type of events from lines without one.
    default_type: str = "log.line"


def read_event(line: bytes, fields: Fields, stream: str | None = None) -> Captured:
    """Return the event of a line; a line without a time gets the current one.

    A line that a feed set aside is the event that it contains, if it is of the same stream.
    """
    line_fields = parse(line)
    if not isinstance(line_fields, dict):
        raise BadLineError("the line is not a JSON object")
    if line_fields.keys() == _ASIDE and isinstance(line_fields["event"], dict):
        return _read_aside(line_fields["event"], line_fields["stream"], stream)
    event_type = _take(line_fields, fields.type)
    subject, origin = _take(line_fields, fields.subject), _take(line_fields, fields.origin)
    when = _take(line_fields, fields.time)
    metadata = line_fields.get("metadata")
    if metadata is None or isinstance(metadata, dict):
        line_fields.pop("metadata", None)
    else:
        metadata = None  # an ordinary field
    payload = line_fields["payload"] if line_fields.keys() == {"payload"} else line_fields
    return Captured(
        None,
        fields.default_type if event_type is None else str(event_type),
        None if subject is None else str(subject),
        time.time() if when is None else seconds(when, fields.unit),
        None if origin is None else str(origin),
        capture(payload),
        None if metadata is None else capture(metadata),
    )


def _read_aside(event: dict[str, Any], was_for: object, stream: str | None) -> Captured:
    """Return an event that was set aside: with its original values, or not at all."""
    if stream is not None and was_for != stream:
        raise BadLineError(
            f"it was set aside as an event of {str(was_for)[:200]!r}: import it to that stream"
        )
    unknown = sorted(event.keys() - _EVENT)
    if unknown:
        raise BadLineError(f"an event does not have {unknown[0][:40]!r}")
    for name in ("event_type", "event_time"):
        if event.get(name) is None:
            raise BadLineError(f"it was set aside without {name}")
    for name, value in event.items():
        if isinstance(value, str) and value.startswith(LEFT_OUT):
            raise BadLineError(f"its {name} was left out when it was set aside, so it cannot be recorded")
    metadata = event.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise BadLineError("metadata is not a JSON object")
    subject, origin = event.get("subject_id"), event.get("origin")
    return Captured(
        None,
        str(event["event_type"]),
        None if subject is None else str(subject),
        seconds(event["event_time"]),
        None if origin is None else str(origin),
        capture(event.get("payload")),
        None if metadata is None else capture(metadata),
    )


def parse(data: bytes) -> Any:  # noqa: ANN401 - JSON
    """Parse JSON; fractions become text as written. Repeated names are rejected: they would hide a value."""
    try:
        return json.loads(data, parse_float=str, parse_constant=str, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise BadLineError(f"not JSON: {error}") from None


_unique = unique_names(lambda name: BadLineError(f"the name {name[:40]!r} is repeated"))


def _take(container: dict[str, Any], path: str) -> Any:  # noqa: ANN401 - JSON
    """Remove a field from a line and return it; None if there is none."""
    if path in container:
        return container.pop(path)
    name, _, rest = path.partition(".")
    inside = container.get(name)
    return _take(inside, rest) if rest and isinstance(inside, dict) else None


def seconds(value: object, unit: str = "s") -> float:
    """Parse a time: a number, or text in ISO 8601; without a zone it is UTC."""
    try:
        if isinstance(value, int):
            return value / UNITS[unit] if UNITS[unit] > 1 else value
        text = str(value)
        try:
            return float(text) / UNITS[unit]
        except ValueError:
            when = dt.datetime.fromisoformat(text)
        return (when if when.tzinfo else when.replace(tzinfo=dt.UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BadLineError(f"{str(value)[:40]!r} is not a time") from None
