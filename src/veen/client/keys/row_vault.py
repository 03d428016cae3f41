"""Rows of files with decrypted content, sealed under a key that is derived from a key of the client.

The files reveal no more than the keystore, and a row that was modified or moved to another key cannot be
decrypted. Row names are hashed under the key as well.
"""

from hashlib import blake2b
from typing import Final

from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt as aead_decrypt,
)
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_encrypt as aead_encrypt,
)
from nacl.exceptions import CryptoError

from veen.client.errors import ClientStateError
from veen.client.keys.keystore import Secrets
from veen.core.crypto.hash import tagged_hash
from veen.core.types import RandomBytes

NAME_BYTES: Final = 16
_NONCE_BYTES: Final = 24


class Vault:
    """Seals and opens the rows of one file."""

    def __init__(self, secrets: Secrets, purpose: bytes, random: RandomBytes) -> None:
        """``purpose`` separates files: a row of one cannot be decrypted as a row of another."""
        self._key = tagged_hash("veen/vault", secrets.id_dh + purpose)
        self._random = random

    def name(self, data: bytes) -> bytes:
        """Return a keyed hash as a short name, which reveals nothing about the data."""
        return blake2b(data, digest_size=NAME_BYTES, key=self._key).digest()

    def seal(self, row: bytes, value: bytes) -> bytes:
        """Seal the value of a row."""
        nonce = self._random(_NONCE_BYTES)
        return nonce + aead_encrypt(value, row, nonce, self._key)

    def open(self, row: bytes, sealed: bytes) -> bytes:
        """Open the value of a row."""
        try:
            return aead_decrypt(sealed[_NONCE_BYTES:], row, sealed[:_NONCE_BYTES], self._key)
        except (CryptoError, ValueError):
            raise ClientStateError(
                "a row cannot be decrypted: it was modified, or belongs to another client"
            ) from None
