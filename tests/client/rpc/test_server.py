"""The servers that programs use: for blocking clients and for asyncio."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.client.participants import QUICK, make_home
from tests.hub.hub_process import HubProcess
from veen.client.async_client import AsyncClient
from veen.client.client import Client
from veen.client.effects import Hub, run
from veen.client.errors import ClientStateError, NetworkError, RpcError, RpcTimeoutError
from veen.client.fold.interpret import typed
from veen.client.rpc.async_serve import AsyncRpcServer
from veen.client.rpc.serve import Call, CollectedEvents, Handled, Responder, RpcServer
from veen.core.encoding.cbor import Value
from veen.core.types import LeafHash
from veen.overlays.builtin.rpc import REQUEST


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """The directories of a server and of a caller."""
    return make_home(tmp_path / "desk").root, make_home(tmp_path / "alice").root


@pytest.fixture
def desk(places: tuple[Path, Path], hub: HubProcess) -> Iterator[Client]:
    with Client.open(places[0], hub.url, retry=QUICK, rotation=None) as client:
        yield client


@pytest.fixture
def alice(places: tuple[Path, Path], hub: HubProcess) -> Iterator[Client]:
    with Client.open(places[1], hub.url, retry=QUICK, rotation=None) as client:
        yield client


def _request(client: Client, stream: str, to: Client, method: str, args: Value) -> None:
    """Send a request, and do not wait for the reply."""
    draft = typed(REQUEST, REQUEST.make(method=method, args=args))
    client.send_many(stream, [draft], to=to.identity)


def test_methods_by_name_and_what_was_done(desk: Client, alice: Client, stream: str) -> None:
    server = RpcServer(desk, stream)

    @server.method
    def double(call: Call) -> Value:
        assert isinstance(call.args, int)
        return 2 * call.args

    @server.method(name="refuse", repeatable=True)
    def _(_: Call) -> Value:
        raise RpcError("SHOP.CLOSED", "come back tomorrow")

    assert server.run_pending() == []
    for name in ("double", "refuse", "nothing"):
        _request(alice, stream, desk, name, 21)
    handled = server.run_pending()
    assert [item.method for item in handled] == ["double", "refuse", "nothing"]
    assert handled[0].reply["result"] == 42
    assert [item.reply["ok"] for item in handled] == [True, False, False]
    assert [item.reply["error"]["code"] for item in handled[1:]] == ["SHOP.CLOSED", "RPC.UNKNOWN_METHOD"]
    assert server.run_pending() == []
    assert double(Call("", 4, b"", handled[0].msg_id, 0, b"")) == 8, "the function stays what it was"


def test_a_method_without_a_name_needs_one(desk: Client, stream: str) -> None:
    class Nameless:
        def __call__(self, call: Call) -> Value:
            return call.args

    with pytest.raises(ValueError, match="name="):
        RpcServer(desk, stream).method(Nameless())


def test_calls_to_a_card_accept_its_owner_alone(desk: Client, alice: Client, stream: str) -> None:
    """A liar who knows the key of the server may write to the stream as well."""
    _request(alice, stream, desk, "double", 1)
    server = RpcServer(alice, stream)
    server.method(lambda _: "a lie", name="double")
    server.run_pending()
    with pytest.raises(RpcTimeoutError):
        alice.call(stream, "double", 1, to=desk.identity, timeout=0.3)


def test_run_answers_until_it_is_interrupted(
    desk: Client, alice: Client, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = RpcServer(desk, stream)
    ended: list[BaseException] = []

    @server.method
    def fail(_: Call) -> Value:
        raise KeyError("a fault of the method")

    @server.method
    def end(_: Call) -> Value:
        raise KeyboardInterrupt

    def work() -> None:
        try:
            server.run()
        except KeyboardInterrupt as error:
            ended.append(error)

    thread = threading.Thread(target=work, daemon=True)
    with caplog.at_level(logging.ERROR, "veen.client.rpc"):
        thread.start()
        with pytest.raises(RpcError) as raised:
            alice.call(stream, "fail", to=desk.identity)
        assert raised.value.code == "RPC.INTERNAL"
        _request(alice, stream, desk, "end", None)
        thread.join(60)
    assert not thread.is_alive()
    assert len(ended) == 1
    assert any(record.exc_info for record in caplog.records), "what a method raises is logged"
    (handled,) = RpcServer(desk, stream).run_pending()
    assert (handled.method, handled.reply["error"]["code"]) == ("end", "RPC.INTERRUPTED")


class _Unsteady(Responder):
    """Its hub cannot be reached, as often as it says."""

    def __init__(self, failures: list[int]) -> None:
        self._outcomes = iter([error for count in failures for error in (*[True] * count, False)])

    async def step(self, wait_sec: int = 0) -> Handled | None:  # noqa: ARG002 - of a responder
        if next(self._outcomes):
            raise NetworkError("down")
        return Handled(LeafHash(bytes(32)), "add", {}, ran=True)


class _Patient(CollectedEvents):
    def unreachable(self, error: NetworkError) -> None:
        """Is not the end of the server."""


def test_pauses_grow_while_the_hub_cannot_be_reached_and_then_begin_again() -> None:
    pauses: list[float] = []
    events = _Patient()
    run(_Unsteady([3, 1, 9]).serve(events, limit=3), cast("Hub", None), pauses.append)
    assert pauses == [0.5, 1, 2, 0.5, 0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert len(events.done) == 3


def test_two_servers_of_one_client_are_one_too_many(desk: Client, stream: str, alice: Client) -> None:
    first, second = RpcServer(desk, stream), RpcServer(desk, stream)

    @first.method
    def nested(_: Call) -> Value:
        with pytest.raises(ClientStateError):
            second.run_pending()
        return None

    _request(alice, stream, desk, "nested", None)
    (handled,) = first.run_pending()
    assert handled.error is None


def test_an_asyncio_server_runs_functions_and_coroutines(
    places: tuple[Path, Path], hub: HubProcess, stream: str
) -> None:
    async def main() -> None:
        async with (
            AsyncClient.open(places[0], hub.url, retry=QUICK, rotation=None) as desk,
            AsyncClient.open(places[1], hub.url, retry=QUICK, rotation=None) as alice,
        ):
            server = AsyncRpcServer(desk, stream)

            @server.method
            def add(call: Call) -> Value:
                args: Any = call.args
                total: int = args["a"] + args["b"]
                return total

            @server.method(name="later")
            async def _(call: Call) -> Value:
                await asyncio.sleep(0)
                return call.args

            @server.method
            async def refuse(_: Call) -> Value:
                raise RpcError("SHOP.CLOSED")

            assert await server.run_pending() == []
            running = asyncio.create_task(server.run())
            assert await alice.call(stream, "add", {"a": 1, "b": 2}, to=desk.identity) == 3
            assert await alice.call(stream, "later", "x", to=desk.identity) == "x"
            with pytest.raises(RpcError):
                await alice.call(stream, "refuse", to=desk.identity)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            # The last reply is sent again if the server was cancelled before it had noted the first one.
            assert all(handled.repeated and not handled.ran for handled in await server.run_pending())

    asyncio.run(main())


def test_an_asyncio_server_that_is_cancelled_does_not_wait_for_a_method(
    places: tuple[Path, Path], hub: HubProcess, stream: str
) -> None:
    async def main() -> None:
        async with (
            AsyncClient.open(places[0], hub.url, retry=QUICK, rotation=None) as desk,
            AsyncClient.open(places[1], hub.url, retry=QUICK, rotation=None) as alice,
        ):
            server = AsyncRpcServer(desk, stream)
            begun = asyncio.Event()

            @server.method
            async def wait(_: Call) -> Value:
                begun.set()
                await asyncio.sleep(3600)
                return None

            running = asyncio.create_task(server.run())
            waiting = asyncio.create_task(alice.call(stream, "wait", to=desk.identity))
            await begun.wait()
            async with asyncio.timeout(30):
                for _ in range(2):
                    running.cancel()
                    await asyncio.sleep(0)
                with pytest.raises(asyncio.CancelledError):
                    await running
            (handled,) = await server.run_pending()
            assert handled.reply["error"]["code"] == "RPC.INTERRUPTED"
            with pytest.raises(RpcError) as raised:
                await waiting
            assert raised.value.code == "RPC.INTERRUPTED"

    asyncio.run(main())
