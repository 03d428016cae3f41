"""``Client.fold`` and ``AsyncClient.fold``: the state, where it is of, and its hash."""

import asyncio
from pathlib import Path

import pytest

from tests.client.participants import QUICK, make_home
from tests.hub.hub_process import HubProcess
from veen.client.async_client import AsyncClient
from veen.client.client import Client
from veen.client.errors import ClientError
from veen.client.fold.interpret import typed
from veen.overlays.builtin.crdt import LWW, LwwMap
from veen.overlays.engine import hash_state


def _fill(client: Client, stream: str) -> None:
    bodies = [{"key": b"a", "value": b"1", "ts": 1}, {"key": b"b", "value": b"2", "ts": 2}]
    client.send_many(stream, [typed(LWW, LWW.make(**body)) for body in bodies])


@pytest.fixture
def alice(tmp_path: Path) -> Path:
    return make_home(tmp_path / "alice").root


def test_a_fold_of_both_clients(alice: Path, hub: HubProcess, stream: str) -> None:
    with Client.open(alice, hub.url, retry=QUICK, rotation=None) as client:
        _fill(client, stream)
        state = client.fold(LwwMap(), stream)
        assert (state.position, state.epoch) == (2, 0)
        assert state.hash == hash_state(LwwMap(), state.tables)
        first = client.fold(LwwMap(), stream, upto=1)
        assert (first.position, first[b"b"]) == (1, None)
        assert first.hash != state.hash
        assert client.fold(LwwMap(), "a stream without entries").position == 0

    async def main() -> None:
        async with AsyncClient.open(alice, hub.url, retry=QUICK) as client:
            again = await client.fold(LwwMap(), stream)
            assert (again.position, again.hash, again[b"a"]) == (state.position, state.hash, state[b"a"])

    asyncio.run(main())


def test_a_fold_that_is_cancelled_asks_the_hub_no_more(alice: Path, hub: HubProcess, stream: str) -> None:
    with Client.open(alice, hub.url, retry=QUICK, rotation=None) as client:
        _fill(client, stream)

    async def main() -> None:
        async with AsyncClient.open(alice, hub.url, retry=QUICK) as client:
            task = asyncio.ensure_future(client.fold(LwwMap(), stream))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises((asyncio.CancelledError, ClientError)):
                await task
            assert (await client.fold(LwwMap(), stream)).position == 2

    asyncio.run(main())


def test_the_class_of_an_overlay_is_not_an_overlay(alice: Path, hub: HubProcess) -> None:
    with (
        Client.open(alice, hub.url, retry=QUICK) as client,
        pytest.raises(TypeError, match=r"did you mean LwwMap\(\)"),
    ):
        client.fold(LwwMap, "anything")  # type: ignore[arg-type]
