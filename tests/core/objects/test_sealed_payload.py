"""Ciphertext: what is sealed, who can open it, and that nothing of it can change unseen."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as decrypt
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as encrypt

from tests import rawcbor as raw
from tests.builders import (
    cap_token,
    context,
    counted_random,
    digest,
    full_payload_header,
    msg,
    payload_header,
    reader_key,
    reader_public,
    reader_secret,
    sealed,
    signing_key,
    verify_key,
)
from tests.expect import faulty, refused
from veen.core.crypto import hpke
from veen.core.crypto.hash import sha256, u32be
from veen.core.errors import Code, Detail, Fault, ProtocolError, Stage
from veen.core.limits import Limits
from veen.core.objects.msg import Msg, MsgContext
from veen.core.objects.sealed_payload import Envelope, OpenedPayload, open_msg, pad, seal
from veen.core.types import AuthRef, Label, ReaderPublicKey

BODY = b"the body of the message"


def opened(message: Msg, *, pad_block: int = 256, reader: str = "reader") -> OpenedPayload:
    return open_msg(message, reader_key(reader), pad_block=pad_block)


def resigned(message: Msg, ciphertext: bytes) -> Msg:
    """Return the message with another ciphertext, its hash and signature made good again."""
    return Msg.sign(signing_key(), message.context, ciphertext)


# --- the construction, step by step -------------------------------------------------------------------------


def test_a_ciphertext_is_what_its_formula_says() -> None:
    ctx = context(client_seq=3, prev_ack=2, auth_ref=cap_token().auth_ref)
    header = full_payload_header()
    made = sealed(ctx, header=replace(header, att_root=None), body=BODY, pad_block=0).ciphertext
    enc, hdr_len, body_len = made[:32], int.from_bytes(made[32:36], "big"), int.from_bytes(made[36:40], "big")
    assert len(made) == 40 + hdr_len + body_len
    receiver = hpke.setup_receiver(enc, reader_key())
    plain_header = receiver.open(ctx.aad(), made[40 : 40 + hdr_len])
    assert plain_header == replace(header, att_root=None).encode()
    key = receiver.export(b"veen/body-k")
    assert decrypt(made[40 + hdr_len :], ctx.aad(), ctx.body_nonce(), key) == BODY


def test_a_reader_opens_what_was_sealed_for_it() -> None:
    for body in (b"", b"x", BODY, bytes(5_000)):
        for pad_block in (0, 256, 1024):
            ctx = context(auth_ref=cap_token().auth_ref)
            header = payload_header(cap_ref=cap_token().auth_ref, expires_at=5)
            made = sealed(ctx, header=header, body=body, pad_block=pad_block)
            got = opened(msg(ctx, ciphertext=made.ciphertext), pad_block=pad_block)
            assert (got.header, got.body) == (header, body)


def test_sealing_with_the_same_randomness_gives_the_same_bytes_and_otherwise_never() -> None:
    assert sealed(random=counted_random("a")) == sealed(random=counted_random("a"))
    draw = counted_random("a")
    first, second = sealed(random=draw), sealed(random=draw)
    assert first.ciphertext[:32] != second.ciphertext[:32]
    assert first.ciphertext != second.ciphertext
    assert first.ct_hash == sha256(first.ciphertext)


def test_the_minimal_header_has_52_bytes_sealed() -> None:
    envelope = Envelope.parse(sealed(body=b"", pad_block=0).ciphertext)
    assert (len(envelope.enc), len(envelope.hdr), len(envelope.body), envelope.padding) == (32, 52, 16, b"")


def test_randomness_of_the_wrong_length_is_refused() -> None:
    with refused(Detail.FIELD_SIZE):
        sealed(random=lambda _: b"short")


def test_a_recipient_key_of_small_order_is_refused() -> None:
    with refused(Detail.DH_ZERO, code=Code.OPEN):
        seal(
            context(),
            recipient=ReaderPublicKey(bytes(32)),
            header=payload_header(),
            body=b"",
            pad_block=0,
            random=counted_random(),
        )


# --- binding ------------------------------------------------------------------------------------------------

CHANGES: dict[str, Any] = {
    "profile_id": digest("other"),
    "label": Label(digest("other")),
    "client_seq": 2,
    "prev_ack": 1,
    "auth_ref": AuthRef(digest("other")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_ciphertext_does_not_open_in_another_context(name: str) -> None:
    message = msg(body=BODY)
    changed = replace(message.context, **{name: CHANGES[name]})
    with refused(Detail.HDR_AEAD, code=Code.OPEN) as caught:
        opened(Msg.sign(signing_key(), changed, message.ciphertext))
    assert caught.value.stage == Stage.OPEN


def test_a_ciphertext_does_not_open_under_another_client() -> None:
    message = msg(body=BODY)
    stolen = replace(message.context, client_id=verify_key("thief"))
    with refused(Detail.HDR_AEAD):
        opened(Msg.sign(signing_key("thief"), stolen, message.ciphertext))


def test_another_reader_can_not_open() -> None:
    with refused(Detail.HDR_AEAD):
        opened(msg(), reader="other")


@pytest.mark.parametrize("name", CHANGES)
def test_the_body_alone_is_bound_to_the_context_too(name: str) -> None:
    """A reader that took the header on trust would still find the body sealed elsewhere."""
    ctx = context()
    other: MsgContext = replace(ctx, **{name: CHANGES[name]})
    mixed = header_of(sealed_parts(ctx), body_of=sealed_parts(other))
    with refused(Detail.BODY_AEAD, code=Code.OPEN) as caught:
        opened(Msg.sign(signing_key(), ctx, mixed), pad_block=0)
    assert caught.value.stage == Stage.OPEN


def sealed_parts(ctx: MsgContext) -> Envelope:
    return Envelope.parse(sealed(ctx, body=BODY, pad_block=0, random=counted_random("same")).ciphertext)


def header_of(first: Envelope, *, body_of: Envelope) -> bytes:
    assert first.enc == body_of.enc, "one HPKE context, so that only the binding differs"
    lengths = u32be(len(first.hdr)) + u32be(len(body_of.body))
    return first.enc + lengths + first.hdr + body_of.body


def test_the_older_rule_of_empty_aad_does_not_open() -> None:
    ctx = context()
    enc, sender = hpke.setup_sender(reader_public(), reader_secret("ephemeral"))
    hdr = sender.seal(b"", payload_header().encode())
    body = encrypt(BODY, b"", ctx.body_nonce(), sender.export(b"veen/body-k"))
    ciphertext = enc + u32be(len(hdr)) + u32be(len(body)) + hdr + body
    with refused(Detail.HDR_AEAD):
        opened(msg(ctx, ciphertext=ciphertext), pad_block=0)


# --- tampering ----------------------------------------------------------------------------------------------


def flipped(data: bytes, index: int, mask: int = 1) -> bytes:
    return data[:index] + bytes((data[index] ^ mask,)) + data[index + 1 :]


def test_a_change_of_any_byte_is_found_where_it_is() -> None:
    message = msg(body=BODY, pad_block=256)
    envelope = Envelope.parse(message.ciphertext)
    hdr_end = 40 + len(envelope.hdr)
    body_end = hdr_end + len(envelope.body)
    regions: list[tuple[range, set[Detail]]] = [
        (range(32), {Detail.HDR_AEAD, Detail.DH_ZERO}),
        (range(32, 40), {Detail.FIELD_SIZE, Detail.HDR_AEAD, Detail.BODY_AEAD, Detail.CT_PADDING}),
        (range(40, hdr_end), {Detail.HDR_AEAD}),
        (range(hdr_end, body_end), {Detail.BODY_AEAD}),
        (range(body_end, len(message.ciphertext)), {Detail.CT_PADDING}),
    ]
    for region, details in regions:
        for index in region:
            for mask in (1, 0x40):
                changed = resigned(message, flipped(message.ciphertext, index, mask))
                with pytest.raises(ProtocolError) as caught:
                    opened(changed)
                assert caught.value.detail in details


@pytest.mark.parametrize(
    ("index", "detail"),
    [
        (0, Detail.CT_HASH),
        (32, Detail.FIELD_SIZE),
        (39, Detail.CT_PADDING),
        (45, Detail.CT_HASH),
        (100, Detail.CT_HASH),
        (140, Detail.CT_PADDING),
    ],
)
def test_a_change_is_found_before_opening_in_the_order_of_admission(index: int, detail: Detail) -> None:
    message = msg(body=BODY)
    with refused(detail):
        opened(replace(message, ciphertext=flipped(message.ciphertext, index)))


@pytest.mark.parametrize(
    ("hdr_len", "body_len", "detail"),
    [
        (0, 16, Detail.HDR_AEAD),
        (15, 16, Detail.HDR_AEAD),
        (52, 0, Detail.BODY_AEAD),
        (52, 15, Detail.BODY_AEAD),
    ],
)
def test_parts_shorter_than_a_tag_do_not_open(hdr_len: int, body_len: int, detail: Detail) -> None:
    good = Envelope.parse(sealed(body=b"", pad_block=0).ciphertext)
    parts = good.hdr[:hdr_len] + good.body[:body_len]
    ciphertext = good.enc + u32be(hdr_len) + u32be(body_len) + parts
    with refused(detail):
        opened(msg(ciphertext=ciphertext), pad_block=0)


def test_a_header_that_opens_but_is_not_canonical_is_refused() -> None:
    ctx = context()
    enc, sender = hpke.setup_sender(reader_public(), reader_secret("ephemeral"))
    body = encrypt(BODY, ctx.aad(), ctx.body_nonce(), sender.export(b"veen/body-k"))
    hdr = sender.seal(ctx.aad(), raw.with_pair(payload_header().encode(), 9, raw.uint(0)))
    ciphertext = enc + u32be(len(hdr)) + u32be(len(body)) + hdr + body
    with faulty(Fault.UNKNOWN_KEY):
        opened(msg(ctx, ciphertext=ciphertext), pad_block=0)


# --- padding ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pad_block", [1, 7, 256, 1024])
def test_a_ciphertext_is_padded_with_zeros_to_a_multiple(pad_block: int) -> None:
    for body in (b"", bytes(100), bytes(1000)):
        plain = sealed(body=body, pad_block=0).ciphertext
        padded = sealed(body=body, pad_block=pad_block).ciphertext
        assert len(padded) % pad_block == 0
        assert len(padded) - len(plain) < pad_block
        assert padded == plain + bytes(len(padded) - len(plain))


def test_a_multiple_is_not_padded_further() -> None:
    exact = sealed(body=bytes(256 - 108), pad_block=256).ciphertext
    assert len(exact) == 256
    assert pad(bytes(256), 256) == bytes(256)
    assert pad(b"", 256) == b""
    assert pad(b"x", 0) == b"x"


def test_zeros_after_the_body_are_legal_without_a_pad_block_and_in_any_number() -> None:
    message = msg(body=BODY, pad_block=0)
    for extra in (1, 255, 256, 1000):
        assert opened(resigned(message, message.ciphertext + bytes(extra)), pad_block=0).body == BODY
    padded = msg(body=BODY, pad_block=256)
    assert opened(resigned(padded, padded.ciphertext + bytes(512))).body == BODY


def test_a_length_that_is_not_a_multiple_is_refused() -> None:
    message = msg(body=BODY, pad_block=256)
    with refused(Detail.CT_PADDING, field="ciphertext", code=Code.FORMAT) as caught:
        opened(resigned(message, message.ciphertext + bytes(1)))
    assert caught.value.stage == Stage.STRUCTURAL
    with refused(Detail.CT_PADDING):
        opened(resigned(message, message.ciphertext[:-1]))
    with refused(Detail.CT_PADDING):
        opened(msg(body=BODY, pad_block=0), pad_block=256)


def test_a_byte_that_is_not_zero_after_the_body_is_refused() -> None:
    message = msg(body=BODY, pad_block=0)
    for extra in (b"\x01", bytes(255) + b"\x80", b"\x01" + bytes(255)):
        with refused(Detail.CT_PADDING, field="ciphertext"):
            opened(resigned(message, message.ciphertext + extra), pad_block=0)


def test_a_negative_pad_block_is_refused() -> None:
    with refused(Detail.VALUE, field="pad_block"):
        sealed(pad_block=-1)


def test_a_pad_block_that_can_not_fit_is_refused_before_memory_is_asked_for() -> None:
    for pad_block in (2**21, 2**32, 2**62, 2**64 - 1):
        with refused(Detail.FIELD_SIZE):
            sealed(pad_block=pad_block)


# --- sizes --------------------------------------------------------------------------------------------------

MOST = 1_048_576


@pytest.mark.parametrize(("token", "largest"), [(False, 1_048_272), (True, 1_048_239)])
def test_the_largest_body_is_the_one_that_still_fits_in_a_message(token: bool, largest: int) -> None:  # noqa: FBT001
    """The limit on messages bites first; one byte more and no hub accepts it."""
    ctx = context(client_seq=23, prev_ack=23, auth_ref=cap_token().auth_ref if token else None)
    body = bytes(largest - 16)
    fits = msg(ctx, ciphertext=sealed(ctx, body=body, pad_block=0).ciphertext)
    assert len(fits.encode()) == MOST
    assert len(Envelope.parse(fits.ciphertext).body) == largest
    assert opened(Msg.decode(fits.encode()), pad_block=0).body == body
    over = msg(ctx, ciphertext=sealed(ctx, body=body + b"\x00", pad_block=0).ciphertext)
    assert len(over.encode()) == MOST + 1
    with refused(Detail.SIZE_PREFILTER, code=Code.SIZE):
        Msg.decode(over.encode())


def test_a_sender_may_seal_16_bytes_less_than_the_limit_on_body_len() -> None:
    limits = Limits(max_body_bytes=100)
    made = sealed(body=bytes(84), limits=limits)
    assert len(Envelope.parse(made.ciphertext, limits).body) == 100
    with refused(Detail.FIELD_SIZE, field="body") as caught:
        sealed(body=bytes(85), limits=limits)
    assert caught.value.fields == {"field": "body", "actual": 85, "max_allowed": 84}
    with refused(Detail.FIELD_SIZE):
        Envelope.parse(sealed(body=bytes(85)).ciphertext, limits)


def test_padding_counts_for_the_message_but_not_for_the_body() -> None:
    tight = Limits(max_body_bytes=100, max_msg_bytes=1_000)
    assert len(sealed(body=bytes(84), pad_block=1_000, limits=tight).ciphertext) == 1_000
    with refused(Detail.FIELD_SIZE):
        sealed(body=bytes(84), pad_block=1_001, limits=tight)


def test_a_header_over_the_limit_is_refused_by_sender_and_reader() -> None:
    with refused(Detail.FIELD_SIZE):
        sealed(limits=Limits(max_hdr_bytes=51))
    assert sealed(limits=Limits(max_hdr_bytes=52)).ciphertext
    with refused(Detail.FIELD_SIZE):
        open_msg(msg(), reader_key(), pad_block=256, limits=Limits(max_hdr_bytes=51))


PARSES: list[tuple[Callable[[], bytes], bool]] = [
    (lambda: bytes(39), False),
    (lambda: bytes(40), True),
    (lambda: bytes(32) + u32be(1) + u32be(0), False),
    (lambda: bytes(32) + u32be(1) + u32be(1) + b"hb", True),
    (lambda: bytes(32) + u32be(2**32 - 1) + u32be(2**32 - 1), False),
    (lambda: bytes(MOST), True),
    (lambda: bytes(MOST + 1), False),
]


@pytest.mark.parametrize(("make", "fits"), PARSES)
def test_an_envelope_is_taken_apart_only_if_its_lengths_add_up(make: Callable[[], bytes], fits: bool) -> None:  # noqa: FBT001
    ciphertext = make()
    if not fits:
        with refused(Detail.FIELD_SIZE):
            Envelope.parse(ciphertext)
        return
    envelope = Envelope.parse(ciphertext)
    lengths = u32be(len(envelope.hdr)) + u32be(len(envelope.body))
    assert envelope.enc + lengths + envelope.hdr + envelope.body + envelope.padding == ciphertext


# --- secrets ------------------------------------------------------------------------------------------------


def test_an_opened_message_does_not_show_its_keys() -> None:
    got = opened(msg())
    shown = repr(got)
    assert all(hidden not in shown for hidden in ("_context", "Context", "_aad"))
