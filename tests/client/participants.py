"""People with a client, blocking or on asyncio: the tests are the same for both."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from veen.client.async_client import AsyncClient
from veen.client.client import Client
from veen.client.home.directory import ClientHome
from veen.client.home.pins import Trust
from veen.client.keys.keystore import Secrets
from veen.client.models import Draft, Message, SendOptions, Sent
from veen.client.read import READ_ALL, ReadOptions, read_stream
from veen.client.resync import Consistency, Resynced
from veen.client.retry import Retry
from veen.client.send import send_drafts
from veen.client.session import DEFAULT_ROTATION, Rotation, Session
from veen.client.tokens import Authorized
from veen.core.encoding.cbor import Value
from veen.core.objects.capability import CapToken
from veen.core.types import HubId

NOW = 1_790_000_000
#: Fails fast: what is not there in a test does not come.
QUICK = Retry(attempts=3, base_sec=0.01, cap_sec=0.02)
SEND_PLAIN = SendOptions()


def make_home(place: Path, name: str = "somebody", *, now: int = NOW) -> ClientHome:
    """Make the directory of a client, without a passphrase."""
    return ClientHome.create(place, Secrets.generate(os.urandom, now, name), now=now)


class Person(Protocol):
    """Somebody who sends and reads."""

    session: Session

    def send(self, stream: str, body: Value, **more: Any) -> Sent: ...
    def send_many(
        self, stream: str, drafts: Sequence[Draft], options: SendOptions = SEND_PLAIN
    ) -> list[Sent]: ...
    def read(
        self, stream: str, options: ReadOptions = READ_ALL, *, most: int | None = None
    ) -> list[Message]: ...
    def resync(self, stream: str) -> list[Resynced]: ...
    def flush(self, stream: str) -> int: ...
    def verify_state(self, stream: str) -> list[Consistency]: ...
    def authorize(self, token: CapToken) -> Authorized: ...
    def attachment(self, message: Message, index: int) -> bytes: ...
    def close(self) -> None: ...


class Blocking:
    """With the blocking client."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.session = client.session

    def send(self, stream: str, body: Value, **more: Any) -> Sent:
        return self.client.send(stream, body, **more)

    def send_many(
        self, stream: str, drafts: Sequence[Draft], options: SendOptions = SEND_PLAIN
    ) -> list[Sent]:
        return list(send_drafts(self.client, stream, drafts, options))

    def read(self, stream: str, options: ReadOptions = READ_ALL, *, most: int | None = None) -> list[Message]:
        """Read to the end; with ``most``, follow until there are so many."""
        found: list[Message] = []
        for message in read_stream(self.client, stream, options, follow=most is not None):
            found.append(message)
            if len(found) == most:
                break
        return found

    def resync(self, stream: str) -> list[Resynced]:
        return self.client.resync(stream)

    def flush(self, stream: str) -> int:
        return self.client.flush(stream)

    def verify_state(self, stream: str) -> list[Consistency]:
        return self.client.verify_state(stream)

    def authorize(self, token: CapToken) -> Authorized:
        return self.client.authorize(token)

    def attachment(self, message: Message, index: int) -> bytes:
        return self.client.attachment(message, index)

    def close(self) -> None:
        self.client.close()


class Awaiting:
    """With the client for asyncio, on a loop of its own."""

    def __init__(self, make: Callable[[], Awaitable[AsyncClient]]) -> None:
        async def opened() -> AsyncClient:
            return await make()

        self.runner = asyncio.Runner()
        self.client = self.runner.run(opened())
        self.session = self.client.session

    def send(self, stream: str, body: Value, **more: Any) -> Sent:
        return self.runner.run(self.client.send(stream, body, **more))

    def send_many(
        self, stream: str, drafts: Sequence[Draft], options: SendOptions = SEND_PLAIN
    ) -> list[Sent]:
        async def all_of_them() -> list[Sent]:
            return [sent async for sent in self.client._send_drafts(stream, drafts, options)]

        return self.runner.run(all_of_them())

    def read(self, stream: str, options: ReadOptions = READ_ALL, *, most: int | None = None) -> list[Message]:
        """Read to the end; with ``most``, follow until there are so many."""

        async def some_of_them() -> list[Message]:
            found: list[Message] = []
            async for message in self.client._read(stream, options, follow=most is not None):
                found.append(message)
                if len(found) == most:
                    break
            return found

        return self.runner.run(some_of_them())

    def resync(self, stream: str) -> list[Resynced]:
        return self.runner.run(self.client.resync(stream))

    def flush(self, stream: str) -> int:
        return self.runner.run(self.client.flush(stream))

    def verify_state(self, stream: str) -> list[Consistency]:
        return self.runner.run(self.client.verify_state(stream))

    def authorize(self, token: CapToken) -> Authorized:
        return self.runner.run(self.client.authorize(token))

    def attachment(self, message: Message, index: int) -> bytes:
        return self.runner.run(self.client.attachment(message, index))

    def close(self) -> None:
        self.runner.run(self.client.close())
        self.runner.close()


def person(
    kind: str,
    place: Path,
    hub: str,
    *,
    trust: Trust = Trust.LOCAL,
    hub_id: HubId | None = None,
    rotation: Rotation | None = DEFAULT_ROTATION,
    retry: Retry = QUICK,
) -> Person:
    """Open a client directory, in one form or the other."""
    if kind == "blocking":
        return Blocking(Client.open(place, hub, trust=trust, hub_id=hub_id, rotation=rotation, retry=retry))
    return Awaiting(
        lambda: AsyncClient.open(place, hub, trust=trust, hub_id=hub_id, rotation=rotation, retry=retry)
    )
