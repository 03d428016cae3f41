"""Create a session from the names of a client and a hub, for ``Client.open`` and the command line."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from veen.client.contexts import find_client, find_hub, load_config
from veen.client.errors import ContextError
from veen.client.home.directory import AskPassphrase, ClientHome
from veen.client.home.pins import Trust
from veen.client.hub_address import HubAddress, check_hub_address
from veen.client.keys.keystore import asker
from veen.client.retry import Retry
from veen.client.session import DEFAULT_ROTATION, Rotation, Session
from veen.core.encoding.hexadecimal import parse_hex32
from veen.core.types import HubId, RandomBytes

StrPath = str | os.PathLike[str]
Passphrase = str | Callable[[], str]
DEFAULT_RETRY = Retry()


def open_session(
    home: StrPath | None = None,
    hub: StrPath | None = None,
    *,
    hub_id: HubId | str | None = None,
    trust: Trust | None = None,
    passphrase: Passphrase | AskPassphrase | None = None,
    retry: Retry = DEFAULT_RETRY,
    rotation: Rotation | None = DEFAULT_ROTATION,
    random: RandomBytes = os.urandom,
) -> Session:
    """Open a client directory for use with a hub; see ``Client.open``."""
    path = Path(home).expanduser() if home is not None else find_client()
    client_home = ClientHome(path, random)
    secrets, passphrase_bytes = client_home.load_secrets(_passphrase_source(passphrase))
    return Session(
        home=client_home,
        secrets=secrets,
        passphrase=passphrase_bytes,
        hub_name=named_hub(hub).name,
        clock=_now,
        random=random,
        retry=retry,
        trust=configured_trust() if trust is None else trust,
        expected_hub=HubId(parse_hex32(hub_id)) if isinstance(hub_id, str) else hub_id,
        rotation=rotation,
    )


def named_hub(hub: StrPath | None) -> HubAddress:
    """Return the address of the named hub, or of the default.

    Raises:
        ContextError: No hub is named, and there is no default; or the address is invalid.
    """
    try:
        return check_hub_address(find_hub(None if hub is None else os.fspath(hub)))
    except ValueError as error:
        raise ContextError(str(error)) from None


def configured_trust() -> Trust:
    """Return the configured trust in unknown hubs; by default ``Trust.LOCAL``.

    Raises:
        ContextError: The configuration file is invalid, or its ``trust`` has an unknown value.
    """
    try:
        return Trust(load_config().get("trust", Trust.LOCAL))
    except ValueError:
        raise ContextError("trust is local, first-use or never; see: veen config set trust") from None


def _passphrase_source(passphrase: Passphrase | AskPassphrase | None) -> AskPassphrase:
    def ask() -> bytes | None:
        value = passphrase() if callable(passphrase) else passphrase
        return value.encode() if isinstance(value, str) else value

    return asker(os.environ, lambda: None) if passphrase is None else ask


def _now() -> int:
    return int(time.time())
