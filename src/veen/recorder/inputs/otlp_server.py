"""An endpoint that accepts logs: OTLP over HTTP in JSON, and lines of JSON.

POST /v1/logs accepts an ExportLogsServiceRequest, POST /jsonl one event per line. A response means that the
events are durable in the spool; a feed ships them. Errors have the form of OTLP: {code, message}.
"""

import asyncio
import hmac
import json
import logging
import socket
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from veen.core.objects.error_envelope import ErrorEnvelope
from veen.net.byte_budget import ByteBudget
from veen.net.errors import MethodError, TooLargeError, UnknownPathError
from veen.net.host_names import Names
from veen.net.http_application import Bounds
from veen.net.http_message import JSON, Request, Response, status_of
from veen.net.http_router import Route, Router
from veen.net.listener import Listener
from veen.recorder.errors import BadLineError, SpoolFullError
from veen.recorder.event import Captured
from veen.recorder.feed.feed import Feed
from veen.recorder.inputs.json_lines import Fields, parse, read_event
from veen.recorder.inputs.otlp import SUBJECT, read_request

_log: Final = logging.getLogger(__name__)

# The default address of OTLP over HTTP in collectors.
DEFAULT_LISTEN: Final = "127.0.0.1:4318"
_LOGS, _LINES = "/v1/logs", "/jsonl"
_TYPES: Final = {
    _LOGS: frozenset({JSON}),
    # Not text/plain: any web page can have a browser send that without a preflight request (C-196).
    _LINES: frozenset({JSON, "application/jsonl", "application/x-ndjson"}),
}
# Limits of a body as received, and decompressed.
_MOST_BODY: Final = 8 << 20
_MOST_INFLATED: Final = 32 << 20
_MOST_BYTES: Final = 128 << 20
_GZIP: Final = 31
_RETRY_SEC: Final = "5"
_MOST_REASONS: Final = 5
_BOUNDS: Final = Bounds(
    max_connections=256, max_header_bytes=16 << 10, header_sec=10.0, body_sec=10.0, idle_sec=60.0
)
# HTTP status -> number of google.rpc.Code.
_CODES: Final = {400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 413: 8, 415: 3, 421: 7, 503: 14}


class _Rejected(Exception):  # noqa: N818 - an answer
    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.response = _failure(status, message, **headers)


def _answer(status: int, value: Any, **headers: str) -> Response:  # noqa: ANN401 - JSON
    data = json.dumps(value, ensure_ascii=False).encode(errors="replace")  # reasons quote request data
    return Response(status, data, JSON, headers)


def _failure(status: int, message: str, **headers: str) -> Response:
    return _answer(status, {"code": _CODES.get(status, 2), "message": message}, **headers)


