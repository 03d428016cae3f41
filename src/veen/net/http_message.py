"""Requests and responses as handlers see them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

from veen.core.errors import HTTP_STATUS, Code
from veen.core.objects.error_envelope import ErrorEnvelope

CBOR: Final = "application/cbor"
CBOR_SEQ: Final = "application/cbor-seq"
JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"
# For responses that never change.
IMMUTABLE: Final = "public, max-age=31536000, immutable"

# The head of most responses.
_USUAL: Final = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\ncontent-type: application/cbor\r\n\r\n"
_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response."""

    status: int
    body: bytes = b""
    content_type: str = CBOR
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self, *, keep_alive: bool, head_only: bool = False) -> bytes:
        """Return the bytes of the response; with ``head_only``, without its body."""
        usual = keep_alive and not head_only and not self.headers
        if usual and self.status == 200 and self.content_type is CBOR:
            return _USUAL % len(self.body) + self.body
        lines = [
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}",
            f"content-length: {len(self.body)}",
            f"content-type: {self.content_type}",
        ]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if not keep_alive:
            lines.append("connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (b"" if head_only else self.body)


class Request:
    """A request with its whole body. ``respond`` is called once, on the loop."""

    __slots__ = (
        "body",
        "caller",
        "certificate",
        "content_type",
        "head_only",
        "headers",
        "hurry",
        "last",
        "local",
        "method",
        "path",
        "query_string",
        "respond",
    )

    def __init__(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        respond: Callable[[Response], None],
        *,
        local: bool = False,
    ) -> None:
        self.method = method
        self.path, _, self.query_string = target.partition("?")
        self.headers = headers
        self.body = body
        # The type of the body, without parameters; CBOR if it is not stated (C-75).
        self.content_type = headers.get("content-type", CBOR).partition(";")[0].strip().lower()
        self.respond = respond
        # Whether it arrived through the operator's socket in the data directory.
        self.local = local
        self.head_only = False
        # The verified TLS certificate of the client, in DER.
        self.certificate: bytes | None = None
        # The caller, as the guard of the router has identified it.
        self.caller: object = None
        # Called when the client has closed its side: it will not wait for long.
        self.hurry: Callable[[], None] | None = None
        # The last segment of a path, where it is variable.
        self.last = ""

    def wait(self, hurry: Callable[[], None]) -> None:
        """Note that the response is delayed; ``hurry`` sends it at once."""
        self.hurry = hurry

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the URL; the last value of a repeated one."""
        return dict(parse_qsl(self.query_string, keep_blank_values=True))

    def accepts(self, content_type: str) -> bool:
        """Report whether the client asks for this type by name."""
        return content_type in self.headers.get("accept", "").lower()


def status_of(error: ErrorEnvelope) -> int:
    """Return the HTTP status of an error, which follows from the code alone (C-61).

    With one exception: a request under a name that is not ours was sent to the wrong server (C-196). A
    client, or a proxy that shares connections between names, must not mistake it for that name's response.
    """
    if error.code == Code.FORBIDDEN and error.field("field") == "host":
        return HTTPStatus.MISDIRECTED_REQUEST.value
    return HTTP_STATUS[Code(error.code)]


def error_response(error: ErrorEnvelope, *, as_json: bool) -> Response:
    """Return the response to an error, the same on every route."""
    status = status_of(error)
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    return Response(status, *_body(error, as_json=as_json), headers)


def _body(error: ErrorEnvelope, *, as_json: bool) -> tuple[bytes, str]:
    if as_json:
        return encode_json(error.to_json()), JSON
    return error.encode(), CBOR


def encode_json(value: object) -> bytes:
    """Return compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()
