"""What waits for a checkpoint, by a few questions: how many entries, and whether one is overdue (SDR-011)."""

from collections.abc import Iterable
from dataclasses import dataclass

from veen.client.client import Client
from veen.client.positions import fetch_receipt
from veen.overlays.recorder_schemas import CHANGES_STREAM, CHECKPOINTS_STREAM
from veen.recorder.configuring import Configuration, known_record_streams, read_configuration
from veen.recorder.manifest import Head, Standing
from veen.recorder.pacing import Cadence
from veen.recorder.replaying import count_before


@dataclass(frozen=True, slots=True)
class _Tail:
    """A label with entries behind what is vouched for."""

    head: Head
    upto: int


class Waiting:
    """The entries that no checkpoint vouches for yet; checkpoints need none themselves."""

    def __init__(self, client: Client, streams: Iterable[str], standing: Standing) -> None:
        standing.refresh()
        names = {*streams, *standing.streams} - {CHECKPOINTS_STREAM}
        self._client = client
        self._tails: list[_Tail] = []
        #: How far the stream of changes goes, in each epoch: what is declared is as old as this.
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
        """How many there are."""
        return sum(tail.head.seq - tail.upto for tail in self._tails)

    def is_met(self, cadence: Cadence, now: int) -> bool:
        """Tell whether none has waited too long, and not too many at once."""
        if cadence.is_late(self._since(), now):
            return False
        return not cadence.is_many(self.count) or not cadence.is_many(self._before(now - cadence.grace_sec))

    def _since(self) -> int | None:
        """Return when the first of them was taken."""
        session = self._client.session
        found = (
            self._client.run(fetch_receipt(session, tail.head.label, tail.upto + 1)) for tail in self._tails
        )
        return min((receipt.hub_ts for receipt in found if receipt is not None), default=None)

    def _before(self, time: int) -> int:
        """Return how many of them were taken before a time."""
        found = 0
        for tail in self._tails:
            taken = self._client.run(count_before(self._client, tail.head.label, tail.head.seq, time))
            found += max(0, taken - tail.upto)
        return found


class Watch:
    """The streams of a recorder, looked at again and again with few questions.

    What is declared is read anew only when the stream of changes has grown.
    """

    def __init__(self, client: Client, streams: Iterable[str], standing: Standing) -> None:
        self._client = client
        self._streams = frozenset(streams)
        self._standing = standing
        self._changes: dict[int, int] | None = None
        self.configuration = Configuration(b"")

    @property
    def names(self) -> set[str]:
        """All streams that are declared, named, or used by this client."""
        return {*self.configuration.names, *self._streams, *known_record_streams(self._client)}

    def waiting(self) -> Waiting:
        """Return what waits now, in all streams that are declared now."""
        while True:
            found = Waiting(self._client, self.names, self._standing)
            if found.changes == self._changes:
                return found
            self.configuration = read_configuration(self._client)
            self._changes = found.changes
