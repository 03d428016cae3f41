"""The interface of a log, wherever it is stored: the heads of its labels, and entries read in parts.

What a log states about itself is not trusted: heads, peaks and times only locate entries, and readers check
the entries.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.finding import Finding
from veen.core.profile import Profile
from veen.core.types import HubId, Label, NodeHash, StreamId, VerifyKey
from veen.pipeline.log.hub_keys import HubKeys
from veen.pipeline.log.partition import Part

# The approximate maximum of a part.
MOST_BYTES: Final = 8 << 20


class LabelHead(NamedTuple):
    """The first and last entry of a label."""

    label: Label
    # None if the log does not name the label's stream.
    stream_id: StreamId | None
    epoch: int
    # The first entry that can still be read: 1, or the one after the pruned entries.
    first_seq: int
    last_seq: int
    mmr_root: NodeHash


Heads = Mapping[Label, LabelHead]


class Pruned(NamedTuple):
    """Entries that a hub has pruned, as it states."""

    first_seq: int
    last_seq: int
    mmr_root: NodeHash
    last_ts: int
    # The last client_seq and prev_ack of each client.
    clients: Mapping[VerifyKey, tuple[int, int]]
    # The time of the first of them; None if their times are not known.
    first_ts: int | None = None


class Log(Protocol):
    """A log opened for reading."""

    name: str
    keys: HubKeys
    profiles: tuple[Profile, ...]

    @property
    def hub_id(self) -> HubId:
        """The hub of the log."""

    def heads(self) -> dict[Label, LabelHead]:
        """Return the current heads of the message labels, ordered by label."""

    def labels_of(self, stream_id: StreamId) -> dict[int, Label]:
        """Return the labels of a stream that have entries, by epoch."""

    def seq_at(self, label: Label, hub_ts: int) -> int:
        """Return the first entry at or after a time; the position after the last if there is none."""

    def plan(
        self,
        ranges: Mapping[Label, tuple[int, int]] | None = None,
        *,
        parts: int = 1,
        most_bytes: int = MOST_BYTES,
    ) -> list[Part]:
        """Divide entries into parts, by label and in order; pruned entries are left out.

        Returns at least ``parts`` parts if there are that many entries.
        """

    def checkpoints(self, label: Label) -> list[Checkpoint]:
        """Return the checkpoints of a label, in order."""

    def pruned(self, label: Label) -> list[Pruned]:
        """Return the pruned ranges of a label, in order."""

    def check_others(self) -> list[Finding]:
        """Check what is not a message entry: other logs, and files that imply further entries."""

    def refresh(self) -> None:
        """Make entries visible that were appended since."""

    def close(self) -> None:
        """Close files and connections."""


def chosen(
    heads: Mapping[Label, LabelHead], ranges: Mapping[Label, tuple[int, int]] | None
) -> Iterable[tuple[LabelHead, int, int]]:
    """Yield labels with the first and last entry to read, limited to existing entries."""
    for label, head in heads.items():
        first, last = (1, head.last_seq) if ranges is None else ranges.get(label, (1, 0))
        first, last = max(first, head.first_seq), min(last, head.last_seq)
        if first <= last:
            yield head, first, last


def smaller(parts: Sequence[Part], min_parts: int) -> int:
    """Return the size of parts with which there are at least ``min_parts``; cuts are at entry boundaries."""
    total, entries = sum(part.nbytes for part in parts), sum(part.count for part in parts)
    return max(total // min_parts - total // max(entries, 1), 1)
