"""Which stream a type of events belongs to, and since when: declarations change (SDR-005, SDR-008)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

# How long after a change producers may still use the old declarations.
_GRACE_SEC: Final = 60


@dataclass(slots=True)
class EventTypeOwners:
    """Applies changes of streams in log order, then events; all times are the hub's."""

    # For each type the streams that declared it, with begin and end.
    _spans: dict[str, list[tuple[str, int, int | None]]] = field(default_factory=dict)
    # Current types of each stream, and the end of streams without any.
    _types: dict[str, set[str]] = field(default_factory=dict)
    _ended: dict[str, int] = field(default_factory=dict)
    # For each type the streams that contain it contrary to a declaration; without one, with the last time.
    _wrong: dict[str, set[str]] = field(default_factory=dict)
    _free: dict[str, dict[str, int]] = field(default_factory=dict)

    def change(self, body: dict[str, Any], when: int) -> None:
        """Apply a change of streams."""
        stream, types = body["stream"], body.get("event_types") or ()
        if body["change"] == "declare":
            self._declare(stream, types, when)
            return
        self._declare(stream, (), when)
        self._ended[stream] = when
        if body["change"] == "rename":
            self._declare(body["into"][0], types, when)

    def _declare(self, stream: str, types: Iterable[str], when: int) -> None:
        declared, previous = set(types), self._types.get(stream, set())
        for event_type in previous - declared:
            spans = self._spans[event_type]
            spans[:] = [
                (name, since, when if name == stream and until is None else until)
                for name, since, until in spans
            ]
        for event_type in declared - previous:
            self._spans.setdefault(event_type, []).append((stream, when, None))
        self._types[stream] = declared
        self._ended.pop(stream, None)

    def event(self, event_type: str, stream: str, when: int) -> None:
        """Apply an event: it belongs to the streams that declared its type at that time."""
        owners = {
            name
            for name, since, until in self._spans.get(event_type, ())
            if since <= when and (until is None or when <= until + _GRACE_SEC)
        }
        if stream in owners:
            return
        if owners:
            self._wrong.setdefault(event_type, set()).add(stream)
            return
        free = self._free.setdefault(event_type, {})
        free[stream] = max(when, free.get(stream, 0))

    def shared(self) -> dict[str, list[str]]:
        """Return types that are in more than one stream at a time, or in one that does not declare them."""
        shared = {}
        for event_type in sorted({*self._spans, *self._wrong, *self._free}):
            declared = {name for name, _, until in self._spans.get(event_type, ()) if until is None}
            free = {
                name
                for name, last in self._free.get(event_type, {}).items()
                if name not in self._ended or last > self._ended[name] + _GRACE_SEC
            }
            wrong = self._wrong.get(event_type, set())
            if wrong or len(declared | free) > 1:
                shared[event_type] = sorted(declared | free | wrong)
        return shared
