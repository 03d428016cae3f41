"""``veen repair``: derived files rebuilt from the log."""

import os
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from veen.cli.data_dir import open_data_dir
from veen.cli.errors import CommandError, as_command_error
from veen.cli.options import JsonFlag
from veen.cli.output import command, print_result, progress
from veen.stdx.grammar import counted
from veen.storage.errors import StorageError
from veen.storage.maintain.repair import Repaired, repair


@command
def repair_command(
    data_dir: Annotated[
        Path, typer.Argument(metavar="DATA_DIR", help="Data directory of a hub that is not running.")
    ],
    as_json: JsonFlag = False,
) -> None:
    """Rebuild the index and other derived files from the log.

    The log itself is never changed.
    """
    owner = f"veen repair (process {os.getpid()} on {socket.gethostname()})"
    try:
        with open_data_dir(data_dir) as fs, progress("repairing") as advance:
            done = repair(fs, owner=owner, progress=advance)
    except (CommandError, StorageError) as error:
        known = as_command_error(error)
        assert known is not None
        raise known.with_document({"error": str(known)}) from None  # "error": as scripts know it
    if as_json:
        print_result({"ok": True, **asdict(done)}, as_json)
    else:
        typer.echo(_summary(done))


def _summary(done: Repaired) -> str:
    text = f"Repaired: {counted(done.entries, 'entry')} in {counted(done.labels, 'label')}."
    if done.journal_entries:
        text += f" The journal has {done.journal_entries} more; the next start of the hub moves the journal."
    return text