class Receiver:
    """Stores the events of requests."""

    def __init__(
        self, feed: Feed, *, token: str = "", fields: Fields | None = None, subject: str = SUBJECT
    ) -> None:
        """``token``: required in every request; ``subject``: the attribute with the subject of a log."""
        self._feed = feed
        self._token = token
        self._fields = fields or Fields()
        self._subject = subject
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="veen-receive")

    def router(self) -> Router[Route]:
        """Return the routes; the token is checked before the path."""
        routes = {path: {"POST": Route(handler=self._accept)} for path in _TYPES}
        return Router(routes, ReceiverErrors(), max_body=_MOST_BODY, guard=self._check_token)

    async def _check_token(self, request: Request) -> None:
        authorization = request.headers.get("authorization", "")
        if self._token and not hmac.compare_digest(authorization.encode(), f"Bearer {self._token}".encode()):
            raise _Rejected(
                401,
                "a token is needed: send the header authorization: Bearer TOKEN",
                **{"www-authenticate": "Bearer"},
            )

    async def _accept(self, request: Request) -> Response:
        """Respond to a request when its events are durable."""
        types = _TYPES[request.path]
        if request.content_type not in types:
            raise _Rejected(
                415, f"{request.path} accepts {', '.join(sorted(types))}, not {request.content_type}"
            )
        return await self._loop.run_in_executor(self._thread, self._take, request)

    def _take(self, request: Request) -> Response:
        """Write the events of a request to the spool."""
        body = _inflated(request)
        bad: list[str] = []
        events = list(self._events(request.path, body, bad))
        try:
            unfit = self._feed.store(events)
        except (SpoolFullError, OSError) as error:
            headers = {"retry-after": _RETRY_SEC}
            raise _Rejected(503, f"there is no room for events at the moment: {error}", **headers) from None
        bad += [reason for _, reason in unfit]
        reasons = "; ".join(bad[:_MOST_REASONS])
        if request.path == _LINES:
            return _answer(
                200, {"accepted": _count(body) - len(bad), "rejected": len(bad), "reasons": reasons}
            )
        if not bad:
            return _answer(200, {})
        if len(unfit) == len(events):  # nothing was recorded, so the exporter must get an error
            raise _Rejected(400, reasons)
        return _answer(
            200, {"partialSuccess": {"rejectedLogRecords": str(len(bad)), "errorMessage": reasons}}
        )

    def _events(self, path: str, body: bytes, bad: list[str]) -> Iterator[Captured]:
        if path == _LOGS:
            try:
                for event in read_request(parse(body), self._subject):
                    if isinstance(event, BadLineError):
                        bad.append(str(event))
                    else:
                        yield event
            except BadLineError as error:
                raise _Rejected(400, str(error)) from None
            return
        for number, line in enumerate(body.splitlines(), 1):
            if line.strip():
                try:
                    yield read_event(line, self._fields, self._feed.stream)
                except BadLineError as error:
                    bad.append(f"line {number}: {error}")


class ReceiverErrors:
    """Error responses of a receiver, in the form of OTLP."""

    def reject(self, error: ErrorEnvelope, request: Request | None) -> Response:  # noqa: ARG002 - of the protocol
        """Return the response to an invalid request, or one that must be rejected."""
        return _failure(status_of(error), error.message)

    def answer(self, request: Request, error: Exception, route: Route | None) -> Response:  # noqa: ARG002 - of the protocol
        """Return the response to any error."""
        match error:
            case _Rejected():
                return error.response
            case UnknownPathError():
                return _failure(404, f"{error}: POST {_LOGS}, POST {_LINES}")
            case MethodError():
                return _failure(405, str(error), allow=error.allow)
            case TooLargeError():
                return _failure(
                    413,
                    f"a request has at most {error.limit} bytes, not {error.size}: send smaller batches",
                )
        # Always respond: without a response the client would resend events that may be stored already.
        _log.error("a request to %s could not be handled", request.path, exc_info=error)
        return _failure(500, "the receiver failed to handle the request; the reason is in its log")


def _count(body: bytes) -> int:
    return sum(1 for line in body.splitlines() if line.strip())


def _inflated(request: Request) -> bytes:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity":
        return request.body
    if encoding != "gzip":
        raise _Rejected(415, f"content-encoding must be gzip or identity, not {encoding[:40]}")
    inflating = zlib.decompressobj(_GZIP)
    try:
        data = inflating.decompress(request.body, _MOST_INFLATED)
    except zlib.error as error:
        raise _Rejected(400, f"the body is not gzip: {error}") from None
    if inflating.unconsumed_tail:
        raise _Rejected(413, f"a request must have at most {_MOST_INFLATED} bytes when decompressed")
    if not inflating.eof or inflating.unused_data:
        raise _Rejected(400, "the body is a truncated gzip stream, or more than one")
    return data


async def receive(
    make: Callable[[], Receiver],
    sockets: list[socket.socket],
    names: Names,
    on_ready: Callable[[tuple[str, ...]], None],
) -> None:
    """Serve until the process is asked to stop; the caller has bound the addresses."""
    listener = Listener(sockets, _BOUNDS, names)
    listener.stop_on_signals()
    await listener.accept(make().router(), ByteBudget(_MOST_BYTES))
    on_ready(listener.urls)
    await listener.run()
    await listener.drain(0)  # no need to wait: exporters resend unanswered requests
