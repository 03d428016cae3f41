"""What connections serve, and how much of it they give to one client."""

from dataclasses import dataclass
from typing import Protocol

from veen.core.objects.error_envelope import ErrorEnvelope
from veen.net.http_message import Request, Response


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a client may take."""

    max_connections: int
    max_header_bytes: int
    header_sec: float
    #: For each megabyte of a body, begun.
    body_sec: float
    idle_sec: float


class Application(Protocol):
    """What connections serve."""

    def max_body(self, method: str, target: str, content_type: str) -> int:
        """Return how many bytes a request may have; known from its headers alone."""

    def oversize(self, request: Request, size: int, most: int) -> Response:
        """Return the answer to a request with more."""

    def refuse(self, error: ErrorEnvelope, request: Request | None = None) -> Response:
        """Return the answer to what can not be taken as a request, or is a request that we must not take."""

    def handle(self, request: Request) -> None:
        """Answer a request, now or later."""
