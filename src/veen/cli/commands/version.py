"""``veen version``: the version, and the commit if known."""

import subprocess
from pathlib import Path

import typer

from veen import version as version_module
from veen.cli.output import print_result
from veen.cli.settings import common


def version() -> None:
    """Show the version, and the commit if known."""
    fields = {"version": version_module.__version__, "git": _commit()}
    if common.json:
        print_result(fields, as_json=True)
    else:
        typer.echo(f"veen {fields['version']} (git {fields['git']})")


def _commit() -> str:
    root = Path(version_module.__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return "unknown"
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            ["git", "-C", str(root), "rev-parse", "--short", "HEAD"],  # noqa: S607 - whichever git there is
            capture_output=True,
            text=True,
            check=True,
            timeout=5,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()
