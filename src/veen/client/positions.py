"""Positions in a log: its pages, its peaks at an entry, and that it has only grown since (C-97, CLNT-016)."""

from collections.abc import Callable
from functools import partial
from typing import Final

from veen.client.checking import LabelCheck, divergence
from veen.client.errors import RefusedError
from veen.client.retrying import Asker
from veen.client.session import Session
from veen.client.state import LabelState, Pin
from veen.client.steps import Steps, do
from veen.core.api import (
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    ReceiptResponse,
    StreamItem,
    StreamRequest,
    StreamResponse,
)
from veen.core.errors import Code, Detail, ProtocolError, VeenError
from veen.core.mmr import Peaks
from veen.core.receipt import Receipt
from veen.core.tooling import ConsistencyRequest, ConsistencyResponse
from veen.core.types import Label

PAGE_ITEMS: Final = 500


def fetch_page(session: Asker, request: StreamRequest, wait_sec: int = 0) -> Steps[StreamResponse]:
    """Fetch a page; a label that nobody has written to yet is an empty one."""
    try:
        page = yield from session.ask(request, StreamResponse, wait_sec=wait_sec)
    except RefusedError as error:
        if error.code == Code.NOT_FOUND.value and error.field("field") == "label":
            return StreamResponse(label=request.label, from_seq=request.from_seq, items=())
        raise
    if page.label != request.label:
        raise ProtocolError(Detail.VALUE, "the page is of another label", field="label")
    return page


def start_at(session: Session, label: Label, kept: LabelState, seq: int) -> Steps[LabelCheck]:
    """Return a check that continues before entry ``seq``: from nothing, from what is known, or by a proof."""
    pin = yield from session.meet()
    if seq <= 1:
        return LabelCheck(pin, label, Peaks.empty(), None, kept)
    if seq == kept.last_seq + 1:
        return LabelCheck(pin, label, kept.peaks, kept.receipt, kept)
    receipt = yield from fetch_receipt(session, label, seq - 1)
    if receipt is None:
        check = LabelCheck(pin, label, kept.peaks, kept.receipt, kept)
        if seq <= kept.last_seq:
            raise check.cut_off(seq - 1)
        # Beyond the head: entries that will come are checked from the end of what there is.
        yield from walk(session, check, seq - 1)
        return check
    peaks = yield from peaks_at(session, receipt)
    if 0 < kept.last_seq < receipt.stream_seq:
        try:
            yield from check_growth(session, label, kept.peaks, peaks)
        except ProtocolError:
            # Entry by entry shows where it does not fit, with evidence.
            yield from walk(session, LabelCheck(pin, label, kept.peaks, kept.receipt, kept), seq - 1)
            raise
    elif kept.receipt is not None and kept.receipt.contradicts(receipt):
        raise divergence(pin, kept.receipt, receipt)
    return LabelCheck(pin, label, peaks, receipt, kept)


def fetch_receipt(session: Session, label: Label, seq: int) -> Steps[Receipt | None]:
    """Fetch a receipt and check its signature; None if there is no such entry."""
    try:
        answer = yield from session.ask(ReceiptRequest(label=label, stream_seq=seq), ReceiptResponse)
    except RefusedError as error:
        if error.code == Code.NOT_FOUND.value:
            return None
        raise
    receipt = answer.receipt
    if (receipt.label, receipt.stream_seq) != (label, seq):
        raise ProtocolError(Detail.VALUE, "the receipt is of another entry", field="stream_seq")
    yield from session.check_signed(lambda pin: _verify_receipt(pin, receipt))
    return receipt


def _verify_receipt(pin: Pin, receipt: Receipt) -> None:
    pin.identity.verify_receipt(receipt)


def peaks_at(session: Session, receipt: Receipt) -> Steps[Peaks]:
    """Return the peaks after an entry: those of its proof, which give the root of its receipt (C-97)."""
    asked = ProofRequest(label=receipt.label, stream_seq=receipt.stream_seq)
    proof = (yield from session.ask(asked, ProofResponse)).mmr_proof
    proof.verify(receipt.mmr_root, receipt.leaf_hash, stream_seq=receipt.stream_seq)
    return Peaks(receipt.stream_seq, proof.peaks_after)


def check_growth(session: Session, label: Label, old: Peaks, new: Peaks) -> Steps[None]:
    """Check that a log has only grown since it was seen."""
    asked = ConsistencyRequest(label=label, old_size=old.size, new_size=new.size)
    proof = (yield from session.ask(asked, ConsistencyResponse)).proof
    proof.verify(old_root=old.root, old_size=old.size, new_root=new.root, new_size=new.size)


def walk(
    session: Asker,
    check: LabelCheck,
    upto: int | None = None,
    note: Callable[[StreamItem], None] | None = None,
) -> Steps[int]:
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
        page = yield from fetch_page(session, request)
        if not page.items:
            check.end()
            break
        yield from do(partial(_accept_all, check, page.items, note))
        count += len(page.items)
    return count


def _accept_all(
    check: LabelCheck, items: tuple[StreamItem, ...], note: Callable[[StreamItem], None] | None
) -> None:
    for item in items:
        check.accept(item)
        if note is not None:
            note(item)


def absorb(session: Session, check: LabelCheck, receipts: list[Receipt]) -> Steps[None]:
    """Take receipts of own messages into what is known, whatever others have written in between (C-97)."""
    for receipt in receipts:
        if receipt.stream_seq < check.next_seq:
            yield from _check_within(session, check, receipt)
            continue
        if receipt.stream_seq == check.next_seq:
            check.append(receipt)
            continue
        try:
            peaks = yield from peaks_at(session, receipt)
            if check.peaks.size:
                yield from check_growth(session, check.label, check.peaks, peaks)
        except VeenError:
            # What it proves does not fit: entry by entry shows where, with evidence.
            yield from walk(session, check, receipt.stream_seq - 1)
            if receipt.stream_seq != check.next_seq:
                raise
            check.append(receipt)
        else:
            check.peaks, check.receipt = peaks, receipt


def _check_within(session: Session, check: LabelCheck, receipt: Receipt) -> Steps[None]:
    """Check that a receipt is of the prefix that is known: that has grown from the receipt's root."""
    if check.receipt is not None and check.receipt.contradicts(receipt):
        raise divergence(check.pin, check.receipt, receipt)
    if receipt.stream_seq == check.peaks.size:
        return
    try:
        peaks = yield from peaks_at(session, receipt)
        yield from check_growth(session, check.label, peaks, check.peaks)
    except ProtocolError:
        other = yield from fetch_receipt(session, check.label, receipt.stream_seq)
        if other is not None and other.contradicts(receipt):
            raise divergence(check.pin, other, receipt) from None
        raise


def agree(session: Session, check: LabelCheck, kept: LabelState) -> Steps[None]:
    """Check that what another process or task has seen meanwhile is the same log."""
    if kept.receipt is not None and kept.last_seq <= check.peaks.size:
        if check.receipt is not None and check.receipt.contradicts(kept.receipt):
            raise divergence(check.pin, kept.receipt, check.receipt)
        try:
            yield from check_growth(session, check.label, kept.peaks, check.peaks)
        except ProtocolError:
            again = LabelCheck(check.pin, check.label, kept.peaks, kept.receipt, kept)
            yield from walk(session, again, check.peaks.size)
            raise
    check.known = kept  # what lies ahead is compared when it is reached
