"""The unlocked keys of a client, and the subset that decrypts, which is all that tasks need."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen.client.errors import KeystoreError
from veen.client.home.directory import KEYSTORE, ClientHome
from veen.client.keys.keystore import SealedKeystore, Secrets, ask_nobody
from veen.core.crypto.hpke import ReaderKey
from veen.core.errors import ProtocolError
from veen.core.types import ReaderSecretKey, StreamId
from veen.stdx.grammar import counted

# Prompts for a passphrase; None if there is no terminal.
Ask = Callable[[], bytes | None]
# The suffix of the key file beside a keystore that does not have the default name.
_KEY_SUFFIX: Final = ".key"


@dataclass(frozen=True, slots=True, repr=False)
class ReaderKeys:
    """Decryption keys: those of streams, and a reader's own; the likeliest first."""

    shared: Mapping[StreamId, tuple[bytes, ...]]
    own: tuple[bytes, ...]

    def __repr__(self) -> str:
        """Show no secrets."""
        return f"ReaderKeys({counted(len(self.shared), 'stream')})"

    def of(self, stream: StreamId | None) -> list[ReaderKey]:
        """Return the keys to try for messages of a stream; all of them if the stream is not known."""
        if stream is None:
            secrets = [secret for listed in self.shared.values() for secret in listed]
        else:
            secrets = list(self.shared.get(stream, ()))
        return [ReaderKey.from_secret(ReaderSecretKey(secret)) for secret in (*secrets, *self.own)]


@dataclass(frozen=True, slots=True)
class Keyring:
    """The unlocked keys of a client; only decryption keys leave this process."""

    secrets: Secrets

    def reader_keys(self) -> ReaderKeys:
        """Return the keys that executors need."""
        shared: dict[StreamId, tuple[bytes, ...]] = {}
        for key in reversed(self.secrets.streams):
            shared[key.stream_id] = (*shared.get(key.stream_id, ()), key.secret)
        prekeys = (key.secret for key in reversed(self.secrets.prekeys))
        return ReaderKeys(shared, (self.secrets.id_dh, *prekeys))


def load_keyring(path: Path, ask: Ask = ask_nobody) -> Keyring:
    """Unlock a client's keystore, given as its file or its directory."""
    if path.is_dir():
        return Keyring(ClientHome(path).load_secrets(ask)[0])
    if path.name == KEYSTORE:
        return Keyring(ClientHome(path.parent).load_secrets(ask)[0])
    try:
        sealed = SealedKeystore.decode(path.read_bytes())
        secret = ask() if sealed.by_passphrase else path.with_suffix(_KEY_SUFFIX).read_bytes()
    except OSError as error:
        raise KeystoreError(f"{error.filename} cannot be read: {error.strerror}") from None
    except ProtocolError as error:
        raise KeystoreError(f"{path} is not a keystore: {error}") from None
    if secret is None:
        raise KeystoreError(
            f"{path} is protected by a passphrase: set VEEN_KEYSTORE_PASSPHRASE or "
            "VEEN_KEYSTORE_PASSPHRASE_FILE, or run in a terminal"
        )
    return Keyring(sealed.open(secret))
