"""``veen conformance``: the library behind JSON lines."""

import typer


def conformance() -> None:
    """Answer conformance requests: one JSON object a line on standard input, one answer a line."""
    from veen.conformance import adapter

    raise typer.Exit(adapter.main())
