"""HPKE step by step (RFC 9180, base mode, the one suite of the profile): the values between the steps.

Independent of the library, which does not expose these values; generating the vectors checks that both give
the same ciphertexts.
"""

import hmac
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt

from vectors.generators.fixed import ZERO_32, ht, u32, u64
from vectors.generators.scenario import Fields

_KEM: Final = b"KEM" + (0x0020).to_bytes(2, "big")
_SUITE: Final = b"HPKE" + b"".join(number.to_bytes(2, "big") for number in (0x0020, 0x0001, 0x0003))


def _extract(suite: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
    return hmac.digest(salt, b"HPKE-v1" + suite + label + ikm, "sha256")


def _expand(suite: bytes, prk: bytes, label: bytes, info: bytes, length: int) -> bytes:
    labeled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(prk, labeled + b"\x01", "sha256")[:length]


@dataclass(frozen=True, slots=True)
class Setup:
    """A sender's context with all intermediate values."""

    enc: bytes
    dh: bytes
    shared_secret: bytes
    key: bytes
    base_nonce: bytes
    exporter_secret: bytes

    @classmethod
    def sender(cls, recipient_pk: bytes, ephemeral_sk: bytes, info: bytes = b"") -> "Setup":
        """Run SetupBaseS with a given ephemeral key."""
        ephemeral = X25519PrivateKey.from_private_bytes(ephemeral_sk)
        enc = ephemeral.public_key().public_bytes_raw()
        dh = ephemeral.exchange(X25519PublicKey.from_public_bytes(recipient_pk))
        eae_prk = _extract(_KEM, b"", b"eae_prk", dh)
        shared_secret = _expand(_KEM, eae_prk, b"shared_secret", enc + recipient_pk, 32)
        context = (
            b"\x00" + _extract(_SUITE, b"", b"psk_id_hash", b"") + _extract(_SUITE, b"", b"info_hash", info)
        )
        secret = _extract(_SUITE, shared_secret, b"secret", b"")
        return cls(
            enc,
            dh,
            shared_secret,
            _expand(_SUITE, secret, b"key", context, 32),
            _expand(_SUITE, secret, b"base_nonce", context, 12),
            _expand(_SUITE, secret, b"exp", context, 32),
        )

    def seal(self, aad: bytes, plaintext: bytes, seq: int = 0) -> bytes:
        """Seal message number ``seq`` of the context."""
        number = int.from_bytes(self.base_nonce, "big") ^ seq
        return ChaCha20Poly1305(self.key).encrypt(number.to_bytes(12, "big"), plaintext, aad)

    def export(self, label: bytes, length: int = 32) -> bytes:
        """Export a key."""
        return _expand(_SUITE, self.exporter_secret, b"sec", label, length)


@dataclass(frozen=True, slots=True)
class Context:
    """The plaintext fields that a ciphertext is bound to."""

    profile_id: bytes
    label: bytes
    client_id: bytes
    client_seq: int = 1
    prev_ack: int = 0
    auth_ref: bytes | None = None

    @property
    def aad_preimage(self) -> bytes:
        """The fields joined, an absent auth_ref as zeros."""
        numbers = u64(self.client_seq) + u64(self.prev_ack)
        return self.profile_id + self.label + self.client_id + numbers + (self.auth_ref or ZERO_32)

    @property
    def aad(self) -> bytes:
        """The associated data of header and body."""
        return ht("veen/aad", self.aad_preimage)

    @property
    def body_nonce(self) -> bytes:
        """The nonce of the body."""
        return ht("veen/nonce", self.label + u64(self.prev_ack) + self.client_id + u64(self.client_seq))[:24]


def xchacha(key: bytes, nonce: bytes, aad: bytes, plaintext: bytes) -> bytes:
    """Seal with XChaCha20-Poly1305."""
    return crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, aad, nonce, key)


def join(enc: bytes, sealed_header: bytes, sealed_body: bytes) -> bytes:
    """Return the ciphertext of these parts, without padding."""
    return enc + u32(len(sealed_header)) + u32(len(sealed_body)) + sealed_header + sealed_body


def steps(context: Context, recipient_pk: bytes, ephemeral_sk: bytes, header: bytes, body: bytes) -> Fields:
    """Return the values between the inputs of a seal and its ciphertext."""
    setup = Setup.sender(recipient_pk, ephemeral_sk)
    body_key = setup.export(b"veen/body-k")
    return {
        "aad_preimage": context.aad_preimage,
        "aad": context.aad,
        "body_nonce": context.body_nonce,
        "header": header,
        "enc": setup.enc,
        "dh": setup.dh,
        "shared_secret": setup.shared_secret,
        "key": setup.key,
        "base_nonce": setup.base_nonce,
        "exporter_secret": setup.exporter_secret,
        "body_key": body_key,
        "sealed_header": setup.seal(context.aad, header),
        "sealed_body": xchacha(body_key, context.body_nonce, context.aad, body),
    }
