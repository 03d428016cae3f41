"""Published facts about whole objects: signatures, sizes and encodings, written out by hand."""

from dataclasses import replace

import pytest

from veen.core.crypto import ed25519
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import DEFAULT_LIMITS, ENTRY_HEADER_BYTES, MAX_CAP_CHAIN, MAX_RECEIPT_BYTES
from veen.core.objects.capability import CapToken
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.msg import Msg, MsgContext, PayloadHeader
from veen.core.objects.receipt import Receipt
from veen.core.objects.sealed_payload import Envelope
from veen.core.types import (
    AuthRef,
    Label,
    LeafHash,
    NodeHash,
    ProfileId,
    SchemaId,
    Signature,
    StreamId,
    VerifyKey,
)


def _repeat(byte: int) -> bytes:
    return bytes([byte]) * 32


# --- messages -----------------------------------------------------------------------------------------------

SEED_42_PK = "2152f8d19b791d24453242e15f2eab6cb7cffa7b6a5ed30097960e069881db12"
SEED_42_SIGNED = (
    "89015820" + "01" * 32 + "5820" + "02" * 32 + "5820" + SEED_42_PK + "0503f65820" + "aa" * 32 + "421020"
)
SEED_42_DIGEST = "7a9bae0c9f4cbf917548a2b1225611609ff671235bfe6b5283f9e36dc8b55b69"
SEED_42_SIG = (
    "2f052e79df20e337daaf8f09f40f7a543302a8a37b893137b1eb18c7be644866"
    "716a14128a81e9a86bf6d07c854706768c446d6e877658460903f3f961bc320d"
)


def test_signature_of_a_message() -> None:
    key = ed25519.SigningKey.from_seed(_repeat(0x42))
    assert key.public_key.hex() == SEED_42_PK
    msg = Msg(
        profile_id=ProfileId(_repeat(1)),
        label=Label(_repeat(2)),
        client_id=key.public_key,
        client_seq=5,
        prev_ack=3,
        auth_ref=None,
        ct_hash=_repeat(0xAA),
        ciphertext=b"\x10\x20",
        sig=Signature(bytes.fromhex(SEED_42_SIG)),
    )
    encoded = msg.encode()
    assert encoded[:1].hex() == "8a"
    assert "89" + encoded[1:-66].hex() == SEED_42_SIGNED
    assert msg.signing_digest().hex() == SEED_42_DIGEST
    assert key.sign(msg.signing_digest()).hex() == SEED_42_SIG
    msg.verify_signature()


def test_widths_on_the_wire() -> None:
    key = ed25519.SigningKey.from_seed(_repeat(0x42))
    context = MsgContext(
        profile_id=ProfileId(_repeat(1)),
        label=Label(_repeat(2)),
        client_id=key.public_key,
        client_seq=1,
        prev_ack=0,
        auth_ref=None,
    )
    ciphertext = bytes(65_536)  # the first length with a head of five bytes
    small = Msg.sign(key, context, ciphertext).encode()
    assert small[:4].hex() == "8a015820", "array of ten, ver 1, a 32-byte string"
    assert small[1 + 1 + 3 * 34 + 1 + 1 :][:1] == b"\xf6", "absent auth_ref is null, at index 6"
    assert len(small) - len(ciphertext) == 212
    admitted = replace(context, auth_ref=AuthRef(_repeat(9)))
    assert len(Msg.sign(key, admitted, ciphertext).encode()) - len(ciphertext) == 245
    large = replace(admitted, client_seq=2**64 - 1, prev_ack=2**64 - 1)
    assert len(Msg.sign(key, large, ciphertext).encode()) - len(ciphertext) == 261


def test_envelope_without_padding() -> None:
    envelope = Envelope.parse(bytes.fromhex("aa" * 32 + "00000002000000030102030405"))
    assert (envelope.hdr.hex(), envelope.body.hex(), envelope.padding) == ("0102", "030405", b"")


@pytest.mark.parametrize(
    ("tail", "pad_block"),
    [("00000001000000010c0d000100", 0), ("0000000100000001112200", 4)],
    ids=["non-zero padding", "pad block mismatch"],
)
def test_envelope_with_bad_padding(tail: str, pad_block: int) -> None:
    envelope = Envelope.parse(bytes.fromhex("aa" * 32 + tail))
    with pytest.raises(ProtocolError) as caught:
        envelope.verify_padding(pad_block)
    assert caught.value.detail == Detail.CT_PADDING


def test_payload_header() -> None:
    header = PayloadHeader(schema=SchemaId(_repeat(0x10)), att_root=_repeat(0x11), expires_at=42)
    assert header.encode().hex() == "a3015820" + "10" * 32 + "035820" + "11" * 32 + "05182a"


