"""The sockets that a server listens on, and how many connections the process can have (OS-031)."""

import asyncio
import contextlib
import inspect
import resource
import socket
from collections.abc import Callable
from typing import Any, Final

from veen.net.errors import StartError

# Descriptors for open files, the journal, the index, worker processes, the log and the operator's socket.
RESERVED: Final = 256
_FEWEST: Final = 16
BACKLOG: Final = 1024


def bind(addresses: list[str]) -> list[socket.socket]:
    """Bind all addresses or none; called before anything else is changed."""
    with contextlib.ExitStack() as undo:
        sockets = [undo.enter_context(_bind_one(address)) for address in addresses]
        undo.pop_all()
        return sockets


def _bind_one(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    try:
        infos = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, proto, _, address_info = infos[0]
        sock = socket.socket(family, kind, proto)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address_info)
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        raise StartError(
            f"cannot listen on {address}: {error.strerror or error}; choose another address with --listen, "
            "or stop the program that uses it"
        ) from None
    return sock


def url_of(sock: socket.socket, *, secure: bool) -> str:
    """Return the URL of a bound socket."""
    host, port = sock.getsockname()[:2]
    if ":" in host:
        host = f"[{host}]"
    return f"{'https' if secure else 'http'}://{host}:{port}"


def connections_within(max_connections: int) -> int:
    """Return how many connections may be open at once, after raising the descriptor limit of the process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max_connections + RESERVED
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return max_connections
    return min(max_connections, max(_FEWEST, soft - RESERVED))


async def serve_unix(
    loop: asyncio.AbstractEventLoop, connect: Callable[[], asyncio.BaseProtocol], sock: socket.socket
) -> asyncio.AbstractServer:
    """Accept connections on a Unix socket; removing its path is left to the caller that bound it."""
    # Since Python 3.13 loops look for the path of the socket, to remove it at the end. That is up to the
    # caller: the path may have been bound through a descriptor, which may have been reused since.
    known = inspect.signature(loop.create_unix_server).parameters
    options: dict[str, Any] = {"cleanup_socket": False} if "cleanup_socket" in known else {}
    return await loop.create_unix_server(connect, sock=sock, **options)
