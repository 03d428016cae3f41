"""Verification of a label: entry by entry, and from one state to a later one.

Entry by entry, signatures, hashes, order and the root after each entry are checked (CLNT-002, CLNT-005). The
peaks of the read prefix are retained, and each leaf is appended to them: a root that the hub signs either
follows from them, or is evidence against the hub. To continue at another position, the client fetches the
peaks there and a proof that the log has only grown since (C-97, CLNT-016).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from veen.client.effects import Blocking
from veen.client.errors import DivergenceError, RejectedError, UnknownLabelError
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
    """Verifies a label that is read from a position with known peaks."""

    def __init__(
        self, pin: Pin, label: Label, peaks: Peaks, receipt: Receipt | None, known: LabelState
    ) -> None:
        """``peaks`` and ``receipt`` are those before the first entry; ``known`` is what was seen earlier."""
        self.pin = pin
        self.label = label
        self.peaks = peaks
        self.receipt = receipt
        self.known = known

    @property
    def next_seq(self) -> int:
        """The position of the next entry."""
        return self.peaks.size + 1

    def accept(self, item: StreamItem) -> Receipt:
        """Verify everything of the next entry but its content."""
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
        position = (receipt.label, receipt.stream_seq)
        if position != (self.label, self.next_seq) or stated_seq != self.next_seq:
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
        """Reject the end of the label if more entries were seen earlier."""
        if self.next_seq <= self.known.last_seq:
            raise self.cut_off(self.next_seq)

    def cut_off(self, seq: int) -> ProtocolError:
        """Return the error for a hub without an entry that it has signed."""
        return ProtocolError(
            Detail.PROOF_SEQ,
            f"the hub signed entry {self.known.last_seq}, but reports that there is no entry {seq}",
            stream_seq=seq,
        )

    def append(self, receipt: Receipt) -> None:
        """Append the next receipt, whose signature was verified; its root must follow from the peaks."""
        grown = self.peaks.append(receipt.leaf_hash)
        known_receipt = self.known.receipt
        if known_receipt is not None and known_receipt.contradicts(receipt):
            raise divergence(self.pin, known_receipt, receipt)
        if grown.root != receipt.mmr_root:
            if self.receipt is None:
                raise ProtocolError(Detail.PROOF_ROOT, "the root of the first entry is not its leaf")
            raise divergence(self.pin, self.receipt, receipt, self.peaks)
        self.peaks, self.receipt = grown, receipt


def divergence(pin: Pin, first: Receipt, second: Receipt, peaks: Peaks | None = None) -> DivergenceError:
    """Return the error for two contradicting receipts, with the evidence."""
    hashes = None if peaks is None or first.contradicts(second) else peaks.hashes
    fraud = Fraud(identity=pin.identity, identity_sig=pin.sig, first=first, second=second, peaks=hashes)
    return DivergenceError(f"{fraud.verify()}: it serves different logs", fraud)


def check_receipts(pin: Pin, msgs: Sequence[Msg], receipts: Sequence[Receipt]) -> None:
    """Check that receipts are of these messages, signed by the hub, and in ascending order."""
    last = 0
    for msg, receipt in zip(msgs, receipts, strict=True):
        pin.identity.verify_receipt(receipt)
        receipt.verify_msg(msg)
        if receipt.stream_seq <= last:
            raise ProtocolError(Detail.PROOF_SEQ, "receipts are not in the order of their messages")
        last = receipt.stream_seq


PAGE_ITEMS: Final = 500


async def fetch_page(session: Asker, request: StreamRequest, wait_sec: int = 0) -> StreamResponse:
    """Fetch a page; it is empty if the label has no entries."""
    try:
        page = await session.ask(request, StreamResponse, wait_sec=wait_sec)
    except UnknownLabelError:
        return StreamResponse(label=request.label, from_seq=request.from_seq, items=())
    if page.label != request.label:
        raise ProtocolError(Detail.VALUE, "the page is of another label", field="label")
    return page


async def start_at(session: Session, label: Label, label_state: LabelState, seq: int) -> LabelCheck:
    """Return a check whose next entry is ``seq``, with the peaks of the known state or of a proof."""
    pin = await session.connect()
    if seq <= 1:
        return LabelCheck(pin, label, Peaks.empty(), None, label_state)
    if seq == label_state.last_seq + 1:
        return LabelCheck(pin, label, label_state.peaks, label_state.receipt, label_state)
    receipt = await fetch_receipt(session, label, seq - 1)
    if receipt is None:
        check = LabelCheck(pin, label, label_state.peaks, label_state.receipt, label_state)
        if seq <= label_state.last_seq:
            raise check.cut_off(seq - 1)
        # Beyond the head: entries that arrive later are verified from the current end.
        await walk(session, check, seq - 1)
        return check
    peaks = await peaks_at(session, receipt)
    if 0 < label_state.last_seq < receipt.stream_seq:
        try:
            await check_growth(session, label, label_state.peaks, peaks)
        except ProtocolError:
            # Reading entry by entry finds the contradiction, with evidence.
            await walk(
                session, LabelCheck(pin, label, label_state.peaks, label_state.receipt, label_state), seq - 1
            )
            raise
    elif label_state.receipt is not None and label_state.receipt.contradicts(receipt):
        raise divergence(pin, label_state.receipt, receipt)
    return LabelCheck(pin, label, peaks, receipt, label_state)


async def fetch_receipt(session: Session, label: Label, seq: int) -> Receipt | None:
    """Fetch a receipt and verify its signature; None if there is no such entry."""
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
    """Return the peaks after an entry, from a proof that leads to the root of its receipt (C-97)."""
    request = ProofRequest(label=receipt.label, stream_seq=receipt.stream_seq)
    proof = (await session.ask(request, ProofResponse)).mmr_proof
    proof.verify(receipt.mmr_root, receipt.leaf_hash, stream_seq=receipt.stream_seq)
    return Peaks(receipt.stream_seq, proof.peaks_after)


async def check_growth(session: Session, label: Label, old: Peaks, new: Peaks) -> None:
    """Verify that a log has only grown since it was seen."""
    request = ConsistencyRequest(label=label, old_size=old.size, new_size=new.size)
    proof = (await session.ask(request, ConsistencyResponse)).proof
    proof.verify(old_root=old.root, old_size=old.size, new_root=new.root, new_size=new.size)


async def walk(
    session: Asker,
    check: LabelCheck,
    upto: int | None = None,
    note: Callable[[StreamItem], None] | None = None,
) -> int:
    """Read and verify entries without opening them, up to a position or the end; return their number.

    ``note`` is called with each verified entry.
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
    """Add receipts of own messages to the known prefix, with entries of others in between (C-97)."""
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
            # The proof does not match: reading entry by entry finds the contradiction, with evidence.
            await walk(session, check, receipt.stream_seq - 1)
            if receipt.stream_seq != check.next_seq:
                raise
            check.append(receipt)
        else:
            check.peaks, check.receipt = peaks, receipt


async def _check_within(session: Session, check: LabelCheck, receipt: Receipt) -> None:
    """Check that a receipt belongs to the known prefix, which must have grown from the receipt's root."""
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


async def agree(session: Session, check: LabelCheck, label_state: LabelState) -> None:
    """Check that another process or task has seen the same log meanwhile."""
    if label_state.receipt is not None and label_state.last_seq <= check.peaks.size:
        if check.receipt is not None and check.receipt.contradicts(label_state.receipt):
            raise divergence(check.pin, label_state.receipt, check.receipt)
        try:
            await check_growth(session, check.label, label_state.peaks, check.peaks)
        except ProtocolError:
            recheck = LabelCheck(check.pin, check.label, label_state.peaks, label_state.receipt, label_state)
            await walk(session, recheck, check.peaks.size)
            raise
    check.known = label_state  # a receipt ahead of the check is compared when it is reached
