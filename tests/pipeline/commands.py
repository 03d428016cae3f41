"""The program itself, with time enough for Spark on a busy machine."""

import subprocess
from pathlib import Path
from typing import Final

from tests.hub.hub_process import VEEN, environment

TIMEOUT: Final = 240.0


def veen(*words: str | Path, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*VEEN, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
        stdin=subprocess.DEVNULL,
        env=environment(**env),
        cwd=cwd,
    )
