"""Receipts that somebody holds, against a log: it has the same entries, others, or fewer."""

from collections.abc import Iterable, Mapping, Sequence

from veen.core.errors import Detail, ProtocolError
from veen.core.receipt import Receipt
from veen.core.types import Label
from veen.pipeline.checking import read_entries
from veen.pipeline.logs import LabelHead, Log
from veen.pipeline.verdicts import Located


def compare(log: Log, receipts: Sequence[Receipt]) -> tuple[list[Located], list[Located]]:
    """Return which held receipts the log contradicts (forked), and which it has no entry for (lost).

    A receipt that the hub has not signed proves nothing about it, and is refused.
    """
    heads = log.heads()
    forked: list[Located] = []
    lost: list[Located] = []
    for receipt in receipts:
        log.keys.identity_of(receipt.label).verify_receipt(receipt)
    for receipt, head in _known(receipts, heads, lost):
        if receipt.stream_seq < head.first_seq:
            continue  # pruned: the hub has said so
        found = _at(log, receipt)
        if found is None or receipt.contradicts(found):
            text = "the hub has signed two different logs: this entry, and the receipt that is held"
            forked.append(_located(receipt, Detail.PROOF_ROOT.value, text))
    return forked, lost


def _known(
    receipts: Iterable[Receipt], heads: Mapping[Label, LabelHead], lost: list[Located]
) -> Iterable[tuple[Receipt, LabelHead]]:
    for receipt in receipts:
        head = heads.get(receipt.label)
        if head is None or receipt.stream_seq > head.last_seq:
            text = "the hub has signed this entry, and the log has none"
            lost.append(_located(receipt, Detail.PROOF_SEQ.value, text))
        else:
            yield receipt, head


def _located(receipt: Receipt, detail: str, text: str) -> Located:
    return Located(receipt.label, receipt.stream_seq, "a held receipt", None, detail, text)


def _at(log: Log, receipt: Receipt) -> Receipt | None:
    """Return the receipt that the log has at the same place; None if it can not be read."""
    seq = receipt.stream_seq
    parts = log.plan({receipt.label: (seq, seq)})
    entries, _ = read_entries(parts[0]) if parts else (None, None)
    if entries is None or not len(entries):
        return None
    try:
        return Receipt.decode(entries.receipt_bytes(0))
    except ProtocolError:
        return None
