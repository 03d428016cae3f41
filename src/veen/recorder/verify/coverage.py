"""How far checkpoints cover the labels that were read, and which verdicts the available keys allow.

Order can be judged without any key. Other verdicts depend on the content of entries: if none of those that
they need could be read, they are neither good nor bad.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Final

from veen.core.types import Label
from veen.overlays.recorder.schemas import CHANGES_STREAM, CHECKPOINTS_STREAM
from veen.recorder.cadence import Cadence
from veen.recorder.checkpoint import Manifest, Place, is_over

# Verdicts that depend on the declarations of streams.
_BY_CHANGES: Final = ("completeness", "roles", "event_types", "retention", "checkpoint_cadence")
_BY_CHECKPOINTS: Final = ("stability", "checkpoint_cadence")
# Not roles and cadence: signer, time and number of entries are not sealed.
_BY_EVENTS: Final = ("completeness", "event_types")
_BY_CLASSES: Final = ("retention",)
# The display name of the stream of label classes, which has only an id.
CLASSES: Final = "the stream of classes of labels"


@dataclass(slots=True)
class SealedCounts:
    """Number of entries in each stream, and of those sealed for other readers."""

    entries: Counter[str] = field(default_factory=Counter)
    sealed: Counter[str] = field(default_factory=Counter)

    def note(self, stream: str, entries: int, sealed: int) -> None:
        """Count entries of a stream."""
        self.entries[stream] += entries
        if sealed:
            self.sealed[stream] += sealed

    def is_closed(self, stream: str) -> bool:
        """Whether a stream has entries, and none of them could be read."""
        return 0 < self.entries[stream] == self.sealed[stream]

    def unjudged(self) -> dict[str, list[str]]:
        """Return the verdicts that are not possible, each with the streams that would be needed."""
        unjudged: dict[str, list[str]] = {}
        for stream in sorted(self.sealed, key=str.encode):
            if self.is_closed(stream):
                for verdict in _NEEDED_BY.get(stream, _BY_EVENTS):
                    unjudged.setdefault(verdict, []).append(stream)
        return unjudged


_NEEDED_BY: Final = {
    CHANGES_STREAM: _BY_CHANGES,
    CHECKPOINTS_STREAM: _BY_CHECKPOINTS,
    CLASSES: _BY_CLASSES,
}


@dataclass(slots=True)
class LabelRead:
    """A label that was read."""

    label: Label
    entries: int = 0
    # What was done to the next entry, if it fails verification.
    stopped: str | None = None
    # Roots at the positions that checkpoints cover.
    roots: dict[int, bytes] = field(default_factory=dict)
    first_ts: int | None = None
    last_ts: int = 0
    # Hub times of the entries after these positions.
    times: dict[int, int] = field(default_factory=dict)
    clients: dict[bytes, int] = field(default_factory=dict)


class Coverage:
    """How far checkpoints cover labels, one checkpoint after the other.

    Considers only labels that have begun and are not done: where labels rotate, there are many others.
    """

    def __init__(self, labels: Mapping[Place, LabelRead], epoch_sec: int) -> None:
        begun = (
            (label.first_ts, place, label) for place, label in labels.items() if label.first_ts is not None
        )
        self._later = sorted(begun, key=lambda item: item[:2], reverse=True)
        self._all = labels
        self._epoch_sec = epoch_sec
        self._upto: dict[Place, int] = {}
        self.labels: dict[Place, LabelRead] = {}
        # Number of covered entries.
        self.recorded = 0

    def advance(self, until: int) -> None:
        """Add the labels that have begun by a time."""
        while self._later and self._later[-1][0] <= until:
            _, place, label = self._later.pop()
            self.labels[place] = label

    def is_done(self, place: Place, when: int) -> bool:
        """Whether a label was over by a time and is fully covered: checkpoints may omit it."""
        over = is_over(place[1], self._epoch_sec, when)
        return over and self._upto.get(place, 0) >= self.labels[place].entries

    def reach(self, manifest: Manifest) -> None:
        """Apply a checkpoint."""
        for entry in manifest.streams:
            read, before = self._all.get(entry.place), self._upto.get(entry.place, 0)
            upto = 0 if read is None else min(entry.upto_seq, read.entries)  # it may state more
            if upto > before:
                self._upto[entry.place] = upto
                self.recorded += upto - before
        when = manifest.created_at
        self.labels = {place: label for place, label in self.labels.items() if not self.is_done(place, when)}

    def waiting_since(self) -> int | None:
        """Return the hub time of the first uncovered entry."""
        times = []
        for place, label in self.labels.items():
            upto = self._upto.get(place)
            times.append(label.first_ts if upto is None else label.times.get(upto + 1))
        return min((when for when in times if when is not None), default=None)


class CadenceAudit:
    """Number of entries before the grace period of each checkpoint; one counter per checkpoint.

    And the number before the grace period of the last entry, which is known only at the end: each second that
    may turn out to be within that period has its own counter.
    """

    def __init__(self, cadence: Cadence, checkpoints: Iterable[int]) -> None:
        self._grace = cadence.grace_sec
        self._ends = sorted({when - cadence.grace_sec for when in checkpoints})
        self._counts = [0] * (len(self._ends) + 1)
        self._last = 0
        self._early = 0
        self._late: Counter[int] = Counter()

    def count(self, hub_ts: int) -> None:
        """Count an entry."""
        self._counts[bisect_right(self._ends, hub_ts)] += 1
        if hub_ts < self._last - self._grace:
            self._early += 1
            return
        self._late[hub_ts] += 1
        if hub_ts > self._last:
            self._last = hub_ts
            for when in [when for when in self._late if when < hub_ts - self._grace]:
                self._early += self._late.pop(when)

    def before(self, when: int) -> int:
        """Return how many entries had waited for longer than the grace period at the time of a checkpoint."""
        return self._sums[when - self._grace]

    def before_last(self) -> int:
        """Return how many entries had waited for longer than that at the time of the last entry."""
        return self._early

    @cached_property
    def _sums(self) -> dict[int, int]:
        return dict(zip(self._ends, accumulate(self._counts), strict=False))
