"""Errors of a hub, beside those of its data directory (``StorageError``) and its sockets (``NetError``).

VeenError
└── HubError
    └── ConfigError              the configuration is invalid; lists every mistake
"""

from veen.core.errors import VeenError


class HubError(VeenError):
    """Base of everything that this package raises."""


class ConfigError(HubError):
    """The configuration is invalid; the text lists every mistake."""
