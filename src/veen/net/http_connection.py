"""One connection: bytes in, requests out, answers back in order. Slow and greedy peers are cut off.

A connection has at most one deadline at a time: for a request's headers, for its body, for being idle, or
for taking its answer. A sweep, not a timer each, ends those that have passed.

The server is our own, on httptools: it cuts off slow and greedy clients at every step, and answers a submit
without a task of its own (docs/adr/0008).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Final, cast

import httptools

from veen.core.errors import Code, ProtocolError, bad_request
from veen.core.objects.error_envelope import ErrorEnvelope, envelope_of, unavailable
from veen.net.byte_budget import ByteBudget
from veen.net.host_names import Head, Names, split_target
from veen.net.http_application import Application, Bounds
from veen.net.http_message import Request, Response

#: Headers that some handler looks at; the rest are counted and forgotten.
_USED: Final = frozenset(
    {
        b"accept",
        b"authorization",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"expect",
        b"host",
        b"origin",
        b"sec-fetch-site",
        b"transfer-encoding",
        b"veen-pow",
    }
)
_MAX_HEADERS: Final = 100
#: Requests of one connection that may wait for the one before: pipelining, within reason.
_MAX_WAITING: Final = 16
#: Requests of one connection that are handled before the others have their turn.
_PER_TURN: Final = 4
#: Bytes that are parsed at once: how many requests there can be in them is what a flood costs.
_SLICE: Final = 16 << 10
#: Connections beyond the bound that are told so; more are cut.
_MAX_REFUSED: Final = 64
_MEGABYTE: Final = 1 << 20
#: How long a client that was refused may go on sending before the connection is cut.
_LINGER_SEC: Final = 2.0
_NONE: Final[frozenset[str]] = frozenset()
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Refusal(Exception):  # noqa: N818 - control flow out of the parser, not an error of ours
    """The request can not be taken; the answer is the last one on this connection."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


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
        """``local``: from the operator's socket; ``full``: there are too many, so this one is sent away."""
        self._app = app
        self._full = full
        self._bounds = bounds
        self._clock = clock
        self._open = open_connections
        self._memory = memory
        #: Bytes of answers that the client does not take.
        self._unsent_bytes = 0
        self._names = names
        #: A Host that was looked at and is ours: most requests of a connection have the same.
        self._known_host: str | None = None
        self._secure = False
        self._local = local
        #: The certificate that the client has shown, in DER; it was verified.
        self._certificate: bytes | None = None
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[tuple[Request, bool]] = deque()
        #: The request that is being answered.
        self._current: Request | None = None
        self._busy = False
        self._closing = False
        self._paused = False
        self._draining = False
        self._going_on = False
        #: Bytes that came and were not parsed: reading pauses while there are any.
        self._unread = b""
        self._turns_left = _PER_TURN
        self._scheduled = self._ended = False
        self.deadline = float("inf")
        self._begin()

    def _begin(self) -> None:
        self._target, self._method = b"", ""
        self._headers: dict[str, str] = {}
        self._repeated: frozenset[str] = _NONE
        self._count = self._head_bytes = 0
        self._body: list[bytes] = []
        self._size = 0  # of what is counted in memory
        self._most = 0
        self._reading = False
        self._unparsed = 0
        #: Whether the parser gathers a header, or a trailer, that it has not shown yet.
        self._gathering = self._header_progress = False
        self._has_head = False

    # --- the transport --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's have no common base
        self._open.add(self)
        secured = transport.get_extra_info("ssl_object")
        self._secure = secured is not None
        self._certificate = None if secured is None else secured.getpeercert(binary_form=True)
        self.deadline = self._clock() + self._bounds.header_sec
        if self._full and len(self._open) > _MAX_REFUSED + self._bounds.max_connections:
            self._transport.abort()  # not even for an answer is there room
        elif self._full:
            self._refuse(self._app.reject(unavailable("too many connections; try again")))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why makes no difference
        """End; answers that are still made are thrown away."""
        self._open.discard(self)
        self._transport = None
        self._memory.give(self._unsent_bytes + sum(len(request.body) for request, _ in self._waiting))
        self._unsent_bytes = 0
        self._drop_body()
        self._waiting.clear()
        self._unread = b""
        self._hurry()

    def _drop_body(self) -> None:
        """Forget what has come of a request that will not be handled."""
        self._memory.give(self._size)
        self._body, self._size = [], 0

    def data_received(self, data: bytes) -> None:
        """Parse, and handle a few requests."""
        if self._closing:
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
        """Parse what was left, as far as requests may wait."""
        while self._unread and len(self._waiting) < _MAX_WAITING and not self._closing:
            piece, self._unread = self._unread[:_SLICE], self._unread[_SLICE:]
            self._parse(piece)
        if self._closing:
            self._unread = b""
        if self._unread:
            self._pause()
        elif self._ended:
            self._closing = True

    def _take_more(self) -> None:
        self._feed()
        wants = not self._closing and not self._unread and len(self._waiting) < _MAX_WAITING
        if wants and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _schedule(self) -> None:
        """Go on when the other connections have had their turn."""
        if not self._scheduled and not self._busy and not self._draining:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._scheduled = False
        if self._transport is not None:
            self._turns_left = _PER_TURN
            self._go_on()

    def _parse(self, data: bytes) -> None:
        if not self._reading:
            self._reading = True
            self._allow(self._bounds.header_sec)
        self._header_progress = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, Refusal):
                self._refuse(cause.response, head_only=self._method == "HEAD")
            else:
                self._refuse(self._app.reject(_bad_request("this is not HTTP/1.1")))
        else:
            self._bound_header(len(data))

    def _bound_header(self, size: int) -> None:
        """Refuse a header without end: the parser shows none before it is whole, and keeps it meanwhile."""
        if self._gathering and not self._header_progress:
            self._unparsed += size
            if self._unparsed > self._bounds.max_header_bytes:
                self._refuse(self._app.reject(self._too_long()))

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Go on in HTTP/1.1, as a server may. The parser would not: it gets the request without the wish."""
        if self._method == "CONNECT":
            self._refuse(self._app.reject(_bad_request("this is no proxy")))
            return
        version = self._parser.get_http_version()
        lines = [f"{self._method} {self._target.decode('latin-1')} HTTP/{version}"]
        lines += [f"{name}: {value}" for name, value in self._headers.items()]
        self._parser = httptools.HttpRequestParser(self)
        self._parse(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + rest)

    def eof_received(self) -> bool:
        """Answer what was asked, then close; a request cut in the middle is nobody's."""
        self._ended = True
        if self._busy or self._waiting:
            self._closing = not self._unread
            self._hurry()
            return True
        return False

    def _hurry(self) -> None:
        if self._busy and self._current is not None and self._current.hurry is not None:
            self._current.hurry()

    def pause_writing(self) -> None:
        """The client does not take its answers: it has some time to."""
        self._draining = True
        if self._transport is not None:
            self._unsent_bytes = self._transport.get_write_buffer_size()
            self._memory.take(self._unsent_bytes)
        self._rest()

    def resume_writing(self) -> None:
        """It has taken them."""
        self._draining = False
        self._memory.give(self._unsent_bytes)
        self._unsent_bytes = 0
        self._rest()
        self._go_on()

    # --- the parser -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self._begin()
        self._reading = self._gathering = self._header_progress = True

    def on_chunk_header(self) -> None:
        """A chunk begins; behind the last one there may be trailers."""
        self._gathering = self._header_progress = True

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request line."""
        self._target += url
        self._add_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._add_head(len(name) + len(value) + 4)
        self._count += 1
        if self._count > _MAX_HEADERS:
            raise Refusal(self._app.reject(_bad_request(f"more than {_MAX_HEADERS} headers")))
        name = name.lower()
        if name in _USED and not self._has_head:  # what was looked at is not said otherwise by a trailer
            used = name.decode("latin-1")
            if used in self._headers:
                self._repeated |= {used}
            self._headers[used] = value.decode("latin-1")

    def _add_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._bounds.max_header_bytes:
            raise Refusal(self._app.reject(self._too_long()))

    def _too_long(self) -> ErrorEnvelope:
        return _bad_request(f"headers of more than {self._bounds.max_header_bytes} bytes")

    def on_headers_complete(self) -> None:
        """Decide whether the request is for us, and how much body it may have, before any of that is read."""
        self._gathering = False
        self._has_head = True
        self._unparsed = 0
        self._method = self._parser.get_method().decode("latin-1")
        authority, self._path = split_target(self._target.decode("latin-1"))
        self._check_address(authority)
        if self._parser.should_upgrade():
            return
        self._most = self._app.max_body(self._method, self._path, self._headers.get("content-type", ""))
        announced = self._headers.get("content-length", "0")
        size = int(announced) if announced.isdecimal() else 0
        if size > self._most:
            raise Refusal(self._app.too_large(self._request(b""), size, self._most))
        self._allow(self._bounds.body_sec * (1 + size // _MEGABYTE))
        if self._headers.get("expect", "").lower() == "100-continue" and self._transport is not None:
            self._transport.write(_CONTINUE)

    def _check_address(self, authority: str | None) -> None:
        """Refuse what is for somebody else, or is sent by a page of somebody else (C-196)."""
        headers, host = self._headers, self._headers.get("host")
        is_known = host is not None and host == self._known_host and authority is None and not self._repeated
        if is_known and "origin" not in headers and "sec-fetch-site" not in headers:
            return
        version = self._parser.get_http_version()
        try:
            self._names.check(Head(headers, self._repeated, authority, version, self._secure))
        except ProtocolError as error:
            raise Refusal(self._turn_away(error)) from None
        self._known_host = host
        if "origin" in headers and not headers.get("content-type") and self._has_body():
            untyped = self._turn_away(bad_request("content-type", "a page says of which type a body is"))
            raise Refusal(replace(untyped, status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE.value))

    def _turn_away(self, error: ProtocolError) -> Response:
        return self._app.reject(envelope_of(error), self._request(b""))

    def _has_body(self) -> bool:
        return self._headers.get("content-length", "0") != "0" or "transfer-encoding" in self._headers

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body."""
        self._gathering = False
        if self._memory.is_full and not self._local:
            raise Refusal(self._app.reject(unavailable("the server holds too much; try again")))
        self._size += len(data)
        self._memory.take(len(data))
        if self._size > self._most:
            raise Refusal(self._app.too_large(self._request(b""), self._size, self._most))
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Hand the request on, or let it wait for the one before."""
        if self._parser.should_upgrade():
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        keep = self._parser.should_keep_alive()
        request = self._request(body)
        self._reading = self._gathering = False
        self._body, self._size = [], 0  # it is the request's now
        if self._busy or self._draining or self._waiting or not self._turns_left:
            self._waiting.append((request, keep))
            if len(self._waiting) >= _MAX_WAITING:
                self._pause()
        else:
            self._handle(request, keep=keep)

    # --- requests and answers -------------------------------------------------------------------------------

    def _request(self, body: bytes) -> Request:
        # HEAD is GET whose answer is told and not sent.
        method = "GET" if self._method == "HEAD" else self._method
        request = Request(method, self._path, self._headers, body, self._respond, local=self._local)
        request.head_only = self._method == "HEAD"
        request.certificate = self._certificate
        return request

    def _handle(self, request: Request, *, keep: bool) -> None:
        self._busy = True
        self._turns_left -= 1
        self._keep = keep
        self._current = request
        self.deadline = float("inf")  # now it is the server that takes its time
        self._app.handle(request)

    def _respond(self, response: Response) -> None:
        assert self._current is not None, "a request is answered once"
        self._memory.give(len(self._current.body))
        head_only, self._current = self._current.head_only, None
        self._busy = False
        transport = self._transport
        if transport is None:
            return
        keep = self._keep and not self._closing
        transport.write(response.encode(keep_alive=keep or bool(self._waiting), head_only=head_only))
        if self._waiting:
            self._go_on()
            return
        self._rest()
        if not keep:
            self._closing = True
            transport.close()

    def _go_on(self) -> None:
        """Turn to those that wait, unless the client does not take its answers: they would pile up here."""
        if self._going_on:
            return  # answered at once, by the loop below
        self._going_on = True
        while self._waiting and not self._busy and not self._draining and self._turns_left > 0:
            request, keep = self._waiting.popleft()
            self._handle(request, keep=keep)
            if self._paused and len(self._waiting) < _MAX_WAITING // 2:
                self._take_more()
        self._going_on = False
        if self._waiting:
            self._schedule()

    def _allow(self, seconds: float) -> None:
        """Give the client time to send; while it waits for us, it has all the time it wants."""
        if not self._busy and not self._draining:
            self.deadline = self._clock() + seconds

    def _rest(self) -> None:
        if self._busy and not self._draining:
            self.deadline = float("inf")
        elif self._reading and not self._draining:
            self.deadline = self._clock() + self._bounds.body_sec
        else:
            self.deadline = self._clock() + self._bounds.idle_sec

    def _refuse(self, response: Response, *, head_only: bool = False) -> None:
        """Answer once more, behind what is being answered, and close."""
        self._closing = True
        self._drop_body()
        if self._transport is None:
            return
        if self._busy or self._waiting:
            return  # the answers on their way are the last ones
        self._transport.write(response.encode(keep_alive=False, head_only=head_only))
        self._linger(self._transport)

    def _linger(self, transport: asyncio.Transport) -> None:
        """Close our side, and let the client's bytes run out: closing at once would destroy the answer."""
        if transport.can_write_eof():
            transport.write_eof()
            self.deadline = self._clock() + _LINGER_SEC
            self._reading = False
        else:
            transport.close()

    def expire(self) -> None:
        """Cut off a client whose time is over."""
        if self._transport is None:
            return
        self._closing = True
        if self._reading and not self._busy and not self._draining:
            late = self._app.reject(_bad_request("the request took too long to arrive"))
            self._transport.write(late.encode(keep_alive=False))
            self._linger(self._transport)
        else:
            self._transport.abort()

    def abort(self) -> None:
        """Cut the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def shut(self) -> None:
        """Close as soon as what was asked has been answered: the server is stopping."""
        self._closing = True
        if not self._busy and not self._waiting and self._transport is not None:
            self._transport.close()
