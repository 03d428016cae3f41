"""Emitting: events as messages, by the key that is their principal."""

from typing import Final

from veen.client.sending import Draft, Options
from veen.core.types import JsonValue
from veen.overlays.recorder_schemas import EVENT
from veen.overlays.schema import RejectedError
from veen.recorder.packing import PAYLOAD_BYTES, body_of, check_size, pack
from veen.recorder.recording import plain_payload

#: The key is the principal: it does not change by itself.
RECORDING: Final = Options(keep_key=True)


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


def draft_of(said: JsonValue, now: int, most: int = PAYLOAD_BYTES) -> Draft:
    """Return the event that a JSON object describes; without a time, it happens now."""
    if not isinstance(said, dict):
        raise RejectedError("BODY.TYPE", "an event is an object")
    unknown = sorted(set(said) - {*_NEEDED, *_OPTIONAL})
    if unknown:
        raise RejectedError("BODY.UNKNOWN_KEY", f"an event has no {', '.join(unknown)}")
    missing = [name for name in _NEEDED if name not in said]
    if missing:
        raise RejectedError("BODY.MISSING_KEY", f"an event needs {', '.join(missing)}")
    texts = {name: said[name] for name in _NEEDED}
    when = said.get("event_time", now)
    if not all(isinstance(value, str) for value in texts.values()) or type(when) is not int or when < 0:
        raise RejectedError("BODY.TYPE", f"{', '.join(_NEEDED)} are text, event_time is in seconds")
    metadata = said.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise RejectedError("BODY.TYPE", "metadata is an object")
    return event_draft(
        str(texts["event_type"]),
        subject_id=str(texts["subject_id"]),
        origin=str(texts["origin"]),
        event_time=when,
        payload=said.get("payload"),
        metadata=metadata,
        most=most,
    )
