"""Recorded events: from Python values to validated bytes for the spool, and to messages (SDR-002).

The principal is the key that signs. It is known only when the message is sealed, but its length is fixed, so
the encoded event has a placeholder for it.
"""

import datetime as dt
import marshal
import reprlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from veen.client.models import Draft, SendOptions
from veen.core.crypto.hash import U64_MAX
from veen.core.encoding import cbor
from veen.core.encoding.cbor import MAX_DEPTH, Value
from veen.core.errors import Code, Detail, ProtocolError, VeenError
from veen.core.types import JsonValue, VerifyKey
from veen.overlays.errors import InvalidBodyError
from veen.overlays.recorder.schemas import EVENT

_SHORT: Final = 1000


def plain_payload(value: object, max_bytes: int, field: str = "payload") -> Value:
    """Return a value in the form that an event can hold: fractions, negative numbers and objects become text.

    A value whose encoding exceeds ``max_bytes`` is rejected (SDR-007) as soon as this is certain: a value
    that is shared or contains itself could be expanded without end.
    """
    return _Copy(max_bytes, field).plain(value, MAX_DEPTH)


def too_large(field: str, size: int, max_bytes: int) -> ProtocolError:
    """Return the error for a payload, or metadata, of at least this size (SDR-007)."""
    return ProtocolError(
        Detail.FIELD_SIZE,
        f"a {field} of {size} bytes or more exceeds the limit of {max_bytes}",
        code=Code.SIZE,
        field=field,
        actual=size,
        limit=max_bytes,
    )


class _Copy:
    """A copy in progress, with its remaining bytes."""

    def __init__(self, max_bytes: int, field: str) -> None:
        self._max_bytes = self._remaining = max_bytes
        self._field = field

    def plain(self, value: object, depth: int) -> Value:
        self._spend(1)
        remaining = self._remaining
        try:
            return self._taken_apart(value, depth)
        except ProtocolError:
            raise
        except Exception:  # noqa: BLE001 - as below; also what another thread changes meanwhile
            self._remaining = remaining
            return f"<{type(value).__name__}>"

    def _spend(self, size: int) -> None:
        """Subtract the minimum size of an encoding."""
        self._remaining -= size
        if self._remaining < 0:
            raise too_large(self._field, self._max_bytes - self._remaining, self._max_bytes)

    def _taken_apart(self, value: object, depth: int) -> Value:
        match value:
            case None | bool():
                return value
            case str():
                return self._text(value)
            case int() if 0 <= value <= U64_MAX:
                return int(value)
            case bytes() | bytearray() | memoryview():
                self._spend(memoryview(value).nbytes)
                return bytes(value)
            case dt.datetime() | dt.date() | dt.time():
                return value.isoformat()
            case Mapping() | list() | tuple() | AbstractSet() if depth == 0:
                return self._text(_SHORTENED.repr(value)[:_SHORT])
            case Mapping():
                return {self._text(key): self.plain(item, depth - 1) for key, item in value.items()}
            case list() | tuple():
                return [self.plain(item, depth - 1) for item in value]
            case AbstractSet():
                return sorted((self.plain(item, depth - 1) for item in value), key=str)
        return self._text(value)

    def _text(self, value: object) -> str:
        text = _text(value)
        self._spend(len(text))
        return text


class _Shortened(reprlib.Repr):
    """Short form of a value that is nested too deeply: a few levels, without the repr of objects."""

    def repr_instance(self, x: object, level: int) -> str:  # noqa: ARG002 - of the base class
        return f"<{type(x).__name__}>"


_SHORTENED: Final = _Shortened()
_SHORTENED.maxlevel = 3


def _text(value: object) -> str:
    try:
        return _clean(str(value))
    except Exception:  # noqa: BLE001 - what an object says of itself is no reason not to record
        return f"<{type(value).__name__}>"


