"""The query service as a process: sockets, signals, and a clean shutdown."""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from veen.net.byte_budget import ByteBudget
from veen.net.host_names import Names
from veen.net.http_application import Bounds
from veen.net.listener import Listener
from veen.net.sockets import bind
from veen.net.tls import server_context
from veen.query_service.errors import StateBusyError
from veen.query_service.http_api import Api, RecordWaits, Threads
from veen.query_service.service import QueryService
from veen.query_service.settings import ServiceEvents
from veen.stdx.file_lock import lock, unlock
from veen.stdx.json_log import LogEvent
from veen.stdx.loopback import is_loopback

_log = logging.getLogger(__name__)

DEFAULT_LISTEN: Final = "127.0.0.1:37413"
STORE: Final = "queries.sqlite"
_LOCK: Final = "lock"
_DRAIN_SEC: Final = 5.0
# Threads that read the store, so that requests do not wait for each other's disk access.
_LOOKS: Final = 8
# Threads that read pages, and may have to hash their rows first.
_PAGES: Final = 8
# Threads that accept queries, and look up their streams in lake and log.
_SUBMITS: Final = 4
_BOUNDS: Final = Bounds(
    max_connections=1024, max_header_bytes=16 << 10, header_sec=10.0, body_sec=10.0, idle_sec=60.0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenSettings:
    """Addresses, host names and certificates of a service."""

    addresses: tuple[str, ...] = (DEFAULT_LISTEN,)
    names: Names
    tls_cert: Path | None = None
    tls_key: Path | None = None
    # Authorities whose client certificates are accepted.
    client_ca: Path | None = None
    # How long a submit waits for the hub: less than the client's timeout, so that it learns of the stored
    # query.
    record_wait_sec: float = 5.0
    # Memory limit for the requests and responses of all clients together.
    max_bytes: int = 256 << 20

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None without TLS."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        return server_context(self.tls_cert, self.tls_key, self.client_ca)


class StateDirectory:
    """The locked state directory of a service: two services would run each query twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = lock(path / _LOCK, wait=False)
        if self._fd is None:
            raise StateBusyError(f"another service uses {path}; stop it, or choose another --state")

    def close(self) -> None:
        """Release the lock."""
        if self._fd is not None:
            unlock(self._fd)
            self._fd = None


class Server:
    """Serves a query service until it is stopped; the caller has bound the addresses."""

    def __init__(
        self,
        make_service: Callable[[ServiceEvents], QueryService],
        listening: ListenSettings,
        on_ready: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._make_service = make_service
        self._listening = listening
        self._on_ready = on_ready

    def run(self, sockets: list[socket.socket], tls: ssl.SSLContext | None) -> int:
        """Serve; return the exit code of the process."""
        return uvloop.run(self._serve(sockets, tls))

    async def _serve(self, sockets: list[socket.socket], tls: ssl.SSLContext | None) -> int:
        listener = Listener(sockets, _BOUNDS, self._listening.names, tls=tls)
        waits = RecordWaits()
        events = _Events(listener, waits)
        service = self._make_service(events)
        with (
            ThreadPoolExecutor(_LOOKS, thread_name_prefix="veen-request") as looks,
            ThreadPoolExecutor(_SUBMITS, thread_name_prefix="veen-submit") as submits,
            ThreadPoolExecutor(_PAGES, thread_name_prefix="veen-page") as pages,
        ):
            threads = Threads(looks=looks, submits=submits, pages=pages, page_count=_PAGES)
            memory = ByteBudget(self._listening.max_bytes)
            api = Api(service, threads, memory, waits, record_wait_sec=self._listening.record_wait_sec)
            service.start()
            await listener.accept(api.router(), memory)
            listener.stop_on_signals()
            self._warn(sockets, tls)
            hosts = sorted(self._listening.names.hosts)
            _log.info(LogEvent("started", urls=listener.urls, hosts=hosts, pid=os.getpid()))
            self._on_ready(listener.urls)
            try:
                await listener.run(service.look)
            finally:
                service.stopping = True
                await listener.drain(_DRAIN_SEC)
                await asyncio.get_running_loop().run_in_executor(None, service.stop)
        _log.info(LogEvent("stopped", clean=not events.failed))
        return 1 if events.failed else 0

    def _warn(self, sockets: list[socket.socket], tls: ssl.SSLContext | None) -> None:
        """Warn if bearer tokens would be sent in clear text."""
        for sock in sockets:
            if tls is None and not is_loopback(sock.getsockname()[0]):
                _log.warning(LogEvent("tokens-without-tls", address=sock.getsockname()[0]))


class _Events:
    """Reactions to the events of a service; called from its threads."""

    def __init__(self, listener: Listener, waits: RecordWaits) -> None:
        self._listener = listener
        self._waits = waits
        self.failed = False

    def recorded(self, result_id: str) -> None:
        self._waits.notify(result_id)

    def fatal(self, _reason: str) -> None:
        self.failed = True
        self._listener.stop()


def bind_all(listening: ListenSettings) -> tuple[list[socket.socket], ssl.SSLContext | None]:
    """Bind the addresses and read the certificates, before the slow part of the start."""
    tls = listening.context()
    return bind(list(listening.addresses)), tls
