"""The cadence of checkpoints: when one is due, and which entries wait for it (SDR-011).

One rule for programs that make, judge or monitor checkpoints. A checkpoint is due when an entry has waited
for ``every_sec``, or when ``each_events`` entries wait; checkpoints themselves need none.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from veen.client.client import Client
from veen.client.verify.label import fetch_receipt
from veen.overlays.recorder.schemas import CHANGES_STREAM, CHECKPOINTS_STREAM
from veen.recorder.checkpoint import CoveredLog, Head
from veen.recorder.configuration import Configuration, known_record_streams, read_configuration
from veen.recorder.replay import count_before

EVERY_SEC: Final = 300
EACH_EVENTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Cadence:
    """How often a checkpoint is made; a condition that is None is ignored."""

    every_sec: int | None = EVERY_SEC
    each_events: int | None = EACH_EVENTS
    grace_sec: int = 30

    def is_many(self, waiting: int) -> bool:
        """Whether this number of waiting entries requires a checkpoint."""
        return self.each_events is not None and waiting >= self.each_events

    def is_late(self, since: int | None, until: int) -> bool:
        """Whether an entry that waits since ``since`` is overdue at ``until``."""
        if since is None or self.every_sec is None:
            return False
        return until - since > self.every_sec + self.grace_sec


DEFAULT_CADENCE: Final = Cadence()


class Pace:
    """Decides when to make a checkpoint; counts new entries only when needed."""

    def __init__(self, cadence: Cadence) -> None:
        self._cadence = cadence
        self._last: float | None = None

    def is_due(self, now: float, count_new: Callable[[], int]) -> bool:
        """Whether a checkpoint is due; the first one is due at once."""
        every = self._cadence.every_sec
        if self._last is None or (every is not None and now - self._last >= every):
            return True
        return self._cadence.each_events is not None and self._cadence.is_many(count_new())

    def made(self, now: float) -> None:
        """Record that a checkpoint was made."""
        self._last = now


@dataclass(frozen=True, slots=True)
class _Tail:
    """A label with entries after the covered range."""

    head: Head
    upto: int


class UncoveredEntries:
    """The entries that no checkpoint covers yet, without the checkpoints themselves."""

    def __init__(self, client: Client, streams: Iterable[str], standing: CoveredLog) -> None:
        standing.refresh()
        names = {*streams, *standing.streams} - {CHECKPOINTS_STREAM}
        self._client = client
        self._tails: list[_Tail] = []
        # Last number of the stream of changes in each epoch: the version of the declarations.
        self.changes: dict[int, int] = {}
        for head in standing.find_heads(names):
            if head.stream == CHANGES_STREAM:
                self.changes[head.epoch] = head.seq
            entry = standing.entries.get(head.place)
            upto = 0 if entry is None else entry.upto_seq
            if head.seq > upto:
                self._tails.append(_Tail(head, upto))

    @property
    def count(self) -> int:
        """Number of uncovered entries."""
        return sum(tail.head.seq - tail.upto for tail in self._tails)

    def is_met(self, cadence: Cadence, now: int) -> bool:
        """Whether no entry is overdue, and the number of waiting entries is within the cadence."""
        if cadence.is_late(self._since(), now):
            return False
        return not cadence.is_many(self.count) or not cadence.is_many(self._before(now - cadence.grace_sec))

    def _since(self) -> int | None:
        """Return the hub time of the first uncovered entry."""
        session = self._client.session
        receipts = (
            self._client.run(fetch_receipt(session, tail.head.label, tail.upto + 1)) for tail in self._tails
        )
        return min((receipt.hub_ts for receipt in receipts if receipt is not None), default=None)

    def _before(self, time: int) -> int:
        """Return how many uncovered entries the hub accepted before a time."""
        count = 0
        for tail in self._tails:
            taken = self._client.run(count_before(self._client, tail.head.label, tail.head.seq, time))
            count += max(0, taken - tail.upto)
        return count


class CadenceWatch:
    """Monitors the streams of a recorder with few requests.

    The declarations are read again only when the stream of changes has grown.
    """

    def __init__(self, client: Client, streams: Iterable[str], standing: CoveredLog) -> None:
        self._client = client
        self._streams = frozenset(streams)
        self._standing = standing
        self._changes: dict[int, int] | None = None
        self.configuration = Configuration(b"")

    @property
    def names(self) -> set[str]:
        """All streams that are declared, named by the caller, or used by this client."""
        return {*self.configuration.names, *self._streams, *known_record_streams(self._client)}

    def waiting(self) -> UncoveredEntries:
        """Return the uncovered entries of all streams that are declared now."""
        while True:
            uncovered = UncoveredEntries(self._client, self.names, self._standing)
            if uncovered.changes == self._changes:
                return uncovered
            self.configuration = read_configuration(self._client)
            self._changes = uncovered.changes
