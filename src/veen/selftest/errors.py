"""Errors of the self-test.

VeenError
└── StepFailedError              a check of a step failed
    └── ServerStartError         a hub or service that was started for a test does not serve
"""

from veen.core.errors import VeenError


class StepFailedError(VeenError):
    """A check of a step failed; the text says what is wrong."""


class ServerStartError(StepFailedError):
    """A hub or service that was started for a test does not serve; the text says why."""
