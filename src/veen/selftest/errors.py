"""Errors of the self-test.

VeenError
└── StepFailedError              a step found that something is wrong
    └── ServerStartError         a hub or service that was started for a test does not serve
"""

from veen.core.errors import VeenError


class StepFailedError(VeenError):
    """A step found that something is wrong; the text says what."""


class ServerStartError(StepFailedError):
    """A hub or service that was started for a test does not serve; the text says why."""
