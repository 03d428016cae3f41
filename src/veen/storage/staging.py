"""An entry on its way into the log: framed, placed in its label's range, with what will be indexed."""

from collections.abc import Callable
from typing import Final, NamedTuple

from veen.core.capability import Bucket
from veen.core.captoken import CapToken
from veen.core.datadir import control_leaf
from veen.core.entry import Entry, Frame
from veen.core.errors import Detail, ProtocolError
from veen.core.layout import Domain
from veen.core.limits import Limits
from veen.core.msg import Msg
from veen.core.receipt import Receipt
from veen.core.types import AuthRef, Label, LeafHash, NodeHash, VerifyKey
from veen.storage.state import Head

#: Where the checksum stands in a frame (001 section 4.8.1).
_ENTRY_HASH: Final = slice(50, 82)


class Record(NamedTuple):
    """What is to be logged: the bytes in the message's place, and what admission has read in them."""

    label: Label
    content: bytes
    leaf_hash: LeafHash
    client_id: VerifyKey | None = None
    client_seq: int = 0
    prev_ack: int = 0
    auth_ref: AuthRef | None = None
    #: What is left of the token's rate after this message, as far as it is known (C-52).
    bucket: Bucket | None = None

    @classmethod
    def of_msg(cls, msg: Msg) -> "Record":
        """Return the record of a message."""
        return cls(
            msg.label, msg.encode(), msg.leaf_hash, msg.client_id, msg.client_seq, msg.prev_ack, msg.auth_ref
        )

    @classmethod
    def of_token(cls, label: Label, token: CapToken) -> "Record":
        """Return the record of a token in the authorize log (C-53)."""
        auth_ref = token.auth_ref
        return cls(label, token.encode(), LeafHash(auth_ref), auth_ref=auth_ref)

    @classmethod
    def of_control(cls, label: Label, record: bytes) -> "Record":
        """Return a record of the control log (C-107)."""
        return cls(label, record, control_leaf(record))

    @classmethod
    def of_entry(cls, domain: Domain, entry: Entry, limits: Limits) -> "Record":
        """Return the record that a stored entry was made from."""
        label = entry.receipt.label
        if domain is Domain.DATA:
            return cls.of_msg(Msg.decode(entry.msg_bytes, limits))
        if domain is Domain.AUTHORIZE:
            return cls.of_token(label, CapToken.decode(entry.msg_bytes, limits))
        return cls.of_control(label, entry.msg_bytes)


class Staged(NamedTuple):
    """An entry with its place: all that a flush needs."""

    record: Record
    receipt: Receipt
    frame: bytes
    #: The nodes of the label's range that this entry completes.
    nodes: list[NodeHash]
    head: Head

    @property
    def stored(self) -> Frame:
        """The entry as readers get it."""
        receipt = self.receipt
        return Frame(receipt.label, receipt.stream_seq, self.record.content, receipt.encode())

    @property
    def entry_hash(self) -> bytes:
        """The checksum in the frame's header."""
        return self.frame[_ENTRY_HASH]


#: Makes the receipt of an entry from its stream_seq and the root after it.
SignReceipt = Callable[[int, NodeHash], Receipt]


def stage(record: Record, head: Head, sign: SignReceipt, frame: bytes | None = None) -> Staged:
    """Place a record behind ``head``; refuse a receipt that does not say so.

    For an entry that is stored already, ``frame`` has its bytes and ``sign`` returns its receipt: this is
    then the check of its place.
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
