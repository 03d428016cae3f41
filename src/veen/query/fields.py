"""The queryable fields of an event, and rows of their values (QRY-018, QRY-027 to QRY-029).

=====================  =====================================================================================
field                  value
=====================  =====================================================================================
``subject_id``         text
``principal_id``       text: the key that signed, in hex
``event_type``         text
``event_time``         text: the time stated in the event
``origin``             text
``receipt_id``         text: the hash of the receipt, in hex
``stream``             text: the name of the stream
``hub_commit_seq``     number: the position in the stream's label
``hub_commit_time``    text: the time of the receipt; null if that is after the year 9999
``payload``            any JSON: the whole payload
``metadata``           an object, or null
``payload.a.b``        the value under these nested names; null if there is none
``metadata.a``         likewise
=====================  =====================================================================================

A path selects from objects only, not from lists, and cannot contain a name that is empty or has a dot in it.
The name of a value in a row is the field as written in the query. A copy from another zone has the values of
the original (QRY-028).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from veen.core.encoding.canonical_json import quote
from veen.core.types import JsonValue
from veen.query.timestamps import LAST_TIME, format_time

# The expansion of ``["*"]`` (QRY-019).
DEFAULT_FIELDS: Final = ("subject_id", "principal_id", "event_type", "event_time", "origin", "receipt_id")
# Size limit of a field's name, in bytes.
MAX_FIELD_BYTES: Final = 256
_DOCUMENTS: Final = ("payload", "metadata")


class Event(NamedTuple):
    """A recorder event, as stored in the lake."""

    stream: str
    epoch: int
    seq: int
    hub_ts: int
    subject_id: str
    principal_id: str
    event_type: str
    event_time: int
    origin: str
    # Canonical JSON without fractions: names sorted, no spaces. The lake has null for a payload of null.
    payload: str | None
    metadata: str | None
    receipt_id: bytes


def path_of(field: str) -> tuple[str, ...]:
    """Return the path of the payload or metadata, or of a field in them; () for any other field."""
    parts = tuple(field.split("."))
    return parts if parts[0] in _DOCUMENTS else ()


def is_field(field: str) -> bool:
    """Whether events can have such a field."""
    if len(field.encode()) > MAX_FIELD_BYTES:
        return False
    return field in _TEXTS or (bool(path := path_of(field)) and all(path))


def _no_fraction(text: str) -> NoReturn:
    raise ValueError(f"an event cannot have fractions: {text}")


_load: Final = json.JSONDecoder(parse_float=_no_fraction, parse_constant=_no_fraction).decode
_dump_any: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def _dump(value: JsonValue) -> str:
    if isinstance(value, str):
        return quote(value)
    if value is None:
        return "null"
    # Numbers are common, and str is several times faster.
    return str(value) if type(value) is int else _dump_any(value)


def _at(document: Any, names: Sequence[str]) -> JsonValue:  # noqa: ANN401 - any JSON
    for name in names:
        if not isinstance(document, dict):
            return None
        document = document.get(name)
    current: JsonValue = document
    return current


# --- rows ---------------------------------------------------------------------------------------------------

# Writes a value of an event; payload and metadata are also passed parsed, if any path needs them.
_Text = Callable[[Event, Any, Any], str]


def _commit_time(event: Event) -> str:
    return f'"{format_time(event.hub_ts)}"' if event.hub_ts <= LAST_TIME else "null"


_TEXTS: Final[Mapping[str, _Text]] = {
    "subject_id": lambda event, _payload, _metadata: quote(event.subject_id),
    "principal_id": lambda event, _payload, _metadata: quote(event.principal_id),
    "event_type": lambda event, _payload, _metadata: quote(event.event_type),
    "event_time": lambda event, _payload, _metadata: f'"{format_time(event.event_time)}"',
    "origin": lambda event, _payload, _metadata: quote(event.origin),
    "receipt_id": lambda event, _payload, _metadata: f'"{event.receipt_id.hex()}"',
    "stream": lambda event, _payload, _metadata: quote(event.stream),
    "hub_commit_seq": lambda event, _payload, _metadata: str(event.seq),
    "hub_commit_time": lambda event, _payload, _metadata: _commit_time(event),
    "payload": lambda event, _payload, _metadata: "null" if event.payload is None else event.payload,
    "metadata": lambda event, _payload, _metadata: "null" if event.metadata is None else event.metadata,
}
# Fields with a single value, by name.
BASE_FIELDS: Final = tuple(name for name in _TEXTS if name not in _DOCUMENTS)


def _path_text(path: Sequence[str]) -> _Text:
    first, *names = path
    if first == "payload":
        return lambda _event, payload, _metadata: _dump(_at(payload, names))
    return lambda _event, _payload, metadata: _dump(_at(metadata, names))


class Encoder:
    """Writes rows in canonical JSON; tests compare it with a plain reference."""

    def __init__(self, fields: Sequence[str]) -> None:
        """Set the fields of the rows."""
        ordered = sorted(fields)
        texts = [_TEXTS[field] if field in _TEXTS else _path_text(path_of(field)) for field in ordered]
        heads = [f"{',' if place else '{'}{quote(field)}:" for place, field in enumerate(ordered)]
        self._parts = tuple(zip(heads, texts, strict=True))
        paths = [path_of(field) for field in fields]
        self._opens_payload = any(len(path) > 1 and path[0] == "payload" for path in paths)
        self._opens_metadata = any(len(path) > 1 and path[0] == "metadata" for path in paths)

    def encode(self, event: Event) -> bytes:
        """Return the row of an event."""
        payload = _load(event.payload) if self._opens_payload and event.payload is not None else None
        metadata = _load(event.metadata) if self._opens_metadata and event.metadata is not None else None
        parts = [head + text(event, payload, metadata) for head, text in self._parts]
        return ("".join(parts) + "}").encode()
