"""What a ciphertext is bound to: every field of the context is in aad or nonce, none can run into another."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from tests.builders import context, digest, verify_key
from tests.expect import refused
from veen.core.errors import Detail
from veen.core.objects.msg import MsgContext, attachment_nonce
from veen.core.types import AuthRef


def u64(value: int) -> bytes:
    return value.to_bytes(8, "big")


def test_the_aad_is_the_hash_of_all_fields() -> None:
    ref = AuthRef(digest("token"))
    ctx = context(client_seq=5, prev_ack=300, auth_ref=ref)
    fields = ctx.profile_id + ctx.label + ctx.client_id + u64(5) + u64(300) + ref
    assert ctx.aad() == sha256(b"veen/aad\x00" + fields).digest()


def test_without_a_token_the_aad_has_32_zero_bytes() -> None:
    ctx = context()
    fields = ctx.profile_id + ctx.label + ctx.client_id + u64(1) + u64(0) + bytes(32)
    assert ctx.aad() == sha256(b"veen/aad\x00" + fields).digest()


def test_the_body_nonce_is_of_label_prev_ack_client_and_sequence() -> None:
    ctx = context(client_seq=5, prev_ack=300)
    preimage = b"veen/nonce\x00" + ctx.label + u64(300) + ctx.client_id + u64(5)
    assert ctx.body_nonce() == sha256(preimage).digest()[:24]


def test_the_attachment_nonce_is_of_aad_and_index() -> None:
    aad = context().aad()
    assert attachment_nonce(aad, 7) == sha256(b"veen/att-nonce\x00" + aad + u64(7)).digest()[:24]
    assert len({attachment_nonce(aad, index) for index in range(1024)}) == 1024


CHANGES: dict[str, Any] = {
    "profile_id": digest("other"),
    "label": digest("other"),
    "client_id": verify_key("other"),
    "client_seq": 2,
    "prev_ack": 1,
    "auth_ref": AuthRef(digest("other")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_field_changes_the_aad(name: str) -> None:
    assert replace(context(), **{name: CHANGES[name]}).aad() != context().aad()


@pytest.mark.parametrize("name", ["label", "client_id", "client_seq", "prev_ack"])
def test_nonces_separate_messages(name: str) -> None:
    assert replace(context(), **{name: CHANGES[name]}).body_nonce() != context().body_nonce()


@pytest.mark.parametrize("name", ["profile_id", "label", "client_id", "auth_ref"])
@pytest.mark.parametrize("size", [0, 31, 33])
def test_fields_of_another_length_are_refused(name: str, size: int) -> None:
    wrong: Any = {name: bytes(size)}
    with refused(Detail.FIELD_SIZE, field=name):
        replace(context(), **wrong)


def test_sequence_numbers_are_64_bits() -> None:
    for number in (-1, 2**64):
        with refused(Detail.VALUE):
            context(client_seq=number).aad()
        with refused(Detail.VALUE):
            context(prev_ack=number).body_nonce()
    top = context(client_seq=2**64 - 1, prev_ack=2**64 - 1)
    assert isinstance(top, MsgContext)
    assert len(top.aad()) == 32
