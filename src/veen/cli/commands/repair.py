"""``veen repair``: derived files made anew from the log."""

import json
import os
import socket
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from veen.cli.data_dir import UsageError, open_data_dir
from veen.storage.errors import DamagedStoreError, StorageError
from veen.storage.fs import RealFilesystem
from veen.storage.maintain.repair import Repaired, repair

_DAMAGED = 4


def repair_command(
    data_dir: Annotated[Path, typer.Argument(help="The data directory; its hub must not be running.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for scripts.")] = False,
) -> None:
    """Make index, node stores and other derived files anew from the log; never touches a log byte."""
    try:
        with open_data_dir(data_dir) as fs:
            done = _run(fs, quiet=as_json or not sys.stderr.isatty())
    except DamagedStoreError as error:
        _fail(str(error), _DAMAGED, as_json)
    except (StorageError, UsageError) as error:
        _fail(str(error), 1, as_json)
    else:
        if as_json:
            typer.echo(json.dumps({"ok": True, **asdict(done)}))
        else:
            typer.echo(_summary(done))


def _run(fs: RealFilesystem, *, quiet: bool) -> Repaired:
    owner = f"veen repair (process {os.getpid()} on {socket.gethostname()})"
    if quiet:
        return repair(fs, owner=owner)
    columns = (SpinnerColumn(), TextColumn("repairing"), MofNCompleteColumn(), TextColumn("entries"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("repair", total=None)
        return repair(fs, owner=owner, progress=lambda count: bar.advance(task, count))


def _summary(done: Repaired) -> str:
    text = f"Repaired: {done.entries} entries of {done.labels} labels are in order."
    if done.journal_entries:
        text += f" The journal has {done.journal_entries} more; the next start of the hub moves them."
    return text


def _fail(message: str, code: int, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"ok": False, "error": message}))
    else:
        typer.echo(f"veen repair: {message}", err=True)
    raise typer.Exit(code)
