"""Errors of a hub, beside those of its data directory (``StorageError``) and its sockets (``NetError``).

VeenError
└── HubError
    └── ConfigError              the configuration cannot be used: every mistake in it
"""

from veen.core.errors import VeenError


class HubError(VeenError):
    """Base of everything that this package raises."""


class ConfigError(HubError):
    """The configuration cannot be used; the text lists every mistake."""
