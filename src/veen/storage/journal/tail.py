"""In-memory form of entries that are durable in a journal segment, but not in chunk files yet.

A tail only grows, and only the committing thread adds to it; readers in other threads see a consistent prefix
of it.

A staged entry is framed, and has its position in its label's range and the data of its index rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import AuthRecord, ClientCursor, StreamEpoch
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import Limits
from veen.core.merkle.mmr import node_count
from veen.core.objects.capability import CapToken
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.entry import Entry, Frame
from veen.core.objects.msg import Msg
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.receipt import Receipt
from veen.core.types import AuthRef, Label, LeafHash, NodeHash, VerifyKey
from veen.storage.index.label_state import Head
from veen.storage.journal.journal import Binding

# The checksum in a frame (001 section 4.8.1).
_ENTRY_HASH: Final = slice(50, 82)


class Staged(NamedTuple):
    """An entry with its position: everything that a flush needs."""

    record: NewEntry
    receipt: Receipt
    frame: bytes
    # The nodes of the label's range that this entry completes.
    nodes: list[NodeHash]
    head: Head

    @property
    def stored(self) -> Frame:
        """The entry as readers return it."""
        receipt = self.receipt
        return Frame(receipt.label, receipt.stream_seq, self.record.content, receipt.encode())

    @property
    def entry_hash(self) -> bytes:
        """The checksum in the frame's header."""
        return self.frame[_ENTRY_HASH]


# Signs the receipt of an entry, given its stream_seq and the root after it.
SignReceipt = Callable[[int, NodeHash], Receipt]


def stage(record: NewEntry, head: Head, sign: SignReceipt, frame: bytes | None = None) -> Staged:
    """Append a record after ``head``; raise if the receipt does not match its position.

    For an entry that is stored already, ``frame`` has its bytes and ``sign`` returns its receipt; then this
    checks its position.
    """
    peaks, nodes = head.peaks.grow(record.leaf_hash)
    seq, root = peaks.size, peaks.root
    receipt = sign(seq, root)
    if (receipt.label, receipt.stream_seq) != (record.label, seq):
        raise ProtocolError(
            Detail.VALUE, f"receipt is for entry {receipt.stream_seq}, not {seq}", field="stream_seq"
        )
    if receipt.leaf_hash != record.leaf_hash:
        raise ProtocolError(Detail.LEAF_HASH, "receipt is for another leaf", field="leaf_hash")
    if receipt.mmr_root != root:
        raise ProtocolError(Detail.PROOF_ROOT, "receipt has another root than the log", field="mmr_root")
    if receipt.hub_ts < head.hub_ts:
        raise ProtocolError(Detail.VALUE, "hub_ts went back", field="hub_ts")
    after = Head(seq, receipt.hub_ts, record.leaf_hash, peaks)
    return Staged(record, receipt, frame or Entry(record.content, receipt).encode(), nodes, after)


def new_entry_of(domain: Domain, entry: Entry, limits: Limits) -> NewEntry:
    """Return the record that a stored entry was made from."""
    label = entry.receipt.label
    if domain is Domain.DATA:
        return NewEntry.of_msg(Msg.decode(entry.msg_bytes, limits))
    if domain is Domain.AUTHORIZE:
        return NewEntry.of_token(label, CapToken.decode(entry.msg_bytes, limits))
    return NewEntry.of_control(label, entry.msg_bytes)


class LabelTail:
    """The entries of one label, without gaps, and the nodes that they complete."""

    __slots__ = ("entries", "first_node", "first_seq", "nodes")

    def __init__(self, first_seq: int) -> None:
        self.first_seq = first_seq
        self.first_node = node_count(first_seq - 1)
        self.entries: list[Staged] = []
        self.nodes: list[NodeHash] = []

    def add(self, staged: Staged) -> None:
        """Add the next entry; its nodes first, because readers check for the entry."""
        self.nodes += staged.nodes
        self.entries.append(staged)

    @property
    def head(self) -> Head:
        """The head after the last entry."""
        return self.entries[-1].head

    def entry(self, seq: int) -> Staged | None:
        """Return an entry, if it is in this tail."""
        nth = seq - self.first_seq
        return self.entries[nth] if 0 <= nth < len(self.entries) else None

    def node(self, position: int) -> NodeHash | None:
        """Return a node, if it is in this tail."""
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
    # Times of clients' first messages to a label that are in this tail.
    since: dict[VerifyKey, int] = field(default_factory=dict)
    leaves: dict[LeafHash, tuple[Label, int]] = field(default_factory=dict)
    auths: dict[AuthRef, AuthRecord] = field(default_factory=dict)
    bindings: dict[Label, StreamEpoch] = field(default_factory=dict)
    streams: dict[StreamEpoch, Label] = field(default_factory=dict)
    checkpoints: dict[Label, dict[int, Checkpoint]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to flush."""
        return not (self.labels or self.bindings or self.checkpoints)

    def add(self, staged: Staged) -> None:
        """Add a durable entry."""
        record, head = staged.record, staged.head
        label = record.label
        label_tail = self.labels.get(label)
        if label_tail is None:
            label_tail = LabelTail(head.seq)
            label_tail.add(staged)
            self.labels[label] = label_tail  # last: readers rely on its having an entry
        else:
            label_tail.add(staged)
        self.leaves[record.leaf_hash] = label, head.seq
        if record.client_id is not None:
            self.clients[label, record.client_id] = ClientCursor(record.client_seq, record.prev_ack)
            if record.client_seq == 1:
                self.since.setdefault(record.client_id, head.hub_ts)
        if record.auth_ref is not None:
            used = record.client_id is not None
            use = AuthRecord(head.hub_ts, 0 if used else head.seq, record.bucket)
            known = self.auths.get(record.auth_ref)
            self.auths[record.auth_ref] = known.merged(use) if known else use
        self.size += len(staged.frame)
        self.last_ts = head.hub_ts

    def absorb(self, other: "Tail") -> None:
        """Append another tail, whose batch has become durable."""
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
        for auth_ref, use in other.auths.items():
            earlier = self.auths.get(auth_ref)
            self.auths[auth_ref] = earlier.merged(use) if earlier else use
        self.bindings.update(other.bindings)
        self.streams.update(other.streams)
        self.size += other.size
        self.last_ts = max(self.last_ts, other.last_ts)

    def bind(self, binding: Binding) -> None:
        """Record the stream and epoch of a label."""
        stream = StreamEpoch(binding.stream_id, binding.epoch)
        self.bindings[binding.label] = stream
        self.streams[stream] = binding.label

    def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add a durable checkpoint."""
        self.checkpoints.setdefault(checkpoint.label_curr, {})[checkpoint.upto_seq] = checkpoint