def _clean(text: str) -> str:
    """Return text that UTF-8 can encode: lone surrogates are escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


# Default limit of an encoded payload (SDR-007).
PAYLOAD_BYTES: Final = 64 << 10
_NOBODY: Final = "0" * 64
# The name of the first field, which follows the head of the map.
FIRST_FIELD: Final = cbor.write_text("subject_id")
_SUBJECT_AT: Final = 1 + len(FIRST_FIELD)
# Bytes between the first value and the text of the second.
_BETWEEN: Final = len(cbor.write_text("principal_id")) + len(cbor.write_text(_NOBODY)) - len(_NOBODY)


def pack(**fields: Any) -> bytes:  # noqa: ANN401 - by the schema
    """Encode an event with a placeholder for the principal; raises if the schema rejects it."""
    return EVENT.encode(EVENT.make(principal_id=_NOBODY, **fields))


def body_of(packed: bytes, client_id: VerifyKey) -> bytes:
    """Return the body of a message that a key signs."""
    _, end = cbor.read_text(packed, _SUBJECT_AT)
    start = end + _BETWEEN
    return packed[:start] + client_id.hex().encode() + packed[start + len(_NOBODY) :]


def described(packed: bytes) -> dict[str, JsonValue]:
    """Return an event in JSON, without a principal."""
    event = EVENT.to_json(EVENT.decode(packed))
    event.pop("principal_id")
    return event


def check_size(payload: Value, max_bytes: int, field: str = "payload") -> None:
    """Reject a payload that is too large, before it is stored (SDR-007)."""
    size = len(cbor.encode(payload))
    if size > max_bytes:
        raise too_large(field, size, max_bytes)


# In place of the copy of a value that is too large for an event.
_NOT_COPIED: Final = b""
# Prefix of the text that replaces an omitted value.
LEFT_OUT: Final = "<left out: "


def capture(value: object, max_bytes: int = PAYLOAD_BYTES) -> bytes:
    """Return a deep copy of a value, at the speed of C if it is plain; later changes have no effect on it.

    A value that is not plain and too large is not copied: ``pack`` rejects it.
    """
    try:
        return marshal.dumps(value)  # type: ignore[arg-type] # else it says so
    except ValueError:
        pass
    try:
        return marshal.dumps(plain_payload(value, max_bytes))  # type: ignore[arg-type] # it is plain
    except ProtocolError:
        return _NOT_COPIED


# Exceptions of ``pack`` for values that cannot be an event.
UNFIT: Final = (VeenError, ValueError, TypeError, OverflowError, AttributeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Default fields of events, and the limit of a payload (SDR-007)."""

    subject: str
    origin: str
    max_payload: int = PAYLOAD_BYTES


class Captured(NamedTuple):
    """An event as recorded by an application; its values are copies."""

    stream: str | None
    event_type: str
    subject_id: str | None
    event_time: float | dt.datetime
    origin: str | None
    payload: bytes
    metadata: bytes | None

    def pack(self, defaults: Defaults) -> tuple[int, bytes]:
        """Return the time and the encoding; raises one of ``UNFIT`` if it cannot be an event."""
        seconds = _seconds(self.event_time)
        max_bytes = defaults.max_payload
        payload = _again(self.payload, max_bytes, "payload")
        metadata = None if self.metadata is None else _again(self.metadata, max_bytes, "metadata")
        packed = pack(
            subject_id=self.subject_id or defaults.subject,
            event_type=self.event_type,
            event_time=seconds,
            origin=self.origin or defaults.origin,
            payload=payload,
            metadata=metadata,
        )
        if len(packed) > max_bytes:
            check_size(payload, max_bytes)
            check_size(metadata, max_bytes, "metadata")
        return seconds, packed

    def described(self, defaults: Defaults) -> dict[str, Value]:
        """Return the event for people to read; values that are too large are omitted (SDR-007)."""
        max_bytes = defaults.max_payload
        values = {
            "event_type": capture(self.event_type, max_bytes),
            "subject_id": capture(self.subject_id or defaults.subject, max_bytes),
            "event_time": capture(_known_time(self.event_time), max_bytes),
            "origin": capture(self.origin or defaults.origin, max_bytes),
            "payload": self.payload,
            "metadata": capture(None) if self.metadata is None else self.metadata,
        }
        return {name: _kept(data, max_bytes, name) for name, data in values.items()}


