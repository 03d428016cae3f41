"""People with directories of their own, and the commands that they type."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hub.hub_process import TIMEOUT, VEEN


@dataclass
class World:
    """A machine with nothing on it but the program."""

    place: Path

    def run(self, *args: object, code: int = 0) -> str:
        """Type a command, and expect an exit code; returns what it prints."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("VEEN_")}
        done = subprocess.run(
            [*VEEN, *map(str, args)],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT * 2,
            stdin=subprocess.DEVNULL,
            env={**kept, "HOME": str(self.place), "XDG_CONFIG_HOME": str(self.place / ".config")},
            cwd=self.place,
        )
        assert done.returncode == code, f"veen {' '.join(map(str, args))}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def ask(self, *args: object, code: int = 0) -> Any:
        """Type a command for scripts, and read what it prints."""
        return json.loads(self.run(*args, "--json", code=code))
