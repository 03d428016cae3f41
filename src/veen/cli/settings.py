"""What holds for every command: output, timeout, and the hub that is meant when none is named."""

from dataclasses import dataclass, fields
from typing import Final

from veen.cli.errors import UsageError
from veen.client.contexts import default_hub, described_hub

DEFAULT_TIMEOUT_MS: Final = 10_000
#: A day; sockets take no more than some weeks.
MAX_TIMEOUT_MS: Final = 86_400_000


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


def find_hub(named: str) -> str:
    """Return the hub that is meant: a URL or a directory."""
    if named:
        return named
    if common.env or common.hub_name:
        if not (common.env and common.hub_name):
            raise UsageError("--env and --hub-name go together")
        return str(described_hub(common.env, common.hub_name)["service_url"])
    hub = default_hub()
    if hub is None:
        raise UsageError(
            "no hub was named: give --hub URL_OR_DIRECTORY, or run: veen config set hub URL_OR_DIRECTORY; "
            "or start one here: veen hub start",
        )
    return hub
