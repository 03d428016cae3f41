"""The interface of an application that connections serve, and the bounds of a client."""

from dataclasses import dataclass
from typing import Protocol

from veen.core.objects.error_envelope import ErrorEnvelope
from veen.net.http_message import Request, Response


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of one client."""

    max_connections: int
    max_header_bytes: int
    header_sec: float
    # For each started megabyte of a body.
    body_sec: float
    idle_sec: float


class Application(Protocol):
    """An application that connections serve."""

    def max_body(self, method: str, target: str, content_type: str) -> int:
        """Return the maximum size of the body of a request, by its head alone."""

    def too_large(self, request: Request, size: int, limit: int) -> Response:
        """Return the response to a request with a larger body."""

    def reject(self, error: ErrorEnvelope, request: Request | None = None) -> Response:
        """Return the response to invalid HTTP, or to a request that must not be accepted."""

    def handle(self, request: Request) -> None:
        """Respond to a request, now or later."""
