"""Errors of the overlays.

VeenError
├── InvalidBodyError      a body does not match its schema: a stable code
├── FoldOrderError        records or ranges were passed out of order (an AssertionError as well)
├── OverlayError          an overlay or schema is declared wrongly, or returned no cell (a TypeError as well)
├── ParameterError        an overlay has no such parameter, value or key (a ValueError as well)
└── DamagedTreeError      the rows of a summary tree are not the ones that were written
"""

from veen.core.errors import VeenError


class InvalidBodyError(VeenError):
    """A body does not match its schema; the code is stable, the text is for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class FoldOrderError(VeenError, AssertionError):
    """Ranges or records were passed out of order: a bug in the calling program."""


class OverlayError(VeenError, TypeError):
    """An overlay or schema is declared wrongly, or ``cell`` returned an invalid cell: a bug in it."""


class ParameterError(VeenError, ValueError):
    """An overlay has no such parameter, or a parameter or key cannot have this value."""


class DamagedTreeError(VeenError):
    """The rows of a summary tree are not the ones that were written: nothing in the tree can be trusted."""
