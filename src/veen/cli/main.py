"""Entry point of ``veen``."""

import json
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import veen
from veen.cli.anchor import anchor_app
from veen.cli.anchor import verify as verify_anchor
from veen.cli.asking import USAGE
from veen.cli.demo import Demo, Step
from veen.cli.fsck import fsck
from veen.cli.hub import app as hub_app
from veen.cli.hub.showing import hub_id
from veen.cli.repair import repair_command
from veen.conformance import adapter

app = typer.Typer(
    name="veen",
    help="VEEN: an ephemeral, verifiable, end-to-end encrypted event fabric.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"veen {veen.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """VEEN: an ephemeral, verifiable, end-to-end encrypted event fabric."""


@app.command()
def demo(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a step, for scripts.")] = False,
) -> None:
    """Show a message sealed, signed, receipted, stored, proved, checked, opened, and tampered with."""
    with TemporaryDirectory(prefix="veen-demo-") as root:
        steps = Demo(os.urandom, lambda: int(time.time()), Path(root) / "data").steps()
        if as_json:
            for step in steps:
                typer.echo(json.dumps(asdict(step), ensure_ascii=False))
        else:
            _print_steps(Console(), steps)


def _print_steps(console: Console, steps: Iterable[Step]) -> None:
    for number, step in enumerate(steps, start=1):
        console.print(Text(f"{number}. {step.title}", style="bold"))
        console.print(Text(f"   {step.says}"))
        grid = Table.grid(padding=(0, 2, 0, 0))
        for name, value in step.values.items():
            grid.add_row("  ", Text(name, style="cyan"), Text(value))
        console.print(grid)
        console.print()
    console.print(Text("All checks passed.", style="green"))


@app.command()
def conformance() -> None:
    """Answer conformance requests: one JSON object a line on standard input, one answer a line."""
    raise typer.Exit(adapter.main())


app.add_typer(hub_app, name="hub")
app.add_typer(anchor_app, name="anchor")
app.command("verify-anchor")(verify_anchor)
app.command("hub-id")(hub_id)
app.command()(fsck)
app.command("repair")(repair_command)


def main() -> None:
    """Run the program."""
    _run(sys.argv[1:])


def _run(arguments: list[str]) -> None:
    """Run a command. A mistake in its arguments exits 1: 2 is for a hub that can not be reached (CLI-010)."""
    usage = typer.BadParameter.__base__  # of click, which typer may have a copy of
    setattr(usage, "exit_code", USAGE)  # noqa: B010 - no name is public
    app(arguments, prog_name="veen")


def hub_main() -> None:
    """Run ``veen-hub``, an older name: ``veen-hub``, ``veen-hub run`` and ``veen-hub start`` start a hub."""
    given = sys.argv[1:]
    if not given or given[0].startswith("-"):
        given = ["start", *given]
    if given[0] == "run":
        given[0] = "start"
    _run(["hub", *given])


if __name__ == "__main__":
    main()
