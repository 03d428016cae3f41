"""What connections serve, and the bounds of a client."""

from dataclasses import dataclass
from typing import Protocol

from veen.core.objects.error_envelope import ErrorEnvelope
from veen.net.http_message import Request, Response


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one client may use."""

    max_connections: int
    max_header_bytes: int
    header_sec: float
    #: For each megabyte of a body, or part of one.
    body_sec: float
    idle_sec: float


class Application(Protocol):
    """What connections serve."""

    def max_body(self, method: str, target: str, content_type: str) -> int:
        """Return how many bytes the body of a request may have; known from its headers alone."""

    def too_large(self, request: Request, size: int, limit: int) -> Response:
        """Return the answer to a request with a larger body."""

    def reject(self, error: ErrorEnvelope, request: Request | None = None) -> Response:
        """Return the answer to what is not a request, or is one that must not be accepted."""

    def handle(self, request: Request) -> None:
        """Answer a request, now or later."""
