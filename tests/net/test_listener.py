"""A listening server: how many it accepts, how it stops, and what is still answered then."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Thread

import pytest

from veen.core.objects.error_envelope import ErrorEnvelope
from veen.net.byte_budget import ByteBudget
from veen.net.errors import StartError
from veen.net.host_names import Names
from veen.net.http_application import Bounds
from veen.net.http_message import TEXT, Request, Response, error_response
from veen.net.listener import Listener
from veen.net.sockets import bind

NAMES = Names(hosts=frozenset({"hub"}), advice="")
ASK = b"GET /%s HTTP/1.1\r\nhost: hub\r\n\r\n"


class Echo:
    """Answers with the path; requests for ``/held`` wait until they are released."""

    def __init__(self) -> None:
        self.held: list[Request] = []
        self.is_held = asyncio.Event()

    def max_body(self, method: str, target: str, content_type: str) -> int:  # noqa: ARG002 - of the protocol
        return 0

    def too_large(self, request: Request, size: int, limit: int) -> Response:  # noqa: ARG002 - of the protocol
        return Response(413)

    def reject(self, error: ErrorEnvelope, request: Request | None = None) -> Response:  # noqa: ARG002 - of the protocol
        return error_response(error, as_json=True)

    def handle(self, request: Request) -> None:
        if request.path == "/held":
            self.held.append(request)
            self.is_held.set()
        else:
            request.respond(Response(200, request.path.encode(), TEXT))

    def release(self) -> None:
        for request in self.held:
            request.respond(Response(200, b"released", TEXT))


def bounds(*, header_sec: float = 30, max_connections: int = 8) -> Bounds:
    return Bounds(
        max_connections=max_connections,
        max_header_bytes=4096,
        header_sec=header_sec,
        body_sec=30,
        idle_sec=30,
    )


class Running:
    """A listener that serves on the loop of the test."""

    def __init__(self, listener: Listener, app: Echo, limit: int) -> None:
        self.listener = listener
        self.app = app
        self.limit = limit
        self.served = asyncio.create_task(listener.run())
        #: Clients that stay connected.
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.listener.urls[0].partition("://")[2].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        self._writers.append(writer)
        return reader, writer

    async def end(self) -> None:
        self.listener.stop()
        await self.served
        await self.listener.drain(0)
        for writer in self._writers:
            writer.close()

    async def ask(self, path: bytes) -> asyncio.StreamReader:
        """Send a request on a connection of its own, which stays open."""
        reader, writer = await self.connect()
        writer.write(ASK % path)
        await writer.drain()
        return reader


@asynccontextmanager
async def running(chosen: Bounds, *, local: socket.socket | None = None) -> AsyncIterator[Running]:
    sockets = bind(["127.0.0.1:0"])
    listener = Listener(sockets, chosen, NAMES)
    app = Echo()
    limit = await listener.accept(app, ByteBudget(1 << 20), local=local)
    server = Running(listener, app, limit)
    try:
        yield server
    finally:
        await server.end()
        for sock in sockets:
            sock.close()


async def status(reader: asyncio.StreamReader) -> int:
    return int((await reader.readline()).split()[1])


def test_an_address_in_use_is_a_start_error_and_leaves_no_socket_bound() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        free, used = other.getsockname()[1], taken.getsockname()[1]
        other.close()
        with pytest.raises(StartError, match=f"127.0.0.1:{used}"):
            bind([f"127.0.0.1:{free}", f"127.0.0.1:{used}"])
        bind([f"127.0.0.1:{free}"])[0].close()


def test_it_serves_until_it_is_stopped_from_another_thread() -> None:
    async def scenario() -> None:
        async with running(bounds()) as server:
            assert await status(await server.ask(b"a")) == 200
            stopper = Thread(target=server.listener.stop)
            stopper.start()
            await server.served
            stopper.join()
            with pytest.raises(ConnectionRefusedError):
                await server.connect()

    asyncio.run(scenario())


def test_a_drain_answers_what_was_asked_and_closes_idle_connections() -> None:
    async def scenario() -> None:
        async with running(bounds()) as server:
            idle, _ = await server.connect()
            asked = await server.ask(b"held")
            await server.app.is_held.wait()
            server.listener.stop()
            await server.served
            draining = asyncio.create_task(server.listener.drain(30))
            assert await idle.read() == b""
            server.app.release()
            assert await status(asked) == 200
            await draining
            assert not server.listener.connections

    asyncio.run(scenario())


def test_a_drain_without_patience_cuts_what_is_not_answered() -> None:
    async def scenario() -> None:
        async with running(bounds()) as server:
            asked = await server.ask(b"held")
            await server.app.is_held.wait()
            await server.listener.drain(0)
            with pytest.raises((ConnectionResetError, IndexError)):  # or it is the end: no status line
                await status(asked)

    asyncio.run(scenario())


def test_a_drain_waits_for_what_else_is_busy() -> None:
    async def scenario() -> None:
        async with running(bounds()) as server:
            left = [3]

            def is_busy() -> bool:
                left[0] -= 1
                return left[0] > 0

            await server.listener.drain(30, is_busy)
            assert left == [0]

    asyncio.run(scenario())


def test_one_connection_too_many_is_answered_but_the_operator_is_never_too_many(tmp_path: Path) -> None:
    async def scenario() -> None:
        with socket.socket(socket.AF_UNIX) as local:
            local.bind(str(tmp_path / "socket"))
            local.listen()
            async with running(bounds(max_connections=1), local=local) as server:
                assert server.limit == 1
                await server.ask(b"held")
                await server.app.is_held.wait()
                assert await status(await server.ask(b"a")) == 503
                reader, writer = await asyncio.open_unix_connection(tmp_path / "socket")
                writer.write(ASK % b"a")
                assert await status(reader) == 200
                writer.close()

    asyncio.run(scenario())


def test_a_client_that_is_late_is_cut_off_by_the_sweep() -> None:
    async def scenario() -> None:
        async with running(bounds(header_sec=0.01)) as server:
            reader, writer = await server.connect()
            writer.write(b"GET / HT")
            assert b" 400 " in await reader.readline()

    asyncio.run(scenario())


STUBBORN = """
import asyncio, sys
from tests.net.test_listener import Echo, NAMES, bounds
from veen.net.byte_budget import ByteBudget
from veen.net.listener import Listener
from veen.net.sockets import bind

async def main():
    listener = Listener(bind(["127.0.0.1:0"]), bounds(), NAMES)
    await listener.accept(Echo(), ByteBudget(1))
    listener.stop_on_signals()
    print("ready", flush=True)
    await listener.run()
    print("stopped", flush=True)
    await listener.drain(3600, lambda: True)

asyncio.run(main())
"""


def test_a_second_signal_ends_the_process_at_once() -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGTERM)
            assert process.stdout.readline() == "stopped\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 1
        finally:
            process.kill()
