"""Operations and what drives them: the same outcomes, blocking and on a loop."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.participants import QUICK, make_home
from tests.hub.hub_process import HubProcess
from veen.client.async_client import AsyncClient
from veen.client.client import Client
from veen.client.effects import Blocking, Describe, Operation, Sleep
from veen.client.errors import RejectedError
from veen.client.session import Session

Drive = Callable[[Callable[[Session], Operation[Any]]], Any]


@pytest.fixture(params=["blocking", "asyncio"])
def drive(request: pytest.FixtureRequest, hub: HubProcess, tmp_path: Path) -> Drive:
    """Run an operation to its end, by each of the two drivers."""
    home = tmp_path / "alice"
    make_home(home)

    def blocking(operation: Callable[[Session], Operation[Any]]) -> Any:
        with Client.open(home, hub.url, retry=QUICK) as client:
            return client.run(operation(client.session))

    def on_loop(operation: Callable[[Session], Operation[Any]]) -> Any:
        async def work() -> Any:
            async with await AsyncClient.open(home, hub.url, retry=QUICK) as client:
                return await client.run(operation(client.session))

        return asyncio.run(work())

    return blocking if request.param == "blocking" else on_loop


def test_effects_return_their_outcome(drive: Drive) -> None:
    async def operation(_: Session) -> tuple[int, bool]:
        count = await Blocking(lambda: 6 * 7)
        await Sleep(0)
        return count, "identity" in await Describe("/tooling/status")

    assert drive(operation) == (42, True)


def test_an_operation_catches_what_its_effects_raise(drive: Drive) -> None:
    async def operation(_: Session) -> list[str]:
        caught = []
        try:
            await Blocking(lambda: int("x"))
        except ValueError as error:
            caught.append(type(error).__name__)
        try:
            await Describe("/tooling/nothing")
        except RejectedError as error:
            caught.append(type(error).__name__)
        return caught

    assert drive(operation) == ["ValueError", "RejectedError"]


def test_an_error_of_an_operation_releases_the_lock(drive: Drive) -> None:
    async def operation(session: Session) -> None:
        async with session.lock():
            await Blocking(lambda: int("x"))

    async def free(session: Session) -> bool:
        async with session.lock():
            return session.locked_state is None

    with pytest.raises(ValueError, match="invalid literal"):
        drive(operation)
    assert drive(free)


def test_a_closed_operation_releases_the_lock(hub: HubProcess, tmp_path: Path) -> None:
    make_home(tmp_path / "alice")
    with Client.open(tmp_path / "alice", hub.url, retry=QUICK) as client:

        async def operation() -> None:
            async with client.session.lock():
                await Sleep(60)

        begun = operation()
        effect = begun.send(None)
        while isinstance(effect, Blocking):
            effect = begun.send(effect.work())
        lock = client.session.home.holding()
        assert not lock.acquire()
        begun.close()
        assert lock.acquire()
        lock.close()


def test_a_forgotten_await_is_reported() -> None:
    """Of an operation that a generator was, nothing would have said so."""

    async def operation() -> None:
        await Sleep(0)

    with pytest.warns(RuntimeWarning, match="never awaited"):
        operation()  # type: ignore[unused-coroutine]
