"""What of a record somebody's keys open, and which verdicts need more than that.

Order can be judged by whoever has no key at all. Other verdicts are about what entries say: where none of a
stream could be read that they need, they are neither good nor bad.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from veen.overlays.recorder_schemas import CHANGES_STREAM, CHECKPOINTS_STREAM

#: Verdicts that need to know which streams there are, and what was declared.
_BY_CHANGES: Final = ("completeness", "roles", "event_types", "retention", "checkpoint_cadence")
_BY_CHECKPOINTS: Final = ("stability", "checkpoint_cadence")
#: Who has signed is not sealed, when and how many neither: roles and cadence are judged without.
_BY_EVENTS: Final = ("completeness", "event_types")
_BY_CLASSES: Final = ("retention",)
#: What it is called that is not named by a stream of its own.
CLASSES: Final = "the stream of classes of labels"


@dataclass(slots=True)
class Opened:
    """How many entries there are in each stream, and how many of them are sealed for others."""

    entries: Counter[str] = field(default_factory=Counter)
    sealed: Counter[str] = field(default_factory=Counter)

    def note(self, stream: str, entries: int, sealed: int) -> None:
        """Count entries of a stream."""
        self.entries[stream] += entries
        if sealed:
            self.sealed[stream] += sealed

    def is_closed(self, stream: str) -> bool:
        """Tell whether a stream has entries, and none of them could be read."""
        return 0 < self.entries[stream] == self.sealed[stream]

    def unjudged(self) -> dict[str, list[str]]:
        """Return verdicts that can not be given, and because of which streams."""
        found: dict[str, list[str]] = {}
        for stream in sorted(self.sealed, key=str.encode):
            if self.is_closed(stream):
                for verdict in _NEEDED_BY.get(stream, _BY_EVENTS):
                    found.setdefault(verdict, []).append(stream)
        return found


_NEEDED_BY: Final = {
    CHANGES_STREAM: _BY_CHANGES,
    CHECKPOINTS_STREAM: _BY_CHECKPOINTS,
    CLASSES: _BY_CLASSES,
}
