"""Verify a receipt, a proof or evidence of fraud from files, without a client, a hub or a network.

veen.verify_receipt("tea.receipt", hub="hub-identity.cbor")

Arguments are objects of ``veen.core``, their encoded bytes, or paths of files that contain these bytes.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from veen.client.fraud import Fraud
from veen.core.crypto.ed25519 import KEY_BYTES
from veen.core.encoding.wire_object import W
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import default_limits
from veen.core.merkle.inclusion import MmrProof
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.hub_identity import HubIdentity
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
from veen.core.types import HubId, VerifyKey

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class VerifiedReceipt:
    """A receipt that passed all checks.

    Attributes:
        receipt: The receipt.
        hub_id: The hub that signed it.
        message_matches: Whether it is the receipt of the message; None if no message was passed.
        in_log: Whether a proof showed that the root includes the message; None if no proof was passed.
    """

    receipt: Receipt
    hub_id: HubId
    message_matches: bool | None = None
    in_log: bool | None = None


@dataclass(frozen=True, slots=True)
class ProvedFraud:
    """Evidence that passed all checks.

    Attributes:
        evidence: What the hub signed.
        statement: What it proves, in one sentence.
    """

    evidence: Fraud
    statement: str


def verify_receipt(
    receipt: Receipt | bytes | StrPath,
    *,
    hub: HubIdentity | bytes | StrPath,
    message: Msg | bytes | StrPath | None = None,
    proof: MmrProof | bytes | StrPath | None = None,
) -> VerifiedReceipt:
    """Verify a receipt, and optionally its message and a proof.

    Example:
        veen.verify_receipt("tea.receipt", hub="hub-identity.cbor")

    Args:
        receipt: The receipt, as ``Sent.save`` writes it.
        hub: The hub's identity, from a source that you trust.
        message: The message that the receipt is to be of.
        proof: Proof that the root in the receipt includes the message.

    Raises:
        ProtocolError: A check failed; ``detail`` says which.
        OSError: A file cannot be read.
    """
    signed, identity = _object(receipt, Receipt), _object(hub, HubIdentity)
    identity.verify_receipt(signed)
    return VerifiedReceipt(
        signed,
        identity.hub_id,
        None if message is None else verify_message(signed, _object(message, Msg)),
        None if proof is None else verify_inclusion(signed, _object(proof, MmrProof)),
    )


def verify_proof(
    proof: MmrProof | bytes | StrPath,
    *,
    receipt: Receipt | bytes | StrPath,
    hub: HubIdentity | bytes | StrPath,
    checkpoint: Checkpoint | bytes | StrPath | None = None,
    epoch_sec: int = 0,
) -> VerifiedReceipt:
    """Verify that the log includes the message of a receipt.

    Example:
        veen.verify_proof("tea.proof", receipt="tea.receipt", hub="hub-identity.cbor")

    Args:
        proof: Inclusion proof of the message.
        receipt: Receipt of the message.
        hub: The hub's identity, from a source that you trust.
        checkpoint: The signed root that the proof leads to. Default: the root in the receipt.
        epoch_sec: How long an epoch of the log lasts, which limits the keys that may sign a checkpoint; 0
            where labels do not rotate.

    Raises:
        ProtocolError: A check failed; ``detail`` says which.
        OSError: A file cannot be read.
    """
    signed, identity = _object(receipt, Receipt), _object(hub, HubIdentity)
    identity.verify_receipt(signed)
    root = None if checkpoint is None else _object(checkpoint, Checkpoint)
    if root is not None:
        identity.verify_checkpoint(
            root, epoch_sec=epoch_sec, max_skew_sec=default_limits(epoch_sec).max_epoch_skew_sec
        )
    in_log = verify_inclusion(signed, _object(proof, MmrProof), root)
    return VerifiedReceipt(signed, identity.hub_id, in_log=in_log)


def verify_fraud(
    evidence: Fraud | bytes | StrPath, *, hub: HubIdentity | VerifyKey | StrPath | None = None
) -> ProvedFraud:
    """Verify evidence that a hub signed two contradicting statements.

    Example:
        print(veen.verify_fraud("alice/0123-4567-8.veen-fraud").statement)

    Args:
        evidence: The evidence, as a client writes it to its directory.
        hub: The hub that it must be about, or the first public key of that hub.

    Raises:
        ProtocolError: The evidence is damaged, is about another hub, or proves nothing.
        OSError: A file cannot be read.
    """
    fraud = _object(evidence, Fraud)
    return ProvedFraud(fraud, fraud.verify(None if hub is None else _first_key(hub)))


def verify_message(receipt: Receipt, message: Msg) -> bool:
    """Verify a message, and that a receipt is of it.

    Raises:
        ProtocolError: The signature is invalid, or the receipt is of another message.
    """
    message.verify()
    receipt.verify_msg(message)
    return True


def verify_inclusion(receipt: Receipt, proof: MmrProof, checkpoint: Checkpoint | None = None) -> bool:
    """Verify that a signed root, by default that of the receipt, includes the message of a receipt.

    Raises:
        ProtocolError: The proof is for another message or leads to another root.
    """
    if checkpoint is None:
        proof.verify(receipt.mmr_root, receipt.leaf_hash, stream_seq=receipt.stream_seq)
        return True
    if checkpoint.label_curr != receipt.label:
        raise ProtocolError(
            Detail.CHECKPOINT_LABEL, "the checkpoint is of another label than the receipt", field="label_curr"
        )
    proof.verify(
        checkpoint.mmr_root,
        receipt.leaf_hash,
        stream_seq=receipt.stream_seq,
        mmr_size=checkpoint.upto_seq,
    )
    return True


def _first_key(hub: HubIdentity | VerifyKey | StrPath) -> VerifyKey:
    if isinstance(hub, bytes) and len(hub) == KEY_BYTES:
        return hub
    return _object(hub, HubIdentity).hub_keys[0].hub_pk


def _object(source: W | bytes | StrPath, kind: type[W]) -> W:
    if isinstance(source, kind):
        return source
    if isinstance(source, bytes):
        return kind.decode(source)
    if isinstance(source, str | os.PathLike):
        return kind.decode(Path(source).read_bytes())
    raise TypeError(f"a {kind.__name__}, its bytes or a path was expected, not {type(source).__name__}")
