"""``veen conformance``: the library behind a JSON Lines interface."""

import typer


def conformance() -> None:
    """Answer conformance requests from standard input.

    Reads one JSON object per line, and prints one response per line.
    """
    from veen.conformance import adapter

    raise typer.Exit(adapter.main())
