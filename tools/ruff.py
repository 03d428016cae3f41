"""Sources and pages as the formatter writes them, so that generated files pass ``make lint``."""

import subprocess
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[1]


def formatted(text: str, path: Path) -> str:
    """Return the content of a file as ``make fix`` would format it; ``path`` gives its type.

    Of a page, the examples are formatted.
    """
    if path.suffix == ".py":
        text = _run(text, path, "check", "--fix", "--select", "I")
    return _run(text, path, "format")


def _run(text: str, path: Path, *command: str) -> str:
    return subprocess.run(  # noqa: S603 - our own formatter
        [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", str(path), "-"],
        input=text,
        capture_output=True,
        encoding="utf-8",
        check=True,
        cwd=_ROOT,
    ).stdout
