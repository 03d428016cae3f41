"""Where a passphrase comes from: a variable, a file, a person at a terminal (in this order)."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from veen.client.errors import KeystoreError

VARIABLE: Final = "VEEN_KEYSTORE_PASSPHRASE"
FILE_VARIABLE: Final = "VEEN_KEYSTORE_PASSPHRASE_FILE"


def ask_nobody() -> bytes | None:
    """There is no passphrase, and nobody to ask."""
    return None


def given_passphrase(environment: Mapping[str, str]) -> bytes | None:
    """Return the passphrase of the environment, if it has one."""
    if environment.get(VARIABLE):
        return _bytes(environment[VARIABLE])
    path = environment.get(FILE_VARIABLE)
    if not path:
        return None
    try:
        found = Path(path).read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise KeystoreError(f"{FILE_VARIABLE}: {path} can not be read: {error.strerror}") from None
    if not found:
        raise KeystoreError(f"{FILE_VARIABLE}: {path} holds no passphrase")
    return found


def _bytes(text: str) -> bytes:
    # What is not UTF-8 came in as surrogates, and goes out as it was.
    return text.encode(errors="surrogateescape")


def asker(environment: Mapping[str, str], prompt: Callable[[], str | None]) -> Callable[[], bytes | None]:
    """Return a way to ask: the environment first, then a person."""

    def ask() -> bytes | None:
        found = given_passphrase(environment)
        if found is not None:
            return found
        typed = prompt()
        return None if typed is None else _bytes(typed)

    return ask
