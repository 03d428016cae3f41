"""Data directories made by hand: docs/reference/data-directory.md in the plainest code that can be written.

Nothing here is shared with the storage engine but ``veen.core``, so that both can be compared. A ``Hub``
admits entries and remembers them in order; ``directory`` turns any prefix of that history into files, with
the rest in the journal. Everything is a function of its arguments: the same calls give the same bytes.
"""

import bz2
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests import builders
from veen.core.crypto.ed25519 import SigningKey
from veen.core.crypto.hash import u32be, u64be
from veen.core.data_dir import paths
from veen.core.data_dir.chunk_artifacts import (
    CheckpointIndex,
    ChunkRange,
    ChunkSummary,
    IndexedCheckpoint,
    PeakSnapshot,
)
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import ClientPosition, FirstUse, Registry, StoreRecord, Tombstone
from veen.core.limits import Limits
from veen.core.merkle.mmr import Peaks, complete_nodes
from veen.core.objects import labels
from veen.core.objects.capability import CapToken
from veen.core.objects.checkpoint import Checkpoint, label_pair
from veen.core.objects.control_record import control_leaf
from veen.core.objects.entry import Entry
from veen.core.objects.hub_identity import ForkParent, HubIdentity
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
from veen.core.types import AuthRef, Label, LeafHash, NodeHash, StreamId, VerifyKey

#: Four small entries make a chunk, or fewer large ones.
TINY = Limits(max_msg_bytes=1_000, max_chunk_bytes=2_600, max_checkpoint_interval=4)

Tree = dict[str, bytes]


# --- history ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Admitted:
    """An entry that the hub has admitted."""

    domain: Domain
    label: Label
    frame: bytes
    receipt: Receipt
    msg: Msg | None = None

    @property
    def seq(self) -> int:
        return self.receipt.stream_seq


@dataclass(frozen=True)
class Asked:
    """A checkpoint that somebody has asked for."""

    checkpoint: Checkpoint


Event = Admitted | Asked


@dataclass
class Hub:
    """A hub: its keys with the times from which on they sign, its limits, and all that it has admitted."""

    name: str = "hub"
    later_keys: Mapping[int, str] = field(default_factory=dict)
    registries: Sequence[Registry] = (Registry.of(TINY),)
    clock: int = 1_000
    events: list[Event] = field(default_factory=list)
    bindings: dict[Label, tuple[StreamId, int]] = field(default_factory=dict)
    parent: ForkParent | None = None

    @property
    def identity(self) -> HubIdentity:
        starts = [0, *sorted(self.later_keys)]
        names = [self.name, *(self.later_keys[start] for start in starts[1:])]
        ends = [*starts[1:], None]
        keys = [
            builders.hub_key(name, valid_from=start, valid_until=end)
            for name, start, end in zip(names, starts, ends, strict=True)
        ]
        return replace(builders.identity(keys), parent=self.parent)

    def key_at(self, hub_ts: int) -> SigningKey:
        starts = [start for start in self.later_keys if start <= hub_ts]
        return builders.signing_key(self.later_keys[max(starts)] if starts else self.name)

    @property
    def store(self) -> StoreRecord:
        return StoreRecord(
            hub_id=self.identity.hub_id, registries=tuple(self.registries), epoch_secs=(0, 3_600)
        )

    def label(self, stream: str, epoch: int = 0) -> Label:
        made = labels.label(self.identity.routing_key, builders.stream(stream), epoch)
        self.bindings[made] = (builders.stream(stream), epoch)
        return made

    # --- what it admits

    def entries(self, label: Label) -> list[Admitted]:
        return [item for item in self.events if isinstance(item, Admitted) and item.label == label]

    def entries_of(self, domain: Domain) -> list[Admitted]:
        return [item for item in self.events if isinstance(item, Admitted) and item.domain is domain]

    def send(
        self,
        label: Label,
        client: str = "client",
        *,
        size: int = 8,
        auth: AuthRef | None = None,
        client_seq: int | None = None,
        prev_ack: int | None = None,
    ) -> Admitted:
        """Admit a message; the client has seen everything before it, unless ``prev_ack`` says otherwise."""
        before = self.entries(label)
        own = [item for item in before if item.msg and item.msg.client_id == builders.verify_key(client)]
        context = builders.context(
            label=label,
            client=client,
            client_seq=len(own) + 1 if client_seq is None else client_seq,
            prev_ack=len(before) if prev_ack is None else prev_ack,
            auth_ref=auth,
        )
        # An envelope as the hub sees it: a key, two lengths, and bytes that it can not read.
        ciphertext = builders.digest("enc") + u32be(0) + u32be(size) + bytes(size)
        msg = Msg.sign(builders.signing_key(client), context, ciphertext)
        return self._admit(Domain.DATA, label, msg.encode(), msg.leaf_hash, msg)

    def authorize(self, token: CapToken) -> Admitted:
        label = labels.authorize_label(self.identity.hub_id)
        return self._admit(Domain.AUTHORIZE, label, token.encode(), LeafHash(token.auth_ref))

    def control(self, record: bytes) -> Admitted:
        label = labels.control_label(self.identity.hub_id)
        return self._admit(Domain.CONTROL, label, record, control_leaf(record))

    def _admit(
        self, domain: Domain, label: Label, content: bytes, leaf: LeafHash, msg: Msg | None = None
    ) -> Admitted:
        before = self.entries(label)
        receipt = Receipt.sign(
            self.key_at(self.clock),
            label=label,
            stream_seq=len(before) + 1,
            leaf_hash=leaf,
            mmr_root=peaks_of([*before, leaf]).root,
            hub_ts=self.clock,
        )
        made = Admitted(domain, label, Entry(content, receipt).encode(), receipt, msg)
        self.events.append(made)
        self.clock += 1
        return made

    # --- what it signs about its log

    def checkpoint(self, label: Label, upto: int, *, root: NodeHash | None = None) -> Checkpoint:
        previous, epoch = label, 0
        if label in self.bindings:
            stream, epoch = self.bindings[label]
            previous, _ = label_pair(self.identity.routing_key, stream, epoch)
        return Checkpoint.sign(
            self.key_at(self.clock),
            label_prev=previous,
            label_curr=label,
            upto_seq=upto,
            mmr_root=peaks_of(self.entries(label)[:upto]).root if root is None else root,
            epoch=epoch,
        )

    def ask(self, label: Label, upto: int | None = None) -> Checkpoint:
        """Make a checkpoint because somebody wants one."""
        made = self.checkpoint(label, len(self.entries(label)) if upto is None else upto)
        self.events.append(Asked(made))
        return made


