"""A label of a log, checked: entry by entry, and from one of its states to a later one.

Signatures, hashes, order and the root after each entry (CLNT-002, CLNT-005). The peaks of what was read are
retained, and each leaf is appended to them: a root that the hub signs is either the one that follows, or
evidence against it. Positions are pages of a log, its peaks at an entry, and the proof that it has only grown
since (C-97, CLNT-016).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from veen.client.effects import Blocking
from veen.client.errors import DivergenceError, RejectedError
from veen.client.fraud import Fraud
from veen.client.home.state import LabelState, Pin
from veen.client.retry import Asker
from veen.client.session import Session
from veen.core.api.data_plane import (
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    ReceiptResponse,
    StreamItem,
    StreamRequest,
    StreamResponse,
)
from veen.core.api.tooling import ConsistencyRequest, ConsistencyResponse
from veen.core.errors import Code, Detail, ProtocolError, VeenError
from veen.core.merkle.mmr import Peaks
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
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
                f"entry {receipt.stream_seq} was served instead of entry {self.next_seq}",
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
            f"the hub signed entry {self.known.last_seq}, but reports that there is no entry {seq}",
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
    """Return the error for two receipts that cannot both be true, with the evidence."""
    hashes = None if peaks is None or first.contradicts(second) else peaks.hashes
    fraud = Fraud(identity=pin.identity, identity_sig=pin.sig, first=first, second=second, peaks=hashes)
    return DivergenceError(f"{fraud.verify()}: it serves different logs", fraud)


def check_receipts(pin: Pin, msgs: Sequence[Msg], receipts: Sequence[Receipt]) -> None:
    """Check that receipts are of these messages and signed by the hub, in an order that can be."""
    last = 0
    for msg, receipt in zip(msgs, receipts, strict=True):
        pin.identity.verify_receipt(receipt)
        receipt.verify_msg(msg)
        if receipt.stream_seq <= last:
            raise ProtocolError(Detail.PROOF_SEQ, "receipts are not in the order of their messages")
        last = receipt.stream_seq


PAGE_ITEMS: Final = 500


async def fetch_page(session: Asker, request: StreamRequest, wait_sec: int = 0) -> StreamResponse:
    """Fetch a page; a label without entries is empty."""
    try:
        page = await session.ask(request, StreamResponse, wait_sec=wait_sec)
    except RejectedError as error:
        if error.code == Code.NOT_FOUND and error.field("field") == "label":
            return StreamResponse(label=request.label, from_seq=request.from_seq, items=())
        raise
    if page.label != request.label:
        raise ProtocolError(Detail.VALUE, "the page is of another label", field="label")
    return page


async def start_at(session: Session, label: Label, kept: LabelState, seq: int) -> LabelCheck:
    """Return a check that continues before entry ``seq``: from nothing, from what is known, or by a proof."""
    pin = await session.connect()
    if seq <= 1:
        return LabelCheck(pin, label, Peaks.empty(), None, kept)
    if seq == kept.last_seq + 1:
        return LabelCheck(pin, label, kept.peaks, kept.receipt, kept)
    receipt = await fetch_receipt(session, label, seq - 1)
    if receipt is None:
        check = LabelCheck(pin, label, kept.peaks, kept.receipt, kept)
        if seq <= kept.last_seq:
            raise check.cut_off(seq - 1)
        # Beyond the head: entries that will come are checked from the end of what there is.
        await walk(session, check, seq - 1)
        return check
    peaks = await peaks_at(session, receipt)
    if 0 < kept.last_seq < receipt.stream_seq:
        try:
            await check_growth(session, label, kept.peaks, peaks)
        except ProtocolError:
            # Entry by entry shows where it does not fit, with evidence.
            await walk(session, LabelCheck(pin, label, kept.peaks, kept.receipt, kept), seq - 1)
            raise
    elif kept.receipt is not None and kept.receipt.contradicts(receipt):
        raise divergence(pin, kept.receipt, receipt)
    return LabelCheck(pin, label, peaks, receipt, kept)


async def fetch_receipt(session: Session, label: Label, seq: int) -> Receipt | None:
    """Fetch a receipt and check its signature; None if there is no such entry."""
    try:
        answer = await session.ask(ReceiptRequest(label=label, stream_seq=seq), ReceiptResponse)
    except RejectedError as error:
        if error.code == Code.NOT_FOUND:
            return None
        raise
    receipt = answer.receipt
    if (receipt.label, receipt.stream_seq) != (label, seq):
        raise ProtocolError(Detail.VALUE, "the receipt is of another entry", field="stream_seq")
    await session.check_signed(lambda pin: _verify_receipt(pin, receipt))
    return receipt


def _verify_receipt(pin: Pin, receipt: Receipt) -> None:
    pin.identity.verify_receipt(receipt)


async def peaks_at(session: Session, receipt: Receipt) -> Peaks:
    """Return the peaks after an entry: those of its proof, which give the root of its receipt (C-97)."""
    asked = ProofRequest(label=receipt.label, stream_seq=receipt.stream_seq)
    proof = (await session.ask(asked, ProofResponse)).mmr_proof
    proof.verify(receipt.mmr_root, receipt.leaf_hash, stream_seq=receipt.stream_seq)
    return Peaks(receipt.stream_seq, proof.peaks_after)


async def check_growth(session: Session, label: Label, old: Peaks, new: Peaks) -> None:
    """Check that a log has only grown since it was seen."""
    asked = ConsistencyRequest(label=label, old_size=old.size, new_size=new.size)
    proof = (await session.ask(asked, ConsistencyResponse)).proof
    proof.verify(old_root=old.root, old_size=old.size, new_root=new.root, new_size=new.size)


async def walk(
    session: Asker,
    check: LabelCheck,
    upto: int | None = None,
    note: Callable[[StreamItem], None] | None = None,
) -> int:
    """Read entries without opening them, up to one or to the end; returns how many there were.

    Whatever does not follow is found on the way. ``note`` is called with each entry that was checked.
    """
    count = 0
    while upto is None or check.next_seq <= upto:
        request = StreamRequest(
            label=check.label,
            from_seq=check.next_seq,
            to_seq=upto,
            max_items=PAGE_ITEMS,
            with_receipts=True,
        )
        page = await fetch_page(session, request)
        if not page.items:
            check.end()
            break
        await Blocking(partial(_accept_all, check, page.items, note))
        count += len(page.items)
    return count


def _accept_all(
    check: LabelCheck, items: tuple[StreamItem, ...], note: Callable[[StreamItem], None] | None
) -> None:
    for item in items:
        check.accept(item)
        if note is not None:
            note(item)


async def absorb(session: Session, check: LabelCheck, receipts: list[Receipt]) -> None:
    """Take receipts of own messages into what is known, whatever others have written in between (C-97)."""
    for receipt in receipts:
        if receipt.stream_seq < check.next_seq:
            await _check_within(session, check, receipt)
            continue
        if receipt.stream_seq == check.next_seq:
            check.append(receipt)
            continue
        try:
            peaks = await peaks_at(session, receipt)
            if check.peaks.size:
                await check_growth(session, check.label, check.peaks, peaks)
        except VeenError:
            # What it proves does not fit: entry by entry shows where, with evidence.
            await walk(session, check, receipt.stream_seq - 1)
            if receipt.stream_seq != check.next_seq:
                raise
            check.append(receipt)
        else:
            check.peaks, check.receipt = peaks, receipt


async def _check_within(session: Session, check: LabelCheck, receipt: Receipt) -> None:
    """Check that a receipt is of the prefix that is known: that has grown from the receipt's root."""
    if check.receipt is not None and check.receipt.contradicts(receipt):
        raise divergence(check.pin, check.receipt, receipt)
    if receipt.stream_seq == check.peaks.size:
        return
    try:
        peaks = await peaks_at(session, receipt)
        await check_growth(session, check.label, peaks, check.peaks)
    except ProtocolError:
        other = await fetch_receipt(session, check.label, receipt.stream_seq)
        if other is not None and other.contradicts(receipt):
            raise divergence(check.pin, other, receipt) from None
        raise


async def agree(session: Session, check: LabelCheck, kept: LabelState) -> None:
    """Check that what another process or task has seen meanwhile is the same log."""
    if kept.receipt is not None and kept.last_seq <= check.peaks.size:
        if check.receipt is not None and check.receipt.contradicts(kept.receipt):
            raise divergence(check.pin, kept.receipt, check.receipt)
        try:
            await check_growth(session, check.label, kept.peaks, check.peaks)
        except ProtocolError:
            again = LabelCheck(check.pin, check.label, kept.peaks, kept.receipt, kept)
            await walk(session, again, check.peaks.size)
            raise
    check.known = kept  # what lies ahead is compared when it is reached
