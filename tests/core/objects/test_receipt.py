"""RECEIPT: what a hub signs, and what two of them can prove against it."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

import cbor2
import pytest

from tests import rawcbor as raw
from tests.builders import context, digest, msg, receipt, signing_key, some_label, verify_key
from tests.expect import refused
from veen.core.crypto import ed25519
from veen.core.errors import Code, Detail
from veen.core.objects.receipt import Receipt
from veen.core.types import Label, LeafHash, NodeHash


def test_the_signature_is_over_the_first_six_fields_as_an_array_of_six() -> None:
    made = receipt()
    six = cbor2.dumps(cbor2.loads(made.encode())[:6])
    assert six[0] == 0x86
    signed = sha256(b"veen/sig\x00" + six).digest()
    assert made.signing_digest() == signed
    ed25519.verify(verify_key("hub"), signed, made.hub_sig)


def test_a_good_receipt_verifies_also_after_a_round_trip() -> None:
    made = receipt(stream_seq=2**64 - 1, hub_ts=2**64 - 1)
    for same in (made, Receipt.decode(made.encode()), Receipt.from_json(made.to_json())):
        same.verify_signature(verify_key("hub"))


CHANGES: dict[str, Any] = {
    "label": Label(digest("other")),
    "stream_seq": 2,
    "leaf_hash": LeafHash(digest("other")),
    "mmr_root": NodeHash(digest("other")),
    "hub_ts": 5,
    "hub_sig": signing_key("hub").sign(b""),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_any_field_breaks_the_signature(name: str) -> None:
    with refused(Detail.SIG_INVALID, code=Code.SIG):
        replace(receipt(), **{name: CHANGES[name]}).verify_signature(verify_key("hub"))


def test_another_hub_did_not_sign_it() -> None:
    with refused(Detail.SIG_INVALID):
        receipt().verify_signature(verify_key("other"))


def test_a_receipt_belongs_to_one_message() -> None:
    message = msg()
    receipt(of=message).verify_msg(message)
    with refused(Detail.LEAF_HASH, field="leaf_hash", code=Code.PROOF):
        receipt(of=message).verify_msg(msg(context(client_seq=2)))
    with refused(Detail.LEAF_HASH, field="label"):
        receipt(of=message, label=Label(digest("other"))).verify_msg(message)


def test_sequences_count_from_1() -> None:
    with refused(Detail.VALUE, field="stream_seq"):
        replace(receipt(), stream_seq=0)
    with refused(Detail.VALUE, field="stream_seq"):
        receipt(stream_seq=0, leaf_hash=LeafHash(digest("leaf")))
    with refused(Detail.VALUE, field="stream_seq"):
        Receipt.decode(raw.with_element(receipt().encode(), 2, raw.uint(0)))


def test_signing_refuses_numbers_without_an_encoding() -> None:
    leaf = LeafHash(digest("leaf"))
    for number in (-1, 2**64):
        with refused(Detail.VALUE):
            receipt(stream_seq=number, leaf_hash=leaf)
        with refused(Detail.VALUE):
            receipt(hub_ts=number)
    with refused(Detail.FIELD_SIZE, field="label"):
        receipt(label=Label(b"short"))


def test_the_largest_receipt_has_188_bytes() -> None:
    assert (
        len(receipt(stream_seq=2**64 - 1, leaf_hash=LeafHash(digest("x")), hub_ts=2**64 - 1).encode()) == 188
    )


def test_signing_is_deterministic() -> None:
    assert receipt().encode() == receipt().encode()


@pytest.mark.parametrize(
    ("change", "contradicts"),
    [
        ({}, False),
        ({"hub_ts": 5}, False),
        ({"leaf_hash": LeafHash(digest("other"))}, True),
        ({"mmr_root": NodeHash(digest("other"))}, True),
        ({"leaf_hash": LeafHash(digest("other")), "stream_seq": 2}, False),
        ({"leaf_hash": LeafHash(digest("other")), "label": some_label("other")}, False),
    ],
)
def test_two_receipts_of_one_place_with_other_content_contradict(
    change: dict[str, Any],
    contradicts: bool,  # noqa: FBT001
) -> None:
    first = receipt(leaf_hash=LeafHash(digest("leaf")), mmr_root=NodeHash(digest("root")))
    second = replace(first, **change)
    assert first.contradicts(second) is contradicts
    assert second.contradicts(first) is contradicts
