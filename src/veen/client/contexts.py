"""Resolve the default client and hub, for the command line and ``Client.open``.

In order of precedence: the arguments of the command or call, the variables ``VEEN_CLIENT`` and ``VEEN_HUB``,
the user's configuration file, and the default directories of ``veen keygen`` and ``veen hub start``.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from veen.client.errors import ContextError

DEFAULT_DATA_DIR: Final = "~/.local/share/veen/hub"
DEFAULT_CLIENT: Final = "~/.local/share/veen/client"
_CONFIG: Final = "veen/config.toml"
# The settings of the configuration file, with descriptions for help texts.
KEYS: Final[Mapping[str, str]] = {
    "client": "directory of the client that commands use",
    "hub": "URL or data directory of the hub that commands use",
    "admin": "directory of the client that signs administrative records",
    "trust": "what to do with a hub that was never seen: local, first-use or never",
    "wallet_needs_reset": "when the day of a limit is over: on any other day (neq), or a later one (gt)",
}


def config_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the user's configuration file."""
    return Path(environment.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()) / _CONFIG


def load_config() -> dict[str, str]:
    """Read the user's configuration; empty if there is no file.

    Raises:
        ContextError: The file cannot be read, or has a setting that is not in ``KEYS``.
    """
    path = config_path()
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ContextError(f"{path} cannot be read: {error}") from None
    unknown = sorted(set(settings) - set(KEYS))
    if unknown or not all(isinstance(value, str) for value in settings.values()):
        raise ContextError(f"{path} is not valid: it may set {', '.join(KEYS)}, each to a string")
    return settings


def find_client(
    home: str | os.PathLike[str] = "", *, key: str = "client", variable: str = "VEEN_CLIENT"
) -> Path:
    """Return the named client directory, or the default.

    Raises:
        ContextError: The directory does not exist, or the configuration file is invalid.
    """
    named = os.fspath(home) or os.environ.get(variable, "") or load_config().get(key, "")
    if not named and key == "admin":
        return find_client()
    path = Path(named or DEFAULT_CLIENT).expanduser()
    if not path.is_dir():
        hint = "create one with: veen keygen" + (f" --out {path}" if named else "")
        raise ContextError(f"there is no client in {path}; {hint}")
    return path


def default_hub() -> str | None:
    """Return the default hub, as a URL or directory; None if there is none.

    Raises:
        ContextError: The configuration file is invalid.
    """
    named = os.environ.get("VEEN_HUB", "") or load_config().get("hub", "")
    if named:
        return named
    path = Path(DEFAULT_DATA_DIR).expanduser()
    return str(path) if (path / "store.cbor").exists() else None


def find_hub(hub: str | None = None) -> str:
    """Return the named hub, or the default.

    Raises:
        ContextError: None is named, and there is no default.
    """
    name = hub or default_hub()
    if name is None:
        raise ContextError(
            "no hub was named: pass its URL or data directory, or set VEEN_HUB, or run: "
            "veen config set hub URL_OR_DIRECTORY; or start one here: veen hub start"
        )
    return name


def described_hub(env: str, name: str) -> dict[str, Any]:
    """Return a hub from the descriptor of an environment (ENV-003).

    Raises:
        ContextError: The descriptor cannot be read, or has no such hub.
    """
    try:
        hubs = json.loads(Path(env).read_text(encoding="utf-8"))["hubs"]
        hub = hubs.get(name)
        url = None if hub is None else hub["service_url"]
    except OSError as error:
        raise ContextError(f"{env} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ContextError(f"{env} is not the descriptor of an environment") from None
    if not isinstance(url, str):
        raise ContextError(f"{env} has no hub {name}; its hubs: {', '.join(sorted(hubs)) or 'none'}")
    return dict(hub)
