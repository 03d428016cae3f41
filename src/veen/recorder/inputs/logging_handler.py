"""A handler for ``logging``: records what an application logs.

from veen.recorder import RecorderHandler
handler = RecorderHandler("shop", "http://127.0.0.1:37411", stream="record/app/log")
logging.getLogger().addHandler(handler)
"""

import logging
from typing import Any, Final

from veen.client.models import Recipient
from veen.client.session_setup import StrPath
from veen.client.transport.resolve import DEFAULT_TIMEOUT_SEC
from veen.core.objects.capability import CapToken
from veen.recorder.event import PAYLOAD_BYTES
from veen.recorder.feed.feed import Feed
from veen.recorder.feed.settings import QUEUE_EVENTS, SPOOL_BYTES

# Attributes of every record; others were passed as ``extra``.
_USUAL: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_PLAIN: Final = (str, int, float, bytes, list, tuple, dict, type(None))
# Loggers of this library are excluded: recording their messages could recurse without end.
_OWN: Final = "veen"
_TEXTS: Final = logging.Formatter()


class RecorderHandler(logging.Handler):
    """Records what is logged: events ``log.info``, ``log.warning`` and so on.

    An event type belongs to one stream (SDR-005): services with a stream each need an ``event_type`` each,
    instead of ``log``.

    The message is formatted at once; ``extra`` fields that are plain values are part of the payload, and
    ``extra={"subject_id": ...}`` is the subject.
    """

    def __init__(
        self,
        home: StrPath | None = None,
        hub: StrPath | None = None,
        stream: str = "record/app/log",
        *,
        feed: Feed | None = None,
        level: int | str = logging.NOTSET,
        event_type: str = "log",
        origin: str = "",
        subject: str = "",
        queue_events: int = QUEUE_EVENTS,
        spool_bytes: int = SPOOL_BYTES,
        max_payload: int = PAYLOAD_BYTES,
        durable: bool = False,
        timeout: float = DEFAULT_TIMEOUT_SEC,
        to: Recipient | None = None,
        token: CapToken | None = None,
    ) -> None:
        """Record through ``feed``, or open a feed with the other arguments, as ``Feed.open`` does.

        Args:
            home: Directory of the client; by default ``VEEN_CLIENT``, or that of the configuration file.
            hub: URL or data directory of the hub; by default ``VEEN_HUB``, or that of the configuration file.
            stream: The stream of the records.
            feed: The feed to record through; ``close`` leaves it open.
            level: The minimum level that is recorded.
            event_type: The prefix of the event types.
            origin: The component that records; by default the name of the program.
            subject: The subject of records that name none; by default the origin.
            queue_events: The size of the queue in memory.
            spool_bytes: The maximum size on disk of events that the hub does not have yet.
            max_payload: The maximum size of an encoded payload in bytes.
            durable: Whether a logging call returns only when its event is on disk.
            timeout: Seconds to wait for one response of the hub.
            to: The card or key to seal to; by default the stream's readers.
            token: The token to send with; by default the one that the client has stored for the stream.

        Raises:
            ContextError: There is no such client, or no hub is configured.
            KeystoreError: The keystore cannot be opened.
            StreamNameError: The stream is not one of the recorder.
        """
        super().__init__(level)
        self._owns_feed = feed is None
        self._stream = stream
        self._event_type = event_type
        self.feed = feed or Feed.open(
            home,
            hub,
            stream=stream,
            origin=origin,
            subject=subject,
            queue_events=queue_events,
            spool_bytes=spool_bytes,
            max_payload=max_payload,
            durable=durable,
            timeout=timeout,
            to=to,
            token=token,
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Record what was logged; it does not wait for anything."""
        if record.name.partition(".")[0] == _OWN:
            return
        try:
            payload: dict[str, Any] = {"logger": record.name, "message": record.getMessage()}
            subject = None
            fields = record.__dict__
            if fields.keys() - _USUAL:
                extra = {
                    name: value
                    for name, value in fields.items()
                    if name not in _USUAL and isinstance(value, _PLAIN)
                }
                subject = extra.pop("subject_id", None)
                payload = payload | extra | payload  # ``extra`` cannot override logger and message
            if record.exc_info and record.exc_info[0] is not None:
                payload["exception"] = record.exc_text or _TEXTS.formatException(record.exc_info)
            if record.stack_info:
                payload["stack"] = record.stack_info
            self.feed.record(
                f"{self._event_type}.{record.levelname.lower()}",
                payload,
                subject_id=None if subject is None else str(subject),
                event_time=record.created,
                stream=self._stream,
            )
        except Exception:  # noqa: BLE001 - as all handlers do; logging decides whether it is shown
            self.handleError(record)

    def close(self) -> None:
        """Close the feed, if it was opened here."""
        if self._owns_feed:
            self.feed.close()
        super().close()
