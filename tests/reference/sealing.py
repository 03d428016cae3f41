"""Ciphertexts: HPKE by pyhpke, its key schedule again by hand for the values between, XChaCha20 by PyNaCl."""

import hmac
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
)
from nacl.exceptions import CryptoError
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey, KEMKeyPair
from pyhpke.exceptions import PyHPKEError

from tests.reference import codec, merkle, objects
from tests.reference.basics import Fields, Refused, h, ht, need, sized, u32, u64

SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305)


def _private(secret: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(sized(secret))


def x25519_public(secret: bytes) -> bytes:
    return _private(secret).public_key().public_bytes_raw()


def _labeled(suite: bytes, label: bytes, data: bytes) -> bytes:
    return b"HPKE-v1" + suite + label + data


def schedule(dh: bytes, enc: bytes, recipient_pk: bytes, info: bytes = b"") -> Fields:
    """Return the values of the key schedule (RFC 9180 sections 4.1 and 5.1)."""
    kem, suite = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x03"

    def extract(salt: bytes, data: bytes) -> bytes:
        return hmac.new(salt, data, "sha256").digest()

    def expand(prk: bytes, name: bytes, label: bytes, data: bytes, length: int) -> bytes:
        block = length.to_bytes(2, "big") + _labeled(name, label, data) + b"\x01"
        return hmac.new(prk, block, "sha256").digest()[:length]

    eae_prk = extract(b"", _labeled(kem, b"eae_prk", dh))
    shared_secret = expand(eae_prk, kem, b"shared_secret", enc + recipient_pk, 32)
    context = bytes(1) + extract(b"", _labeled(suite, b"psk_id_hash", b""))
    context += extract(b"", _labeled(suite, b"info_hash", info))
    secret = extract(shared_secret, _labeled(suite, b"secret", b""))
    return {
        "dh": dh,
        "shared_secret": shared_secret,
        "key_schedule_context": context,
        "secret": secret,
        "key": expand(secret, suite, b"key", context, 32),
        "base_nonce": expand(secret, suite, b"base_nonce", context, 12),
        "exporter_secret": expand(secret, suite, b"exp", context, 32),
    }


def xchacha_seal(key: bytes, nonce: bytes, aad: bytes, plaintext: bytes) -> bytes:
    return crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, aad, nonce, key)


def xchacha_open(key: bytes, nonce: bytes, aad: bytes, ciphertext: bytes) -> bytes:
    need(len(ciphertext) >= 16, "shorter than a tag")
    try:
        return crypto_aead_xchacha20poly1305_ietf_decrypt(ciphertext, aad, nonce, key)
    except CryptoError as error:
        raise Refused("AEAD") from error


@dataclass(frozen=True)
class Context:
    """The fields of a message that its ciphertext is bound to."""

    profile_id: bytes
    label: bytes
    client_id: bytes
    client_seq: int
    prev_ack: int
    auth_ref: bytes | None

    @property
    def aad_preimage(self) -> bytes:
        ids = sized(self.profile_id) + sized(self.label) + sized(self.client_id)
        ref = bytes(32) if self.auth_ref is None else sized(self.auth_ref)
        return ids + u64(self.client_seq) + u64(self.prev_ack) + ref

    @property
    def aad(self) -> bytes:
        return ht("veen/aad", self.aad_preimage)

    @property
    def nonce(self) -> bytes:
        fields = self.label + u64(self.prev_ack) + self.client_id + u64(self.client_seq)
        return ht("veen/nonce", fields)[:24]


@dataclass(frozen=True)
class Letter:
    """What is sealed, and for whom."""

    recipient_pk: bytes
    ephemeral_sk: bytes
    header: Fields
    body: bytes
    pad_block: int
    attachments: list[bytes]


def seal(context: Context, letter: Letter) -> tuple[Fields, Fields]:
    """Seal a message; return the results, and the values between."""
    trace: Fields = {"aad_preimage": context.aad_preimage, "aad": context.aad, "body_nonce": context.nonce}
    ephemeral = _private(letter.ephemeral_sk)
    pair = KEMKeyPair(
        KEMKey.from_pyca_cryptography_key(ephemeral),
        KEMKey.from_pyca_cryptography_key(ephemeral.public_key()),
    )
    recipient = X25519PublicKey.from_public_bytes(sized(letter.recipient_pk))
    try:
        enc, ctx = SUITE.create_sender_context(KEMKey.from_pyca_cryptography_key(recipient), eks=pair)
        dh = ephemeral.exchange(recipient)
    except (PyHPKEError, ValueError) as error:
        raise Refused("no agreement with this key") from error
    trace |= {"enc": enc, **schedule(dh, enc, letter.recipient_pk)}
    count = len(letter.attachments)
    keys = [ctx.export(b"veen/att-k" + u64(index), 32) for index in range(count)]
    nonces = [ht("veen/att-nonce", context.aad + u64(index))[:24] for index in range(count)]
    sealed = [
        xchacha_seal(key, nonce, b"", item)
        for key, nonce, item in zip(keys, nonces, letter.attachments, strict=True)
    ]
    coids = [h(item) for item in sealed]
    header = letter.header
    if coids:
        need(header.get("att_root", merkle.att_root(coids)) == merkle.att_root(coids), "att_root")
        header = header | {"att_root": merkle.att_root(coids)}
    plain_header = codec.encode(objects.PAYLOAD_HDR, header)
    body_key = ctx.export(b"veen/body-k", 32)
    sealed_header = ctx.seal(plain_header, aad=context.aad)
    sealed_body = xchacha_seal(body_key, context.nonce, context.aad, letter.body)
    ciphertext = enc + u32(len(sealed_header)) + u32(len(sealed_body)) + sealed_header + sealed_body
    if letter.pad_block:
        while len(ciphertext) % letter.pad_block:
            ciphertext += b"\x00"
    trace |= {"header": plain_header, "body_key": body_key, "sealed_header": sealed_header}
    trace |= {"sealed_body": sealed_body, "att_keys": keys, "att_nonces": nonces}
    trace |= {"peaks": merkle.peaks(coids, "veen/att-node")}
    result = {"ciphertext": ciphertext, "ct_hash": h(ciphertext), "coids": coids, "attachments": sealed}
    return result | {"att_root": merkle.att_root(coids)}, trace


def open_ciphertext(
    context: Context, secret: bytes, ciphertext: bytes, pad_block: int
) -> tuple[Fields, bytes]:
    """Open a ciphertext; return header and body."""
    hdr_end = 40 + int.from_bytes(ciphertext[32:36], "big")
    body_end = hdr_end + int.from_bytes(ciphertext[36:40], "big")
    need(not any(ciphertext[body_end:]), "padding is zeros")
    need(pad_block == 0 or len(ciphertext) % pad_block == 0, "padding is whole blocks")
    key = KEMKey.from_pyca_cryptography_key(_private(secret))
    try:
        ctx = SUITE.create_recipient_context(ciphertext[:32], key)
        plain = ctx.open(ciphertext[40:hdr_end], aad=context.aad)
    except (PyHPKEError, ValueError) as error:
        raise Refused("header does not open") from error
    header = codec.decode(objects.PAYLOAD_HDR, plain)
    body_key = ctx.export(b"veen/body-k", 32)
    return header, xchacha_open(body_key, context.nonce, context.aad, ciphertext[hdr_end:body_end])
