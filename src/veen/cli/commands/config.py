"""``veen config``: the default client, hub and admin."""

import json
from typing import Annotated

import typer

from veen.cli.errors import UsageError
from veen.cli.output import command, print_result
from veen.cli.settings import common
from veen.client.contexts import KEYS, config_path, load_config
from veen.stdx.atomic_file import write_file

app = typer.Typer(help="Show and change your default settings.", no_args_is_help=True)
Key = Annotated[str, typer.Argument(metavar="KEY", help=f"Setting: one of {', '.join(KEYS)}.")]


def _check(key: str) -> None:
    if key not in KEYS:
        raise UsageError(f"unknown setting {key}; use one of {', '.join(KEYS)}")


def _save(values: dict[str, str]) -> None:
    path = config_path()
    # A JSON string is a TOML string, for all that a path or URL can hold.
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in sorted(values.items()))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, text.encode())
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


@app.command("show")
@command
def show_config() -> None:
    """Show the settings, and the path of their file."""
    print_result({"file": str(config_path()), **{key: load_config().get(key) for key in KEYS}}, common.json)


@app.command("set")
@command
def set_value(
    key: Key,
    value: Annotated[
        str,
        typer.Argument(
            metavar="VALUE",
            help="Value: a URL or a directory for hub; a directory for client and admin; local, "
            "first-use or never for trust; neq or gt for wallet_needs_reset.",
        ),
    ],
) -> None:
    """Change a default."""
    _check(key)
    if key == "trust" and value not in ("local", "first-use", "never"):
        raise UsageError(f"trust takes local, first-use or never, not {value!r}")
    _save({**load_config(), key: value})
    print_result({"ok": True, key: value}, common.json)


@app.command()
@command
def unset(key: Key) -> None:
    """Remove a default."""
    _check(key)
    _save({name: value for name, value in load_config().items() if name != key})
    print_result({"ok": True, key: None}, common.json)
