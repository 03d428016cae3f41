"""The offline checker behind ``veen fsck``.

It shares no code with the writer, so that a mistake there cannot hide itself here: it knows the formats of
``veen.core`` and the page ``docs/reference/data-directory.md``, reads, and never writes. It needs neither the
writer's lock nor any secret, and may look at a directory while a hub works on it.
"""

from veen.storage.fsck.checker import ShowProgress, check
from veen.storage.fsck.report import DERIVED, LEVELS, LabelReport, Reason, Report
from veen.storage.fsck.source import Files

__all__ = ["DERIVED", "LEVELS", "Files", "LabelReport", "Reason", "Report", "ShowProgress", "check"]
