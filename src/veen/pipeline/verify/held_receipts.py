"""Receipts held by a client, compared with a log: it has the same entries, others, or fewer."""

from collections.abc import Iterable, Mapping, Sequence

from veen.core.errors import Detail, ProtocolError
from veen.core.objects.finding import Finding, Location
from veen.core.objects.receipt import Receipt
from veen.core.types import Label, NodeHash
from veen.pipeline.errors import ForeignReceiptError
from veen.pipeline.log.log import LabelHead, Log, Pruned
from veen.pipeline.verify.report import AGREEMENT, HeldReceipts


def check_signed(log: Log, receipts: Sequence[Receipt]) -> None:
    """Reject receipts that the hub did not sign, before any comparison."""
    for number, receipt in enumerate(receipts, 1):
        try:
            log.keys.identity_of(receipt.label).verify_receipt(receipt)
        except ProtocolError as error:
            place = f"entry {receipt.stream_seq} of {receipt.label.hex()}"
            text = f"receipt {number} ({place}) is not one of hub {log.hub_id.hex()}: {error.message}"
            raise ForeignReceiptError(error.detail, text) from None


def by_label(receipts: Iterable[Receipt]) -> dict[Label, list[Receipt]]:
    """Return the receipts of each label, ordered by position."""
    receipts_by_label: dict[Label, list[Receipt]] = {}
    for receipt in sorted(receipts, key=lambda item: (item.label, item.stream_seq)):
        receipts_by_label.setdefault(receipt.label, []).append(receipt)
    return receipts_by_label


def compare(
    held: HeldReceipts,
    receipts: Iterable[Receipt],
    head: LabelHead | None,
    pruned: Sequence[Pruned],
    roots: Mapping[int, NodeHash],
) -> None:
    """Compare the receipts of a label with ``roots``: those of the log that are signed by the hub."""
    for receipt in receipts:
        seq = receipt.stream_seq
        if head is None or seq > head.last_seq:
            text = "the hub signed a receipt for this entry, but the log does not contain it"
            held.lost.append(_located(receipt, Detail.PROOF_SEQ, text))
        elif seq < head.first_seq:
            if any(item.first_seq <= seq <= item.last_seq for item in pruned):
                held.unchecked += 1
            else:
                text = (
                    "the hub signed a receipt for this entry, but the log does not contain it, "
                    "nor a record that it was pruned"
                )
                held.lost.append(_located(receipt, Detail.PROOF_SEQ, text))
        elif seq not in roots:
            held.unchecked += 1
        elif roots[seq] != receipt.mmr_root:
            text = "the hub has signed two different logs: this entry, and the receipt that is held"
            held.forked.append(_located(receipt, Detail.PROOF_ROOT, text))


def _located(receipt: Receipt, detail: Detail, text: str) -> Finding:
    where = Location("a held receipt", label=receipt.label, seq=receipt.stream_seq)
    return Finding(where, detail, text, AGREEMENT)
