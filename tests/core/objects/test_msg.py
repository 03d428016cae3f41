"""MSG: its hashes, its signature, and its size."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

import cbor2
import pytest

from tests import rawcbor as raw
from tests.builders import cap_token, context, digest, msg, sealed, signing_key, verify_key
from tests.expect import refused
from veen.core.crypto import ed25519
from veen.core.errors import Code, Detail, Stage
from veen.core.limits import Limits
from veen.core.objects.msg import Msg
from veen.core.types import AuthRef, Label


def test_the_signature_is_over_the_first_nine_fields_as_an_array_of_nine() -> None:
    message = msg()
    nine = cbor2.dumps(cbor2.loads(message.encode())[:9])
    assert nine[0] == 0x89
    digest_signed = sha256(b"veen/sig\x00" + nine).digest()
    assert message.signing_digest() == digest_signed
    ed25519.verify(message.client_id, digest_signed, message.sig)
    assert message.sig == signing_key().sign(digest_signed)


def test_the_leaf_hash_is_over_label_profile_ciphertext_client_and_sequence() -> None:
    message = msg(context(client_seq=258))
    preimage = (
        message.label + message.profile_id + message.ct_hash + message.client_id + (258).to_bytes(8, "big")
    )
    assert message.leaf_hash == sha256(b"veen/leaf\x00" + preimage).digest()


def test_the_leaf_hash_does_not_depend_on_prev_ack_token_or_signature() -> None:
    ciphertext = sealed().ciphertext
    leaf = msg(ciphertext=ciphertext).leaf_hash
    assert msg(context(prev_ack=9), ciphertext=ciphertext).leaf_hash == leaf
    assert msg(context(auth_ref=cap_token().auth_ref), ciphertext=ciphertext).leaf_hash == leaf
    assert msg(context(client_seq=2), ciphertext=ciphertext).leaf_hash != leaf


def test_ct_hash_covers_the_padding() -> None:
    message = msg()
    assert message.ct_hash == sha256(message.ciphertext).digest()
    longer = replace(message, ciphertext=message.ciphertext + bytes(256))
    with refused(Detail.CT_HASH, field="ct_hash", code=Code.FORMAT) as caught:
        longer.verify_ct_hash()
    assert caught.value.stage == Stage.STRUCTURAL


def test_a_good_message_verifies_also_after_a_round_trip() -> None:
    for message in (msg(), msg(context(auth_ref=cap_token().auth_ref, client_seq=2**64 - 1, prev_ack=2**40))):
        message.verify()
        Msg.decode(message.encode()).verify()
        Msg.from_json(message.to_json()).verify()


CHANGES: dict[str, Any] = {
    "profile_id": digest("other"),
    "label": Label(digest("other")),
    "client_id": verify_key("other"),
    "client_seq": 2,
    "prev_ack": 1,
    "auth_ref": AuthRef(digest("other")),
    "ct_hash": digest("other"),
    "ciphertext": bytes(256),
    "sig": signing_key("other").sign(b""),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_any_field_breaks_the_signature(name: str) -> None:
    changed = replace(msg(), **{name: CHANGES[name]})
    with refused(Detail.SIG_INVALID, code=Code.SIG) as caught:
        changed.verify_signature()
    assert caught.value.stage == Stage.AUTH


def test_the_ciphertext_hash_is_judged_before_the_signature() -> None:
    with refused(Detail.CT_HASH):
        replace(msg(), ct_hash=digest("other")).verify()
    with refused(Detail.SIG_INVALID):
        replace(msg(), prev_ack=1).verify()


def test_a_message_remembers_what_it_was_sealed_in() -> None:
    ctx = context(client_seq=3, prev_ack=2, auth_ref=cap_token().auth_ref)
    assert Msg.decode(msg(ctx).encode()).context == ctx


def test_only_the_client_of_the_context_can_sign() -> None:
    with pytest.raises(ValueError, match="not the client"):
        Msg.sign(signing_key("other"), context(), sealed().ciphertext)


def test_signing_refuses_numbers_without_an_encoding() -> None:
    for number in (-1, 2**64):
        with refused(Detail.VALUE):
            Msg.sign(signing_key(), context(client_seq=number), bytes(256))
        with refused(Detail.VALUE):
            Msg.sign(signing_key(), context(prev_ack=number), bytes(256))
    wrong: Any = True
    with pytest.raises(TypeError):
        Msg.sign(signing_key(), context(client_seq=wrong), bytes(256))
    not_bytes: Any = bytearray(256)
    with pytest.raises(TypeError):
        Msg.sign(signing_key(), context(), not_bytes)


def test_signing_is_deterministic() -> None:
    ciphertext = sealed().ciphertext
    assert msg(ciphertext=ciphertext).encode() == msg(ciphertext=ciphertext).encode()


# --- sizes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client_seq", "prev_ack", "token", "overhead"),
    [(23, 23, False, 212), (23, 23, True, 245), (2**64 - 1, 2**64 - 1, True, 261)],
)
def test_the_bytes_around_a_ciphertext(client_seq: int, prev_ack: int, token: bool, overhead: int) -> None:  # noqa: FBT001
    ref = cap_token().auth_ref if token else None
    ciphertext = bytes(70_000)  # its length head has five bytes
    message = msg(context(client_seq=client_seq, prev_ack=prev_ack, auth_ref=ref), ciphertext=ciphertext)
    assert len(message.encode()) - len(ciphertext) == overhead


def test_a_message_of_exactly_the_limit_is_accepted_and_one_byte_more_is_not() -> None:
    most = 1_048_576
    fits = msg(ciphertext=bytes(most - 212))
    assert len(fits.encode()) == most
    assert Msg.decode(fits.encode()) == fits
    over = msg(ciphertext=bytes(most - 211))
    with refused(Detail.SIZE_PREFILTER, code=Code.SIZE) as caught:
        Msg.decode(over.encode())
    assert caught.value.stage == Stage.PREFILTER
    assert caught.value.fields == {"actual": most + 1, "max_allowed": most}


def test_size_is_judged_before_anything_is_parsed() -> None:
    with refused(Detail.SIZE_PREFILTER):
        Msg.decode(b"\xff" * 301, Limits(max_msg_bytes=300))


@pytest.mark.parametrize("index", [1, 2, 3, 6, 7, 9])
@pytest.mark.parametrize("difference", [-1, 1])
def test_fixed_fields_have_their_size(index: int, difference: int) -> None:
    size = 64 if index == 9 else 32
    data = raw.with_element(msg().encode(), index, raw.bstr(bytes(size + difference)))
    with refused(Detail.FIELD_SIZE, field=Msg.SHAPE.fields[index].name, code=Code.SIZE) as caught:
        Msg.decode(data)
    assert caught.value.fields["expected"] == size
    assert caught.value.fields["actual"] == size + difference


def ciphertext_with(hdr_len: int, body_len: int, size: int) -> bytes:
    return bytes(32) + hdr_len.to_bytes(4, "big") + body_len.to_bytes(4, "big") + bytes(size - 40)


@pytest.mark.parametrize(
    ("ciphertext", "fits"),
    [
        (bytes(39), False),
        (bytes(0), False),
        (bytes(40), True),
        (ciphertext_with(1, 0, 40), False),
        (ciphertext_with(0, 1, 40), False),
        (ciphertext_with(1, 1, 41), False),
        (ciphertext_with(1, 1, 42), True),
        (ciphertext_with(16_384, 0, 16_424), True),
        (ciphertext_with(16_385, 0, 16_425), False),
        (ciphertext_with(2**24, 0, 100), False),
        (ciphertext_with(0, 2**24, 100), False),
        (ciphertext_with(2**32 - 1, 0, 100), False),
        (ciphertext_with(0, 2**32 - 1, 100), False),
        (ciphertext_with(2**32 - 1, 2**32 - 1, 100), False),
    ],
)
def test_the_lengths_inside_a_ciphertext_are_judged_without_opening_it(ciphertext: bytes, fits: bool) -> None:  # noqa: FBT001
    data = msg(ciphertext=ciphertext).encode()
    if fits:
        assert Msg.decode(data).ciphertext == ciphertext
    else:
        with refused(Detail.FIELD_SIZE, field="ciphertext", code=Code.SIZE):
            Msg.decode(data)


def test_body_len_has_the_limit_of_the_registry() -> None:
    limits = Limits(max_body_bytes=100)
    Msg.decode(msg(ciphertext=ciphertext_with(0, 100, 200)).encode(), limits)
    with refused(Detail.FIELD_SIZE, field="ciphertext") as caught:
        Msg.decode(msg(ciphertext=ciphertext_with(0, 101, 200)).encode(), limits)
    assert caught.value.fields["max_allowed"] == 100
