"""Checking single objects that somebody was given: a receipt, with or without its message."""

from dataclasses import dataclass

from veen.client.errors import RefusedError
from veen.client.pins import HubFacts
from veen.client.retrying import Asker
from veen.client.steps import Steps
from veen.core import labels
from veen.core.api import ProofRequest, ProofResponse
from veen.core.errors import Code, Detail, ProtocolError
from veen.core.msg import Msg
from veen.core.receipt import Receipt


@dataclass(frozen=True, slots=True)
class ReceiptCheck:
    """What was found out about a receipt; None where there was nothing to check it with."""

    epoch: int
    signed: bool
    msg_matches: bool | None
    in_log: bool | None


def check_receipt(
    asker: Asker, facts: HubFacts, receipt: Receipt, *, stream: str, msg: Msg | None, ask_hub: bool
) -> Steps[ReceiptCheck]:
    """Check signature, label, message (I1, I2), and with a hub or its files the root (I3)."""
    facts.identity.verify_receipt(receipt)
    epoch = _epoch_of(facts, receipt, stream)
    if msg is not None:
        msg.verify()
        receipt.verify_msg(msg)
    in_log = None
    if ask_hub:
        in_log = yield from _is_in_log(asker, receipt)
    return ReceiptCheck(epoch, signed=True, msg_matches=None if msg is None else True, in_log=in_log)


def _epoch_of(facts: HubFacts, receipt: Receipt, stream: str) -> int:
    """Return the epoch in which the receipt's label is the stream's; its time says which can be meant."""
    stream_id, routing = labels.stream_id(stream), facts.identity.routing_key
    epoch_sec = facts.profiles[0].epoch_sec
    now = labels.epoch_at(receipt.hub_ts, epoch_sec)
    for epoch in labels.epoch_window(now, epoch_sec, max(epoch_sec, 600)):
        if labels.label(routing, stream_id, epoch) == receipt.label:
            return epoch
    raise ProtocolError(Detail.LEAF_HASH, f"the receipt is not of stream {stream}", field="label")


def _is_in_log(asker: Asker, receipt: Receipt) -> Steps[bool]:
    asked = ProofRequest(label=receipt.label, stream_seq=receipt.stream_seq)
    try:
        proof = (yield from asker.ask(asked, ProofResponse)).mmr_proof
    except RefusedError as error:
        if error.code != Code.NOT_FOUND.value:
            raise
        raise ProtocolError(
            Detail.PROOF_SEQ,
            f"the hub has signed entry {receipt.stream_seq}, and says that there is none",
            stream_seq=receipt.stream_seq,
        ) from None
    proof.verify(receipt.mmr_root, receipt.leaf_hash, stream_seq=receipt.stream_seq)
    return True
