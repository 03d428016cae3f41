"""What holds for every command: output, patience, and which client and hub are meant when none is named.

First what a command is given, then variables, then the descriptor of an environment, then the user's
configuration, then the places where ``veen hub start`` and ``veen keygen`` put things by default.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from veen.cli.errors import USAGE, CommandError

DEFAULT_TIMEOUT_MS: Final = 10_000
#: A day; sockets take no more than some weeks.
MAX_TIMEOUT_MS: Final = 86_400_000
DEFAULT_DATA_DIR: Final = "~/.local/share/veen/hub"
DEFAULT_CLIENT: Final = "~/.local/share/veen/client"
_CONFIG: Final = "veen/config.toml"
#: What can be set, and what it means.
KEYS: Final[Mapping[str, str]] = {
    "client": "directory of the client that commands use",
    "hub": "URL or data directory of the hub that commands use",
    "admin": "directory of the client that signs administrative records",
    "trust": "what to do with a hub that was never seen: local, first-use or never",
    "wallet_needs_reset": "when the day of a limit is over: on any other day (neq), or a later one (gt)",
}


@dataclass(slots=True)
class Common:
    """Flags that every command takes."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    env: str = ""
    hub_name: str = ""

    def reset(self) -> None:
        """Begin anew: a program may run more than one command."""
        for item in fields(self):
            setattr(self, item.name, item.default)


#: Of the command that this process runs; there is one at a time.
common: Final = Common()


def config_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where the user's configuration is."""
    return Path(environment.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()) / _CONFIG


def load_config() -> dict[str, str]:
    """Read the user's configuration; there need not be one."""
    path = config_path()
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} can not be read: {error}", USAGE) from None
    unknown = sorted(set(found) - set(KEYS))
    if unknown or not all(isinstance(value, str) for value in found.values()):
        raise CommandError(f"{path} has mistakes: it may set {', '.join(KEYS)}, each a text", USAGE)
    return found


def find_client(given: str, *, key: str = "client", variable: str = "VEEN_CLIENT") -> Path:
    """Return the directory of the client that is meant."""
    named = given or os.environ.get(variable, "") or load_config().get(key, "")
    if not named and key == "admin":
        return find_client("")
    place = Path(named or DEFAULT_CLIENT).expanduser()
    if not place.is_dir():
        hint = "make one with: veen keygen" + (f" --out {place}" if named else "")
        raise CommandError(f"there is no client in {place}; {hint}", USAGE)
    return place


def find_hub(given: str) -> str:
    """Return the hub that is meant: a URL or a directory."""
    if given:
        return given
    if common.env or common.hub_name:
        return str(described_hub(common.env, common.hub_name)["service_url"])
    named = os.environ.get("VEEN_HUB", "") or load_config().get("hub", "")
    if named:
        return named
    place = Path(DEFAULT_DATA_DIR).expanduser()
    if (place / "store.cbor").exists():
        return str(place)
    raise CommandError(
        "no hub was named: give --hub URL_OR_DIRECTORY, or run: veen config set hub URL_OR_DIRECTORY; "
        "or start one here: veen hub start",
        USAGE,
    )


def described_hub(env: str, name: str) -> dict[str, Any]:
    """Return a hub of an environment's descriptor (ENV-003)."""
    if not (env and name):
        raise CommandError("--env and --hub-name go together", USAGE)
    try:
        hubs = json.loads(Path(env).read_text(encoding="utf-8"))["hubs"]
        found = hubs.get(name)
        url = None if found is None else found["service_url"]
    except OSError as error:
        raise CommandError(f"{env} can not be read: {error.strerror}", USAGE) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CommandError(f"{env} is not the descriptor of an environment", USAGE) from None
    if not isinstance(url, str):
        raise CommandError(f"{env} has no hub {name}; it has: {', '.join(sorted(hubs)) or 'none'}", USAGE)
    return dict(found)
