"""The keys of a client, unlocked; and those of them that read, which is all that a task ever needs."""

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

#: Asks for a passphrase; None if nobody can be asked.
Ask = Callable[[], bytes | None]
#: Of a keystore with another name: its key is beside it, with this ending.
_KEY_SUFFIX: Final = ".key"


@dataclass(frozen=True, slots=True, repr=False)
class ReaderKeys:
    """What opens messages: the keys of streams, and a reader's own; the likeliest first."""

    shared: Mapping[StreamId, tuple[bytes, ...]]
    own: tuple[bytes, ...]

    def __repr__(self) -> str:
        """Show no secret, whoever prints this."""
        return f"ReaderKeys({len(self.shared)} streams)"

    def of(self, stream: StreamId | None) -> list[ReaderKey]:
        """Return the keys to try for messages of a stream; all of them, if it is not known which it is."""
        if stream is None:
            secrets = [secret for listed in self.shared.values() for secret in listed]
        else:
            secrets = list(self.shared.get(stream, ()))
        return [ReaderKey.from_secret(ReaderSecretKey(secret)) for secret in (*secrets, *self.own)]


@dataclass(frozen=True, slots=True)
class Keyring:
    """The keys of a client, unlocked; only those that read ever leave this process."""

    secrets: Secrets

    def reader_keys(self) -> ReaderKeys:
        """Return what executors need."""
        shared: dict[StreamId, tuple[bytes, ...]] = {}
        for key in reversed(self.secrets.streams):
            shared[key.stream_id] = (*shared.get(key.stream_id, ()), key.secret)
        prekeys = (key.secret for key in reversed(self.secrets.prekeys))
        return ReaderKeys(shared, (self.secrets.id_dh, *prekeys))


def load_keyring(path: Path, ask: Ask = ask_nobody) -> Keyring:
    """Unlock a client's keystore: the file, or the directory that it is in."""
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
