"""Checking a label entry by entry: signatures, hashes, order, and the root after each (CLNT-002, CLNT-005).

The peaks of what was read are kept, and each leaf is appended to them: a root that the hub signs is either
the one that follows, or evidence against it.
"""

from collections.abc import Sequence

from veen.client.errors import DivergenceError
from veen.client.fraud import Fraud
from veen.client.state import LabelState, Pin
from veen.core.api import StreamItem
from veen.core.errors import Detail, ProtocolError
from veen.core.mmr import Peaks
from veen.core.msg import Msg
from veen.core.receipt import Receipt
from veen.core.types import Label


class LabelCheck:
    """A label being read from a position on whose peaks are known."""

    def __init__(
        self, pin: Pin, label: Label, peaks: Peaks, receipt: Receipt | None, kept: LabelState
    ) -> None:
        """``peaks`` and ``receipt`` are those before the first entry; ``kept`` is what was seen before."""
        self.pin = pin
        self.label = label
        self.peaks = peaks
        self.receipt = receipt
        self.known = kept

    @property
    def next_seq(self) -> int:
        """The entry that has to come now."""
        return self.peaks.size + 1

    def accept(self, item: StreamItem) -> Receipt:
        """Check the next entry of a page; everything but its content is then known to be true."""
        receipt = item.receipt
        if receipt is None:
            raise ProtocolError(Detail.VALUE, "an entry was served without its receipt", field="receipt")
        try:
            self._check(item.msg, receipt, item.stream_seq)
        except ProtocolError as error:
            error.fields.setdefault("stream_seq", item.stream_seq)
            raise
        return receipt

    def _check(self, msg: Msg, receipt: Receipt, stated_seq: int) -> None:
        place = (receipt.label, receipt.stream_seq)
        if place != (self.label, self.next_seq) or stated_seq != self.next_seq:
            raise ProtocolError(
                Detail.PROOF_SEQ,
                f"entry {receipt.stream_seq} was served in the place of entry {self.next_seq}",
                field="stream_seq",
            )
        self.pin.identity.verify_receipt(receipt)  # before anything else is looked at
        msg.verify()
        receipt.verify_msg(msg)
        self.append(receipt)

    def end(self) -> None:
        """Refuse that there is nothing more, if more was seen before."""
        if self.next_seq <= self.known.last_seq:
            raise self.cut_off(self.next_seq)

    def cut_off(self, seq: int) -> ProtocolError:
        """Return the error for a hub that no longer has what it has signed."""
        return ProtocolError(
            Detail.PROOF_SEQ,
            f"the hub has signed entry {self.known.last_seq}, and says that there is no entry {seq}",
            stream_seq=seq,
        )

    def append(self, receipt: Receipt) -> None:
        """Take the next receipt, whose signature was checked: its root must follow from what was read."""
        grown = self.peaks.append(receipt.leaf_hash)
        known = self.known.receipt
        if known is not None and known.contradicts(receipt):
            raise divergence(self.pin, known, receipt)
        if grown.root != receipt.mmr_root:
            if self.receipt is None:
                raise ProtocolError(Detail.PROOF_ROOT, "the root of the first entry is not its leaf")
            raise divergence(self.pin, self.receipt, receipt, self.peaks)
        self.peaks, self.receipt = grown, receipt


def divergence(pin: Pin, first: Receipt, second: Receipt, peaks: Peaks | None = None) -> DivergenceError:
    """Return the error for two receipts that can not both be true, with the evidence."""
    hashes = None if peaks is None or first.contradicts(second) else peaks.hashes
    fraud = Fraud(identity=pin.identity, identity_sig=pin.sig, first=first, second=second, peaks=hashes)
    return DivergenceError(f"{fraud.verify()}: it shows different logs", fraud)


def check_receipts(pin: Pin, msgs: Sequence[Msg], receipts: Sequence[Receipt]) -> None:
    """Check that receipts are of these messages and signed by the hub, in an order that can be."""
    last = 0
    for msg, receipt in zip(msgs, receipts, strict=True):
        pin.identity.verify_receipt(receipt)
        receipt.verify_msg(msg)
        if receipt.stream_seq <= last:
            raise ProtocolError(Detail.PROOF_SEQ, "receipts are not in the order of their messages")
        last = receipt.stream_seq
