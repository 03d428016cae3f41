"""Events as the spool keeps them: checked and encoded, but for the key that will sign (SDR-002).

The key is the principal. It is known when the message is sealed, and its name always has the same length: the
place for it is left open.
"""

import datetime as dt
import marshal
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from veen.core import cbor
from veen.core.cbor import Value
from veen.core.errors import ProtocolError, VeenError
from veen.core.types import JsonValue, VerifyKey
from veen.overlays.recorder_schemas import EVENT
from veen.recorder.recording import plain_payload, too_large

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
    found = EVENT.to_json(EVENT.decode(packed))
    found.pop("principal_id")
    return found


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


#: What packing raises for values that can not be an event.
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
        """Return the time and the encoding; raises what ``UNFIT`` has if it can not be an event."""
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
    found = marshal.loads(data)  # noqa: S302 - made by ourselves, and never out of memory
    return plain_payload(found, most, field)


def _kept(data: bytes, most: int, field: str) -> Value:
    try:
        found = _again(data, most, field)
        check_size(found, most, field)
    except ProtocolError as error:
        return f"{LEFT_OUT}{error}>"
    return found


def writable(text: str) -> str:
    """Return a text that every log takes: half a character, which has no UTF-8 form, is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()
