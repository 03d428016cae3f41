"""The environment of steps: a directory, reproducible randomness, clients, and a hub."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar, cast

from veen.client.client import Client
from veen.client.effects import Describe
from veen.client.home.directory import ClientHome
from veen.client.home.pins import HubFacts, Trust, read_facts
from veen.client.keys.keystore import Secrets
from veen.client.retry import Retry
from veen.client.transport.http import HttpHub, HttpRequest, Reply
from veen.core.crypto.ed25519 import SigningKey
from veen.core.errors import VeenError
from veen.selftest.errors import StepFailedError
from veen.selftest.servers import CONFIGS, VEEN, Server, TempHub
from veen.selftest.step import Needs

S = TypeVar("S", bound=Server)
T = TypeVar("T")

_ONCE: Final = Retry(attempts=1)
STATUS: Final = Describe("/tooling/status")


class Hubs:
    """The hubs of a run, by kind; each is started when it is needed, and used by many steps."""

    def __init__(self, scratch: Path, command: Sequence[str] = VEEN) -> None:
        self._scratch = scratch
        # The command that starts the program.
        self.command = command
        self._shared: dict[Needs, TempHub] = {}
        self._all: list[Server] = []
        # What else steps share, or the error of its creation, by the function that creates it.
        self.made: dict[object, object] = {}
        # Mints the tokens that the guarded hub accepts.
        self.issuer = SigningKey.from_seed(os.urandom(32))

    def shared(self, needs: Needs) -> TempHub:
        """Return the hub of a kind."""
        kind = Needs.OPEN if needs is Needs.ANY else needs
        if kind not in self._shared:
            config = CONFIGS[kind]
            if kind is Needs.GUARDED:
                config += f'trust_issuers = ["{self.issuer.public_key.hex()}"]\n'
            self._shared[kind] = self.fresh(config)
        return self._shared[kind]

    def fresh(self, config: str) -> TempHub:
        """Start another hub."""
        return self.start(TempHub(self._scratch, str(len(self._all) + 1), config, self.command))

    def start(self, server: S) -> S:
        """Start a server, which ends with the run."""
        self._all.append(server)
        server.start()
        return server

    def check_alive(self) -> None:
        """Fail if a shared hub has died; the next step gets a new one."""
        for kind, hub in list(self._shared.items()):
            if not hub.is_alive:
                del self._shared[kind]
                raise StepFailedError(f"the hub has died: {hub.tail()}")

    def close(self) -> None:
        for server in reversed(self._all):
            server.close()


@dataclass(slots=True)
class Context:
    """What one step works with."""

    scratch: Path
    random: Random
    hubs: Hubs
    needs: Needs
    # An existing hub, instead of one that is started here.
    url: str = ""
    clock: Callable[[], int] = lambda: int(time.time())
    _open: list[Client | HttpHub] = field(default_factory=list)
    _made: int = 0

    @property
    def hub(self) -> TempHub:
        """The hub of this step, with its files."""
        assert not self.url, "the files of an existing hub are not available"
        return self.hubs.shared(self.needs)

    @property
    def hub_url(self) -> str:
        """The URL of the hub of this step."""
        return self.url or self.hub.url

    def once(self, make: "Callable[[Context], T]") -> T:
        """Return what steps share, created for the first that needs it; its failure is stored too."""
        shared = self.hubs.made
        if make not in shared:
            try:
                shared[make] = make(self)
            except VeenError as error:
                shared[make] = error
        value = shared[make]
        if isinstance(value, VeenError):
            raise value
        return cast("T", value)

    def name(self, of: str) -> str:
        """Return a unique name, also among the runs at one hub."""
        return f"selftest/{of}/{os.urandom(8).hex()}"

    def marker(self) -> str:
        """Return a text that occurs nowhere by accident; the seed determines it."""
        return f"marker-{self.random.randbytes(20).hex()}"

    def home(self) -> Path:
        """Create the directory of a new client."""
        self._made += 1
        root = self.scratch / f"client-{os.urandom(4).hex()}-{self._made}"
        ClientHome.create(root, Secrets.generate(os.urandom, self.clock()), now=self.clock())
        return root

    def client(self, home: Path | None = None, hub: str = "") -> Client:
        """Open a client, by default a new one; it is closed after the step."""
        client = Client.open(
            home or self.home(), hub or self.hub_url, trust=Trust.FIRST_USE, retry=_ONCE, rotation=None
        )
        self._open.append(client)
        return client

    def http(self, url: str = "") -> HttpHub:
        """Open a plain connection; it is closed after the step."""
        hub = HttpHub(url or self.hub_url)
        self._open.append(hub)
        return hub

    def get(self, path: str) -> Reply:
        """Fetch a path of the hub."""
        return self.http().exchange(HttpRequest("GET", path))

    def status(self) -> dict[str, Any]:
        """Fetch the status of the hub."""
        answer: dict[str, Any] = self.http().answer(STATUS)
        return answer

    def facts(self) -> HubFacts:
        """Fetch the identity and the profiles of the hub."""
        return read_facts(self.status())

    def close(self) -> None:
        """Close what the step has opened."""
        for item in self._open:
            item.close()
        self._open.clear()
