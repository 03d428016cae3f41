"""Recorded events: from Python values to checked bytes for the spool, and to messages (SDR-002).

The key that signs is the principal. It is known only when the message is sealed, and its name always has the
same length, so room is left for it in the encoded event.
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


def plain_payload(value: object, most: int, field: str = "payload") -> Value:
    """Return a value as an event can hold it: fractions, negative numbers and objects become text.

    One that has more bytes than that when it is encoded is refused (SDR-007), as soon as this is certain: a
    value that is found in many places, or in itself, can be unfolded for ever.
    """
    return _Copy(most, field).plain(value, MAX_DEPTH)


def too_large(field: str, size: int, most: int) -> ProtocolError:
    """Return the refusal of a payload, or of metadata, that has at least so many bytes (SDR-007)."""
    return ProtocolError(
        Detail.FIELD_SIZE,
        f"a {field} of {size} bytes or more exceeds the limit of {most}",
        code=Code.SIZE,
        field=field,
        actual=size,
        limit=most,
    )


class _Copy:
    """A copy that is being made, and how many bytes of it are left."""

    def __init__(self, most: int, field: str) -> None:
        self._most = self._left = most
        self._field = field

    def plain(self, value: object, depth: int) -> Value:
        self._spend(1)
        left = self._left
        try:
            return self._taken_apart(value, depth)
        except ProtocolError:
            raise
        except Exception:  # noqa: BLE001 - as below; also what another thread changes meanwhile
            self._left = left
            return f"<{type(value).__name__}>"

    def _spend(self, size: int) -> None:
        """Count bytes that the encoding has at least."""
        self._left -= size
        if self._left < 0:
            raise too_large(self._field, self._most - self._left, self._most)

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
    """What is nested too deeply, in short: a few levels of it, and nothing that writes itself out."""

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
    """Return text that UTF-8 can hold: halves of surrogate pairs are written out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


#: How large a payload may be, encoded, unless somebody says otherwise (SDR-007).
PAYLOAD_BYTES: Final = 64 << 10
_NOBODY: Final = "0" * 64
#: The name of the first field, behind the head of the map.
FIRST_FIELD: Final = cbor.write_text("subject_id")
_SUBJECT_AT: Final = 1 + len(FIRST_FIELD)
#: Between the first value and the text of the second.
_BETWEEN: Final = len(cbor.write_text("principal_id")) + len(cbor.write_text(_NOBODY)) - len(_NOBODY)


def pack(**fields: Any) -> bytes:  # noqa: ANN401 - by the schema
    """Encode an event, whose principal is not known yet; what its schema refuses is refused here."""
    return EVENT.encode(EVENT.make(principal_id=_NOBODY, **fields))


def body_of(packed: bytes, client_id: VerifyKey) -> bytes:
    """Return the body of a message that a key signs."""
    _, end = cbor.read_text(packed, _SUBJECT_AT)
    start = end + _BETWEEN
    return packed[:start] + client_id.hex().encode() + packed[start + len(_NOBODY) :]


def described(packed: bytes) -> dict[str, JsonValue]:
    """Return an event for people, without a principal."""
    event = EVENT.to_json(EVENT.decode(packed))
    event.pop("principal_id")
    return event


def check_size(payload: Value, most: int, field: str = "payload") -> None:
    """Refuse a payload that is too large, before it is stored (SDR-007)."""
    size = len(cbor.encode(payload))
    if size > most:
        raise too_large(field, size, most)


#: In place of the copy of a value that is too large to be an event.
_NOT_COPIED: Final = b""
#: How the text begins that stands for a value which was not kept.
LEFT_OUT: Final = "<left out: "


def capture(value: object, most: int = PAYLOAD_BYTES) -> bytes:
    """Return a deep copy of a value, at the speed of C if it is plain; later changes do not matter.

    Of one that is not plain, and has more bytes than that, there is no copy: ``pack`` refuses it.
    """
    try:
        return marshal.dumps(value)  # type: ignore[arg-type] # else it says so
    except ValueError:
        pass
    try:
        return marshal.dumps(plain_payload(value, most))  # type: ignore[arg-type] # it is plain
    except ProtocolError:
        return _NOT_COPIED


