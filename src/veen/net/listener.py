"""Listening: the sockets of a server, and how many connections the process can have (OS-031)."""

import contextlib
import resource
import socket
from typing import Final

#: For files kept open, the journal, the index, worker processes, the log and the operator's socket.
RESERVED: Final = 256
_FEWEST: Final = 16
BACKLOG: Final = 1024


class StartError(Exception):
    """A server can not start; the text says why and what to do."""


def bind(addresses: list[str]) -> list[socket.socket]:
    """Take the addresses, before anything else is touched."""
    with contextlib.ExitStack() as undo:
        taken = [undo.enter_context(_bind_one(address)) for address in addresses]
        undo.pop_all()
        return taken


def _bind_one(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, proto, _, place = found[0]
        sock = socket.socket(family, kind, proto)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(place)
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        raise StartError(
            f"{address} can not be used: {error.strerror or error}; choose another with --listen, "
            "or stop the program that uses it"
        ) from None
    return sock


def url_of(sock: socket.socket, *, secure: bool) -> str:
    """Return where a socket that is bound can be reached."""
    host, port = sock.getsockname()[:2]
    if ":" in host:
        host = f"[{host}]"
    return f"{'https' if secure else 'http'}://{host}:{port}"


def connections_within(wanted: int) -> int:
    """Return how many connections may be open at once; the limit of the process is raised first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, max(_FEWEST, soft - RESERVED))
