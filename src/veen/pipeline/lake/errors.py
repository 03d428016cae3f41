"""What can be wrong with a lake, or with what is to go into it."""

from veen.core.errors import VeenError
from veen.core.objects.finding import Finding
from veen.pipeline.log.finding_format import to_text


class LakeError(VeenError):
    """A lake that can not be used as it is; the text says why and what helps."""


class LakeBusyError(LakeError):
    """Another process writes to the lake."""


class DamagedLakeError(LakeError):
    """A lake that is not what its commits say, or a log that is not what a lake was made of."""


class BadLogError(LakeError):
    """Entries that fail their checks: they are not taken in."""

    def __init__(self, trouble: Finding) -> None:
        super().__init__(to_text(trouble))
        self.trouble = trouble
