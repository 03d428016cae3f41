"""Output of commands: one JSON document for scripts, or lines for people; errors in one line."""

import json
import sys
import traceback
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Final

import typer

from veen.cli.errors import CommandError, as_command_error
from veen.cli.option_groups import expand_groups
from veen.cli.settings import common

# Categories of characters that control a terminal or end a line; and bidirectional controls.
_STEERING: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_TURNING: Final = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def print_result(values: Mapping[str, Any], as_json: bool) -> None:
    """Print names and values."""
    if as_json:
        typer.echo(json.dumps(values))
    elif not common.quiet:
        for name, value in values.items():
            typer.echo(f"{plain(name)}: {plain(_text(value))}")


def plain(text: str) -> str:
    """Return a text for a terminal, in one line, with control characters escaped.

    Names, reasons and bodies come from untrusted senders.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(letter) if _steers(letter) else letter for letter in text)


def plain_json(data: bytes) -> str:
    """Return JSON for a terminal: the same values, with control characters as JSON escapes."""
    text = data.decode()
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"\\u{ord(letter):04x}" if _steers(letter) else letter for letter in text)


def _steers(letter: str) -> bool:
    return unicodedata.category(letter) in _STEERING or unicodedata.bidirectional(letter) in _TURNING


def _escaped(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def warn(text: str) -> None:
    """Print a message for people, on standard error."""
    if not common.quiet and not common.json:
        typer.echo(f"veen: {plain(text)}", err=True)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "unspecified"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value) or "none"
    if isinstance(value, dict):
        return " ".join(f"{name}={_text(item)}" for name, item in value.items())
    return str(value)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Print the error that a command raises, and end with its exit code.

    Parameters that are option groups are expanded to options (``option_groups``).
    """
    inner = expand_groups(function)

    @wraps(inner)
    def run(**given: Any) -> None:  # noqa: ANN401 - of any command
        try:
            inner(**given)
        except Exception as error:
            known = as_command_error(error)
            if known is None:
                raise
            if common.verbose:
                traceback.print_exc()
            print_error(known, common.json or bool(given.get("as_json")))
            raise typer.Exit(known.exit_code) from None

    return run


def print_error(error: CommandError, as_json: bool) -> None:
    """Print an error: one line for people, one document for scripts."""
    if as_json:
        typer.echo(json.dumps(error.to_json()))
    else:
        typer.echo(f"veen: {plain(str(error))}", err=True)


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; call the result with the size of each portion that is done."""
    done = 0
    with progress_bar(what) as show:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            show(done, total)

        yield advance


@contextmanager
def progress_bar(what: str, *, in_bytes: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """Show a progress bar on a terminal; call the result with what is done, and the total if it is known."""
    if common.json or common.quiet or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    count = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = (TextColumn(what), BarColumn(), count, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


def shown_time(hub_ts: int) -> str:
    """Return a hub's time in ISO 8601."""
    try:
        return datetime.fromtimestamp(hub_ts, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):  # hub_ts may be any 64-bit number
        return str(hub_ts)
