"""Events out of lines of JSON, as most programs can log."""

import datetime as dt
import json
import time
from dataclasses import dataclass
from typing import Any, Final

from veen.recorder.packing import Captured, capture

#: How many of a unit make a second.
UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
#: What a line has that was set aside by a feed.
_ASIDE: Final = frozenset({"stream", "reason", "event"})


class BadLineError(ValueError):
    """A line that is no event; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """Which fields of a line are what of an event; dots lead into objects."""

    time: str = "event_time"
    type: str = "event_type"
    subject: str = "subject_id"
    origin: str = "origin"
    #: What a number says, as a time.
    unit: str = "s"
    #: The type of events whose lines have none.
    default_type: str = "log.line"


def read_event(line: bytes, fields: Fields) -> Captured:
    """Return the event of a line; a line without a time is of now."""
    found = parse(line)
    if not isinstance(found, dict):
        raise BadLineError("a line is a JSON object")
    if found.keys() == _ASIDE and isinstance(found["event"], dict):
        found = found["event"]
    event_type = _take(found, fields.type)
    subject, origin = _take(found, fields.subject), _take(found, fields.origin)
    when = _take(found, fields.time)
    metadata = found.pop("metadata", None) if isinstance(found.get("metadata"), dict) else None
    payload = found["payload"] if found.keys() == {"payload"} else found
    return Captured(
        None,
        fields.default_type if event_type is None else str(event_type),
        None if subject is None else str(subject),
        time.time() if when is None else seconds(when, fields.unit),
        None if origin is None else str(origin),
        capture(payload),
        None if metadata is None else capture(metadata),
    )


def parse(data: bytes) -> Any:  # noqa: ANN401 - JSON
    """Parse JSON; fractions stay the text that they are."""
    try:
        return json.loads(data, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise BadLineError(f"not JSON: {error}") from None


def _take(found: dict[str, Any], path: str) -> Any:  # noqa: ANN401 - JSON
    """Take a field out of a line; None if there is none."""
    if path in found:
        return found.pop(path)
    name, _, rest = path.partition(".")
    inside = found.get(name)
    return _take(inside, rest) if rest and isinstance(inside, dict) else None


def seconds(value: object, unit: str = "s") -> float:
    """Read a time: a number, or text as in ISO 8601; without a zone it is UTC."""
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
        raise BadLineError(f"{str(value)[:40]!r} is no time") from None
