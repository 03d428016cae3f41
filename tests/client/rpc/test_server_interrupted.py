"""A server that is interrupted at each of its effects: every call is answered, and runs at most once."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.client.interruption import WAYS, interrupted
from tests.client.participants import QUICK, make_home
from tests.hub.hub_process import HubProcess
from veen.client.async_client import AsyncClient
from veen.client.client import Client
from veen.client.fold.interpret import typed
from veen.client.rpc.async_serve import AsyncRpcServer
from veen.client.rpc.serve import Call, Handled, RpcServer
from veen.core.encoding.cbor import Value
from veen.overlays.builtin.rpc import REPLY, REQUEST

pytestmark = [pytest.mark.slow, pytest.mark.sweep]


class _Desk:
    """A server with one method, which counts how often it runs for each call; for either driver."""

    def __init__(self, kind: str, place: Path, url: str, stream: str) -> None:
        self.ran: Counter[Any] = Counter()
        self.runner = asyncio.Runner()
        self.client: Client | AsyncClient
        self.server: RpcServer | AsyncRpcServer
        if kind == "blocking":
            self.client = Client.open(place, url, retry=QUICK, rotation=None)
            self.server = RpcServer(self.client, stream)
            self.server.method(self._count, name="count")
        else:
            self.client = self.runner.run(self._opened(place, url))
            self.server = AsyncRpcServer(self.client, stream)
            self.server.method(self._count_later, name="count")

    async def _opened(self, place: Path, url: str) -> AsyncClient:
        return await AsyncClient.open(place, url, retry=QUICK, rotation=None)

    def _count(self, call: Call) -> Value:
        self.ran[call.args] += 1
        return call.args

    async def _count_later(self, call: Call) -> Value:
        await asyncio.sleep(0)
        return self._count(call)

    def run_pending(self) -> list[Handled]:
        if isinstance(self.server, RpcServer):
            return self.server.run_pending()
        return self.runner.run(self.server.run_pending())

    def close(self) -> None:
        if isinstance(self.client, Client):
            self.client.close()
        else:
            self.runner.run(self.client.close())
        self.runner.close()


@pytest.fixture(params=WAYS, ids="-".join)
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def desk(way: tuple[str, str], tmp_path: Path, hub: HubProcess, stream: str) -> Iterator[_Desk]:
    made = _Desk(way[0], make_home(tmp_path / "desk").root, hub.url, stream)
    yield made
    made.close()


def test_no_call_is_lost_or_run_twice(
    desk: _Desk, way: tuple[str, str], tmp_path: Path, hub: HubProcess, stream: str
) -> None:
    make_home(tmp_path / "alice")
    with (
        Client.open(tmp_path / "alice", hub.url, retry=QUICK, rotation=None) as alice,
        Client.open(tmp_path / "desk", hub.url, retry=QUICK, rotation=None) as reader,
    ):
        for turn in count():
            request = typed(REQUEST, REQUEST.make(method="count", args=turn))
            (sent,) = alice.send_many(stream, [request], to=desk.client.identity)
            with interrupted(turn, way[1]) as found:
                desk.run_pending()
            desk.run_pending()
            headers = [message.header for message in reader.read(stream)]
            replies = [header for header in headers if header is not None and header.parent_id == sent.msg_id]
            assert replies, f"call {turn} was interrupted at {found.effect}, and has no reply"
            assert {header.schema for header in replies} == {REPLY.schema_id}
            assert desk.ran[turn] <= 1
            if found.effect is None:
                assert (desk.ran[turn], len(replies)) == (1, 1)
                break
    assert turn > 10
