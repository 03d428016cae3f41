"""The offline checker behind ``veen fsck``.

It shares no code with the writer, so that an error there is not repeated here: it is based on the formats
of ``veen.core`` and on ``docs/reference/data-directory.md``. It never writes, needs neither the writer's lock
nor any secret, and may check a directory while a hub is running on it.
"""

from veen.storage.fsck.checker import ShowProgress, check
from veen.storage.fsck.report import DERIVED, LEVELS, LabelReport, Reason, Report
from veen.storage.fsck.source import Files

__all__ = ["DERIVED", "LEVELS", "Files", "LabelReport", "Reason", "Report", "ShowProgress", "check"]
