"""The directory of a client: keys, card, state, tokens and outbox.

keystore.enc        secrets, sealed              keystore.key    its key, if there is no passphrase
identity_card.pub   public keys                  state.json      what was verified; counters
caps/*.cap          capability tokens            outbox/*.msgs   messages not acknowledged yet
receipts.cborseq    receipts of own messages     payloads.cborseq   own messages, sealed
*.veen-fraud        evidence against a hub       lock            one writer at a time
"""

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from veen.client.errors import ClientStateError, KeystoreError
from veen.client.fraud import Fraud
from veen.client.home.state import State
from veen.client.keys.keystore import KEY_BYTES, SealedKeystore, Secrets
from veen.core.encoding import hexadecimal
from veen.core.encoding.wire_object import decode_sequence, encode_sequence
from veen.core.errors import ProtocolError
from veen.core.objects.capability import CapToken
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
from veen.core.types import AuthRef, Label, RandomBytes, StreamId, VerifyKey
from veen.stdx.atomic_file import append_file, remove_file, write_file
from veen.stdx.file_lock import FileLock, locked

T = TypeVar("T")

KEYSTORE: Final = "keystore.enc"
KEY_FILE: Final = "keystore.key"
CARD: Final = "identity_card.pub"
STATE: Final = "state.json"
RECEIPTS: Final = "receipts.cborseq"
PAYLOADS: Final = "payloads.cborseq"
CAPS_DIR: Final = "caps"
OUTBOX_DIR: Final = "outbox"
LOCK: Final = "lock"

_WAITING: Final = re.compile(rf"{hexadecimal.HEX32_PATTERN}\.msgs")

# Prompts for a passphrase; None if there is no way to.
AskPassphrase = Callable[[], bytes | None]