def peaks_of(entries: Iterable[Admitted | LeafHash]) -> Peaks:
    made = Peaks.empty()
    for item in entries:
        made = made.append(item.receipt.leaf_hash if isinstance(item, Admitted) else item)
    return made


# --- chunks -------------------------------------------------------------------------------------------------


@dataclass
class Chunk:
    """Entries that belong into one file."""

    entries: list[Admitted] = field(default_factory=list)
    sealed: bool = False

    @property
    def start(self) -> int:
        return self.entries[0].seq

    @property
    def end(self) -> int:
        return self.entries[-1].seq

    @property
    def content(self) -> bytes:
        return b"".join(item.frame for item in self.entries)

    def path(self) -> str:
        first = self.entries[0]
        if self.sealed:
            return paths.chunk(first.domain, first.label, self.start, self.end)
        return paths.open_chunk(first.domain, first.label, self.start)


def split(hub: Hub, entries: Iterable[Admitted]) -> list[Chunk]:
    """Return the chunks of a label: "Where chunks end"."""
    chunks: list[Chunk] = []
    for item in entries:
        limits = hub.store.registry_at(item.receipt.hub_ts).limits
        if chunks and not chunks[-1].sealed:
            chunks[-1].sealed = len(chunks[-1].content) + len(item.frame) > limits.max_chunk_bytes
        if not chunks or chunks[-1].sealed:
            chunks.append(Chunk())
        chunks[-1].entries.append(item)
        chunks[-1].sealed = len(chunks[-1].entries) >= limits.max_checkpoint_interval
    return chunks


def summary(hub: Hub, chunk: Chunk) -> ChunkSummary:
    first = chunk.entries[0]
    hashes = Peaks.empty()
    for item in chunk.entries:
        hashes = hashes.append(Entry.decode(item.frame)[0].entry_hash)
    return ChunkSummary(
        label=first.label,
        start_seq=chunk.start,
        end_seq=chunk.end,
        mmr_root_end=peaks_of(hub.entries(first.label)[: chunk.end]).root,
        entry_count=len(chunk.entries),
        total_bytes=len(chunk.content),
        entry_hashes_root=hashes.root,
    )


