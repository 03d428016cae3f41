"""The policy file: reloaded when it changes, and extended by ``veen query grant``."""

import hashlib
import logging
import secrets
import threading
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from veen.core.crypto.ed25519 import SEED_BYTES, SigningKey
from veen.query.policy import Policy
from veen.query_service.errors import PolicyError
from veen.stdx.atomic_file import write_file
from veen.stdx.file_lock import locked
from veen.stdx.json_log import LogEvent

_log = logging.getLogger(__name__)

# Size limit: room for thousands of principals.
_MOST_BYTES: Final = 4 << 20
_TOKEN_BYTES: Final = 32
TOKEN_PREFIX: Final = "vq-"  # noqa: S105 - what tokens begin with, so that they are known when they leak


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise PolicyError(
            f"{path} cannot be read: {error.strerror}; create it with: veen query grant"
        ) from None
    if len(data) > _MOST_BYTES:
        raise PolicyError(f"{path} has more than {_MOST_BYTES} bytes")
    return data


def _parse(path: Path, data: bytes) -> Policy:
    try:
        return Policy.from_dict(tomllib.loads(data.decode()))
    except ValueError as error:  # includes errors of TOML and UTF-8
        raise PolicyError(f"{path}: {error}") from None


class PolicyFile:
    """The current policy of a file; while the file is invalid, the last valid one. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._data = _read(path)
        self._policy = _parse(path, self._data)
        self._told = ""

    def now(self) -> Policy:
        """Return the policy; the file is read each time, and parsed only if its content has changed."""
        with self._lock:
            try:
                data = _read(self._path)
                if data != self._data:
                    self._policy = _parse(self._path, data)
                    self._data = data
                    _log.info(LogEvent("policy-changed", principals=len(self._policy.principals)))
                self._told = ""
            except PolicyError as error:
                if str(error) != self._told:
                    self._told = str(error)
                    _log.error(LogEvent("policy-not-read", error=self._told))
            return self._policy


def grant(
    path: Path, name: str, scopes: Sequence[str], *, identity: bytes | None = None, auditor: bool = False
) -> str:
    """Add a principal to a policy file, which is created if needed; return its token, which is not stored.

    Without an identity it gets the public key of a new random key, whose secret is discarded.
    """
    token = TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
    who = identity or bytes(SigningKey.from_seed(secrets.token_bytes(SEED_BYTES)).public_key)
    listed = ", ".join(_quoted(scope) for scope in scopes)
    table = (
        f"[principals.{_quoted(name)}]\n"
        f'identity = "{who.hex()}"\n'
        f"scopes = [{listed}]\n"
        f"auditor = {'true' if auditor else 'false'}\n"
        f'token_sha256 = ["{hashlib.sha256(token.encode()).hexdigest()}"]\n'
    )
    with locked(path.with_name(f".{path.name}.lock")):
        before = _read(path) if path.exists() else b""
        if before and any(item.name == name for item in _parse(path, before).principals):
            raise PolicyError(f"{path} has a principal {name} already; edit it there, or choose another name")
        separator = b"" if not before else b"\n" if before.endswith(b"\n") else b"\n\n"
        after = before + separator + table.encode()
        _parse(path, after)
        write_file(path, after)
    return token


def _quoted(text: str) -> str:
    """Return a basic string of TOML; raises if the text would need escapes."""
    if not text or any(ord(char) < 0x20 or char in '"\\\x7f' for char in text):
        raise PolicyError(f"{text!r} cannot be written in a policy: it has quotes, or is not plain text")
    return f'"{text}"'
