"""What a query answers, written as plainly as possible: the engines are compared with it.

It takes the JSON form of a descriptor and shares nothing with ``veen.query`` but the shape of an event.
"""

import calendar
import hashlib
import json
import time
from collections.abc import Iterable
from typing import Any

from veen.query.fields import Event

Row = dict[str, Any]


def seconds(text: str) -> int:
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def stamp(value: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(value))


def canonical(value: Any) -> str:
    """Canonical JSON of what has no fractions: Python's own form, asked to be terse."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def matches(event: Event, descriptor: dict[str, Any]) -> bool:
    if event.stream not in descriptor["scope"]:
        return False
    wanted = descriptor["filter"]
    if wanted["subject_id"] is not None and event.subject_id != wanted["subject_id"]:
        return False
    if wanted["event_type"] is not None and event.event_type not in wanted["event_type"]:
        return False
    bounds = wanted["time"] or {"from": None, "to": None}
    if bounds["from"] is not None and event.event_time < seconds(bounds["from"]):
        return False
    return bounds["to"] is None or event.event_time <= seconds(bounds["to"])


def field(event: Event, name: str) -> Any:
    first, *rest = name.split(".")
    value: Any
    if first in {"payload", "metadata"}:
        text = getattr(event, first)
        value = None if text is None else json.loads(text)
        for part in rest:
            value = value.get(part) if isinstance(value, dict) else None
        return value
    return {
        "stream": event.stream,
        "subject_id": event.subject_id,
        "principal_id": event.principal_id,
        "event_type": event.event_type,
        "event_time": stamp(event.event_time),
        "origin": event.origin,
        "receipt_id": event.receipt_id.hex(),
        "hub_commit_seq": event.seq,
        "hub_commit_time": stamp(event.hub_ts) if event.hub_ts <= 253402300799 else None,
    }[name]


def contributing(descriptor: dict[str, Any], events: Iterable[Event]) -> list[Event]:
    """The events behind an answer, in their order."""
    found = [event for event in events if matches(event, descriptor)]
    return sorted(found, key=lambda event: (event.stream.encode(), event.epoch, event.seq))


def answer(descriptor: dict[str, Any], events: Iterable[Event]) -> list[Row]:
    """The rows of a normalized descriptor (its JSON form) over events in any order."""
    found = contributing(descriptor, events)
    if "aggregate" not in descriptor:
        return [{name: field(event, name) for name in descriptor["projection"]} for event in found]
    group_by, metrics = descriptor["aggregate"]["group_by"], descriptor["aggregate"]["metrics"]
    groups: dict[str, list[Event]] = {} if group_by else {"[]": []}
    for event in found:
        groups.setdefault(canonical([field(event, name) for name in group_by]), []).append(event)
    rows = []
    for key in sorted(groups, key=str.encode):
        times = [event.event_time for event in groups[key]]
        values = {
            "count": len(times),
            "min(event_time)": stamp(min(times)) if times else None,
            "max(event_time)": stamp(max(times)) if times else None,
        }
        rows.append(
            dict(zip(group_by, json.loads(key), strict=True)) | {metric: values[metric] for metric in metrics}
        )
    return rows


def rows_hash(rows: list[Row]) -> str:
    return hashlib.sha256(canonical(rows).encode()).hexdigest()