def tombstone(hub: Hub, chunk: Chunk) -> Tombstone:
    positions: dict[VerifyKey, ClientPosition] = {}
    uses: dict[AuthRef, FirstUse] = {}
    for item in chunk.entries:
        msg = item.msg
        if msg is None:
            continue
        positions[msg.client_id] = ClientPosition(
            client_id=msg.client_id, client_seq=msg.client_seq, prev_ack=msg.prev_ack
        )
        if msg.auth_ref is not None and msg.auth_ref not in uses:
            uses[msg.auth_ref] = FirstUse(auth_ref=msg.auth_ref, hub_ts=item.receipt.hub_ts)
    made = summary(hub, chunk)
    return Tombstone(
        label=made.label,
        start_seq=chunk.start,
        end_seq=chunk.end,
        total_bytes=made.total_bytes,
        first_ts=chunk.entries[0].receipt.hub_ts,
        last_ts=chunk.entries[-1].receipt.hub_ts,
        mmr_root_end=made.mmr_root_end,
        clients=tuple(positions[key] for key in sorted(positions)),
        first_uses=tuple(uses[key] for key in sorted(uses)),
    )


def _points(hub: Hub, domain: Domain, label: Label, checkpoints: Mapping[int, Checkpoint]) -> Tree:
    """Return the checkpoint and peaks files of a label."""
    tree: Tree = {}
    for upto, checkpoint in checkpoints.items():
        tree[paths.checkpoint(domain, label, upto)] = checkpoint.encode()
        hashes = peaks_of(hub.entries(label)[:upto]).hashes
        tree[paths.peaks(domain, label, upto)] = PeakSnapshot(hashes).encode()
    return tree


def checkpoint_index(hub: Hub, domain: Domain, chunks: Sequence[Chunk], uptos: Iterable[int]) -> bytes:
    label = chunks[0].entries[0].label
    items = {}
    for upto in uptos:
        start = next(chunk.start for chunk in chunks if chunk.start <= upto <= chunk.end)
        items[upto] = IndexedCheckpoint(
            mmr_root=peaks_of(hub.entries(label)[:upto]).root,
            chunk_range=ChunkRange(start_seq=start, end_seq=upto),
            peaks_ref=Path(paths.peaks(domain, label, upto)).name,
        )
    return CheckpointIndex(items).encode()


# --- journal ------------------------------------------------------------------------------------------------

BATCH, COMMITTED, END, CHECKPOINT = 1, 2, 3, 4


