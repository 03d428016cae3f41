"""Opening the client and the hub that a command uses."""

import getpass
import json
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from veen.cli.errors import UnreachableError, UsageError
from veen.cli.hub_connection import read_address
from veen.cli.options import HUB_HELP, HUB_ID_HELP, parse_hub_id
from veen.cli.settings import common, find_hub
from veen.client.client import Client
from veen.client.contexts import find_client
from veen.client.effects import Hub
from veen.client.home.directory import CARD, ClientHome
from veen.client.home.pins import Trust
from veen.client.keys.identity_card import IdentityCard
from veen.client.keys.keystore import Secrets, asker
from veen.client.retry import Retry
from veen.client.session_setup import configured_trust, open_session
from veen.client.transport.resolve import open_hub
from veen.core.errors import ProtocolError
from veen.stdx.atomic_file import write_file

HubOption = Annotated[str, typer.Option("--hub", help=f"{HUB_HELP}  [env var: VEEN_HUB]", show_default=False)]
ClientOption = Annotated[
    str, typer.Option("--client", help="Client directory.  [env var: VEEN_CLIENT]", show_default=False)
]
StreamOption = Annotated[str, typer.Option("--stream", help="Stream: a name, or an id (64 hex digits).")]
TrustFlag = Annotated[
    bool,
    typer.Option("--trust-first-use", help="Pin an unknown hub on first use, without an expected id."),
]
HubIdOption = Annotated[str, typer.Option("--hub-id", help=HUB_ID_HELP)]
# Mode of a new file, before the umask.
_USUAL_MODE: Final = 0o666
# Shorter than the default of the library: a person is waiting.
_RETRY: Final = Retry(attempts=3, base_sec=0.1, cap_sec=2.0)


def read_bytes(path: Path) -> bytes:
    """Read a file that is named on the command line."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file that is named on the command line."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def replace_bytes(path: Path, data: bytes) -> None:
    """Write or replace a file that is named on the command line, atomically."""
    target = path.resolve()  # a symbolic link itself is not replaced
    try:
        if target.is_file() or not target.exists():
            write_file(target, data, stat.S_IMODE(target.stat().st_mode) if target.exists() else _USUAL_MODE)
        else:
            target.write_bytes(data)  # a pipe or a terminal is not replaced
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def check_replaceable(path: Path) -> None:
    """Reject an output file that cannot be written, before any work is done."""
    target = path.resolve()
    problem = None
    if not target.parent.is_dir():
        problem = f"there is no directory {path.parent}"
    elif target.is_dir():
        problem = "it is a directory"
    elif not os.access(target.parent if target.is_file() or not target.exists() else target, os.W_OK):
        problem = "Permission denied"
    if problem is not None:
        raise UsageError(f"{path} cannot be written: {problem}")


def prompt_passphrase() -> str | None:
    """Prompt for the passphrase, if there is a terminal."""
    return getpass.getpass("Passphrase: ") if sys.stdin.isatty() else None


def load_secrets(directory: Path) -> tuple[ClientHome, Secrets, bytes | None]:
    """Open the keys of a client, without a hub."""
    home = ClientHome(directory)
    secrets, passphrase = home.load_secrets(asker(os.environ, prompt_passphrase))
    return home, secrets, passphrase


def hub_at(hub: str) -> Hub:
    """Return the transport to a hub: the network, or the files of a hub that is not running."""
    address = read_address(hub)
    if address.path is not None and not address.path.is_dir():
        raise UnreachableError(f"there is no hub at {address.path}; give its URL or its data directory")
    return open_hub(address, common.timeout_ms / 1000)


def open_client(client: str, hub: str, *, trust_first_use: bool = False, hub_id: str = "") -> Client:
    """Open a client for a hub; both have defaults."""
    named = find_hub(hub)
    answering = hub_at(named)
    trust = Trust.FIRST_USE if trust_first_use else configured_trust()
    session = open_session(
        find_client(client),
        named,
        passphrase=asker(os.environ, prompt_passphrase),
        trust=trust,
        hub_id=parse_hub_id(hub_id),
        retry=_RETRY,
    )
    return Client(session, answering)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Options that select the hub and the client (see ``option_groups``)."""

    hub: HubOption = ""
    client: ClientOption = ""
    trust_first_use: TrustFlag = False
    hub_id: HubIdOption = ""

    def open(self) -> Client:
        """Open the client for the hub."""
        return open_client(self.client, self.hub, trust_first_use=self.trust_first_use, hub_id=self.hub_id)


def read_card(text: str) -> IdentityCard:
    """Read an identity card: a file, or a client directory."""
    path = Path(text).expanduser()
    try:
        return IdentityCard.read(read_bytes(path / CARD if path.is_dir() else path))
    except ProtocolError as error:
        raise UsageError(f"{text} is not an identity card: {error}") from None


def parse_json(text: str, option: str) -> Any:  # noqa: ANN401 - JSON
    """Parse JSON from the command line; @FILE reads a file, @- standard input."""
    if text.startswith("@"):
        text = sys.stdin.read() if text == "@-" else read_bytes(Path(text[1:])).decode(errors="replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{option} is not JSON: {error}; a text must be quoted: '\"hello\"'") from None
