"""Middleware for ASGI: one event for each request, whatever its outcome.

    app.add_middleware(RecorderMiddleware, home="shop", hub=URL, stream="record/app/http")

or, around any ASGI application:

    app = RecorderMiddleware(app, home="shop", hub=URL, stream="record/app/http")

Query strings and headers often contain secrets: they are recorded only on request.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any, Final

from veen.client.models import Recipient
from veen.client.session_setup import StrPath
from veen.client.transport.resolve import DEFAULT_TIMEOUT_SEC
from veen.core.objects.capability import CapToken
from veen.recorder.event import PAYLOAD_BYTES
from veen.recorder.feed.feed import Feed
from veen.recorder.feed.settings import QUEUE_EVENTS, SPOOL_BYTES

_logger: Final = logging.getLogger(__name__)

EVENT_TYPE: Final = "http.request"

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class _Seen:
    """Observes a request and its response, which pass through unchanged."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.status: int | None = None
        self.request_bytes = self.response_bytes = 0
        self.disconnected = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self.request_bytes += len(message.get("body", b""))
        elif message["type"] == "http.disconnect" and self.status is None:
            self.disconnected = True
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            self.response_bytes += len(message.get("body", b""))
        await self._send(message)


class RecorderMiddleware:
    """Records requests: method, path, status, duration, client and sizes."""

    def __init__(
        self,
        app: App,
        feed: Feed | None = None,
        *,
        home: StrPath | None = None,
        hub: StrPath | None = None,
        stream: str = "record/app/http",
        event_type: str = EVENT_TYPE,
        subject_of: Callable[[Scope], str | None] | None = None,
        query: bool = False,
        headers: Collection[str] = (),
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
            app: The ASGI application.
            feed: The feed to record through.
            home: Directory of the client; by default ``VEEN_CLIENT``, or that of the configuration file.
            hub: URL or data directory of the hub; by default ``VEEN_HUB``, or that of the configuration file.
            stream: The stream of the requests.
            event_type: The type of the events. A type belongs to one stream (SDR-005): services with a stream
                each need a type each.
            subject_of: Returns the subject of a request; called when the request is over.
            query: Whether query strings are recorded.
            headers: Names of the request headers that are recorded.
            origin: The component that records; by default the name of the program.
            subject: The subject of requests for which ``subject_of`` returns None.
            queue_events: The size of the queue in memory.
            spool_bytes: The maximum size on disk of events that the hub does not have yet.
            max_payload: The maximum size of an encoded payload in bytes.
            durable: Whether a request ends only when its event is on disk.
            timeout: Seconds to wait for one response of the hub.
            to: The card or key to seal to; by default the stream's readers.
            token: The token to send with; by default the one that the client has stored for the stream.

        Raises:
            ContextError: There is no such client, or no hub is configured.
            KeystoreError: The keystore cannot be opened.
            StreamNameError: The stream is not one of the recorder.
        """
        self.app = app
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
        self._stream = stream
        self._event_type = event_type
        self._subject_of = subject_of
        self._query = query
        self._headers = {name.lower().encode("latin-1") for name in headers}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request, and record it when it is complete."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        seen = _Seen(receive, send)
        began, start = time.time(), time.perf_counter()
        error: BaseException | None = None
        try:
            await self.app(scope, seen.receive, seen.send)
        except BaseException as raised:
            error = raised
            raise
        finally:
            payload = self._payload(scope, seen, error)
            payload["duration_ms"] = round((time.perf_counter() - start) * 1000)
            self.feed.record(
                self._event_type,
                payload,
                subject_id=self._subject(scope),
                event_time=began,
                stream=self._stream,
            )

    def _payload(self, scope: Scope, seen: _Seen, error: BaseException | None) -> dict[str, Any]:
        client = scope.get("client")
        payload: dict[str, Any] = {
            "method": scope.get("method", ""),
            "path": scope.get("path", ""),
            "status": seen.status,
            "client": client[0] if client else None,
            "request_bytes": seen.request_bytes,
            "response_bytes": seen.response_bytes,
        }
        if error is not None:
            payload["error"] = type(error).__name__  # only the type: the text may contain request data
        if seen.disconnected:
            payload["disconnected"] = True
        if self._query:
            payload["query"] = scope.get("query_string", b"").decode("latin-1")
        if self._headers:
            payload["headers"] = self._chosen(scope.get("headers", ()))
        return payload

    def _chosen(self, headers: Collection[tuple[bytes, bytes]]) -> Mapping[str, str]:
        return {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in headers
            if name.lower() in self._headers
        }

    def _subject(self, scope: Scope) -> str | None:
        if self._subject_of is None:
            return None
        try:
            subject = self._subject_of(scope)
        except Exception:
            _logger.exception("subject_of failed; the request is recorded without a subject")
            return None
        return None if subject is None else str(subject)
