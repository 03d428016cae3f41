"""Middleware for ASGI: one event for each request, whatever becomes of it.

    app = RecorderMiddleware(app, feed)

Query strings and headers often hold secrets: they are recorded only if they are asked for.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final, Unpack

from veen.recorder.feed.feed import Feed, Feeding

_log: Final = logging.getLogger("veen.recorder")

EVENT_TYPE: Final = "http.request"

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class _Seen:
    """What goes through, and is passed on as it is."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.status: int | None = None
        self.taken = self.given = 0
        self.left = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self.taken += len(message.get("body", b""))
        elif message["type"] == "http.disconnect" and self.status is None:
            self.left = True
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            self.given += len(message.get("body", b""))
        await self._send(message)


class RecorderMiddleware:
    """Records requests: method, path, status, duration, client and sizes."""

    def __init__(
        self,
        app: App,
        feed: Feed | None = None,
        *,
        client_dir: str | Path = "",
        hub: str = "",
        stream: str = "record/app/http",
        event_type: str = EVENT_TYPE,
        subject_of: Callable[[Scope], str | None] | None = None,
        query: bool = False,
        headers: Collection[str] = (),
        **feeding: Unpack[Feeding],
    ) -> None:
        """Use the feed that is given, or open one as ``Feed.open`` does.

        ``subject_of`` is asked when the request is over: who it was may be known by then. ``query`` and
        ``headers`` are what is recorded besides. An event type belongs to one stream (SDR-005): services with
        a stream each give an ``event_type`` of their own.
        """
        self.app = app
        self.feed = feed or Feed.open(client_dir, hub, stream=stream, **feeding)
        self._stream = stream
        self._event_type = event_type
        self._subject_of = subject_of
        self._query = query
        self._headers = {name.lower().encode("latin-1") for name in headers}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and record it when it is over."""
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
            "request_bytes": seen.taken,
            "response_bytes": seen.given,
        }
        if error is not None:
            payload["error"] = type(error).__name__  # its text may hold what was sent
        if seen.left:
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
            found = self._subject_of(scope)
        except Exception:  # noqa: BLE001 - the application's own, and no reason not to answer
            _log.exception("who a request is of could not be told; it is recorded without")
            return None
        return None if found is None else str(found)
