"""A hub over HTTP: encoding of requests, decoding of responses, and the blocking connection."""

import http.client
import io
import json
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

from veen.client.effects import Describe, GetAttachment, PutAttachment, Query, Request, Submit
from veen.client.errors import InvalidResponseError, NetworkError, RejectedError, rejection_of
from veen.core.api import data_plane, tooling
from veen.core.api.data_plane import SubmitResponse
from veen.core.encoding import cbor
from veen.core.encoding.wire_object import Wire
from veen.core.errors import ProtocolError
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.stdx.grammar import counted

CBOR: Final = "application/cbor"
CBOR_SEQ: Final = "application/cbor-seq"
_OCTETS: Final = "application/octet-stream"
_SUBMIT: Final = "/v1/submit"

# The largest response is a page, whose size the hub bounds, or one entry or attachment.
MAX_ANSWER_BYTES: Final = 64 << 20
_PART_BYTES: Final = 1 << 20

PATHS: Final[Mapping[type[Wire], str]] = {
    data_plane.StreamRequest: "/v1/stream",
    data_plane.ReceiptRequest: "/v1/receipt",
    data_plane.ProofRequest: "/v1/proof",
    data_plane.CheckpointRequest: "/v1/checkpoint",
    tooling.AuthorizeRequest: "/tooling/authorize",
    tooling.CapStatusRequest: "/tooling/cap_status",
    tooling.ProofAtRequest: "/tooling/proof_at",
    tooling.AnchorRequest: "/tooling/anchor",
    tooling.ConsistencyRequest: "/tooling/consistency",
    tooling.CheckpointLatestRequest: "/tooling/checkpoint_latest",
    tooling.CheckpointRangeRequest: "/tooling/checkpoint_range",
    tooling.StreamEpochsRequest: "/tooling/epochs",
    tooling.EquivocationRequest: "/tooling/report_equivocation",
}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request in its HTTP form."""

    method: str
    path: str
    body: bytes | None = None
    content_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    # Long poll: added to the timeout.
    wait_sec: int = 0

    def all_headers(self) -> dict[str, str]:
        """Return the headers with the content type."""
        typed = {"content-type": self.content_type} if self.content_type else {}
        return {**typed, **self.headers}


@dataclass(frozen=True, slots=True)
class Reply:
    """A response in its HTTP form."""

    status: int
    content_type: str
    body: bytes


def to_message(request: Request) -> HttpRequest:
    """Return the HTTP form of a request."""
    match request:
        case Query():
            query = f"?wait={request.wait_sec}" if request.wait_sec else ""
            path = PATHS[type(request.request)] + query
            body = request.request.encode()
            return HttpRequest("POST", path, body, CBOR, request.headers, request.wait_sec)
        case Submit():
            if len(request.bodies) == 1:
                return HttpRequest("POST", _SUBMIT, single(request.bodies[0]), CBOR, request.headers)
            return HttpRequest("POST", _SUBMIT, b"".join(request.bodies), CBOR_SEQ, request.headers)
        case Describe():
            return HttpRequest("GET", request.path)
        case PutAttachment():
            return HttpRequest("PUT", f"/tooling/attachment/{request.coid.hex()}", request.sealed, _OCTETS)
        case GetAttachment():
            return HttpRequest("GET", f"/tooling/attachment/{request.coid.hex()}")


def single(msg: bytes) -> bytes:
    """Return the body of a request that submits one message: {1: 1, 2: msg}."""
    return b"\xa2\x01\x01\x02" + msg


def from_reply(request: Request, reply: Reply, name: str) -> Any:  # noqa: ANN401 - by the request
    """Decode a response; raise the error that it contains."""
    try:
        if isinstance(request, Submit):
            return _receipts(request, reply, name)
        if reply.status >= 400:
            raise refusal(reply, name)
        match request:
            case Query():
                return request.answer.decode(reply.body)
            case Describe():
                return read_json(reply.body, name)
            case GetAttachment():
                return reply.body
    except ProtocolError as error:
        raise InvalidResponseError(f"the response of {name} is not valid: {error}") from None
    return None


def _receipts(request: Submit, reply: Reply, name: str) -> list[SubmitResponse | ErrorEnvelope]:
    if reply.status >= 400:
        error = refusal(reply, name)
        if len(request.bodies) > 1:
            raise error  # about the request as a whole: nothing was accepted
        return [error.envelope]
    if len(request.bodies) == 1:
        return [SubmitResponse.decode(reply.body)]
    answers: list[SubmitResponse | ErrorEnvelope] = []
    offset = 0
    while offset < len(reply.body):
        end = cbor.item_end(reply.body, offset)
        answers.append(_answer(reply.body[offset:end]))
        offset = end
    if len(answers) != len(request.bodies):
        count = counted(len(request.bodies), "message")
        raise InvalidResponseError(f"{name} answered {len(answers)} of {count}")
    return answers


def _answer(item: bytes) -> SubmitResponse | ErrorEnvelope:
    # Key 2 is the receipt, an array, in a response, and the code, a text, in an error.
    return SubmitResponse.decode(item) if item[3:5] == b"\x02\x87" else ErrorEnvelope.decode(item)


def refusal(reply: Reply, name: str) -> RejectedError:
    """Return the error in a hub's error response."""
    try:
        if reply.content_type.startswith("application/json"):
            envelope = ErrorEnvelope.from_json(json.loads(reply.body))
        else:
            envelope = ErrorEnvelope.decode(reply.body)
    except (ProtocolError, ValueError, RecursionError):
        raise InvalidResponseError(
            f"{name} responded with status {reply.status}, and not with an error of a hub"
        ) from None
    return rejection_of(envelope)