class Segment:
    """A journal segment that grows record by record."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.nonce = builders.digest(f"nonce {number}")[:16]
        head = b"VEENJRN1" + u64be(number) + self.nonce + bytes(4)
        self.data = head + u32be(zlib.crc32(head))
        self.offsets: list[int] = []

    @property
    def path(self) -> str:
        return paths.journal(self.number)

    def record(self, kind: int, payload: bytes = b"", bindings: int = 0) -> "Segment":
        position = len(self.data)
        self.offsets.append(position)
        head = self.nonce[:8] + struct.pack(">B3xIQI", kind, len(payload), position, bindings)
        self.data += head + u32be(zlib.crc32(self.nonce + head + payload)) + payload
        return self

    def batch(
        self, entries: Sequence[Admitted], bindings: Sequence[tuple[StreamId, int, Label]] = ()
    ) -> "Segment":
        payload = b"".join(stream + u64be(epoch) + label for stream, epoch, label in bindings)
        payload += b"".join(item.frame for item in entries)
        return self.record(BATCH, payload, len(bindings))

    def events(self, hub: Hub, events: Sequence[Event], batch: int) -> "Segment":
        """Write events: entries in batches, checkpoints by themselves, each with its committed record."""
        waiting: list[Admitted] = []
        for event in (*events, None):
            if waiting and (len(waiting) == batch or not isinstance(event, Admitted)):
                known = {item.label: None for item in waiting if item.label in hub.bindings}
                self.batch(waiting, [(*hub.bindings[label], label) for label in known]).record(COMMITTED)
                waiting = []
            if isinstance(event, Admitted):
                waiting.append(event)
            elif event is not None:
                self.record(CHECKPOINT, event.checkpoint.encode()).record(COMMITTED)
        return self


def records(data: bytes) -> list[tuple[int, int, int]]:
    """Return the records of a segment: where each begins, its kind, and where it ends."""
    made, at = [], 40
    while at < len(data):
        kind, length = data[at + 8], int.from_bytes(data[at + 12 : at + 16], "big")
        made.append((at, kind, at + 32 + length))
        at += 32 + length
    return made


# --- directories --------------------------------------------------------------------------------------------


def directory(
    hub: Hub,
    *,
    flushed: int | None = None,
    journal_from: int | None = None,
    segment_events: int = 1_000,
    batch: int = 2,
    first_segment: int = 7,
    index: bool = False,
) -> Tree:
    """Return the files after the first ``flushed`` events were moved to chunks (None: all of them).

    The journal holds the events from ``journal_from`` on (None: those that were not moved), in segments of
    ``segment_events``; without any there is no segment, as after a clean stop.
    """
    flushed = len(hub.events) if flushed is None else flushed
    journal_from = flushed if journal_from is None else journal_from
    tree = {
        paths.STORE: hub.store.encode(),
        paths.LOCK: b"pid 4711\n",
        "hub-identity.cbor": hub.identity.encode(),
        "hub-identity.sig": hub.identity.sign(builders.signing_key(hub.name)),
    }
    tree |= chunk_files(hub, hub.events[:flushed], index=index)
    tree |= journal_files(hub, hub.events[journal_from:], segment_events, batch, first_segment)
    return tree


def chunk_files(hub: Hub, events: Sequence[Event], *, index: bool = False) -> Tree:
    """Return the chunk directories and the derived files for these events."""
    tree: Tree = {}
    receipts, all_checkpoints = b"", b""
    entries = [item for item in events if isinstance(item, Admitted)]
    for domain, label in sorted({(item.domain, item.label) for item in entries}):
        own = [item for item in entries if item.label == label]
        chunks = split(hub, own)
        asked = [item.checkpoint for item in events if isinstance(item, Asked)]
        checkpoints = {item.upto_seq: item for item in asked if item.label_curr == label}
        for chunk in chunks:
            tree[chunk.path()] = chunk.content
            if chunk.sealed:
                path = paths.summary(domain, label, chunk.start, chunk.end)
                tree[path] = summary(hub, chunk).encode()
                checkpoints.setdefault(chunk.end, hub.checkpoint(label, chunk.end))
        tree |= _points(hub, domain, label, checkpoints)
        nodes = complete_nodes(item.receipt.leaf_hash for item in own)
        tree[paths.nodes(domain, label)] = b"".join(nodes)
        if index and checkpoints:
            path = paths.checkpoint_index(domain, label)
            tree[path] = checkpoint_index(hub, domain, chunks, sorted(checkpoints))
        if domain is Domain.DATA:  # the derived files are about messages
            receipts += b"".join(item.receipt.encode() for item in own)
            all_checkpoints += b"".join(checkpoints[upto].encode() for upto in sorted(checkpoints))
    return tree | {paths.RECEIPTS: receipts, paths.CHECKPOINTS: all_checkpoints}


def journal_files(
    hub: Hub, events: Sequence[Event], segment_events: int, batch: int, first_segment: int
) -> Tree:
    """Return the journal segments for these events; the last one is still written to."""
    tree: Tree = {}
    parts = [events[at : at + segment_events] for at in range(0, len(events), segment_events)]
    for number, part in enumerate(parts, start=first_segment):
        segment = Segment(number).events(hub, part, batch)
        if number < first_segment + len(parts) - 1:
            segment.record(END)
        tree[segment.path] = segment.data
    return tree


def prune(hub: Hub, tree: Tree, label: Label, count: int = 1) -> Tree:
    """Return the directory with the first chunks of a label pruned."""
    tree = dict(tree)
    domain = hub.entries(label)[0].domain
    for chunk in split(hub, hub.entries(label))[:count]:
        del tree[chunk.path()]
        tree[paths.tombstone(domain, label, chunk.start, chunk.end)] = tombstone(hub, chunk).encode()
    return tree


def compress(tree: Tree, path: str) -> Tree:
    """Return the directory with one chunk compressed."""
    tree = dict(tree)
    tree[path + paths.COMPRESSED] = bz2.compress(tree.pop(path), 9)
    return tree


class Disk:
    """A directory in memory, as a checker or a reader sees it."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def names(self, directory: str) -> list[str]:
        prefix = f"{directory}/" if directory else ""
        found = (path.removeprefix(prefix) for path in self.tree if path.startswith(prefix))
        return sorted(name for name in found if "/" not in name)

    def size(self, path: str) -> int | None:
        return len(self.tree[path]) if path in self.tree else None

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        if path not in self.tree:
            raise FileNotFoundError(path)
        return self.tree[path][offset : None if length is None else offset + length]


def write(root: Path, tree: Tree) -> Path:
    """Put a directory on the disk."""
    for path, content in tree.items():
        target = root / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o600)
    return root
