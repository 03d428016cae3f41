"""What is revoked, as people have it: in hex, or as the card of a client or the file of a token."""

from pathlib import Path

from veen.cli.errors import USAGE, CommandError
from veen.cli.using import hex32, read_bytes, read_card
from veen.core.captoken import CapToken
from veen.core.control import Target
from veen.core.errors import ProtocolError
from veen.core.hashing import h


def target_of(kind: str, text: str) -> str:
    """Return the target in hex; of a file that is there, by what it holds."""
    if kind not in set(Target):
        raise CommandError(f"--kind is one of {', '.join(Target)}", USAGE)
    path = Path(text).expanduser()
    if not path.exists():
        return hex32(text, "--target").hex()
    if kind == Target.CLIENT_ID:
        return read_card(text).client_id.hex()
    data = read_bytes(path)
    try:
        token = CapToken.decode(data)
    except ProtocolError as error:
        raise CommandError(f"{text} is not a capability token: {error}", USAGE) from None
    return h(data).hex() if kind == Target.CAP_TOKEN else token.auth_ref.hex()
