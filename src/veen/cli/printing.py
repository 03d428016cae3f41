"""What commands print: one JSON document for scripts, or lines for people; errors in one line."""

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec

import typer

from veen.cli.asking import CommandError
from veen.core.errors import ProtocolError
from veen.storage.errors import DamagedError, StorageError

P = ParamSpec("P")

_USAGE, _REFUSED = 1, 4


def show(values: Mapping[str, Any], as_json: bool) -> None:
    """Print names and values."""
    if as_json:
        typer.echo(json.dumps(values))
        return
    for name, value in values.items():
        typer.echo(f"{name}: {_text(value)}")


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


def reporting(command: Callable[P, None]) -> Callable[P, None]:
    """Turn what a command raises into one line and an exit code; into JSON, if that was asked for."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except CommandError as error:
            fail(str(error), error.exit_code, bool(kwargs.get("as_json")), error.code)
        except DamagedError as error:
            fail(str(error), _REFUSED, bool(kwargs.get("as_json")))
        except StorageError as error:
            fail(str(error), _USAGE, bool(kwargs.get("as_json")))
        except ProtocolError as error:
            fail(str(error), _REFUSED, bool(kwargs.get("as_json")), error.code.value)

    return run


def fail(message: str, exit_code: int, as_json: bool, code: str = "") -> None:
    """End with an error."""
    if as_json:
        typer.echo(json.dumps({"ok": False, "code": code or "E.USAGE", "detail": message}))
    else:
        typer.echo(f"veen: {message}", err=True)
    raise typer.Exit(exit_code)
