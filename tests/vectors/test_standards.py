"""The primitives against the test vectors of their own standards; the data files say where each is from."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
)

from tests.expect import refused
from tests.reference import rfc8032, sealing
from tests.vectors import files
from vectors.generators.hpke_steps import Setup
from veen.core.crypto import ed25519, hpke
from veen.core.errors import Detail
from veen.core.types import ReaderPublicKey, ReaderSecretKey, VerifyKey


def _bytes(vector: dict[str, Any], *names: str) -> list[bytes]:
    return [bytes.fromhex(vector[name]) for name in names]


@pytest.mark.parametrize("vector", files.data("rfc8032.json")["vectors"], ids=lambda vector: vector["name"])
def test_rfc_8032(vector: dict[str, Any]) -> None:
    seed, public, message, signature = _bytes(vector, "seed", "public_key", "message", "signature")
    key = ed25519.SigningKey.from_seed(seed)
    assert key.public_key == public
    assert key.sign(message) == signature
    ed25519.verify(key.public_key, message, signature)
    assert rfc8032.verify(public, message, signature)
    assert Ed25519PrivateKey.from_private_bytes(seed).sign(message) == signature
    Ed25519PublicKey.from_public_bytes(public).verify(signature, message)


@pytest.mark.parametrize("vector", files.data("rfc8032.json")["vectors"], ids=lambda vector: vector["name"])
def test_rfc_8032_with_another_message(vector: dict[str, Any]) -> None:
    public, message, signature = _bytes(vector, "public_key", "message", "signature")
    with refused(Detail.SIG_INVALID):
        ed25519.verify(VerifyKey(public), message + b"\x00", signature)
    assert not rfc8032.verify(public, message + b"\x00", signature)


RFC_9180 = files.data("rfc9180.json")


def test_rfc_9180_sender() -> None:
    info, plaintext = _bytes(RFC_9180, "info", "plaintext")
    recipient, ephemeral = _bytes(RFC_9180, "recipient_pk", "ephemeral_sk")
    enc, context = hpke.setup_sender(ReaderPublicKey(recipient), ReaderSecretKey(ephemeral), info)
    assert enc.hex() == RFC_9180["enc"]
    first = RFC_9180["encryptions"][0]
    assert context.seal(bytes.fromhex(first["aad"]), plaintext).hex() == first["ciphertext"]
    for export in RFC_9180["exports"]:
        assert context.export(bytes.fromhex(export["context"])).hex() == export["value"]


def test_rfc_9180_receiver() -> None:
    info, enc, secret = _bytes(RFC_9180, "info", "enc", "recipient_sk")
    context = hpke.setup_receiver(enc, hpke.ReaderKey.from_secret(ReaderSecretKey(secret)), info)
    first = RFC_9180["encryptions"][0]
    opened = context.open(bytes.fromhex(first["aad"]), bytes.fromhex(first["ciphertext"]))
    assert opened.hex() == RFC_9180["plaintext"]
    for export in RFC_9180["exports"]:
        assert context.export(bytes.fromhex(export["context"])).hex() == export["value"]


def test_rfc_9180_keys() -> None:
    secret, ephemeral = _bytes(RFC_9180, "recipient_sk", "ephemeral_sk")
    assert hpke.public_key(ReaderSecretKey(secret)).hex() == RFC_9180["recipient_pk"]
    assert hpke.public_key(ReaderSecretKey(ephemeral)).hex() == RFC_9180["enc"]


def test_rfc_9180_a_context_is_for_one_message() -> None:
    """A later sequence number is another nonce: what the RFC seals second does not open here."""
    info, enc, secret = _bytes(RFC_9180, "info", "enc", "recipient_sk")
    context = hpke.setup_receiver(enc, hpke.ReaderKey.from_secret(ReaderSecretKey(secret)), info)
    for later in RFC_9180["encryptions"][1:]:
        with refused(Detail.HDR_AEAD):
            context.open(bytes.fromhex(later["aad"]), bytes.fromhex(later["ciphertext"]))


def test_rfc_9180_the_values_between() -> None:
    """The steps that vectors show, and those of the reference, are the RFC's."""
    recipient, ephemeral, info, enc = _bytes(RFC_9180, "recipient_pk", "ephemeral_sk", "info", "enc")
    steps = Setup.sender(recipient, ephemeral, info)
    for name in ("enc", "shared_secret", "key", "base_nonce", "exporter_secret"):
        assert getattr(steps, name).hex() == RFC_9180[name]
    for encryption in RFC_9180["encryptions"]:
        sealed = steps.seal(
            bytes.fromhex(encryption["aad"]), bytes.fromhex(RFC_9180["plaintext"]), encryption["seq"]
        )
        assert sealed.hex() == encryption["ciphertext"]
    schedule = sealing.schedule(steps.dh, enc, recipient, info)
    for name in ("shared_secret", "key_schedule_context", "secret", "key", "base_nonce", "exporter_secret"):
        assert schedule[name].hex() == RFC_9180[name]


def test_xchacha20_poly1305_draft() -> None:
    vector = files.data("xchacha.json")
    key, nonce, aad, plaintext, ciphertext, tag = _bytes(
        vector, "key", "nonce", "aad", "plaintext", "ciphertext", "tag"
    )
    assert crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, aad, nonce, key) == ciphertext + tag
    assert crypto_aead_xchacha20poly1305_ietf_decrypt(ciphertext + tag, aad, nonce, key) == plaintext
    assert sealing.xchacha_seal(key, nonce, aad, plaintext) == ciphertext + tag