def read_json(data: bytes, name: str) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidResponseError(f"{name} did not respond as a hub does")
    return value


class HttpHub:
    """A hub at a URL, or at the Unix socket in its data directory; one persistent connection."""

    def __init__(self, url: str, timeout_sec: float = 10.0, door: Path | None = None) -> None:
        """``door``: a Unix socket to connect to instead of the URL's address."""
        self.name = url
        self.timeout_sec = timeout_sec
        self._door = door
        self._prefix = urlsplit(url).path.rstrip("/")
        self._idle: http.client.HTTPConnection | None = None

    def answer(self, request: Request) -> Any:  # noqa: ANN401 - by the request
        """Send a request, and return the response."""
        return from_reply(request, self.exchange(to_message(request)), self.name)

    def exchange(self, message: HttpRequest) -> Reply:
        """Send a request and read the reply.

        The hub may have closed an idle connection: then the request is sent once more on a new one. Except
        for a submit, whose caller must know that the messages may have been sent before (C-63).
        """
        idle, self._idle = self._idle, None
        if idle is not None:
            try:
                return self._exchange(idle, message)
            except (OSError, http.client.HTTPException) as error:
                idle.close()
                if isinstance(error, TimeoutError) or message.path == _SUBMIT:
                    raise self._unreachable(error) from None
        try:
            return self._exchange(self.connect(), message)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise self._unreachable(error) from None

    def _exchange(self, connection: http.client.HTTPConnection, message: HttpRequest) -> Reply:
        connection.timeout = self.timeout_sec + message.wait_sec
        connection.response_class = partial(_TimedResponse, end=monotonic() + connection.timeout)  # type: ignore[assignment] # makes one
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        try:
            connection.request(
                message.method, self._prefix + message.path, message.body, message.all_headers()
            )
            response = connection.getresponse()
            body = self._read(response)
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._idle = connection
        return Reply(response.status, response.headers.get("content-type", ""), body)

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        """Read a response of bounded size."""
        parts: list[bytes] = []
        size = 0
        while part := response.read(_PART_BYTES):
            parts.append(part)
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                raise InvalidResponseError(f"{self.name} responded with more than {MAX_ANSWER_BYTES} bytes")
        return b"".join(parts)

    def _unreachable(self, error: Exception) -> NetworkError:
        if isinstance(error, TimeoutError):
            return NetworkError(f"{self.name} did not answer in {self.timeout_sec:g} s")
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return NetworkError(f"{self.name} cannot be reached: {why}")

    def connect(self) -> http.client.HTTPConnection:
        """Return a new connection, which connects when it is first used."""
        if self._door is not None:
            return _UnixConnection(self._door, self.timeout_sec)
        parts = urlsplit(self.name)
        if not parts.hostname:
            raise NetworkError(f"{self.name} has no host")
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=self.timeout_sec, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=self.timeout_sec)

    def close(self) -> None:
        """Close the connection."""
        if self._idle is not None:
            self._idle.close()
            self._idle = None


class _TimedResponse(http.client.HTTPResponse):
    """A response with one deadline for all of it, headers included, however slowly it arrives."""

    def __init__(self, sock: socket.socket, *args: Any, end: float, **more: Any) -> None:  # noqa: ANN401 - of the library
        super().__init__(sock, *args, **more)
        self.fp = io.BufferedReader(_TimedSocket(sock, self.fp.detach(), end))


class _TimedSocket(io.RawIOBase):
    """Reads from a socket until a deadline."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, end: float) -> None:
        """``raw`` reads from the socket, and keeps it open while a response is being read."""
        super().__init__()
        self._sock = sock
        self._raw = raw
        self._end = end

    def readable(self) -> bool:
        """Return that it is readable."""
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 - of the library
        """Read available bytes, until the deadline."""
        remaining = self._end - monotonic()
        if remaining <= 0:
            raise TimeoutError
        self._sock.settimeout(remaining)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Release the socket."""
        self._raw.close()
        super().close()


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect through a file descriptor of the directory: socket paths are limited to about 100 bytes."""
        fd = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(self.timeout)
            sock.connect(f"/proc/self/fd/{fd}/{self._path.name}")
        except OSError:
            sock.close()
            raise
        finally:
            os.close(fd)
        self.sock = sock
