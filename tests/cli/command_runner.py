"""Commands run in this process, each as if it were the only one; and what they say."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from veen.cli.main import app


class User:
    """Somebody at a terminal, with a home directory of his own."""

    def __init__(self, home: Path, **env: str) -> None:
        self.home = home
        self.hub = env.get("VEEN_HUB", "")
        self._env: dict[str, str | None] = {
            "HOME": str(home),
            "XDG_CONFIG_HOME": None,
            "VEEN_HUB": None,
            "VEEN_CLIENT": None,
            "VEEN_DATA_DIR": None,
            "VEEN_KEYSTORE_PASSPHRASE": None,
            **env,
        }

    def run(self, *words: str | Path, stdin: str | None = None) -> Result:
        """Run a command."""
        return CliRunner(env=self._env).invoke(
            app, [str(word) for word in words], prog_name="veen", input=stdin
        )

    def ok(self, *words: str | Path) -> Any:
        """Run a command that succeeds; return what it says to scripts."""
        done = self.run(*words, "--json")
        assert done.exit_code == 0, (words, done.output, done.exception)
        return json.loads(done.stdout)

    def fails(self, code: int, *words: str | Path) -> dict[str, Any]:
        """Run a command that fails, twice: for people in one line, for scripts in one document."""
        told = self.run(*words)
        assert told.exit_code == code, (words, told.output, told.exception)
        assert told.stderr.startswith("veen: "), told.output
        assert told.stderr.count("\n") == 1, told.stderr
        done = self.run(*words, "--json")
        assert done.exit_code == code, (words, done.output)
        found: dict[str, Any] = json.loads(done.stdout)
        assert found["ok"] is False
        assert found["detail"]
        assert found["code"].startswith("E.")
        return found
