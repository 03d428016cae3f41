"""Receipts, proofs and evidence, verified without a client and without a hub."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import veen
from tests.client.conftest import Opens
from veen.client.fraud import Fraud
from veen.core.api.data_plane import ProofRequest, ProofResponse
from veen.core.crypto.ed25519 import SigningKey
from veen.core.errors import Detail, ProtocolError
from veen.core.merkle.inclusion import assemble_proof
from veen.core.merkle.mmr import Peaks
from veen.core.objects import labels
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.hub_identity import HubIdentity, key_id
from veen.core.objects.receipt import Receipt
from veen.core.types import Label, NodeHash

ELSEWHERE = Label(bytes(32))


class _Evidence:
    """What somebody was given: three receipts, and the identity of the hub."""

    def __init__(self, opens: Opens, stream: str, place: Path) -> None:
        self.alice = opens("alice")
        self.sent = [self.alice.send(stream, number) for number in range(3)]
        pin = self.alice.session.pin
        assert pin is not None
        self.identity, self.identity_sig = pin.identity, pin.sig
        self.hub = place / "hub-identity.cbor"
        self.hub.write_bytes(self.identity.encode())
        self.receipt = place / "first.receipt"
        self.sent[0].save(self.receipt)

    def ask(self, request: Any, answer: Any) -> Any:
        operation = self.alice.session.ask(request, answer)
        client = self.alice.client  # type: ignore[attr-defined]
        return client.run(operation)

    def proof(self, number: int = 0) -> Any:
        receipt = self.sent[number].receipt
        asked = ProofRequest(label=receipt.label, stream_seq=receipt.stream_seq)
        return self.ask(asked, ProofResponse).mmr_proof


@pytest.fixture
def kind() -> str:
    return "blocking"


@pytest.fixture
def given(opens: Opens, stream: str, tmp_path: Path) -> _Evidence:
    return _Evidence(opens, stream, tmp_path)


def _rejected(detail: Detail, *args: Any, check: Any = veen.verify_receipt, **more: Any) -> None:
    with pytest.raises(ProtocolError) as raised:
        check(*args, **more)
    assert raised.value.detail is detail


def test_a_receipt_as_a_path_bytes_or_an_object(given: _Evidence) -> None:
    receipt, hub = given.sent[0].receipt, given.identity
    for form in (given.receipt, str(given.receipt), receipt.encode(), receipt):
        for identity in (given.hub, str(given.hub), hub.encode(), hub):
            found = veen.verify_receipt(form, hub=identity)
            assert (found.receipt, found.hub_id) == (receipt, hub.hub_id)
            assert (found.message_matches, found.in_log) == (None, None)


def test_a_receipt_with_its_message_and_a_proof(given: _Evidence, tmp_path: Path) -> None:
    message, proof = given.sent[0].msg, given.proof()
    (tmp_path / "first.msg").write_bytes(message.encode())
    for form in (message, message.encode(), tmp_path / "first.msg"):
        found = veen.verify_receipt(given.receipt, hub=given.hub, message=form, proof=proof)
        assert (found.message_matches, found.in_log) == (True, True)
    _rejected(Detail.LEAF_HASH, given.receipt, hub=given.hub, message=given.sent[1].msg)
    unsigned = replace(message, sig=given.sent[1].msg.sig)
    _rejected(Detail.SIG_INVALID, given.receipt, hub=given.hub, message=unsigned)
    _rejected(Detail.LEAF_HASH, given.receipt, hub=given.hub, proof=given.proof(1))


def test_a_receipt_that_was_changed_or_is_of_another_hub(given: _Evidence) -> None:
    receipt = given.sent[0].receipt
    _rejected(Detail.SIG_INVALID, replace(receipt, hub_ts=receipt.hub_ts + 1), hub=given.hub)
    other = SigningKey.from_seed(bytes(32))
    forged = Receipt.sign(
        other,
        label=receipt.label,
        stream_seq=receipt.stream_seq,
        leaf_hash=receipt.leaf_hash,
        mmr_root=receipt.mmr_root,
        hub_ts=receipt.hub_ts,
    )
    _rejected(Detail.SIG_INVALID, forged, hub=given.hub)
    with pytest.raises(ProtocolError):
        veen.verify_receipt(given.receipt.read_bytes()[:-1], hub=given.hub)
    with pytest.raises(FileNotFoundError):
        veen.verify_receipt("there is no such file", hub=given.hub)


@pytest.mark.parametrize("thing", [None, 5, [], bytearray(b"x")], ids=repr)
def test_what_is_neither_an_object_nor_bytes_nor_a_path_is_a_type_error(given: _Evidence, thing: Any) -> None:
    receipt, hub = given.receipt, given.hub
    for attempt in (
        lambda: veen.verify_receipt(thing, hub=hub),
        lambda: veen.verify_receipt(receipt, hub=thing),
        lambda: veen.verify_receipt(given.sent[0], hub=hub),  # type: ignore[arg-type]
        lambda: veen.verify_proof(thing, receipt=receipt, hub=hub),
        lambda: veen.verify_fraud(thing),
    ):
        with pytest.raises(TypeError, match="was expected, not"):
            attempt()


def test_a_proof_that_leads_to_a_checkpoint(given: _Evidence) -> None:
    key = SigningKey.from_seed(bytes(range(32)))
    hub = _own_identity(key, given.identity)
    first, second = given.sent[0].receipt, given.sent[1].receipt
    peaks = Peaks.empty().append(first.leaf_hash).append(second.leaf_hash)
    fields: dict[str, Any] = {
        "label": first.label,
        "stream_seq": 1,
        "leaf_hash": first.leaf_hash,
        "hub_ts": first.hub_ts,
    }
    receipt = Receipt.sign(key, **fields, mmr_root=first.mmr_root)
    checkpoint = Checkpoint.sign(
        key, label_prev=first.label, label_curr=first.label, upto_seq=2, mmr_root=peaks.root, epoch=0
    )
    nodes = [NodeHash(second.leaf_hash), NodeHash(first.leaf_hash), peaks.hashes[0]]
    proof = assemble_proof(nodes, 1, 2)
    found = veen.verify_proof(proof.encode(), receipt=receipt, hub=hub, checkpoint=checkpoint.encode())
    assert found.in_log
    check = veen.verify_proof
    _rejected(Detail.PROOF_PATH, proof, receipt=receipt, hub=hub, check=check)
    other = replace(checkpoint, upto_seq=3)
    _rejected(Detail.SIG_INVALID, proof, receipt=receipt, hub=hub, checkpoint=other, check=check)
    elsewhere = Checkpoint.sign(
        key, label_prev=ELSEWHERE, label_curr=ELSEWHERE, upto_seq=2, mmr_root=peaks.root, epoch=0
    )
    _rejected(Detail.CHECKPOINT_LABEL, proof, receipt=receipt, hub=hub, checkpoint=elsewhere, check=check)


def test_a_proof_that_leads_to_the_receipt(given: _Evidence) -> None:
    assert veen.verify_proof(given.proof(), receipt=given.receipt, hub=given.hub).in_log
    _rejected(Detail.LEAF_HASH, given.proof(1), receipt=given.receipt, hub=given.hub, check=veen.verify_proof)
    receipt = given.sent[0].receipt
    changed = replace(receipt, hub_ts=receipt.hub_ts + 1)
    _rejected(Detail.SIG_INVALID, given.proof(), receipt=changed, hub=given.hub, check=veen.verify_proof)


def test_evidence_of_fraud(given: _Evidence, tmp_path: Path) -> None:
    key = SigningKey.from_seed(bytes(range(32)))
    identity, receipt = _own_identity(key, given.identity), given.sent[0].receipt
    fields: dict[str, Any] = {
        "label": receipt.label,
        "stream_seq": 1,
        "leaf_hash": receipt.leaf_hash,
        "hub_ts": receipt.hub_ts,
    }
    first = Receipt.sign(key, **fields, mmr_root=receipt.mmr_root)
    second = Receipt.sign(key, **fields, mmr_root=given.sent[1].receipt.mmr_root)
    sig = identity.sign(key)
    fraud = Fraud(identity=identity, identity_sig=sig, first=first, second=second)
    path = tmp_path / "one.veen-fraud"
    path.write_bytes(fraud.encode())
    for form in (fraud, fraud.encode(), path):
        for hub in (None, identity, key.public_key):
            assert veen.verify_fraud(form, hub=hub).evidence == fraud
    _rejected(Detail.KEY_INACTIVE, fraud, hub=given.hub, check=veen.verify_fraud)
    _rejected(Detail.VALUE, replace(fraud, second=first), check=veen.verify_fraud)


def _own_identity(key: SigningKey, like: HubIdentity) -> HubIdentity:
    first = replace(like.hub_keys[0], hub_pk=key.public_key, key_id=key_id(key.public_key))
    hub_id = labels.hub_id(key.public_key)
    return replace(like, hub_id=hub_id, hub_keys=(first,), routing_key=labels.routing_key(hub_id))
