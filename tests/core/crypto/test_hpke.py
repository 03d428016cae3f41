"""HPKE against another implementation, in both directions, and at the keys that it must refuse."""

import hmac

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey, KEMKeyInterface, KEMKeyPair

from tests.builders import reader_key, reader_public, reader_secret
from tests.expect import refused
from veen.core.crypto import hpke
from veen.core.errors import Detail, Stage
from veen.core.types import ReaderPublicKey, ReaderSecretKey

SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305)

keys = st.binary(min_size=32, max_size=32)
texts = st.binary(max_size=300)

#: The points of small order on X25519, and those that equal them modulo the prime.
SMALL_ORDER = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]


def private_key(secret: bytes) -> KEMKeyInterface:
    return KEMKey.from_pyca_cryptography_key(X25519PrivateKey.from_private_bytes(secret))


def public_key(public: bytes) -> KEMKeyInterface:
    return KEMKey.from_pyca_cryptography_key(X25519PublicKey.from_public_bytes(public))


@given(secret=keys, ephemeral=keys, aad=texts, plaintext=texts, label=texts, info=texts)
def test_what_we_seal_another_implementation_opens(
    *, secret: bytes, ephemeral: bytes, aad: bytes, plaintext: bytes, label: bytes, info: bytes
) -> None:
    recipient = hpke.public_key(ReaderSecretKey(secret))
    enc, context = hpke.setup_sender(recipient, ReaderSecretKey(ephemeral), info)
    theirs = SUITE.create_recipient_context(enc, private_key(secret), info=info)
    assert theirs.open(context.seal(aad, plaintext), aad=aad) == plaintext
    assert theirs.export(label, 32) == context.export(label)


@given(secret=keys, ephemeral=keys, aad=texts, plaintext=texts, label=texts, info=texts)
def test_what_another_implementation_seals_we_open(
    *, secret: bytes, ephemeral: bytes, aad: bytes, plaintext: bytes, label: bytes, info: bytes
) -> None:
    pair = KEMKeyPair(private_key(ephemeral), public_key(hpke.public_key(ReaderSecretKey(ephemeral))))
    recipient = public_key(hpke.public_key(ReaderSecretKey(secret)))
    enc, theirs = SUITE.create_sender_context(recipient, info=info, eks=pair)
    context = hpke.setup_receiver(enc, hpke.ReaderKey.from_secret(ReaderSecretKey(secret)), info)
    assert context.open(aad, theirs.seal(plaintext, aad=aad)) == plaintext
    assert context.export(label) == theirs.export(label, 32)


@given(key=st.binary(max_size=64), data=texts)
def test_the_hmac_written_here_is_that_of_the_standard_library(key: bytes, data: bytes) -> None:
    assert hpke._hmac(hpke._pads(key), data) == hmac.digest(key, data, "sha256")


def contexts() -> tuple[hpke.Context, hpke.Context]:
    enc, sender = hpke.setup_sender(reader_public(), reader_secret("ephemeral"))
    return sender, hpke.setup_receiver(enc, reader_key())


def test_sender_and_receiver_agree() -> None:
    sender, receiver = contexts()
    assert receiver.open(b"aad", sender.seal(b"aad", b"text")) == b"text"
    assert receiver.export(b"label") == sender.export(b"label")
    assert sender.export(b"label") != sender.export(b"other")
    assert len(sender.export(b"")) == 32


def test_a_changed_text_aad_key_or_info_does_not_open() -> None:
    sender, receiver = contexts()
    sealed = sender.seal(b"aad", b"text")
    for index in range(len(sealed)):
        changed = sealed[:index] + bytes((sealed[index] ^ 1,)) + sealed[index + 1 :]
        with refused(Detail.HDR_AEAD) as caught:
            receiver.open(b"aad", changed)
        assert caught.value.stage == Stage.OPEN
    for short in (b"", sealed[:15], sealed[:16], sealed[:-1], sealed + b"\x00"):
        with refused(Detail.HDR_AEAD):
            receiver.open(b"aad", short)
    with refused(Detail.HDR_AEAD):
        receiver.open(b"other", sealed)
    enc, sender = hpke.setup_sender(reader_public(), reader_secret("ephemeral"), b"info")
    sealed = sender.seal(b"aad", b"text")
    with refused(Detail.HDR_AEAD):
        hpke.setup_receiver(enc, reader_key(), b"other").open(b"aad", sealed)
    with refused(Detail.HDR_AEAD):
        hpke.setup_receiver(enc, reader_key("other"), b"info").open(b"aad", sealed)


@pytest.mark.parametrize("point", SMALL_ORDER)
@pytest.mark.parametrize("top_bit", [0, 0x80])
def test_an_all_zero_agreement_is_refused_on_both_sides(point: str, top_bit: int) -> None:
    encoded = bytearray.fromhex(point)
    encoded[31] |= top_bit  # the highest bit is ignored by the curve, so it must not hide such a point
    with refused(Detail.DH_ZERO):
        hpke.setup_sender(ReaderPublicKey(bytes(encoded)), reader_secret("ephemeral"))
    with refused(Detail.DH_ZERO):
        hpke.setup_receiver(bytes(encoded), reader_key())


@pytest.mark.parametrize("size", [0, 31, 33])
def test_keys_have_32_bytes(size: int) -> None:
    wrong = bytes(range(1, 65))[:size]
    with refused(Detail.FIELD_SIZE):
        hpke.public_key(ReaderSecretKey(wrong))
    with refused(Detail.FIELD_SIZE):
        hpke.setup_sender(ReaderPublicKey(wrong), reader_secret())
    with refused(Detail.FIELD_SIZE):
        hpke.setup_sender(reader_public(), ReaderSecretKey(wrong))
    with refused(Detail.FIELD_SIZE):
        hpke.setup_receiver(wrong, reader_key())
    with refused(Detail.FIELD_SIZE):
        hpke.setup_receiver(reader_public(), hpke.ReaderKey.from_secret(ReaderSecretKey(wrong)))


@given(keys)
def test_public_keys_are_those_of_x25519(secret: bytes) -> None:
    theirs = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    assert hpke.public_key(ReaderSecretKey(secret)) == theirs


def test_no_key_is_ever_shown() -> None:
    sender, _ = contexts()
    shown = repr(sender)
    for secret in (sender._key, sender._nonce, sender._exporter_secret):
        assert repr(secret)[2:-1] not in shown
        assert secret.hex() not in shown
