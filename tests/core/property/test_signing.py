"""Whatever is signed verifies, and with any other field it does not."""

from dataclasses import fields, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import context, counted_random, reader_key, reader_public, signing_key
from tests.core.property import strategies as some
from tests.expect import refused
from veen.core.errors import Detail
from veen.core.objects.capability import CapToken
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.msg import Msg, PayloadHeader
from veen.core.objects.receipt import Receipt
from veen.core.objects.sealed_payload import open_msg, seal

KEY = signing_key("hub")


@settings(max_examples=60)
@given(some.receipts, some.receipts)
def test_a_receipt_is_bound_to_all_of_its_fields(first: Receipt, second: Receipt) -> None:
    signed = Receipt.sign(
        KEY,
        label=first.label,
        stream_seq=first.stream_seq,
        leaf_hash=first.leaf_hash,
        mmr_root=first.mmr_root,
        hub_ts=first.hub_ts,
    )
    signed.verify_signature(KEY.public_key)
    for name in ("label", "stream_seq", "leaf_hash", "mmr_root", "hub_ts"):
        change: Any = {name: getattr(second, name)}
        changed = replace(signed, **change)
        if changed != signed:
            with refused(Detail.SIG_INVALID):
                changed.verify_signature(KEY.public_key)


@settings(max_examples=60)
@given(some.checkpoints, st.lists(some.signing_keys, max_size=4))
def test_witnesses_never_change_what_is_signed(item: Checkpoint, witnesses: list[Any]) -> None:
    signed = Checkpoint.sign(
        KEY,
        label_prev=item.label_prev,
        label_curr=item.label_curr,
        upto_seq=item.upto_seq,
        mmr_root=item.mmr_root,
        epoch=item.epoch,
        witnesses=witnesses,
    )
    alone = replace(signed, witness_sigs=None)
    assert signed.signing_digest() == alone.signing_digest()
    known = sorted({key.public_key for key in witnesses})
    assert signed.verify_witnesses(known) == known
    assert alone.verify_witnesses(known) == []


@settings(max_examples=60)
@given(some.cap_tokens, st.integers(1, 8))
def test_a_minted_token_verifies_after_any_number_of_renewals(item: CapToken, links: int) -> None:
    token = CapToken.mint(
        KEY, item.subject_pk, stream_ids=item.allow.stream_ids, ttl=item.allow.ttl, rate=item.allow.rate
    )
    for _ in range(links - 1):
        token = token.renew(KEY)
    token.verify()
    assert token.allow == item.allow
    assert CapToken.decode(token.encode()).auth_ref == token.auth_ref


@settings(max_examples=60)
@given(
    header=some.payload_headers,
    body=st.binary(max_size=500),
    files=st.lists(st.binary(max_size=50), max_size=4),
    pad_block=st.sampled_from([0, 1, 7, 256, 1024]),
    numbers=st.tuples(some.uints, some.uints),
    auth_ref=some.maybe(some.b32),
)
def test_what_is_sealed_for_a_reader_is_what_it_opens(
    *,
    header: PayloadHeader,
    body: bytes,
    files: list[bytes],
    pad_block: int,
    numbers: tuple[int, int],
    auth_ref: Any,
) -> None:
    ctx = context(client_seq=numbers[0], prev_ack=numbers[1], auth_ref=auth_ref)
    header = replace(header, att_root=None)
    made = seal(
        ctx,
        recipient=reader_public(),
        header=header,
        body=body,
        pad_block=pad_block,
        random=counted_random(),
        attachments=files,
    )
    message = Msg.decode(Msg.sign(signing_key(), ctx, made.ciphertext).encode())
    message.verify()
    opened = open_msg(message, reader_key(), pad_block=pad_block)
    assert opened.body == body
    assert replace(opened.header, att_root=None) == header
    assert opened.open_attachments(made.attachments, [len(item) for item in files]) == tuple(files)


@settings(max_examples=60)
@given(some.msgs, some.msgs)
def test_a_message_is_bound_to_all_of_its_fields(first: Msg, second: Msg) -> None:
    ctx = replace(first.context, client_id=KEY.public_key)
    signed = Msg.sign(KEY, ctx, first.ciphertext)
    signed.verify()
    for item in fields(Msg):
        if item.init and item.name != "sig":
            change: Any = {item.name: getattr(second, item.name)}
            changed = replace(signed, **change)
            if changed != signed:
                with refused(Detail.SIG_INVALID):
                    changed.verify_signature()
