"""placeholder."""

import typer

app = typer.Typer(help="Check this installation.")


@app.command()
def core() -> None:
    """Core."""


@app.command()
def props() -> None:
    """Props."""
