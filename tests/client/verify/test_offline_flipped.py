"""Whatever is verified offline: no bit of it changes unseen, and no part of it passes for the whole."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

import veen
from tests import builders
from veen.client.fraud import Fraud
from veen.core.crypto.ed25519 import SigningKey
from veen.core.errors import Detail, ProtocolError
from veen.core.merkle.inclusion import assemble_proof
from veen.core.merkle.mmr import Peaks
from veen.core.objects import labels
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.hub_identity import HubIdentity, HubKey
from veen.core.objects.receipt import Receipt
from veen.core.types import NodeHash

OLD, NEW = (SigningKey.from_seed(bytes([number]) * 32) for number in (1, 2))
ROTATED_AT: Final = 1_000
HUB: Final = HubIdentity(
    hub_id=labels.hub_id(OLD.public_key),
    hub_keys=(HubKey.of(OLD.public_key, 0, ROTATED_AT), HubKey.of(NEW.public_key, ROTATED_AT)),
    anchoring="none",
    routing_key=builders.routing_key(),
)
MESSAGE: Final = builders.msg()
FIRST: Final = Peaks.empty().append(MESSAGE.leaf_hash)
SECOND: Final = FIRST.append(builders.leaf(2))


def _receipt(key: SigningKey = OLD, hub_ts: int = 10, **changes: Any) -> Receipt:
    fields: dict[str, Any] = {
        "label": MESSAGE.label,
        "stream_seq": 1,
        "leaf_hash": MESSAGE.leaf_hash,
        "mmr_root": FIRST.root,
        "hub_ts": hub_ts,
    }
    return Receipt.sign(key, **(fields | changes))


RECEIPT: Final = _receipt()
CHECKPOINT: Final = Checkpoint.sign(
    NEW, label_prev=MESSAGE.label, label_curr=MESSAGE.label, upto_seq=2, mmr_root=SECOND.root, epoch=0
)
PROOF: Final = assemble_proof(
    [NodeHash(builders.leaf(2)), NodeHash(MESSAGE.leaf_hash), SECOND.hashes[0]], 1, 2
)
FRAUD: Final = Fraud(
    identity=HUB, identity_sig=HUB.sign(OLD), first=RECEIPT, second=_receipt(mmr_root=SECOND.root)
)

# What is changed, and what verifies it.
CASES: Final[dict[str, tuple[bytes, Callable[[bytes], object]]]] = {
    "receipt": (RECEIPT.encode(), lambda data: veen.verify_receipt(data, hub=HUB)),
    "message": (MESSAGE.encode(), lambda data: veen.verify_receipt(RECEIPT, hub=HUB, message=data)),
    "proof": (
        PROOF.encode(),
        lambda data: veen.verify_proof(data, receipt=RECEIPT, hub=HUB, checkpoint=CHECKPOINT),
    ),
    "checkpoint": (
        CHECKPOINT.encode(),
        lambda data: veen.verify_proof(PROOF, receipt=RECEIPT, hub=HUB, checkpoint=data),
    ),
    "fraud": (FRAUD.encode(), lambda data: veen.verify_fraud(data, hub=HUB)),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_whole_passes(name: str) -> None:
    data, verify = CASES[name]
    verify(data)


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_no_bit_changes_unseen(name: str) -> None:
    data, verify = CASES[name]
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProtocolError):
            verify(bytes(changed))


@pytest.mark.sweep
@pytest.mark.parametrize("name", [*CASES, "hub"])
def test_no_part_passes_for_the_whole(name: str) -> None:
    hub = (HUB.encode(), lambda data: veen.verify_receipt(RECEIPT, hub=data))
    data, verify = hub if name == "hub" else CASES[name]
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            verify(data[:end])
    with pytest.raises(ProtocolError):
        verify(data + b"\0")


@pytest.mark.sweep
def test_a_hub_whose_file_was_changed_is_never_taken_for_this_one() -> None:
    """The reader trusts the identity: a change is found, or leaves hub and signing key as they are."""
    data = HUB.encode()
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            found = veen.verify_receipt(RECEIPT, hub=bytes(changed))
        except ProtocolError:
            continue
        assert found.hub_id == HUB.hub_id
        assert HubIdentity.decode(bytes(changed)).hub_keys[0].hub_pk == OLD.public_key


@pytest.mark.parametrize(
    ("key", "hub_ts", "detail"),
    [
        (OLD, ROTATED_AT - 1, None),
        (OLD, ROTATED_AT, Detail.SIG_INVALID),
        (NEW, ROTATED_AT, None),
        (NEW, ROTATED_AT - 1, Detail.SIG_INVALID),
    ],
)
def test_a_rotated_key_signs_at_its_own_time_alone(
    key: SigningKey, hub_ts: int, detail: Detail | None, tmp_path: Path
) -> None:
    receipt = _receipt(key, hub_ts)
    (tmp_path / "receipt").write_bytes(receipt.encode())
    if detail is None:
        assert veen.verify_receipt(tmp_path / "receipt", hub=HUB).receipt == receipt
        return
    with pytest.raises(ProtocolError) as raised:
        veen.verify_receipt(tmp_path / "receipt", hub=HUB)
    assert raised.value.detail is detail


def test_before_its_first_key_a_hub_has_signed_nothing() -> None:
    later = replace(HUB, hub_keys=(HubKey.of(OLD.public_key, 50),))
    with pytest.raises(ProtocolError) as raised:
        veen.verify_receipt(RECEIPT, hub=later)
    assert raised.value.detail is Detail.KEY_INACTIVE


@pytest.mark.parametrize(
    "other",
    [
        {"stream_seq": 2},
        {"leaf_hash": builders.leaf(2)},
        {"label": builders.some_label("another")},
        {"mmr_root": SECOND.root},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_good_receipt_of_something_else(other: dict[str, Any]) -> None:
    receipt = _receipt(**other)
    veen.verify_receipt(receipt, hub=HUB)
    with pytest.raises(ProtocolError):
        veen.verify_proof(
            PROOF, receipt=receipt, hub=HUB, checkpoint=CHECKPOINT if "mmr_root" not in other else None
        )
    if "mmr_root" not in other and "stream_seq" not in other:
        with pytest.raises(ProtocolError):
            veen.verify_receipt(receipt, hub=HUB, message=MESSAGE)
