"""Sharing the reader key of a stream: a file, sealed to the card of one member."""

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from veen.client.keys.identity_card import IdentityCard
from veen.client.keys.keystore import Secrets, StreamKey
from veen.core.crypto import ed25519, hpke
from veen.core.crypto.hash import tagged_hash
from veen.core.crypto.hpke import ReaderKey
from veen.core.encoding.field_types import B32, B64, BYTES, VER
from veen.core.encoding.shape import Field, MapShape
from veen.core.encoding.wire_object import Nested, Wire
from veen.core.errors import Detail, ProtocolError
from veen.core.objects import labels
from veen.core.types import RandomBytes, ReaderSecretKey, Signature, VerifyKey

# Separates the domains of shared keys and messages: neither can be opened as the other.
_INFO: Final = b"veen/stream-key"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedKey(Wire):
    """A reader key for one member, signed by the client that shares it."""

    SHAPE: ClassVar = MapShape(
        "shared_key",
        Field("giver", B32, key=1),
        Field("taker", B32, key=2),
        Field("key", Nested(StreamKey), key=3),
        Field("sig", B64, key=4),
    )

    giver: VerifyKey
    # The identity of the member: no other member can be given the key in the giver's name.
    taker: VerifyKey
    key: StreamKey
    sig: Signature

    @classmethod
    def sign(cls, giver: ed25519.SigningKey, taker: VerifyKey, key: StreamKey) -> Self:
        """Create a signed shared key."""
        return cls(
            giver=giver.public_key,
            taker=taker,
            key=key,
            sig=giver.sign(_digest(giver.public_key, taker, key)),
        )

    def verify(self) -> None:
        """Check the giver's signature."""
        ed25519.verify(self.giver, _digest(self.giver, self.taker, self.key), self.sig)


def _digest(giver: VerifyKey, taker: VerifyKey, key: StreamKey) -> bytes:
    return tagged_hash("veen/stream-key", giver + taker + key.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedKey(Wire):
    """The file for a member."""

    SHAPE: ClassVar = MapShape(
        "sealed_key", Field("ver", VER, key=1), Field("enc", B32, key=2), Field("sealed", BYTES, key=3)
    )

    enc: bytes
    sealed: bytes


def share(secrets: Secrets, key: StreamKey, card: IdentityCard, now: int, random: RandomBytes) -> SealedKey:
    """Seal a reader key to a member's card."""
    shared = SharedKey.sign(secrets.identity, card.id_sign, key)
    enc, context = hpke.setup_sender(card.seal_key(now), ReaderSecretKey(random(hpke.KEY_BYTES)), _INFO)
    return SealedKey(enc=enc, sealed=context.seal(b"", shared.encode()))


def accept(secrets: Secrets, sealed: SealedKey) -> SharedKey:
    """Open a reader key that was shared with this client, and verify the giver's signature."""
    mine = [secrets.id_dh, *(key.secret for key in reversed(secrets.prekeys))]
    for secret in mine:
        key = ReaderKey.from_secret(ReaderSecretKey(secret))
        try:
            data = hpke.setup_receiver(sealed.enc, key, _INFO).open(b"", sealed.sealed)
        except ProtocolError:
            continue
        shared = SharedKey.decode(data)
        shared.verify()
        name = shared.key.name
        if name is not None and labels.stream_id(name) != shared.key.stream_id:
            raise ProtocolError(Detail.VALUE, "the key is of another stream than it claims", field="name")
        if shared.taker != secrets.identity.public_key:
            break
        return shared
    raise ProtocolError(Detail.HDR_AEAD, "this key was not shared with this client")
