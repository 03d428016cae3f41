"""Settings of every command: output, timeout, and the default hub."""

from dataclasses import dataclass, fields
from typing import Final

from veen.cli.errors import UsageError
from veen.client.contexts import default_hub, described_hub

DEFAULT_TIMEOUT_MS: Final = 10_000
# A day; sockets accept no more than some weeks.
MAX_TIMEOUT_MS: Final = 86_400_000


@dataclass(slots=True)
class Common:
    """Flags that every command accepts."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    env: str = ""
    hub_name: str = ""

    def reset(self) -> None:
        """Restore the defaults: a process may run more than one command."""
        for item in fields(self):
            setattr(self, item.name, item.default)


# The flags of the command that this process runs; there is one at a time.
common: Final = Common()


def find_hub(named: str) -> str:
    """Return the URL or directory of the hub to use: the given one, or the default."""
    if named:
        return named
    if common.env or common.hub_name:
        if not (common.env and common.hub_name):
            raise UsageError("--env and --hub-name must be given together")
        return str(described_hub(common.env, common.hub_name)["service_url"])
    hub = default_hub()
    if hub is None:
        raise UsageError(
            "no hub was named; give --hub URL_OR_DIRECTORY, or run: veen config set hub URL_OR_DIRECTORY; "
            "or start one on this machine: veen hub start",
        )
    return hub
