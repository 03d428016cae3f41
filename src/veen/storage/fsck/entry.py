"""Checks of one entry: frame, hashes and signatures. All functions raise ProtocolError."""

from dataclasses import dataclass

from veen.core.data_dir.paths import Domain
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import ENTRY_HEADER_BYTES, Limits
from veen.core.objects.capability import CapToken
from veen.core.objects.control_record import control_leaf
from veen.core.objects.entry import EntryHeader, entry_hash
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
from veen.core.types import Label
from veen.stdx.grammar import counted


@dataclass(slots=True)
class Item:
    """An entry with its location."""

    path: str
    offset: int
    header: EntryHeader
    # A message, a token or a control record.
    body: bytes
    receipt_bytes: bytes
    receipt: Receipt

    @property
    def size(self) -> int:
        """The length of the frame."""
        return self.header.entry_len


def read_item(data: bytes, start: int, path: str, offset: int) -> Item:
    """Decode the frame at ``start``, which is byte ``offset`` of the file."""
    header = EntryHeader.decode(data, start)
    end = start + header.entry_len
    if end > len(data):
        raise ProtocolError(
            Detail.ENTRY_LENGTH, f"entry of {counted(header.entry_len, 'byte')}, {len(data) - start} left"
        )
    split = end - header.receipt_len
    receipt_bytes = data[split:end]
    body = data[start + ENTRY_HEADER_BYTES : split]
    return Item(path, offset, header, body, receipt_bytes, Receipt.decode(receipt_bytes))


def is_whole(data: bytes, start: int, label: Label, seq: int) -> bool:
    """Return whether this entry is here, undamaged by its own hash."""
    try:
        item = read_item(data, start, "", start)
        check_frame(item)
    except ProtocolError:
        return False
    return (item.header.label, item.header.stream_seq) == (label, seq)


def check_frame(item: Item) -> None:
    """Check entry_hash, and that header and receipt have the same position."""
    if entry_hash(item.body, item.receipt_bytes) != item.header.entry_hash:
        raise ProtocolError(Detail.ENTRY_HASH, "entry_hash does not match the stored bytes")
    if (item.receipt.label, item.receipt.stream_seq) != (item.header.label, item.header.stream_seq):
        raise ProtocolError(
            Detail.ENTRY_RECEIPT, "receipt is of another label or stream_seq than the entry header"
        )


def check_content(item: Item, domain: Domain, limits: Limits) -> Msg | CapToken | None:
    """Check that the content matches the receipt's leaf; return it decoded."""
    check_frame(item)
    if domain is Domain.DATA:
        msg = Msg.decode(item.body, limits)
        msg.verify_ct_hash()
        item.receipt.verify_msg(msg)
        return msg
    token = CapToken.decode(item.body, limits) if domain is Domain.AUTHORIZE else None
    leaf = control_leaf(item.body) if token is None else token.auth_ref
    if item.receipt.leaf_hash != leaf:
        kind = "control record" if token is None else "token"
        raise ProtocolError(Detail.LEAF_HASH, f"leaf_hash is not the one of the {kind}")
    return token


def check_signer(body: Msg | CapToken | None) -> None:
    """Check the signature of the content's author; control records have none."""
    if isinstance(body, Msg):
        body.verify_signature()
    elif body is not None:
        body.verify()
