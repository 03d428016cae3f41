"""Public keys as operators write them: 64 hex digits, or a file that holds them, or somebody's card."""

import contextlib
import re
from pathlib import Path
from typing import Final

from veen.cli.errors import USAGE, CommandError
from veen.client.card import IdentityCard
from veen.client.home import CARD
from veen.core.errors import ProtocolError
from veen.core.types import VerifyKey

_HEX32: Final = re.compile(r"[0-9a-fA-F]{64}")
_KEY_BYTES: Final = 32


def issuer_of(text: str) -> VerifyKey:
    """Read a public key."""
    if _HEX32.fullmatch(text):
        return VerifyKey(bytes.fromhex(text))
    path = Path(text).expanduser()
    try:
        data = (path / CARD if path.is_dir() else path).read_bytes()
    except OSError:
        raise CommandError(f"{text} is neither a key of 64 hex digits nor a file", USAGE) from None
    with contextlib.suppress(ProtocolError):
        return IdentityCard.read(data).id_sign
    if len(data) == _KEY_BYTES:
        return VerifyKey(data)
    words = data.decode("ascii", "replace").strip()
    if not _HEX32.fullmatch(words):
        raise CommandError(f"{text} holds no public key of 64 hex digits", USAGE)
    return VerifyKey(bytes.fromhex(words))
