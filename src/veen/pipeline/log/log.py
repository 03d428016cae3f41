"""What a log is, wherever it is: how far its labels go, and how its entries are read in parts.

Nothing of what a place says about itself is believed: heads, peaks and times tell where to read, and whoever
reads checks what comes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.finding import Finding
from veen.core.profile import Profile
from veen.core.types import HubId, Label, NodeHash, StreamId, VerifyKey
from veen.pipeline.log.hub_keys import HubKeys
from veen.pipeline.log.partition import Part

#: A part has about so much at most.
MOST_BYTES: Final = 8 << 20


class LabelHead(NamedTuple):
    """How far a label goes."""

    label: Label
    #: None if nobody has said which stream it is of.
    stream_id: StreamId | None
    epoch: int
    #: The first entry that can still be read: 1, or behind what was pruned.
    first_seq: int
    last_seq: int
    mmr_root: NodeHash


Heads = Mapping[Label, LabelHead]


class Pruned(NamedTuple):
    """Entries that a hub has dropped, and has said so."""

    first_seq: int
    last_seq: int
    mmr_root: NodeHash
    last_ts: int
    #: How far clients had come: client_seq and prev_ack.
    clients: Mapping[VerifyKey, tuple[int, int]]
    #: The time of the first of them; None if nobody tells of which times they were.
    first_ts: int | None = None


class Log(Protocol):
    """A log that is open for reading."""

    name: str
    keys: HubKeys
    profiles: tuple[Profile, ...]

    @property
    def hub_id(self) -> HubId:
        """Whose log it is."""

    def heads(self) -> dict[Label, LabelHead]:
        """Return how far each label of messages goes now, in the order of labels."""

    def labels_of(self, stream_id: StreamId) -> dict[int, Label]:
        """Return the labels of a stream that have entries, by their epochs."""

    def seq_at(self, label: Label, hub_ts: int) -> int:
        """Return the first entry at or after a time; one behind the last if there is none."""

    def plan(
        self,
        ranges: Mapping[Label, tuple[int, int]] | None = None,
        *,
        parts: int = 1,
        most_bytes: int = MOST_BYTES,
    ) -> list[Part]:
        """Return parts that together are these entries, by label and in order; what was pruned is left out.

        There are at least ``parts`` of them if there are so many entries.
        """

    def checkpoints(self, label: Label) -> list[Checkpoint]:
        """Return the checkpoints of a label, in order."""

    def pruned(self, label: Label) -> list[Pruned]:
        """Return what was pruned of a label, in order."""

    def check_others(self) -> list[Finding]:
        """Return what is wrong beside the entries of messages: other logs, and promises of more entries."""

    def refresh(self) -> None:
        """See what has come since."""

    def close(self) -> None:
        """Let go of files and connections."""


def chosen(
    heads: Mapping[Label, LabelHead], ranges: Mapping[Label, tuple[int, int]] | None
) -> Iterable[tuple[LabelHead, int, int]]:
    """Yield labels with the first and last entry to read of them, as far as they exist."""
    for label, head in heads.items():
        first, last = (1, head.last_seq) if ranges is None else ranges.get(label, (1, 0))
        first, last = max(first, head.first_seq), min(last, head.last_seq)
        if first <= last:
            yield head, first, last


def smaller(parts: Sequence[Part], wanted: int) -> int:
    """Return how large parts are to be for there to be more of them; a cut is behind an entry, not in it."""
    total, entries = sum(part.nbytes for part in parts), sum(part.count for part in parts)
    return max(total // wanted - total // max(entries, 1), 1)
