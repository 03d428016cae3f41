"""Errors of the recorder.

VeenError
├── StreamNameError      the name is not that of a recorder stream (a ValueError as well)
├── BadLineError         a line or request to import is not an event (a ValueError as well)
├── SpoolFullError       there is no room for an event: the spool is at its limit, or the disk is full
├── RangeError           the log does not have the requested range
└── ManifestError        a checkpoint of the recorder is wrong: stream, epoch and position
"""

from veen.core.errors import VeenError


class StreamNameError(VeenError, ValueError):
    """The name is not that of a recorder stream."""


class BadLineError(VeenError, ValueError):
    """A line or request to import is not an event; the text says why."""


class SpoolFullError(VeenError):
    """There is no room for an event: the spool is at its limit, or the disk is full."""


class RangeError(VeenError):
    """The log does not have the requested range; the text says which range it has."""


class ManifestError(VeenError):
    """A checkpoint of the recorder is wrong; stream, epoch and position say where."""

    def __init__(self, text: str, stream: str, epoch: int, stream_seq: int) -> None:
        super().__init__(f"{stream}: {text}")
        self.stream = stream
        self.epoch = epoch
        self.stream_seq = stream_seq
