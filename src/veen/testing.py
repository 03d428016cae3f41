"""A hub for the tests of programs that use VEEN.

import veen

with veen.testing.hub() as url, veen.Client.open("alice", url) as client:
    client.send("orders", {"item": "tea"})
"""

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
    directory, which is removed. It needs the extra ``hub``: ``pip install 'veen[hub]'``.

    Args:
        config: Content of the hub's configuration file (TOML).

    Raises:
        ServerStartError: The hub did not start, for example because the extra is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="veen-hub-") as scratch:
        server = TempHub(Path(scratch), "test", config)
        server.start()
        try:
            yield server.url
        finally:
            server.close()