def _seconds(when: float | dt.datetime) -> int:
    return int(when.timestamp() if isinstance(when, dt.datetime) else when)


def _known_time(when: float | dt.datetime) -> object:
    """Return the time in seconds, which have no time zone; an invalid time unchanged."""
    try:
        return _seconds(when)
    except UNFIT:
        return when


def _again(data: bytes, max_bytes: int, field: str) -> Value:
    if data == _NOT_COPIED:
        raise too_large(field, max_bytes + 1, max_bytes)
    payload = marshal.loads(data)  # noqa: S302 - made by ourselves, and never out of memory
    return plain_payload(payload, max_bytes, field)


def _kept(data: bytes, max_bytes: int, field: str) -> Value:
    try:
        payload = _again(data, max_bytes, field)
        check_size(payload, max_bytes, field)
    except ProtocolError as error:
        return f"{LEFT_OUT}{error}>"
    return payload


def writable(text: str) -> str:
    """Return a text that every log can write: lone surrogates, which have no UTF-8 form, are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


# The key is the principal, so it must not rotate.
RECORDING: Final = SendOptions(keep_key=True)


def event_draft(
    event_type: str,
    *,
    subject_id: str,
    origin: str,
    event_time: int,
    payload: object = None,
    metadata: object = None,
    max_bytes: int = PAYLOAD_BYTES,
) -> Draft:
    """Return an event to be sent with ``RECORDING``; raises if it is too large, before it is stored."""
    value = plain_payload(payload, max_bytes)
    check_size(value, max_bytes)
    packed = pack(
        subject_id=subject_id,
        event_type=event_type,
        event_time=event_time,
        origin=origin,
        payload=value,
        metadata=None if metadata is None else plain_payload(metadata, max_bytes, "metadata"),
    )
    return Draft(None, schema=EVENT.schema_id, encoded=lambda context: body_of(packed, context.client_id))


# Required and optional fields of an event in JSON.
_NEEDED: Final = ("event_type", "subject_id", "origin")
_OPTIONAL: Final = ("event_time", "payload", "metadata")


def draft_of(event: JsonValue, now: int, max_bytes: int = PAYLOAD_BYTES) -> Draft:
    """Return the event that a JSON object describes; without a time, ``now`` is used."""
    if not isinstance(event, dict):
        raise InvalidBodyError("BODY.TYPE", "an event must be a JSON object")
    unknown = sorted(set(event) - {*_NEEDED, *_OPTIONAL})
    if unknown:
        raise InvalidBodyError("BODY.UNKNOWN_KEY", f"an event does not have: {', '.join(unknown)}")
    missing = [name for name in _NEEDED if name not in event]
    if missing:
        raise InvalidBodyError("BODY.MISSING_KEY", f"an event needs {', '.join(missing)}")
    texts = {name: event[name] for name in _NEEDED}
    when = event.get("event_time", now)
    if not all(isinstance(value, str) for value in texts.values()) or type(when) is not int or when < 0:
        raise InvalidBodyError(
            "BODY.TYPE", f"{', '.join(_NEEDED)} must be text, and event_time seconds since 1970"
        )
    metadata = event.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise InvalidBodyError("BODY.TYPE", "metadata must be a JSON object")
    return event_draft(
        str(texts["event_type"]),
        subject_id=str(texts["subject_id"]),
        origin=str(texts["origin"]),
        event_time=when,
        payload=event.get("payload"),
        metadata=metadata,
        max_bytes=max_bytes,
    )