#: What packing raises for values that cannot be an event.
UNFIT: Final = (VeenError, ValueError, TypeError, OverflowError, AttributeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What events have that do not say it, and how large a payload may be (SDR-007)."""

    subject: str
    origin: str
    max_payload: int = PAYLOAD_BYTES


class Captured(NamedTuple):
    """An event as an application has recorded it; its values are a copy."""

    stream: str | None
    event_type: str
    subject_id: str | None
    event_time: float | dt.datetime
    origin: str | None
    payload: bytes
    metadata: bytes | None

    def pack(self, defaults: Defaults) -> tuple[int, bytes]:
        """Return the time and the encoding; raises what ``UNFIT`` has if it cannot be an event."""
        seconds = _seconds(self.event_time)
        most = defaults.max_payload
        payload = _again(self.payload, most, "payload")
        metadata = None if self.metadata is None else _again(self.metadata, most, "metadata")
        packed = pack(
            subject_id=self.subject_id or defaults.subject,
            event_type=self.event_type,
            event_time=seconds,
            origin=self.origin or defaults.origin,
            payload=payload,
            metadata=metadata,
        )
        if len(packed) > most:
            check_size(payload, most)
            check_size(metadata, most, "metadata")
        return seconds, packed

    def described(self, defaults: Defaults) -> dict[str, Value]:
        """Return what would have been recorded, for people; what is too large is left out (SDR-007)."""
        most = defaults.max_payload
        values = {
            "event_type": capture(self.event_type, most),
            "subject_id": capture(self.subject_id or defaults.subject, most),
            "event_time": capture(_known_time(self.event_time), most),
            "origin": capture(self.origin or defaults.origin, most),
            "payload": self.payload,
            "metadata": capture(None) if self.metadata is None else self.metadata,
        }
        return {name: _kept(data, most, name) for name, data in values.items()}


def _seconds(when: float | dt.datetime) -> int:
    return int(when.timestamp() if isinstance(when, dt.datetime) else when)


def _known_time(when: float | dt.datetime) -> object:
    """Return the seconds, as whoever reads them may be in another zone; what is no time, as it is."""
    try:
        return _seconds(when)
    except UNFIT:
        return when


def _again(data: bytes, most: int, field: str) -> Value:
    if data == _NOT_COPIED:
        raise too_large(field, most + 1, most)
    payload = marshal.loads(data)  # noqa: S302 - made by ourselves, and never out of memory
    return plain_payload(payload, most, field)


def _kept(data: bytes, most: int, field: str) -> Value:
    try:
        payload = _again(data, most, field)
        check_size(payload, most, field)
    except ProtocolError as error:
        return f"{LEFT_OUT}{error}>"
    return payload


def writable(text: str) -> str:
    """Return a text that every log takes: half a character, which has no UTF-8 form, is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


#: The key is the principal: it does not change by itself.
RECORDING: Final = SendOptions(keep_key=True)


def event_draft(
    event_type: str,
    *,
    subject_id: str,
    origin: str,
    event_time: int,
    payload: object = None,
    metadata: object = None,
    most: int = PAYLOAD_BYTES,
) -> Draft:
    """Return an event to be sent with ``RECORDING``; one that is too large is refused before it is stored."""
    value = plain_payload(payload, most)
    check_size(value, most)
    packed = pack(
        subject_id=subject_id,
        event_type=event_type,
        event_time=event_time,
        origin=origin,
        payload=value,
        metadata=None if metadata is None else plain_payload(metadata, most, "metadata"),
    )
    return Draft(None, schema=EVENT.schema_id, encoded=lambda context: body_of(packed, context.client_id))


#: What a line of JSON must say of an event, and what it may.
_NEEDED: Final = ("event_type", "subject_id", "origin")
_OPTIONAL: Final = ("event_time", "payload", "metadata")


def draft_of(event: JsonValue, now: int, most: int = PAYLOAD_BYTES) -> Draft:
    """Return the event that a JSON object describes; without a time, it happens now."""
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
        most=most,
    )
