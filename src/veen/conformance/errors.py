"""Errors of the conformance adapter.

VeenError
└── MalformedRequestError        the request of the harness cannot be executed
"""

from veen.core.errors import VeenError


class MalformedRequestError(VeenError):
    """The request itself is malformed: it reveals nothing about the library."""
