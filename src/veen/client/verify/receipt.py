"""Verifying a receipt, with or without its message, against a hub or the state of a client directory."""

from dataclasses import dataclass

from veen.client.errors import PinError, RejectedError
from veen.client.home.pins import HubFacts
from veen.client.home.state import State
from veen.client.retry import Asker
from veen.client.verify.label import divergence
from veen.client.verify.offline import verify_inclusion, verify_message, verify_receipt
from veen.core.api.data_plane import ProofRequest, ProofResponse
from veen.core.errors import Code, Detail, ProtocolError
from veen.core.objects import labels
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
from veen.core.types import HubId


@dataclass(frozen=True, slots=True)
class ReceiptCheck:
    """The outcome for a receipt with a valid signature; None where there was nothing to check against."""

    hub_id: HubId
    epoch: int
    msg_matches: bool | None
    in_log: bool | None


async def check_receipt(
    asker: Asker, facts: HubFacts, receipt: Receipt, *, stream: str, msg: Msg | None
) -> ReceiptCheck:
    """Verify signature, label and message (I1, I2), and against a hub or its files the root (I3)."""
    verify_receipt(receipt, hub=facts.identity)
    epoch = _epoch_of(facts, receipt, stream)
    matches = None if msg is None else verify_message(receipt, msg)
    in_log = await _is_in_log(asker, receipt)
    return ReceiptCheck(facts.identity.hub_id, epoch, matches, in_log)


def check_receipt_by_state(state: State, receipt: Receipt, *, stream: str, msg: Msg | None) -> ReceiptCheck:
    """Verify a receipt against the state of a client: the pinned hub, and the root if it is the newest."""
    label_state = state.labels.get(receipt.label)
    if label_state is None or label_state.stream_id != labels.stream_id(stream):
        raise ProtocolError(
            Detail.LEAF_HASH,
            f"this client has not seen this label of {stream}; name a hub to ask",
            field="label",
        )
    pin = state.pins.get(label_state.hub_id)
    if pin is None:
        raise PinError(f"the client has not pinned hub {label_state.hub_id.hex()}")
    verify_receipt(receipt, hub=pin.identity)
    matches = None if msg is None else verify_message(receipt, msg)
    newest = label_state.receipt
    if newest is not None and newest.contradicts(receipt):
        raise divergence(pin, newest, receipt)
    is_newest = newest is not None and newest.stream_seq == receipt.stream_seq
    return ReceiptCheck(label_state.hub_id, label_state.epoch, matches, True if is_newest else None)


def _epoch_of(facts: HubFacts, receipt: Receipt, stream: str) -> int:
    """Return the epoch in which the stream has the receipt's label, near the time of the receipt."""
    stream_id, routing = labels.stream_id(stream), facts.identity.routing_key
    epoch_sec = facts.profiles[0].epoch_sec
    now = labels.epoch_at(receipt.hub_ts, epoch_sec)
    for epoch in labels.epoch_window(now, epoch_sec, max(epoch_sec, 600)):
        if labels.label(routing, stream_id, epoch) == receipt.label:
            return epoch
    raise ProtocolError(Detail.LEAF_HASH, f"the receipt is not of stream {stream}", field="label")


async def _is_in_log(asker: Asker, receipt: Receipt) -> bool:
    request = ProofRequest(label=receipt.label, stream_seq=receipt.stream_seq)
    try:
        proof = (await asker.ask(request, ProofResponse)).mmr_proof
    except RejectedError as error:
        if error.code != Code.NOT_FOUND:
            raise
        raise ProtocolError(
            Detail.PROOF_SEQ,
            f"the hub signed a receipt for entry {receipt.stream_seq}, but its log does not contain it",
            stream_seq=receipt.stream_seq,
        ) from None
    return verify_inclusion(receipt, proof)
