"""The process that takes logs in over HTTP."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.hub.hub_process import VEEN, environment


@contextmanager
def listening(*options: str | Path) -> Iterator[str]:
    """Have ``veen recorder import --listen``; yields its address, HOST:PORT."""
    command = [*VEEN, "recorder", "import", "--listen", "127.0.0.1:0", "--json", *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment())
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["listen"][0].partition("://")[2]
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
