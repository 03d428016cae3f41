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
    """Start a hub in its own process, and yield its URL; it ends with the block.

    Example:
        with veen.testing.hub() as url:
            ...

    It listens on a free port of 127.0.0.1, accepts messages from any client, and stores data in a temporary
    directory. Both are removed at the end of the block, or when this process is killed. It needs the extra
    ``hub``: ``pip install 'PATH_OF_THE_CLONE[hub]'``.

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
    """Remove the hub and its directory if this process is killed inside the block."""
    with subprocess.Popen(  # noqa: S603 - our own arguments
        ["/bin/sh", "-c", 'read _; kill -s KILL -- "-$1"; rm -rf -- "$2"', "sh", str(group), scratch],
        stdin=subprocess.PIPE,  # closed with this process, however it ends
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as watcher:
        try:
            yield
        finally:
            watcher.kill()
