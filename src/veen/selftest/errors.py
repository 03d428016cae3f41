"""Errors of the self-test.

VeenError
└── StepFailedError              a step found that something is wrong
"""

from veen.core.errors import VeenError


class StepFailedError(VeenError):
    """A step found that something is wrong; the text says what."""