def test_sizes_of_payload_headers() -> None:
    schema = SchemaId(_repeat(1))
    assert len(PayloadHeader(schema=schema).encode()) == 36
    full = PayloadHeader(
        schema=schema,
        parent_id=LeafHash(_repeat(2)),
        att_root=_repeat(3),
        cap_ref=AuthRef(_repeat(4)),
        expires_at=2**64 - 1,
    )
    assert len(full.encode()) == 151


# --- receipts, checkpoints, tokens --------------------------------------------------------------------------


def test_signing_digest_of_a_receipt() -> None:
    receipt = Receipt(
        label=Label(_repeat(0x21)),
        stream_seq=5,
        leaf_hash=LeafHash(_repeat(0x22)),
        mmr_root=NodeHash(_repeat(0x23)),
        hub_ts=1_700_000_999,
        hub_sig=Signature(bytes(64)),
    )
    signed = "86015820" + "21" * 32 + "055820" + "22" * 32 + "5820" + "23" * 32 + "1a6553f4e7"
    assert receipt.encode()[:1] == b"\x87"
    assert "86" + receipt.encode()[1:-66].hex() == signed
    assert (
        receipt.signing_digest().hex() == "e32a6672b7dd30b257c43fb1b1218c2772cb701fde392863574c658ed8789d8d"
    )


CHECKPOINT_SIG = (
    "b2137f4499b5774c357ff71fc6f32a36eb00f0c8f4f726976f197d1901ae1def"
    "b5b5c435d1254a62e2227601ffeaf357393cff14cb6d709088943f617d155306"
)


def _checkpoint(*witnesses: ed25519.SigningKey) -> Checkpoint:
    return Checkpoint.sign(
        ed25519.SigningKey.from_seed(_repeat(0x55)),
        label_prev=Label(_repeat(0x11)),
        label_curr=Label(_repeat(0x22)),
        upto_seq=42,
        mmr_root=NodeHash(_repeat(0x33)),
        epoch=77,
        witnesses=witnesses,
    )


def test_checkpoint() -> None:
    checkpoint = _checkpoint()
    assert (
        checkpoint.signing_digest().hex()
        == "837de9975628ba372e6c90e5c6389df29a44c50082aa4af7938051d6f20898e9"
    )
    assert checkpoint.hub_sig.hex() == CHECKPOINT_SIG
    fields = "87015820" + "11" * 32 + "5820" + "22" * 32 + "182a5820" + "33" * 32 + "184d5840"
    assert checkpoint.encode().hex() == fields + CHECKPOINT_SIG
    hub_pk = "c6822637c7d310ec57627be00ba259d253749f4aaf644470cffbe53a35f73242"
    checkpoint.verify_signature(VerifyKey(bytes.fromhex(hub_pk)))


def test_checkpoint_with_a_witness_has_eight_elements() -> None:
    assert _checkpoint(ed25519.SigningKey.from_seed(_repeat(1))).encode()[:1] == b"\x88"


def test_largest_receipt_and_checkpoint() -> None:
    receipt = Receipt(
        label=Label(_repeat(1)),
        stream_seq=2**64 - 1,
        leaf_hash=LeafHash(_repeat(2)),
        mmr_root=NodeHash(_repeat(3)),
        hub_ts=2**64 - 1,
        hub_sig=Signature(bytes(64)),
    )
    checkpoint = Checkpoint(
        label_prev=Label(_repeat(1)),
        label_curr=Label(_repeat(2)),
        upto_seq=2**64 - 1,
        mmr_root=NodeHash(_repeat(3)),
        epoch=2**64 - 1,
        hub_sig=Signature(bytes(64)),
    )
    assert len(receipt.encode()) == len(checkpoint.encode()) == 188 == MAX_RECEIPT_BYTES


def test_other_sizes() -> None:
    assert ENTRY_HEADER_BYTES == 82
    assert DEFAULT_LIMITS.max_submit_bytes - DEFAULT_LIMITS.max_msg_bytes == 4
    assert MAX_CAP_CHAIN == 8


def test_a_token_with_nine_links_is_refused() -> None:
    issuer = ed25519.SigningKey.from_seed(_repeat(1))
    token = CapToken.mint(issuer, VerifyKey(_repeat(2)), stream_ids=[StreamId(_repeat(3))], ttl=1)
    chain = b"\x05\x81\x58\x40" + token.sig_chain[0]
    nine = token.encode()[: -len(chain)] + b"\x05\x89" + 9 * (b"\x58\x40" + token.sig_chain[0])
    with pytest.raises(ProtocolError) as caught:
        CapToken.decode(nine)
    assert caught.value.detail == Detail.FIELD_SIZE


def test_a_token_of_version_2_is_refused() -> None:
    issuer = ed25519.SigningKey.from_seed(_repeat(1))
    token = CapToken.mint(issuer, VerifyKey(_repeat(2)), stream_ids=[StreamId(_repeat(3))], ttl=1)
    with pytest.raises(ProtocolError) as caught:
        CapToken.decode(b"\xa5\x01\x02" + token.encode()[3:])
    assert caught.value.detail == Detail.VERSION