class ClientHome:
    """The files of one client. Callers lock: they ``hold`` it around a read followed by a write."""

    def __init__(self, root: Path, random: RandomBytes = os.urandom) -> None:
        self.root = root
        self._random = random

    # --- keys -----------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        root: Path,
        secrets: Secrets,
        *,
        now: int,
        passphrase: bytes | None = None,
        replace: bool = False,
        random: RandomBytes = os.urandom,
    ) -> "ClientHome":
        """Create the directory of a new client; an existing one is changed only with ``replace``."""
        home = cls(root, random)
        if (root / KEYSTORE).exists() and not replace:
            raise KeystoreError(
                f"{root} already contains an identity; use another directory, or --force to destroy this one"
            )
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            with home.hold():
                for old in (STATE, KEY_FILE, KEYSTORE):
                    remove_file(root / old)
                for waiting in home._waiting():
                    remove_file(waiting)
                home.save_secrets(secrets, passphrase, now)
                home.save(State())
        except OSError as error:
            raise ClientStateError(f"{root} cannot be written: {error.strerror}") from None
        return home

    def save_secrets(self, secrets: Secrets, passphrase: bytes | None, now: int) -> None:
        """Seal and write the secrets, and the card that belongs to them."""
        path = self.root / KEY_FILE
        if passphrase is not None:
            key = passphrase
        else:
            if not path.exists():
                write_file(path, self._random(KEY_BYTES))
            key = path.read_bytes()
        sealed = SealedKeystore.seal(secrets, key, self._random, passphrase=passphrase is not None)
        write_file(self.root / KEYSTORE, sealed.encode())
        if passphrase is not None:
            remove_file(path)
        write_file(self.root / CARD, secrets.card(now).encode(), 0o644)

    def load_secrets(self, ask: AskPassphrase) -> tuple[Secrets, bytes | None]:
        """Open the keystore; return the passphrase too, which is needed to rewrite it."""
        path = self.root / KEYSTORE
        try:
            sealed = SealedKeystore.decode(path.read_bytes())
        except ProtocolError as error:
            raise KeystoreError(f"{path} is damaged: {error}") from None
        except OSError as error:
            hint = "make an identity with: veen keygen --out DIR"
            raise KeystoreError(f"{path} cannot be read: {error.strerror}; {hint}") from None
        if not sealed.by_passphrase:
            try:
                return sealed.open((self.root / KEY_FILE).read_bytes()), None
            except OSError as error:
                raise KeystoreError(f"{self.root / KEY_FILE} cannot be read: {error.strerror}") from None
        passphrase = ask()
        if passphrase is None:
            raise KeystoreError(
                f"{self.root} is protected by a passphrase: set VEEN_KEYSTORE_PASSPHRASE or "
                "VEEN_KEYSTORE_PASSPHRASE_FILE, or run in a terminal"
            )
        return sealed.open(passphrase), passphrase

    # --- state ----------------------------------------------------------------------------------------------

    def hold(self) -> contextlib.AbstractContextManager[None]:
        """Hold the lock that excludes other processes that write."""
        return locked(self.root / LOCK)

    def holding(self) -> FileLock:
        """Return the lock, for the caller to acquire and close."""
        return FileLock(self.root / LOCK)

    def load(self) -> State:
        """Read the state; empty if there is no file."""
        path = self.root / STATE
        return State.decode(path.read_bytes()) if path.exists() else State()

    def save(self, state: State) -> None:
        """Replace the state atomically."""
        write_file(self.root / STATE, state.encode())

    def update(self, change: Callable[[State], None]) -> None:
        """Change the stored state, under the lock."""
        with self.hold():
            self.change(change)

    def change(self, change: Callable[[State], T]) -> T:
        """Change the stored state, and return what ``change`` returns; the caller holds the lock."""
        state = self.load()
        before = state.encode()
        outcome = change(state)
        if state.encode() != before or not (self.root / STATE).exists():
            self.save(state)
        return outcome

    # --- outbox and sent messages ---------------------------------------------------------------------------

    def _waiting(self) -> list[Path]:
        directory = self.root / OUTBOX_DIR
        return (
            sorted(path for path in directory.iterdir() if _WAITING.fullmatch(path.name))
            if directory.is_dir()
            else []
        )

    def put_outbox(self, label: Label, msgs: list[Msg]) -> None:
        """Store messages before they are sent, until they are acknowledged."""
        directory = self.root / OUTBOX_DIR
        directory.mkdir(mode=0o700, exist_ok=True)
        write_file(directory / f"{label.hex()}.msgs", encode_sequence(msgs))

    def outbox(self, label: Label) -> list[Msg]:
        """Return the messages of a label that are not acknowledged yet."""
        path = self.root / OUTBOX_DIR / f"{label.hex()}.msgs"
        return decode_sequence(path.read_bytes(), Msg) if path.exists() else []

    def clear_outbox(self, label: Label) -> None:
        """Remove acknowledged messages of a label. If a crash undoes the removal, they are sent again."""
        remove_file(self.root / OUTBOX_DIR / f"{label.hex()}.msgs")

    def set_aside(self, label: Label, msg: Msg) -> Path:
        """Store a message that was rejected permanently, for inspection."""
        path = self.root / OUTBOX_DIR / f"{label.hex()}-{msg.client_seq}.refused"
        write_file(path, msg.encode())
        return path

    def keep_sent(self, msgs: list[Msg], receipts: list[Receipt]) -> None:
        """Append receipts of own messages, and the messages that are to be stored."""
        append_file(self.root / RECEIPTS, encode_sequence(receipts))
        append_file(self.root / PAYLOADS, encode_sequence(msgs))

    def keep_fraud(self, fraud: Fraud) -> Path:
        """Write evidence of fraud to a file."""
        path = self.root / fraud.file_name
        write_file(path, fraud.encode(), 0o644)
        return path

    # --- capability tokens ----------------------------------------------------------------------------------

    def keep_token(self, token: CapToken) -> Path:
        """Store a token under its reference."""
        directory = self.root / CAPS_DIR
        directory.mkdir(mode=0o700, exist_ok=True)
        path = directory / f"{token.auth_ref.hex()}.cap"
        write_file(path, token.encode())
        return path

    def tokens(self) -> dict[AuthRef, CapToken]:
        """Return the stored tokens, in the order in which they were stored."""
        directory = self.root / CAPS_DIR
        tokens = {}
        paths = directory.glob("*.cap") if directory.is_dir() else ()
        for path in sorted(paths, key=lambda path: (path.stat().st_mtime_ns, path.name)):
            token = CapToken.decode(path.read_bytes())
            tokens[token.auth_ref] = token
        return tokens

    def token_for(self, stream: StreamId, client_id: VerifyKey) -> CapToken | None:
        """Return the token stored last that permits this key to write to a stream."""
        matching = [
            token
            for token in self.tokens().values()
            if stream in token.allow.stream_ids and token.subject_pk == client_id
        ]
        return matching[-1] if matching else None
