"""A listening server: it accepts connections, disconnects late clients, and drains before it ends."""

import asyncio
import os
import signal
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from veen.net.byte_budget import ByteBudget
from veen.net.host_names import Names
from veen.net.http_application import Application, Bounds
from veen.net.http_connection import Connection
from veen.net.paced_connection import PacedConnection
from veen.net.sockets import BACKLOG, connections_within, serve_unix, url_of

_SWEEP_SEC: Final = 1.0
_DRAIN_STEP_SEC: Final = 0.02


class Listener:
    """Serves one application on bound sockets: ``accept``, ``run``, ``drain``.

    It is created on the loop that it serves on. Its sockets are closed by the caller that bound them.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        bounds: Bounds,
        names: Names,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._sockets = sockets
        self._names = names
        self._tls = tls
        # As configured; ``accept`` lowers the number of connections to what the process can have.
        self._bounds = bounds
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        self._servers: list[asyncio.AbstractServer] = []
        self.connections: set[Connection] = set()
        self.urls = tuple(url_of(sock, secure=tls is not None) for sock in sockets)

    async def accept(
        self, app: Application, budget: ByteBudget, *, local: socket.socket | None = None
    ) -> int:
        """Start to accept connections; return their maximum, which the limit of descriptors may lower.

        ``local`` is the operator's Unix socket: its connections have no TLS and no maximum.
        """
        loop, tls = self._loop, self._tls
        limit = connections_within(self._bounds.max_connections)
        bounds = replace(self._bounds, max_connections=limit)
        connect = partial(self._connect, app, bounds, budget)
        # Before its TLS handshake a client is not a connection yet, and the sweep does not see it.
        handshake_sec = None if tls is None else float(bounds.header_sec)
        for sock in self._sockets:
            server = await loop.create_server(
                connect, sock=sock, ssl=tls, ssl_handshake_timeout=handshake_sec, backlog=BACKLOG
            )
            self._servers.append(server)
        if local is not None:
            self._servers.append(await serve_unix(loop, partial(connect, local=True), local))
        return limit

    def _connect(
        self, app: Application, bounds: Bounds, budget: ByteBudget, *, local: bool = False
    ) -> Connection:
        full = len(self.connections) >= bounds.max_connections and not local
        connection_class = Connection if self._tls is None or local else PacedConnection
        return connection_class(
            app,
            bounds,
            self._loop.time,
            self.connections,
            budget,
            names=self._names,
            local=local,
            full=full,
        )

    def stop_on_signals(self) -> None:
        """Stop at SIGTERM and SIGINT; a second one ends the process at once."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._signalled)

    def _signalled(self) -> None:
        if self._stopped.is_set():
            os._exit(1)
        self._stopped.set()

    def stop(self) -> None:
        """Make ``run`` return; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._stopped.set)

    async def run(self, check: Callable[[], None] = lambda: None) -> None:
        """Serve until stopped, then accept no more connections; ``check`` is called every second."""
        sweep = self._loop.create_task(self._sweep(check))
        try:
            await self._stopped.wait()
        finally:
            sweep.cancel()
            for server in self._servers:
                server.close()

    async def _sweep(self, check: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SEC)
            self._expire()
            check()

    def _expire(self) -> None:
        now = self._loop.time()
        for connection in [item for item in self.connections if item.deadline < now]:
            connection.expire()

    async def drain(self, seconds: float, is_busy: Callable[[], bool] = lambda: False) -> None:
        """Respond to pending requests for at most ``seconds``, then close all connections.

        ``is_busy`` reports whether something else must be waited for.
        """
        end = self._loop.time() + seconds
        for connection in list(self.connections):
            connection.shut()
        while (self.connections or is_busy()) and self._loop.time() < end:
            await asyncio.sleep(_DRAIN_STEP_SEC)
            self._expire()
        for connection in list(self.connections):
            connection.abort()
