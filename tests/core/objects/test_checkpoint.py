"""CHECKPOINT: what hub and witnesses sign, which labels it may name, which log it commits to."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

import cbor2
import pytest

from tests import rawcbor as raw
from tests.builders import (
    checkpoint,
    context,
    digest,
    leaf,
    msg,
    peaks,
    receipt,
    routing_key,
    signing_key,
    some_label,
    stream,
    unsigned,
    verify_key,
)
from tests.expect import faulty, refused
from veen.core.crypto import ed25519
from veen.core.errors import Code, Detail, Fault
from veen.core.merkle.mmr import Peaks
from veen.core.objects import labels
from veen.core.objects.checkpoint import Checkpoint, label_pair
from veen.core.types import Label, NodeHash, Signature

# --- signatures ---------------------------------------------------------------------------------------------


def test_the_signature_is_over_the_first_six_fields_as_an_array_of_six() -> None:
    made = checkpoint(upto_seq=5, epoch=7, witnesses=("w1",))
    six = cbor2.dumps(cbor2.loads(made.encode())[:6])
    assert six[0] == 0x86
    signed = sha256(b"veen/sig\x00" + six).digest()
    assert made.signing_digest() == signed
    ed25519.verify(verify_key("hub"), signed, made.hub_sig)
    assert made.witness_sigs is not None
    ed25519.verify(verify_key("w1"), signed, made.witness_sigs[0])


CHANGES: dict[str, Any] = {
    "label_prev": Label(digest("other")),
    "label_curr": Label(digest("other")),
    "upto_seq": 2,
    "mmr_root": NodeHash(digest("other")),
    "epoch": 1,
    "hub_sig": signing_key("hub").sign(b""),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_any_field_breaks_the_signatures(name: str) -> None:
    made = checkpoint(witnesses=("w1",))
    made.verify_signature(verify_key("hub"))
    changed = replace(made, **{name: CHANGES[name]})
    with refused(Detail.SIG_INVALID, code=Code.SIG):
        changed.verify_signature(verify_key("hub"))
    assert (changed.verify_witnesses([verify_key("w1")]) == []) == (name != "hub_sig")


def test_witnesses_can_be_added_later_without_touching_the_hubs_signature() -> None:
    alone = checkpoint()
    later = alone.with_witnesses([signing_key("w1")]).with_witnesses([signing_key("w2")])
    assert later.hub_sig == alone.hub_sig
    assert later.signing_digest() == alone.signing_digest()
    assert later == checkpoint(witnesses=("w1", "w2"))
    assert later.encode() != alone.encode()
    later.verify_signature(verify_key("hub"))


def test_the_same_prefix_and_key_give_the_same_bytes() -> None:
    assert checkpoint(upto_seq=5).encode() == checkpoint(upto_seq=5).encode()


def test_no_signature_of_one_kind_of_object_is_valid_on_another() -> None:
    """MSG, RECEIPT and CHECKPOINT share a tag; what they sign differs in arity or in the type of a field."""
    key = signing_key("hub")
    label = some_label()
    message = msg(context(label=label, client="hub"), signer="hub")
    made_receipt = receipt(label=label, signer="hub")
    made_checkpoint = checkpoint(label_curr=label, signer="hub")
    digests = [
        message.signing_digest(),
        made_receipt.signing_digest(),
        made_checkpoint.signing_digest(),
    ]
    signatures = [message.sig, made_receipt.hub_sig, made_checkpoint.hub_sig]
    for index, signed in enumerate(digests):
        for other, signature in enumerate(signatures):
            if index == other:
                ed25519.verify(key.public_key, signed, signature)
            else:
                with refused(Detail.SIG_INVALID):
                    ed25519.verify(key.public_key, signed, signature)


def test_what_is_signed_can_not_be_read_as_another_kind_of_object() -> None:
    """Not even if an attacker chooses all values: the third element has another type in the two sixes."""
    six_of_receipt = raw.elements(receipt().encode())[:6]
    six_of_checkpoint = raw.elements(checkpoint().encode())[:6]
    assert [part[0] >> 5 for part in six_of_receipt] != [part[0] >> 5 for part in six_of_checkpoint]
    assert six_of_receipt[2][0] >> 5 == raw.UINT
    assert six_of_checkpoint[2][0] >> 5 == raw.BYTES
    assert len(raw.elements(msg().encode())) - 1 == 9


# --- witnesses ----------------------------------------------------------------------------------------------


def test_known_witnesses_are_found_in_key_order_whatever_order_they_signed_in() -> None:
    names = [f"w{number}" for number in range(6)]
    in_key_order = sorted(verify_key(name) for name in names)
    for order in (names, names[::-1], names[3:] + names[:3]):
        made = checkpoint(witnesses=order)
        assert made.verify_witnesses(verify_key(name) for name in names) == in_key_order


def test_each_key_counts_once() -> None:
    twice = checkpoint(witnesses=("w1", "w1", "w2"))
    assert twice.verify_witnesses([verify_key("w1")]) == [verify_key("w1")]
    assert twice.verify_witnesses([verify_key("w1"), verify_key("w1")]) == [verify_key("w1")]
    both = sorted([verify_key("w1"), verify_key("w2")])
    assert twice.verify_witnesses([verify_key("w2"), verify_key("w1"), verify_key("w2")]) == both


def test_one_signature_does_not_count_for_two_keys() -> None:
    once = checkpoint(witnesses=("w1",))
    assert once.verify_witnesses([verify_key("w1"), verify_key("w2")]) == [verify_key("w1")]


def test_unknown_witnesses_and_garbage_are_passed_over() -> None:
    made = checkpoint(witnesses=("unknown", "w1"))
    garbage = replace(made, witness_sigs=(unsigned(), *(made.witness_sigs or ())))
    assert garbage.verify_witnesses([verify_key("w1")]) == [verify_key("w1")]
    assert garbage.verify_witnesses([verify_key("w2")]) == []
    assert garbage.verify_witnesses([]) == []
    assert checkpoint().verify_witnesses([verify_key("w1")]) == []


def test_the_hubs_signature_is_no_witness() -> None:
    made = checkpoint()
    assert made.verify_witnesses([verify_key("hub")]) == []


def test_without_witnesses_the_array_has_seven_elements_and_no_other_form() -> None:
    made = checkpoint()
    assert made.encode()[0] == 0x87
    assert made.with_witnesses([]).encode() == made.encode()
    parts = raw.elements(made.encode())
    with faulty(Fault.EMPTY, field="witness_sigs"):
        Checkpoint.decode(raw.array([*parts, b"\x80"]))
    with faulty(Fault.NULL, field="witness_sigs"):
        Checkpoint.decode(raw.array([*parts, raw.NULL]))
    with faulty(Fault.EMPTY):
        replace(made, witness_sigs=())


def test_witness_signatures_have_64_bytes_and_there_are_not_too_many() -> None:
    parts = raw.elements(checkpoint().encode())
    with refused(Detail.FIELD_SIZE, field="witness_sigs"):
        Checkpoint.decode(raw.array([*parts, raw.array([raw.bstr(bytes(63))])]))
    most = replace(checkpoint(), witness_sigs=(Signature(bytes(64)),) * 64)
    assert Checkpoint.decode(most.encode()) == most
    with refused(Detail.FIELD_SIZE, field="witness_sigs"):
        replace(checkpoint(), witness_sigs=(Signature(bytes(64)),) * 65)
    with refused(Detail.FIELD_SIZE, field="witness_sigs"):
        Checkpoint.decode(raw.array([*parts, raw.array([raw.bstr(bytes(64))] * 65)]))
    with refused(Detail.FIELD_SIZE, field="witness_sigs"):
        most.with_witnesses([signing_key("w1")])


# --- labels -------------------------------------------------------------------------------------------------


def of_epoch(epoch: int, *, prev: Label | None = None) -> Checkpoint:
    label_prev, label_curr = label_pair(routing_key(), stream(), epoch)
    return checkpoint(label_prev=label_prev if prev is None else prev, label_curr=label_curr, epoch=epoch)


@pytest.mark.parametrize("epoch", [0, 1, 472_222])
def test_what_a_hub_writes_is_accepted(epoch: int) -> None:
    of_epoch(epoch).verify_labels(routing_key(), stream())


def test_the_label_pair_is_a_function_of_the_label_alone() -> None:
    first = labels.label(routing_key(), stream(), 0)
    second = labels.label(routing_key(), stream(), 1)
    third = labels.label(routing_key(), stream(), 2)
    assert label_pair(routing_key(), stream(), 0) == (first, first)
    assert label_pair(routing_key(), stream(), 1) == (first, second)
    assert label_pair(routing_key(), stream(), 2) == (second, third)


def test_the_form_without_a_previous_label_is_accepted_in_every_epoch() -> None:
    current = labels.label(routing_key(), stream(), 5)
    of_epoch(5, prev=current).verify_labels(routing_key(), stream())


def test_labels_that_do_not_follow_from_the_epoch_are_refused() -> None:
    skipped = labels.label(routing_key(), stream(), 3)
    with refused(Detail.CHECKPOINT_LABEL, field="label_prev", code=Code.PROOF):
        of_epoch(5, prev=skipped).verify_labels(routing_key(), stream())
    with refused(Detail.CHECKPOINT_LABEL, field="label_prev"):
        of_epoch(0, prev=skipped).verify_labels(routing_key(), stream())
    with refused(Detail.CHECKPOINT_LABEL, field="label_curr"):
        replace(of_epoch(5), epoch=4).verify_labels(routing_key(), stream())
    with refused(Detail.CHECKPOINT_LABEL, field="label_curr"):
        of_epoch(5).verify_labels(routing_key(), stream("other"))
    with refused(Detail.CHECKPOINT_LABEL, field="label_curr"):
        of_epoch(5).verify_labels(routing_key("other"), stream())


# --- the log ------------------------------------------------------------------------------------------------


def test_it_commits_to_exactly_its_prefix() -> None:
    made = checkpoint(upto_seq=5)
    made.verify_prefix(peaks(5))
    for size in (1, 4, 6):
        with refused(Detail.CHECKPOINT_ROOT, field="upto_seq", code=Code.PROOF) as caught:
            made.verify_prefix(peaks(size))
        assert caught.value.fields == {"field": "upto_seq", "expected": size, "actual": 5}
    other = Peaks.empty()
    for number in (1, 2, 3, 5, 4):
        other = other.append(leaf(number))
    with refused(Detail.CHECKPOINT_ROOT, field="mmr_root"):
        made.verify_prefix(other)
    with refused(Detail.CHECKPOINT_ROOT, field="mmr_root"):
        made.verify_prefix(Peaks(5, peaks(5).hashes[::-1]))
    with refused(Detail.CHECKPOINT_ROOT, field="upto_seq"):
        made.verify_prefix(Peaks.empty())


def test_there_is_no_checkpoint_of_an_empty_label() -> None:
    with refused(Detail.VALUE, field="upto_seq"):
        checkpoint(upto_seq=0, mmr_root=NodeHash(digest("root")))
    with refused(Detail.VALUE, field="upto_seq"):
        Checkpoint.decode(raw.with_element(checkpoint().encode(), 3, raw.uint(0)))


def test_the_largest_checkpoint_without_witnesses_has_at_most_188_bytes() -> None:
    largest = checkpoint(upto_seq=2**64 - 1, mmr_root=NodeHash(digest("root")), epoch=2**64 - 1)
    assert len(largest.encode()) <= 188
    assert len(largest.encode()) == 1 + 1 + 34 + 34 + 9 + 34 + 9 + 66
