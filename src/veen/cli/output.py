"""What commands print: one JSON document for scripts, or lines for people; errors in one line."""

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

from veen.cli.errors import as_command_error
from veen.cli.option_groups import expand_groups
from veen.cli.settings import common

#: Categories of letters that are commands to a terminal, or end a line; and directions that turn it round.
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
    """Return a text for a terminal, in one line: what would steer it is shown as an escape.

    Names, reasons and bodies are written by strangers.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(letter) if _steers(letter) else letter for letter in text)


def plain_json(data: bytes) -> str:
    """Return JSON for a terminal: the same values, with what would steer it written as JSON escapes it."""
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
    """Tell a person something beside the result."""
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
    """Turn what a command raises into one line and an exit code; into JSON, if that was asked for.

    Groups among its parameters are taken as options (``option_groups``).
    """
    inner = expand_groups(function)

    @wraps(inner)
    def run(**given: Any) -> None:  # noqa: ANN401 - of any command
        try:
            inner(**given)
        except Exception as error:
            found = as_command_error(error)
            if found is None:
                raise
            if common.verbose:
                traceback.print_exc()
            fail(str(found), found.exit_code, common.json or bool(given.get("as_json")), found.code)

    return run


def fail(message: str, exit_code: int, as_json: bool, code: str = "") -> None:
    """End with an error."""
    if as_json:
        typer.echo(json.dumps({"ok": False, "code": code or "E.USAGE", "detail": message}))
    else:
        typer.echo(f"veen: {plain(message)}", err=True)
    raise typer.Exit(exit_code)


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a bar while something long is done, if a person looks on; call it with each portion."""
    done = 0
    with progress_bar(what) as tell:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            tell(done, total)

        yield advance


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar for work of which more becomes known; call it with what is done, and of how much."""
    if common.json or common.quiet or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def shown_time(hub_ts: int) -> str:
    """Return a hub's time as people write it."""
    try:
        return datetime.fromtimestamp(hub_ts, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):  # hub_ts may be any 64-bit number
        return str(hub_ts)
