"""``veen hub stop``: stop a hub, and wait for its end."""

import contextlib
import os
import select
import signal
from pathlib import Path
from typing import Annotated

import typer

from veen.cli.commands.hub.start import DataDir
from veen.cli.data_dir import running_pid
from veen.cli.errors import UnreachableError, UsageError
from veen.cli.hub_connection import directory_of
from veen.cli.options import JsonFlag
from veen.cli.output import command, print_result
from veen.client.contexts import DEFAULT_DATA_DIR
from veen.core.data_dir import paths
from veen.stdx.file_lock import is_locked


@command
def stop(
    data_dir: DataDir = DEFAULT_DATA_DIR,
    timeout_sec: Annotated[int, typer.Option(help="Time to wait until it has stopped, in seconds.")] = 60,
    as_json: JsonFlag = False,
) -> None:
    """Stop a hub.

    The hub finishes the requests that it has accepted, and flushes its files.
    """
    directory = directory_of(data_dir).expanduser()
    if not directory.is_dir():
        raise UsageError(f"there is no directory {directory}; give the data directory of a hub")
    pid = running_pid(directory)
    if pid is None and _is_locked(directory):
        raise UnreachableError(
            f"{directory} is in use by {_holder(directory)}, which is not serving yet; try again"
        )
    if pid is None or not _is_locked(directory):
        for name in (paths.HUB_PID, paths.HUB_RUNNING):
            with contextlib.suppress(FileNotFoundError):
                (directory / name).unlink()
        print_result({"ok": True, "stopped": False, "note": f"no hub is running in {directory}"}, as_json)
        return
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        process = -1  # it has just ended
    if process >= 0:
        _end(process, pid, timeout_sec)
    print_result({"ok": True, "stopped": True, "pid": pid}, as_json)


def _end(process: int, pid: int, timeout_sec: int) -> None:
    try:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGTERM)
        if not select.select([process], [], [], timeout_sec)[0]:
            raise UnreachableError(f"process {pid} did not stop within {timeout_sec} s; see its log")
    except PermissionError:
        raise UsageError(f"process {pid} belongs to another user; run as the hub's user") from None
    finally:
        os.close(process)


def _holder(directory: Path) -> str:
    return (directory / paths.LOCK).read_text(encoding="utf-8", errors="replace").strip() or "another process"


def _is_locked(directory: Path) -> bool:
    """Return whether a hub holds the lock: the process id alone may have been reused."""
    try:
        return is_locked(directory / paths.LOCK)
    except PermissionError:
        raise UsageError(f"{directory} belongs to another user; run as the hub's user") from None
