"""keystore.enc: the secrets of a client, sealed under a passphrase or the key in keystore.key.

Argon2id derives the key from a passphrase. XChaCha20-Poly1305 seals, with the other fields as associated
data, so that changes of the kind or the parameters are detected. A client without a passphrase (CLI-053) is
protected only by file permissions.

Sources of the passphrase, in this order: a variable, a file, a prompt.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Final, Self

from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt as aead_decrypt,
)
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_encrypt as aead_encrypt,
)
from nacl.exceptions import CryptoError
from nacl.pwhash import argon2id

from veen.client.errors import KeystoreError
from veen.client.keys.identity_card import IdentityCard, Prekey
from veen.core.crypto import hpke
from veen.core.crypto.ed25519 import SEED_BYTES, SigningKey
from veen.core.crypto.hpke import ReaderKey
from veen.core.encoding.field_types import B16, B32, BYTES, TEXT, UINT, VER, ListOf
from veen.core.encoding.shape import Field, MapShape
from veen.core.encoding.wire_object import Nested, Wire
from veen.core.errors import Detail, ProtocolError
from veen.core.types import RandomBytes, ReaderPublicKey, ReaderSecretKey, StreamId, VerifyKey

KEY_BYTES: Final = 32
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 24
# RFC 9106 section 4, second recommendation: three passes over 64 MiB.
_PASSES: Final = 3
_MEMORY: Final = 64 << 20
# Bounds for untrusted files, which could otherwise exhaust memory or take hours.
_MAX_PASSES, _MAX_MEMORY = 16, 1 << 30
# Lifetime of a prekey.
PREKEY_SEC: Final = 30 * 86_400

# A card has the newest prekeys.
_MAX_CARD_PREKEYS: Final = 16

_BY_PASSPHRASE: Final = "argon2id"  # noqa: S105 - a kind of keystore
_BY_FILE: Final = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedKeystore(Wire):
    """The file: the parameters of key derivation, and the sealed secrets."""

    SHAPE: ClassVar = MapShape(
        "keystore",
        Field("ver", VER, key=1),
        Field("kdf", TEXT, key=2),
        Field("salt", B16, key=3),
        Field("passes", UINT, key=4),
        Field("memory", UINT, key=5),
        Field("nonce", BYTES, key=6),
        Field("sealed", BYTES, key=7),
    )

    kdf: str
    salt: bytes
    passes: int
    memory: int
    nonce: bytes
    sealed: bytes

    def _validate(self) -> None:
        if self.kdf not in (_BY_PASSPHRASE, _BY_FILE):
            raise ProtocolError(Detail.VALUE, f"unknown kind of keystore: {self.kdf!r}", field="kdf")
        if not (0 < self.passes <= _MAX_PASSES and 8 << 10 <= self.memory <= _MAX_MEMORY):
            raise ProtocolError(
                Detail.VALUE, "the parameters of the keystore are out of range", field="memory"
            )
        if len(self.nonce) != _NONCE_BYTES:
            raise ProtocolError(Detail.FIELD_SIZE, "a nonce has 24 bytes", field="nonce")

    @property
    def by_passphrase(self) -> bool:
        """Whether it is sealed under a passphrase rather than a key file."""
        return self.kdf == _BY_PASSPHRASE

    def _key(self, secret: bytes) -> bytes:
        if not self.by_passphrase:
            return secret
        return argon2id.kdf(KEY_BYTES, secret, self.salt, opslimit=self.passes, memlimit=self.memory)

    def _bound(self) -> bytes:
        return replace(self, sealed=b"").encode()

    @classmethod
    def seal(cls, secrets: "Secrets", secret: bytes, random: RandomBytes, *, passphrase: bool) -> Self:
        """Seal secrets under a passphrase, or under the 32 bytes of a key file."""
        empty = cls(
            kdf=_BY_PASSPHRASE if passphrase else _BY_FILE,
            salt=random(_SALT_BYTES),
            passes=_PASSES,
            memory=_MEMORY,
            nonce=random(_NONCE_BYTES),
            sealed=b"",
        )
        sealed = aead_encrypt(secrets.encode(), empty._bound(), empty.nonce, empty._key(secret))
        return replace(empty, sealed=sealed)

    def open(self, secret: bytes) -> "Secrets":
        """Open it with the passphrase, or with the key from the key file."""
        try:
            data = aead_decrypt(self.sealed, self._bound(), self.nonce, self._key(secret))
        except (CryptoError, ValueError):
            what = "the passphrase" if self.by_passphrase else "the key file"
            raise KeystoreError(f"{what} does not open this keystore") from None
        return Secrets.decode(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKey(Wire):
    """A key that signs messages, and when it was created."""

    SHAPE: ClassVar = MapShape("client_key", Field("seed", B32, key=1), Field("created_at", UINT, key=2))

    seed: bytes = field(repr=False)
    created_at: int

    @property
    def signing_key(self) -> SigningKey:
        """The key pair."""
        return SigningKey.from_seed(self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrekeySecret(Wire):
    """The secret key of a prekey; it is retained to open old messages."""

    SHAPE: ClassVar = MapShape("prekey_secret", Field("secret", B32, key=1), Field("expires_at", UINT, key=2))

    secret: bytes = field(repr=False)
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamKey(Wire):
    """The reader key of a stream, shared by its members."""

    SHAPE: ClassVar = MapShape(
        "stream_key",
        Field("stream_id", B32, key=1),
        Field("secret", B32, key=2),
        Field("created_at", UINT, key=3),
        Field("name", TEXT, key=4, optional=True),
    )

    stream_id: StreamId
    secret: bytes = field(repr=False)
    created_at: int
    name: str | None = None

    @property
    def public_key(self) -> ReaderPublicKey:
        """The key that members seal messages to."""
        return hpke.public_key(ReaderSecretKey(self.secret))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Secrets(Wire):
    """All secrets of a client; the last item of each list is the current one.

    Attributes:
        id_sign: Seed of the identity key.
        id_dh: The secret key of the identity, to open messages.
        clients: The keys that sign messages.
        prekeys: The secret keys of prekeys.
        streams: The reader keys of streams that this client is a member of.
        name: The name that the owner chose.
    """

    SHAPE: ClassVar = MapShape(
        "secrets",
        Field("ver", VER, key=1),
        Field("id_sign", B32, key=2),
        Field("id_dh", B32, key=3),
        Field("clients", ListOf(Nested(ClientKey), may_be_empty=False), key=4),
        Field("prekeys", ListOf(Nested(PrekeySecret)), key=5),
        Field("streams", ListOf(Nested(StreamKey)), key=6),
        Field("name", TEXT, key=7, optional=True),
    )

    id_sign: bytes
    id_dh: bytes
    clients: tuple[ClientKey, ...]
    prekeys: tuple[PrekeySecret, ...]
    streams: tuple[StreamKey, ...]
    name: str | None = None

    def __repr__(self) -> str:
        """Show no secret."""
        return f"Secrets({self.identity.public_key.hex()})"

    @classmethod
    def generate(cls, random: RandomBytes, now: int, name: str | None = None) -> Self:
        """Generate the keys of a new client."""
        return cls(
            id_sign=random(SEED_BYTES),
            id_dh=random(hpke.KEY_BYTES),
            clients=(ClientKey(seed=random(SEED_BYTES), created_at=now),),
            prekeys=(PrekeySecret(secret=random(hpke.KEY_BYTES), expires_at=now + PREKEY_SEC),),
            streams=(),
            name=name,
        )

    @property
    def identity(self) -> SigningKey:
        """The identity key, which never changes: it signs cards and capability tokens."""
        return SigningKey.from_seed(self.id_sign)

    @property
    def client(self) -> ClientKey:
        """The key that currently signs messages."""
        return self.clients[-1]

    def client_ids(self) -> set[VerifyKey]:
        """Return all keys that have signed messages of this client, including that of the identity."""
        return {key.signing_key.public_key for key in self.clients} | {self.identity.public_key}

    def rotated(self, random: RandomBytes, now: int) -> Self:
        """Return the secrets with a new client key and a new prekey."""
        return replace(
            self,
            clients=(*self.clients, ClientKey(seed=random(SEED_BYTES), created_at=now)),
            prekeys=(
                *self.prekeys,
                PrekeySecret(secret=random(hpke.KEY_BYTES), expires_at=now + PREKEY_SEC),
            ),
        )

    def with_stream(self, key: StreamKey) -> Self:
        """Return the secrets with a reader key, unless they already contain it."""
        if any((item.stream_id, item.secret) == (key.stream_id, key.secret) for item in self.streams):
            return self
        return replace(self, streams=(*self.streams, key))

    def stream_key(self, stream: StreamId) -> StreamKey | None:
        """Return the newest reader key of a stream."""
        return next((key for key in reversed(self.streams) if key.stream_id == stream), None)

    def reader_keys(self, stream: StreamId) -> list[ReaderKey]:
        """Return every key that a message of this stream may be sealed to, the most likely first."""
        return self._reader_keys([key for key in self.streams if key.stream_id == stream])

    def all_reader_keys(self) -> list[ReaderKey]:
        """Return every key that any message may be sealed to."""
        return self._reader_keys(self.streams)

    def _reader_keys(self, shared: Sequence[StreamKey]) -> list[ReaderKey]:
        secrets = [key.secret for key in reversed(shared)]
        secrets += [self.id_dh, *(key.secret for key in reversed(self.prekeys))]
        return [ReaderKey.from_secret(ReaderSecretKey(secret)) for secret in secrets]

    def card(self, now: int) -> IdentityCard:
        """Return the identity card, with the prekeys that are still valid."""
        identity = self.identity
        return IdentityCard.make(
            identity,
            id_dh=hpke.public_key(ReaderSecretKey(self.id_dh)),
            client_id=self.client.signing_key.public_key,
            created_at=self.clients[0].created_at,
            prekeys=[
                Prekey.sign(identity, hpke.public_key(ReaderSecretKey(key.secret)), key.expires_at)
                for key in self.prekeys
                if now < key.expires_at
            ][-_MAX_CARD_PREKEYS:],
            name=self.name,
        )


VARIABLE: Final = "VEEN_KEYSTORE_PASSPHRASE"
FILE_VARIABLE: Final = "VEEN_KEYSTORE_PASSPHRASE_FILE"


def ask_nobody() -> bytes | None:
    """Return no passphrase: there is no terminal to prompt at."""
    return None


def given_passphrase(environment: Mapping[str, str]) -> bytes | None:
    """Return the passphrase from the environment, or None."""
    if environment.get(VARIABLE):
        return _bytes(environment[VARIABLE])
    path = environment.get(FILE_VARIABLE)
    if not path:
        return None
    try:
        passphrase = Path(path).read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise KeystoreError(f"{FILE_VARIABLE}: {path} cannot be read: {error.strerror}") from None
    if not passphrase:
        raise KeystoreError(f"{FILE_VARIABLE}: {path} contains no passphrase")
    return passphrase


def _bytes(text: str) -> bytes:
    # Bytes that are not UTF-8 were decoded to surrogates.
    return text.encode(errors="surrogateescape")


def asker(environment: Mapping[str, str], prompt: Callable[[], str | None]) -> Callable[[], bytes | None]:
    """Return a function that gets the passphrase from the environment, or else from ``prompt``."""

    def ask() -> bytes | None:
        passphrase = given_passphrase(environment)
        if passphrase is not None:
            return passphrase
        typed = prompt()
        return None if typed is None else _bytes(typed)

    return ask
