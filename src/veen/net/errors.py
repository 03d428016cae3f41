"""Errors of servers: what keeps one from starting, and what a request can lack before a handler sees it.

VeenError
└── NetError
├── StartError               a server cannot start: an address, a name or a directory cannot be used
└── TlsError                 a certificate or key cannot be used
"""

from veen.core.errors import VeenError


class NetError(VeenError):
    """Base of everything that this package raises."""


class StartError(NetError):
    """A server cannot start; the text says why and what to do next."""


class TlsError(NetError):
    """A certificate or key cannot be used."""
