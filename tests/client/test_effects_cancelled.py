"""Operations that are given up in the middle: the lock is given back, and the client can be used on."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.participants import QUICK, make_home
from tests.client.proxy import Answer, Passing, Proxy
from tests.hub.hub_process import HubProcess
from veen.client.async_client import AsyncClient
from veen.client.client import Client
from veen.client.effects import Request, Submit
from veen.client.errors import ClientStateError, InvalidResponseError


def test_a_task_that_is_cancelled_anywhere_leaves_a_client_that_works(
    hub: HubProcess, tmp_path: Path
) -> None:
    async def work() -> None:
        make_home(tmp_path / "alice")
        async with await AsyncClient.open(tmp_path / "alice", hub.url, retry=QUICK, rotation=None) as client:
            await client.send("given up", "first")
            for turns in range(40):
                task = asyncio.create_task(client.send("given up", {"given up": turns}))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                async with asyncio.timeout(10):
                    await client.send("given up", {"after": turns})
            found = [message.body async for message in client.read("given up")]
            after = [body["after"] for body in found if isinstance(body, dict) and "after" in body]
            assert after == list(range(40)), "once each, in order"

    asyncio.run(work())


def test_a_client_that_is_closed_says_so_to_who_follows(hub: HubProcess, tmp_path: Path) -> None:
    async def work() -> None:
        make_home(tmp_path / "alice")
        client = await AsyncClient.open(tmp_path / "alice", hub.url, retry=QUICK)
        await client.send("closed", 1)
        messages = client.follow("closed")
        assert (await anext(messages)).body == 1
        await client.close()
        with pytest.raises(ClientStateError, match="closed"):
            await anext(messages)

    asyncio.run(work())


class _InterruptingHub:
    """Passes requests on; at a point of the way somebody presses a key."""

    def __init__(self, client: Client) -> None:
        self.name = client.hub.name
        self._hub = client.hub

    def answer(self, request: Request) -> object:
        if isinstance(request, Submit):
            raise KeyboardInterrupt
        return self._hub.answer(request)

    def close(self) -> None:
        self._hub.close()


def test_an_interrupt_gives_the_lock_back_while_its_traceback_is_kept(
    hub: HubProcess, tmp_path: Path
) -> None:
    make_home(tmp_path / "alice")
    with Client.open(tmp_path / "alice", hub.url, retry=QUICK) as client:
        true, client.hub = client.hub, _InterruptingHub(client)
        with pytest.raises(KeyboardInterrupt) as kept:
            client.send("interrupted", 1)
        client.hub = true
        hold = client.session.home.holding()
        assert hold.acquire(), kept
        hold.close()
        client.send("interrupted", 2)
        assert [message.body for message in client.read("interrupted")] == [1, 2]


@pytest.fixture
def between(hub: HubProcess) -> Iterator[Proxy]:
    with Proxy(hub.url) as made:
        yield made


@pytest.mark.parametrize("value", [200, -1, float("inf"), "x"])
def test_a_hub_that_asks_for_endless_work_gets_none(between: Proxy, tmp_path: Path, value: object) -> None:
    def after(passing: Passing, answer: Answer) -> Answer:
        if passing.path != "/tooling/status":
            return answer
        said = {**json.loads(answer.body), "pow_difficulty": value}
        return Answer(200, answer.content_type, json.dumps(said).encode())

    between.after = after
    make_home(tmp_path / "alice")
    with (
        Client.open(tmp_path / "alice", between.url, retry=QUICK) as client,
        pytest.raises(InvalidResponseError),
    ):
        client.send("work", 1)
