"""Errors of servers: what keeps one from starting, and requests that no handler accepts.

VeenError
└── NetError
    ├── StartError               a server cannot start: an address, a name or a directory cannot be used
    ├── TlsError                 a certificate or key cannot be used
    └── RoutingError             there is no handler for a request
        ├── UnknownPathError     ... nothing is served at its path
        ├── MethodError          ... the path accepts other methods
        └── TooLargeError        ... its body is larger than the path accepts
"""

from veen.core.errors import VeenError


class NetError(VeenError):
    """Base of everything that this package raises."""


class StartError(NetError):
    """A server cannot start; the text says why and what to do next."""


class TlsError(NetError):
    """A certificate or key cannot be used."""


class RoutingError(NetError):
    """There is no handler for a request."""


class UnknownPathError(RoutingError):
    """Nothing is served at the path of a request."""

    def __init__(self, path: str) -> None:
        super().__init__("nothing is served at this path")
        self.path = path


class MethodError(RoutingError):
    """The path of a request accepts other methods."""

    def __init__(self, path: str, method: str, allowed: tuple[str, ...]) -> None:
        super().__init__(f"{path} accepts {', '.join(allowed)}, not {method}")
        self.allowed = allowed

    @property
    def allow(self) -> str:
        """The methods as the Allow header lists them."""
        return ", ".join(self.allowed)


class TooLargeError(RoutingError):
    """The body of a request is larger than its path accepts; nothing of it was read."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"request of {size} bytes exceeds {limit}")
        self.size = size
        self.limit = limit
