"""The identity card: the public half of a client, signed by its own identity key.

With a card, anyone can seal messages to its owner and issue capability tokens for the owner. It is exchanged
out of band. Key rotation creates a new card, and only those who have both cards can link the two keys.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

from veen.core.crypto import ed25519
from veen.core.crypto.hash import tagged_hash, u64be
from veen.core.encoding.field_types import B32, B64, TEXT, UINT, VER, ListOf
from veen.core.encoding.shape import Field, MapShape
from veen.core.encoding.wire_object import Nested, Wire
from veen.core.errors import Detail, ProtocolError
from veen.core.types import ReaderPublicKey, Signature, VerifyKey

# A bound for untrusted input; more than any client has.
_MAX_PREKEYS: Final = 16
_UNSIGNED: Final = Signature(bytes(ed25519.SIGNATURE_BYTES))
_PREKEY_TAG: Final = "veen/prekey"
_CARD_TAG: Final = "veen/identity-card"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prekey(Wire):
    """A key to seal messages to, with an expiry, signed by the owner's identity (KEX0-004)."""

    SHAPE: ClassVar = MapShape(
        "prekey", Field("key", B32, key=1), Field("expires_at", UINT, key=2), Field("sig", B64, key=3)
    )

    key: ReaderPublicKey
    expires_at: int
    sig: Signature

    @classmethod
    def sign(cls, identity: ed25519.SigningKey, key: ReaderPublicKey, expires_at: int) -> Self:
        """Create a signed prekey."""
        return cls(
            key=key,
            expires_at=expires_at,
            sig=identity.sign(tagged_hash(_PREKEY_TAG, key + u64be(expires_at))),
        )

    def verify(self, id_sign: VerifyKey) -> None:
        """Check the owner's signature."""
        ed25519.verify(id_sign, tagged_hash(_PREKEY_TAG, self.key + u64be(self.expires_at)), self.sig)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityCard(Wire):
    """The public keys of a client, for verifying signatures, sealing messages, and granting access.

    Attributes:
        id_sign: The identity key, which does not change.
        id_dh: The key to seal messages to if no prekey is valid.
        client_id: The key that currently signs messages.
        created_at: When the client was created, in seconds since 1970.
        prekeys: Keys to seal messages to, each for a limited time.
        name: The name that the owner chose.
        sig: Signature of all other fields with the identity key.
    """

    SHAPE: ClassVar = MapShape(
        "identity_card",
        Field("ver", VER, key=1),
        Field("id_sign", B32, key=2),
        Field("id_dh", B32, key=3),
        Field("client_id", B32, key=4),
        Field("created_at", UINT, key=5),
        Field("prekeys", ListOf(Nested(Prekey), max_length=_MAX_PREKEYS), key=6),
        Field("name", TEXT, key=7, optional=True),
        Field("sig", B64, key=8),
    )

    id_sign: VerifyKey
    id_dh: ReaderPublicKey
    client_id: VerifyKey
    created_at: int
    prekeys: tuple[Prekey, ...]
    name: str | None = None
    sig: Signature

    @classmethod
    def make(
        cls,
        identity: ed25519.SigningKey,
        *,
        id_dh: ReaderPublicKey,
        client_id: VerifyKey,
        created_at: int,
        prekeys: Iterable[Prekey],
        name: str | None,
    ) -> Self:
        """Create a signed card."""
        card = cls(
            id_sign=identity.public_key,
            id_dh=id_dh,
            client_id=client_id,
            created_at=created_at,
            prekeys=tuple(prekeys),
            name=name,
            sig=_UNSIGNED,
        )
        return replace(card, sig=identity.sign(card._digest()))

    def _digest(self) -> bytes:
        return tagged_hash(_CARD_TAG, replace(self, sig=_UNSIGNED).encode())

    def verify(self) -> None:
        """Check the card's own signature and those of its prekeys."""
        ed25519.verify(self.id_sign, self._digest(), self.sig)
        for prekey in self.prekeys:
            prekey.verify(self.id_sign)

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Decode and verify a card."""
        card = cls.decode(data)
        try:
            card.verify()
        except ProtocolError:
            raise ProtocolError(Detail.SIG_INVALID, "the card is not signed by its owner") from None
        return card

    def seal_key(self, now: int) -> ReaderPublicKey:
        """Return the key to seal to: the valid prekey that expires last, else that of the identity."""
        valid = [prekey for prekey in self.prekeys if now < prekey.expires_at]
        return max(valid, key=lambda prekey: prekey.expires_at).key if valid else self.id_dh
