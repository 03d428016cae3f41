"""Entries that are durable in a journal segment but not in chunk files yet, as memory holds them.

A tail only grows, and only the committing thread adds to it; readers in other threads see every entry
that was there when they looked.
"""

from dataclasses import dataclass, field

from veen.core.checkpoint import Checkpoint
from veen.core.mmr import node_count
from veen.core.types import AuthRef, Label, LeafHash, NodeHash, VerifyKey
from veen.storage.journal import Binding
from veen.storage.staging import Staged
from veen.storage.state import AuthRecord, ClientCursor, Head, StreamEpoch


class LabelTail:
    """The entries of one label, without gaps, and the nodes that they complete."""

    __slots__ = ("entries", "first_node", "first_seq", "nodes")

    def __init__(self, first_seq: int) -> None:
        self.first_seq = first_seq
        self.first_node = node_count(first_seq - 1)
        self.entries: list[Staged] = []
        self.nodes: list[NodeHash] = []

    def add(self, staged: Staged) -> None:
        """Add the next entry; its nodes first, because readers go by the entries."""
        self.nodes += staged.nodes
        self.entries.append(staged)

    @property
    def head(self) -> Head:
        """The head after the last entry."""
        return self.entries[-1].head

    def entry(self, seq: int) -> Staged | None:
        """Return an entry, if it is one of these."""
        nth = seq - self.first_seq
        return self.entries[nth] if 0 <= nth < len(self.entries) else None

    def node(self, position: int) -> NodeHash | None:
        """Return a node, if it is one of these."""
        nth = position - self.first_node
        return self.nodes[nth] if 0 <= nth < len(self.nodes) else None


@dataclass(slots=True)
class Tail:
    """One journal segment in memory."""

    segment: int
    size: int = 0
    last_ts: int = 0
    labels: dict[Label, LabelTail] = field(default_factory=dict)
    clients: dict[tuple[Label, VerifyKey], ClientCursor] = field(default_factory=dict)
    #: When clients sent their first message, of those whose first to some label is here.
    since: dict[VerifyKey, int] = field(default_factory=dict)
    leaves: dict[LeafHash, tuple[Label, int]] = field(default_factory=dict)
    auths: dict[AuthRef, AuthRecord] = field(default_factory=dict)
    bindings: dict[Label, StreamEpoch] = field(default_factory=dict)
    streams: dict[StreamEpoch, Label] = field(default_factory=dict)
    checkpoints: dict[Label, dict[int, Checkpoint]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to move."""
        return not (self.labels or self.bindings or self.checkpoints)

    def add(self, staged: Staged) -> None:
        """Add an entry that is durable."""
        record, head = staged.record, staged.head
        label = record.label
        label_tail = self.labels.get(label)
        if label_tail is None:
            label_tail = LabelTail(head.seq)
            label_tail.add(staged)
            self.labels[label] = label_tail  # only now: readers take the last entry of what they find
        else:
            label_tail.add(staged)
        self.leaves[record.leaf_hash] = label, head.seq
        if record.client_id is not None:
            self.clients[label, record.client_id] = ClientCursor(record.client_seq, record.prev_ack)
            if record.client_seq == 1:
                self.since.setdefault(record.client_id, head.hub_ts)
        if record.auth_ref is not None:
            used = record.client_id is not None
            seen = AuthRecord(head.hub_ts, 0 if used else head.seq, record.bucket)
            known = self.auths.get(record.auth_ref)
            self.auths[record.auth_ref] = known.merged(seen) if known else seen
        self.size += len(staged.frame)
        self.last_ts = head.hub_ts

    def absorb(self, other: "Tail") -> None:
        """Add what another tail has, behind everything that is here: a batch that has become durable."""
        for label, added in other.labels.items():
            known = self.labels.get(label)
            if known is None:
                self.labels[label] = added
            else:
                known.nodes += added.nodes
                known.entries += added.entries
        self.leaves.update(other.leaves)
        self.clients.update(other.clients)
        for client_id, since in other.since.items():
            self.since.setdefault(client_id, since)
        for auth_ref, seen in other.auths.items():
            earlier = self.auths.get(auth_ref)
            self.auths[auth_ref] = earlier.merged(seen) if earlier else seen
        self.bindings.update(other.bindings)
        self.streams.update(other.streams)
        self.size += other.size
        self.last_ts = max(self.last_ts, other.last_ts)

    def bind(self, binding: Binding) -> None:
        """Remember the stream and epoch of a label."""
        stream = StreamEpoch(binding.stream_id, binding.epoch)
        self.bindings[binding.label] = stream
        self.streams[stream] = binding.label

    def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint that is durable."""
        self.checkpoints.setdefault(checkpoint.label_curr, {})[checkpoint.upto_seq] = checkpoint
