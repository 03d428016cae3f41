"""The log of one label as far as it was read: the state that each entry must continue, and its nodes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from veen.core.crypto.hash import HASH_BYTES
from veen.core.data_dir.paths import Domain
from veen.core.errors import Detail, ProtocolError
from veen.core.merkle.mmr import Peaks, node_count, trailing_zeros
from veen.core.objects.capability import CapToken
from veen.core.objects.finding import Level
from veen.core.objects.msg import Msg
from veen.core.types import NodeHash, VerifyKey
from veen.storage.errors import FindingError
from veen.storage.fsck.context import Context, Rule
from veen.storage.fsck.entry import Item, check_content, check_signer
from veen.storage.fsck.report import Reason, wrong
from veen.storage.fsck.source import Source

_BLOCK_BYTES: Final = 1 << 20


class NodeStore:
    """Compares expected nodes with the file, in order, a block at a time."""

    def __init__(self, source: Source, path: str | None) -> None:
        self._source = source
        self._path = path
        self.size = (source.size(path) if path is not None else None) or 0
        self._expected: list[NodeHash] = []
        self._done = 0
        self._lost = False
        # Offset of the first byte that differs; the end of the file if it is too short.
        self.differs_at: int | None = None

    def feed(self, nodes: list[NodeHash]) -> None:
        """Add the next expected nodes."""
        self._expected += nodes
        if len(self._expected) * HASH_BYTES >= _BLOCK_BYTES:
            self._compare()

    def skip_to(self, seq: int | None) -> None:
        """Skip the nodes up to an entry; None: skip all, because they are not known."""
        self._compare()
        self._lost = seq is None
        self._done = 0 if seq is None else node_bytes(seq)

    def finish(self) -> None:
        """Compare the remaining nodes."""
        self._compare()

    def _compare(self) -> None:
        if not self._expected:
            return
        expected = b"".join(self._expected)
        self._expected = []
        if self.differs_at is None and self._path is not None and not self._lost:
            try:
                actual = self._source.read(self._path, self._done, len(expected))
            except FindingError:  # an unreadable file counts as missing
                actual = b""
            if actual != expected:
                self.differs_at = self._done + first_difference(actual, expected)
        self._done += len(expected)

    def by_entry(self, upto: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield the nodes that each entry completes: offset, length and bytes, leaf first."""
        assert self._path is not None
        block, base, at = b"", 0, 0
        for seq in range(1, upto + 1):
            length = HASH_BYTES * (1 + trailing_zeros(seq))
            if at + length > base + len(block):
                base = at
                block = self._source.read(self._path, base, _BLOCK_BYTES)
            yield at, length, block[at - base : at - base + length]
            at += length


def node_bytes(seq: int) -> int:
    """Return the length of a node store after an entry."""
    return node_count(seq) * HASH_BYTES


def first_difference(left: bytes, right: bytes) -> int:
    """Return the first offset at which two byte strings differ."""
    shared = min(len(left), len(right))
    return next((at for at in range(shared) if left[at] != right[at]), shared)


@dataclass(slots=True)
class Chunk:
    """The chunk of the last entry."""

    start: int
    path: str = ""
    # Complete by its name.
    sealed: bool = False
    count: int = 0
    size: int = 0
    root: NodeHash | None = None
    hashes: Peaks = field(default_factory=Peaks.empty)
    # Has the maximum number of entries.
    full: bool = False
    # Complete, and its sidecar files were checked.
    closed: bool = False

    @property
    def end(self) -> int:
        return self.start + self.count - 1

    def ends_before(self, item: Item, rule: Rule) -> bool:
        """Return whether an entry must be in a new chunk."""
        return self.full or (self.count > 0 and self.size + item.size > rule.max_bytes)

    def add(self, item: Item, rule: Rule, *, hashed: bool) -> None:
        self.count += 1
        self.size += item.size
        self.root = item.receipt.mmr_root
        if hashed:
            self.hashes = self.hashes.append(item.header.entry_hash)
        self.full = self.count >= rule.max_entries


class LabelLog:
    """Follows the entries of a label: roots, times, clients, and a hash over all receipts."""

    def __init__(self, context: Context, domain: Domain, nodes: NodeStore, settled_before: int) -> None:
        self._context = context
        self._domain = domain
        self._nodes = nodes
        # Entries from here on are in the journal, and may be missing from derived files.
        self._settled_before = settled_before
        self.seq = 0
        self.newest_ts: int | None = None
        self.root: NodeHash | None = None
        # None after damage without an intact peaks file: roots cannot be checked from there on.
        self.peaks: Peaks | None = Peaks.empty()
        self.clients: dict[VerifyKey, tuple[int, int]] = {}
        # Whether all entries so far were read, so that what depends on all of them can be checked.
        self.whole = True
        self.receipts_hash = b""

    def append(self, item: Item) -> None:
        """Check an entry against those before it, up to the level."""
        level = self._context.level
        body = check_content(item, self._domain, self._context.limits) if level >= Level.HASHES else None
        if level >= Level.ROOTS:
            self._check_root(item)
        if level >= Level.FULL:
            self._context.keys.verify_receipt(item.receipt)
            check_signer(body)
            self._follow_client(body)
        self.seq += 1
        self.newest_ts = item.receipt.hub_ts
        self.root = item.receipt.mmr_root
        if self.seq < self._settled_before:
            self.receipts_hash = chain(self.receipts_hash, item.receipt_bytes)

    def _check_root(self, item: Item) -> None:
        receipt, peaks = item.receipt, self.peaks
        if self.newest_ts is not None and receipt.hub_ts < self.newest_ts:
            text = f"hub_ts goes back from {self.newest_ts} to {receipt.hub_ts}"
            raise wrong(item.path, item.offset, Reason.HUB_TS, text)
        if peaks is None:
            return
        self.peaks, nodes = peaks.grow(receipt.leaf_hash)
        if self.peaks.root != receipt.mmr_root:
            raise ProtocolError(Detail.PROOF_ROOT, "mmr_root is not the root over all entries up to here")
        self._nodes.feed(nodes)

    def _follow_client(self, body: Msg | CapToken | None) -> None:
        if not isinstance(body, Msg):
            return
        known = self.clients.get(body.client_id)
        # After damage, entries of the client may be unreadable.
        expected, acked = (1, 0) if known is None else (known[0] + 1, known[1])
        if body.client_seq != expected and (self.whole or known is not None):
            duplicate = body.client_seq < expected
            raise ProtocolError(
                Detail.DUPLICATE if duplicate else Detail.CLIENT_SEQ,
                f"client_seq {body.client_seq} where {expected} should be",
            )
        if not acked <= body.prev_ack <= self.seq:
            raise ProtocolError(
                Detail.PREV_ACK, f"prev_ack {body.prev_ack} is not between {acked} and {self.seq}"
            )
        self.clients[body.client_id] = (body.client_seq, body.prev_ack)

    def resume(self, seq: int, peaks: Peaks | None, root: NodeHash | None) -> None:
        """Continue after damage."""
        self.seq, self.peaks, self.root = seq, peaks, root
        self.whole = False
        self.clients.clear()
        self._nodes.skip_to(seq if peaks is not None else None)


def chain(before: bytes, receipt: bytes) -> bytes:
    """Extend a hash over a sequence of receipts by one."""
    return sha256(before + receipt).digest()
