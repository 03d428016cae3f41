"""The operator's socket on loops of old and new Pythons."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from veen.core.data_dir import paths
from veen.hub.server import _AdminSocket
from veen.net.sockets import serve_unix

Connect = Callable[[], asyncio.BaseProtocol]


class OldLoop(asyncio.SelectorEventLoop):
    """Up to Python 3.12: leaves sockets alone."""

    async def create_unix_server(self, connect: Any, *, sock: Any) -> asyncio.Server:  # type: ignore[override]
        return await super().create_unix_server(connect, sock=sock)


class NewLoop(OldLoop):
    """Since Python 3.13: looks for the socket's name, to remove it in the end, unless told not to."""

    async def create_unix_server(  # type: ignore[override]
        self, connect: Any, *, sock: Any, cleanup_socket: bool = True
    ) -> asyncio.Server:
        if cleanup_socket:
            os.stat(sock.getsockname())  # noqa: PTH116 - as the loop does it
        return await super().create_unix_server(connect, sock=sock)


class Greeting(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        transport.write(b"hello")
        transport.close()


async def greeted(place: Path) -> bytes:
    admin = _AdminSocket(place)
    server = await serve_unix(asyncio.get_running_loop(), Greeting, admin.sock)
    try:
        reader, writer = await asyncio.open_unix_connection(place / paths.ADMIN_SOCKET)
        said = await reader.read()
        writer.close()
        return said
    finally:
        server.close()
        admin.close()


def run(loop: type[asyncio.AbstractEventLoop], work: Awaitable[bytes]) -> bytes:
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(work)  # type: ignore[arg-type]


@pytest.mark.parametrize("loop", [OldLoop, NewLoop])
def test_the_socket_is_served_and_removed_by_us(
    tmp_path: Path, loop: type[asyncio.AbstractEventLoop]
) -> None:
    (tmp_path / paths.ADMIN_SOCKET).parent.mkdir()
    assert run(loop, greeted(tmp_path)) == b"hello"
    assert not (tmp_path / paths.ADMIN_SOCKET).exists()
