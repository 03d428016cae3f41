"""A hub for the tests of programs that use VEEN.

import veen

with veen.testing.hub() as url, veen.Client.open("alice", url) as client:
    client.send("orders", {"item": "tea"})
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veen.selftest.servers import TempHub

__all__ = ["hub"]


@contextmanager
def hub(*, config: str = "") -> Iterator[str]:
    """Start a hub in a process of its own, and yield its URL; it ends with the block.

    Example:
        with veen.testing.hub() as url:
            ...

    It listens on a free port of 127.0.0.1, accepts messages from everybody, and keeps its data in a temporary
    directory. Both are gone at the end of the block, and if this process is killed. It needs the extra
    ``hub``: ``pip install 'veen[hub]'``.

    Args:
        config: Content of the hub's configuration file (TOML).

    Raises:
        ServerStartError: The hub did not start, for example because the extra is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="veen-hub-") as scratch:
        server = TempHub(Path(scratch), "test", config)
        server.start()
        try:
            with _outlived(os.getpgid(server.pid), scratch):
                yield server.url
        finally:
            server.close()


@contextmanager
def _outlived(group: int, scratch: str) -> Iterator[None]:
    """Have the hub and its directory removed also if this process is killed inside of the block."""
    with subprocess.Popen(  # noqa: S603 - our own arguments
        ["/bin/sh", "-c", 'read _; kill -s KILL -- "-$1"; rm -rf -- "$2"', "sh", str(group), scratch],
        stdin=subprocess.PIPE,  # which ends with this process, however it ends
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as watcher:
        try:
            yield
        finally:
            watcher.kill()
