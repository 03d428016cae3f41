"""One connection: bytes in, requests out, responses back in order. Slow and greedy peers are disconnected.

A connection has at most one deadline at a time: for a request's headers, for its body, for being idle, or
for reading its response. One sweep, instead of a timer each, ends connections after their deadline.

Its state is that of receiving and that of sending: see connection_states. The server is VEEN's own, on
httptools: it disconnects slow and greedy clients at every step, and responds to a submit without a task for
each (docs/adr/0008).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Final, NoReturn, cast

import httptools

from veen.core.errors import Code, ProtocolError, bad_request
from veen.core.objects.error_envelope import ErrorEnvelope, envelope_of, unavailable
from veen.net.byte_budget import ByteBudget
from veen.net.connection_states import RECEIVING, SENDING, Received, Receiving, Sending, Sent
from veen.net.host_names import Head, Names, split_target
from veen.net.http_application import Application, Bounds
from veen.net.http_message import Request, Response

# Looking up members of an enum is slow, and every request does it.
_IDLE, _, _HEAD, _, _CHUNK, _CLOSED = Receiving
_READY, _ANSWERING = Sending.READY, Sending.ANSWERING
_ON_BYTES, _ON_BEGIN, _ON_HEADERS, _ON_CHUNK, _ON_DATA, _ON_COMPLETE, _ON_LAST, _ON_UPGRADE, _ON_CLOSE = (
    RECEIVING[step] for step in Received
)
_ON_HANDLE, _ON_ANSWERED, _ON_STALL, _ON_RESUME, _ON_LOSE = (SENDING[step] for step in Sent)

# Headers that some handler reads; the rest are counted and dropped.
_USED: Final = frozenset(
    b"accept authorization connection content-encoding content-length content-type expect host origin"
    b" sec-fetch-site transfer-encoding veen-pow".split()
)
_MAX_HEADERS: Final = 100
# Queued requests of one connection: pipelining, within bounds.
_MAX_WAITING: Final = 16
# Requests of one connection that are handled in a turn, before those of others.
_PER_TURN: Final = 4
# Bytes that are parsed at once: the requests that fit in them bound the cost of a flood.
_SLICE: Final = 16 << 10
# Connections beyond the bound that get a response; more are aborted.
_MAX_REJECTED: Final = 64
_MEGABYTE: Final = 1 << 20
# How long a client whose request was rejected may continue to send before the connection is aborted.
_LINGER_SEC: Final = 2.0
_NONE: Final[frozenset[str]] = frozenset()
_NEVER: Final = float("inf")
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class _Rejected(Exception):  # noqa: N818 - control flow out of the parser, not an error of ours
    """The request cannot be accepted."""


def _bad_request(message: str) -> ErrorEnvelope:
    return ErrorEnvelope(code=Code.BAD_REQUEST.value, message=message)


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(
        self,
        app: Application,
        bounds: Bounds,
        clock: Callable[[], float],
        open_connections: "set[Connection]",
        memory: ByteBudget,
        *,
        names: Names,
        local: bool = False,
        full: bool = False,
    ) -> None:
        """``local``: from the operator's socket; ``full``: there are too many, so this one is rejected."""
        self._app = app
        self._full = full
        self._bounds = bounds
        self._clock = clock
        self._open = open_connections
        self._memory = memory
        # Bytes of responses that the client has not read.
        self._unsent_bytes = 0
        self._names = names
        # A Host that was checked and is ours: most requests of a connection have the same.
        self._known_host: str | None = None
        self._secure = False
        self._local = local
        # The verified certificate of the client, in DER.
        self._certificate: bytes | None = None
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._receiving = _IDLE
        self._sending = _READY
        self._waiting: deque[Request] = deque()
        # The request that is being answered.
        self._current: Request | None = None
        # Received bytes that are not parsed yet: reading is paused while there are any.
        self._unread = b""
        # Whether reading is paused.
        self._paused = False
        # Whether the client has closed its side.
        self._at_eof = False
        self._turns_left = _PER_TURN
        # The next turn, scheduled after those of the other connections.
        self._turn: asyncio.Handle | None = None
        # Whether waiting requests are being handled, further up the stack.
        self._handling_waiting = False
        # The response to a request that a callback of the parser has rejected: the last of this connection.
        self._last_response: Response | None = None
        # Whether a head or a chunk has begun in the bytes that are being parsed.
        self._section_began = False
        self.deadline = _NEVER
        self._reset()

    def _reset(self) -> None:
        self._target, self._method = b"", ""
        self._headers: dict[str, str] = {}
        self._repeated: frozenset[str] = _NONE
        self._count = self._head_bytes = 0
        self._body: list[bytes] = []
        self._size = 0  # of the body, as counted in memory
        self._max_body = 0
        # Bytes of a head, or of trailers, that the parser has buffered and not reported yet.
        self._unparsed = 0

    # --- the transport --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports have no common base
        self._open.add(self)
        secured = transport.get_extra_info("ssl_object")
        self._secure = secured is not None
        self._certificate = None if secured is None else secured.getpeercert(binary_form=True)
        self.deadline = self._clock() + self._bounds.header_sec
        if self._full and len(self._open) > _MAX_REJECTED + self._bounds.max_connections:
            self._transport.abort()  # no room even for a response
        elif self._full:
            self._reject(self._app.reject(unavailable("too many connections; retry later")))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why makes no difference
        """Release everything; later responses are dropped."""
        self._open.discard(self)
        self._transport = None
        self._receiving = _ON_CLOSE[self._receiving]
        self._sending = _ON_LOSE[self._sending]
        self._memory.give(self._unsent_bytes + sum(len(request.body) for request in self._waiting))
        self._unsent_bytes = 0
        self._drop_body()
        self._waiting.clear()
        self._unread = b""
        self._hurry()

    def _drop_body(self) -> None:
        """Drop the partial body of a request that will not be handled."""
        self._memory.give(self._size)
        self._body, self._size = [], 0

    def data_received(self, data: bytes) -> None:
        """Parse, and handle a few requests."""
        if self._receiving is _CLOSED:
            return
        self._turns_left = _PER_TURN
        if self._unread or len(data) > _SLICE:
            self._unread += data
            self._feed()
        else:
            self._parse(data)
        if self._waiting:
            self._schedule()

    def _feed(self) -> None:
        """Parse the unread bytes, as long as requests may be queued."""
        while self._unread and len(self._waiting) < _MAX_WAITING and self._receiving is not _CLOSED:
            piece, self._unread = self._unread[:_SLICE], self._unread[_SLICE:]
            self._parse(piece)
        if self._receiving is _CLOSED:
            self._unread = b""
        if self._unread:
            self._pause()
        elif self._at_eof:
            self._receiving = _ON_CLOSE[self._receiving]

    def _read_more(self) -> None:
        self._feed()
        is_open = self._receiving is not _CLOSED
        wants = is_open and not self._unread and len(self._waiting) < _MAX_WAITING
        if wants and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _schedule(self) -> None:
        """Continue when the other connections have had their turn."""
        if self._turn is None and self._sending is _READY:
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        if self._transport is not None:
            self._turns_left = _PER_TURN
            self._handle_waiting()

    def _parse(self, data: bytes) -> None:
        if self._receiving is _IDLE:
            self._receiving = _ON_BYTES[_IDLE]
            self._allow(self._bounds.header_sec)
        self._section_began = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError:
            if self._last_response is None:
                raise
            self._reject(self._last_response, head_only=self._method == "HEAD")
        except httptools.HttpParserError:
            self._reject(self._app.reject(_bad_request("the request is not valid HTTP/1.1")))
        else:
            if self._receiving in (_HEAD, _CHUNK) and not self._section_began:
                self._bound_header(len(data))

    def _bound_header(self, size: int) -> None:
        """Reject an endless header: the parser buffers a header, and reports it only when it is complete."""
        self._unparsed += size
        if self._unparsed > self._bounds.max_header_bytes:
            self._reject(self._app.reject(self._too_long()))

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Stay with HTTP/1.1, as a server may. The parser would not: it gets the head without the upgrade."""
        if self._method == "CONNECT":
            self._reject(self._app.reject(_bad_request("CONNECT is rejected: this server is not a proxy")))
            return
        self._receiving = _ON_UPGRADE[self._receiving]
        version = self._parser.get_http_version()
        lines = [f"{self._method} {self._target.decode('latin-1')} HTTP/{version}"]
        lines += [f"{name}: {value}" for name, value in self._headers.items()]
        self._parser = httptools.HttpRequestParser(self)
        self._parse(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + rest)

    def eof_received(self) -> bool:
        """Respond to pending requests, then close; an incomplete request is dropped."""
        self._at_eof = True
        if self._current is not None or self._waiting:
            if not self._unread:
                self._receiving = _ON_CLOSE[self._receiving]
            self._hurry()
            return True
        return False

    def _hurry(self) -> None:
        if self._current is not None and self._current.hurry is not None:
            self._current.hurry()

    def pause_writing(self) -> None:
        """The client does not read its responses: set a deadline."""
        self._sending = _ON_STALL[self._sending]
        if self._transport is not None:
            self._unsent_bytes = self._transport.get_write_buffer_size()
            self._memory.take(self._unsent_bytes)
        self._rest()

    def resume_writing(self) -> None:
        self._sending = _ON_RESUME[self._sending]
        self._memory.give(self._unsent_bytes)
        self._unsent_bytes = 0
        self._rest()
        self._handle_waiting()

    # --- the parser -----------------------------------------------------------------------------------------

    def _stop(self, response: Response) -> NoReturn:
        """Leave the parser, which raises its own error in place of ours."""
        self._last_response = response
        raise _Rejected

    def on_message_begin(self) -> None:
        self._receiving = _ON_BEGIN[self._receiving]
        self._reset()
        self._section_began = True

    def on_chunk_header(self) -> None:
        """A chunk begins; trailers may follow the last one."""
        self._receiving = _ON_CHUNK[self._receiving]
        self._section_began = True

    def on_url(self, url: bytes) -> None:
        """Collect a piece of the request line."""
        self._target += url
        self._add_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header, or a trailer."""
        self._add_head(len(name) + len(value) + 4)
        self._count += 1
        if self._count > _MAX_HEADERS:
            self._stop(self._app.reject(_bad_request(f"the request has more than {_MAX_HEADERS} headers")))
        name = name.lower()
        if name in _USED and self._receiving is _HEAD:  # a trailer must not change what was checked
            used = name.decode("latin-1")
            if used in self._headers:
                self._repeated |= {used}
            self._headers[used] = value.decode("latin-1")

    def _add_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._bounds.max_header_bytes:
            self._stop(self._app.reject(self._too_long()))

    def _too_long(self) -> ErrorEnvelope:
        return _bad_request(f"request line and headers exceed {self._bounds.max_header_bytes} bytes")

    def on_headers_complete(self) -> None:
        """Check that the request is for us, and bound its body, before any of the body is read."""
        self._receiving = _ON_HEADERS[self._receiving]
        self._unparsed = 0
        self._method = self._parser.get_method().decode("latin-1")
        authority, self._path = split_target(self._target.decode("latin-1"))
        self._check_address(authority)
        if self._parser.should_upgrade():
            return
        self._max_body = self._app.max_body(self._method, self._path, self._headers.get("content-type", ""))
        size = self._announced_size()
        if size > self._max_body:
            self._stop(self._app.too_large(self._request(b""), size, self._max_body))
        self._allow(self._bounds.body_sec * (1 + size // _MEGABYTE))
        if self._headers.get("expect", "").lower() == "100-continue" and self._transport is not None:
            self._transport.write(_CONTINUE)

    def _announced_size(self) -> int:
        announced = self._headers.get("content-length", "0")
        try:
            return int(announced) if announced.isdecimal() else 0
        except ValueError:  # thousands of leading zeros, which the parser accepts
            self._stop(self._app.reject(_bad_request("Content-Length has too many digits")))

    def _check_address(self, authority: str | None) -> None:
        """Reject a request for another server, or from a page of another site (C-196)."""
        headers, host = self._headers, self._headers.get("host")
        is_known = host is not None and host == self._known_host and authority is None and not self._repeated
        if is_known and "origin" not in headers and "sec-fetch-site" not in headers:
            return
        version = self._parser.get_http_version()
        try:
            self._names.check(Head(headers, self._repeated, authority, version, self._secure))
        except ProtocolError as error:
            self._stop(self._rejection(error))
        self._known_host = host
        if "origin" in headers and not headers.get("content-type") and self._has_body():
            untyped = self._rejection(bad_request("content-type", "a web page must state the type of a body"))
            self._stop(replace(untyped, status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE.value))

    def _rejection(self, error: ProtocolError) -> Response:
        return self._app.reject(envelope_of(error), self._request(b""))

    def _has_body(self) -> bool:
        return self._headers.get("content-length", "0") != "0" or "transfer-encoding" in self._headers

    def on_body(self, data: bytes) -> None:
        """Collect a piece of the body."""
        self._receiving = _ON_DATA[self._receiving]
        if self._memory.is_full and not self._local:
            self._stop(self._app.reject(unavailable("too many bytes are in memory; retry later")))
        self._size += len(data)
        self._memory.take(len(data))
        if self._size > self._max_body:
            self._stop(self._app.too_large(self._request(b""), self._size, self._max_body))
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Handle the request, or queue it."""
        if self._parser.should_upgrade():
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        step = _ON_COMPLETE if self._parser.should_keep_alive() else _ON_LAST
        self._receiving = step[self._receiving]
        request = self._request(body)
        self._body, self._size = [], 0  # owned by the request now
        if self._sending is not _READY or self._waiting or not self._turns_left:
            self._waiting.append(request)
            if len(self._waiting) >= _MAX_WAITING:
                self._pause()
        else:
            self._handle(request)

    # --- requests and answers -------------------------------------------------------------------------------

    def _request(self, body: bytes) -> Request:
        # HEAD is GET without the body of the response.
        method = "GET" if self._method == "HEAD" else self._method
        request = Request(method, self._path, self._headers, body, self._respond, local=self._local)
        request.head_only = self._method == "HEAD"
        request.certificate = self._certificate
        return request

    def _handle(self, request: Request) -> None:
        self._sending = _ON_HANDLE[self._sending]
        self._turns_left -= 1
        self._current = request
        self.deadline = _NEVER  # the server is not bound by it
        self._app.handle(request)

    def _respond(self, response: Response) -> None:
        assert self._current is not None, "a request is answered once"
        self._memory.give(len(self._current.body))
        head_only, self._current = self._current.head_only, None
        self._sending = _ON_ANSWERED[self._sending]
        transport = self._transport
        if transport is None:
            return
        keep = self._receiving is not _CLOSED
        transport.write(response.encode(keep_alive=keep or bool(self._waiting), head_only=head_only))
        if self._waiting:
            self._handle_waiting()
            return
        self._rest()
        if not keep:
            transport.close()

    def _handle_waiting(self) -> None:
        """Handle queued requests, unless the client does not read its responses: these would pile up here."""
        if self._handling_waiting:
            return  # a handler has responded at once; the loop below continues
        self._handling_waiting = True
        while self._waiting and self._sending is _READY and self._turns_left > 0:
            self._handle(self._waiting.popleft())
            if self._paused and len(self._waiting) < _MAX_WAITING // 2:
                self._read_more()
        self._handling_waiting = False
        if self._waiting:
            self._schedule()

    def _allow(self, seconds: float) -> None:
        """Set the client's deadline to send; it has none while it waits for us."""
        if self._sending is _READY:
            self.deadline = self._clock() + seconds

    def _rest(self) -> None:
        receiving, sending = self._receiving, self._sending
        if sending is _ANSWERING:
            self.deadline = _NEVER
        elif receiving is _IDLE or receiving is _CLOSED or sending is not _READY:
            self.deadline = self._clock() + self._bounds.idle_sec
        else:
            self.deadline = self._clock() + self._bounds.body_sec

    def _reject(self, response: Response, *, head_only: bool = False) -> None:
        """Close, with this response unless others are pending."""
        if self._receiving is _CLOSED:
            return  # input after the last request
        self._receiving = _ON_CLOSE[self._receiving]
        self._drop_body()
        if self._transport is None:
            return
        if self._current is not None or self._waiting:
            return  # the pending responses are the last ones
        self._transport.write(response.encode(keep_alive=False, head_only=head_only))
        self._linger(self._transport)

    def _linger(self, transport: asyncio.Transport) -> None:
        """Close our side, and read what the client still sends: closing at once would lose the response."""
        if transport.can_write_eof():
            transport.write_eof()
            self.deadline = self._clock() + _LINGER_SEC
        else:
            transport.close()

    def expire(self) -> None:
        """Disconnect a client whose deadline has passed."""
        if self._transport is None:
            return
        is_late = self._sending is _READY and self._receiving not in (_IDLE, _CLOSED)
        self._receiving = _ON_CLOSE[self._receiving]
        if is_late:
            late = self._app.reject(_bad_request("the request took too long to arrive"))
            self._transport.write(late.encode(keep_alive=False))
            self._linger(self._transport)
        else:
            self._transport.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def shut(self) -> None:
        """Close after the pending responses: the server is stopping."""
        self._receiving = _ON_CLOSE[self._receiving]
        if self._current is None and not self._waiting and self._transport is not None:
            self._transport.close()
