"""Keys, cards and tokens on the command line: in hex, or by a file."""

import contextlib
from pathlib import Path
from typing import Final

from veen.cli.client import read_bytes, read_card
from veen.cli.errors import UsageError
from veen.cli.options import hex32
from veen.client.home.directory import CARD
from veen.client.keys.identity_card import IdentityCard
from veen.core.crypto.hash import sha256
from veen.core.encoding.hexadecimal import is_hex32, parse_hex32
from veen.core.errors import ProtocolError
from veen.core.objects.capability import CapToken
from veen.core.objects.control_record import Target
from veen.core.types import VerifyKey

_KEY_BYTES: Final = 32


def issuer_of(text: str) -> VerifyKey:
    """Read a public key."""
    if is_hex32(text):
        return VerifyKey(parse_hex32(text))
    path = Path(text).expanduser()
    try:
        data = (path / CARD if path.is_dir() else path).read_bytes()
    except OSError:
        raise UsageError(f"{text} is neither a key of 64 hex digits nor a file") from None
    with contextlib.suppress(ProtocolError):
        return IdentityCard.read(data).id_sign
    if len(data) == _KEY_BYTES:
        return VerifyKey(data)
    try:
        return VerifyKey(parse_hex32(data.decode("ascii", "replace").strip()))
    except ValueError:
        raise UsageError(f"{text} does not contain a public key of 64 hex digits") from None


def target_of(kind: str, text: str) -> str:
    """Return the target in hex: the argument itself, or an id that is read from a file."""
    if kind not in set(Target):
        raise UsageError(f"--kind takes one of {', '.join(Target)}")
    path = Path(text).expanduser()
    if not path.exists():
        return hex32(text, "--target").hex()
    if kind == Target.CLIENT_ID:
        return read_card(text).client_id.hex()
    data = read_bytes(path)
    try:
        token = CapToken.decode(data)
    except ProtocolError as error:
        raise UsageError(f"{text} is not a capability token: {error}") from None
    return sha256(data).hex() if kind == Target.CAP_TOKEN else token.auth_ref.hex()
