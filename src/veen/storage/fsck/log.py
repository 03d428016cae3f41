"""The log of one label as far as it has been read: what each entry must continue."""

from dataclasses import dataclass, field
from hashlib import sha256

from veen.core.captoken import CapToken
from veen.core.errors import Detail, ProtocolError
from veen.core.layout import Domain
from veen.core.mmr import Peaks
from veen.core.msg import Msg
from veen.core.types import NodeHash, VerifyKey
from veen.storage.fsck.context import Context, Rule
from veen.storage.fsck.entries import Item, check_content, check_signer
from veen.storage.fsck.nodes import NodeStore
from veen.storage.fsck.report import Level, Reason, wrong


@dataclass(slots=True)
class Chunk:
    """The chunk that the last entry is in."""

    start: int
    path: str = ""
    #: The name says that it is complete.
    sealed: bool = False
    count: int = 0
    size: int = 0
    root: NodeHash | None = None
    hashes: Peaks = field(default_factory=Peaks.empty)
    #: It has as many entries as it may have.
    full: bool = False
    #: It is complete, and what belongs to it was checked.
    closed: bool = False

    @property
    def end(self) -> int:
        """The last sequence number."""
        return self.start + self.count - 1

    def ends_before(self, item: Item, rule: Rule) -> bool:
        """Tell whether an entry must go into a new chunk."""
        return self.full or (self.count > 0 and self.size + item.size > rule.max_bytes)

    def add(self, item: Item, rule: Rule, *, hashed: bool) -> None:
        """Add an entry."""
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
        #: Entries from here on are in the journal, and derived files need not have them yet.
        self._settled_before = settled_before
        self.seq = 0
        self.newest_ts: int | None = None
        self.root: NodeHash | None = None
        #: None after damage, when the peaks file does not help either: roots can not be checked from there.
        self.peaks: Peaks | None = Peaks.empty()
        self.clients: dict[VerifyKey, tuple[int, int]] = {}
        #: All entries up to here were read, so that what depends on all of them can be checked.
        self.whole = True
        self.receipts_hash = b""

    def append(self, item: Item) -> None:
        """Check an entry against those before it, as far as the level says."""
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
        # After damage a client may have entries that could not be read.
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
        """Go on behind damage."""
        self.seq, self.peaks, self.root = seq, peaks, root
        self.whole = False
        self.clients.clear()
        self._nodes.skip_to(seq if peaks is not None else None)


def chain(before: bytes, receipt: bytes) -> bytes:
    """Return a hash over a sequence of receipts from the hash over all but the last."""
    return sha256(before + receipt).digest()
