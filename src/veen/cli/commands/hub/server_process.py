"""The hub in this process: ``veen hub start --foreground``."""

import contextlib
import gc
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import typer

from veen.cli.commands.hub.start import LOG, READY_FD
from veen.cli.errors import UsageError
from veen.cli.output import print_result
from veen.hub.config import load
from veen.hub.errors import ConfigError
from veen.hub.server import RunningHub, Server
from veen.net.errors import StartError, TlsError
from veen.stdx.json_log import json_lines, to_stderr


def serve(directory: Path, flags: dict[str, Any], config: Path | None, *, as_json: bool) -> None:
    """Serve until stopped."""
    fd = int(os.environ.pop(READY_FD, "-1"))

    def ready(running: RunningHub) -> None:
        banner = _banner(running, directory, str(directory / LOG) if fd >= 0 else "standard error")
        if fd >= 0:
            _report(fd, banner)
        else:
            print_result(banner, as_json)
        _notify_service()

    try:
        settings = load(flags, os.environ, config)
        _make(directory)
        # Objects alive now stay alive, so the garbage collector may skip them. Messages create no reference
        # cycles, so it may run less often than by default (measured: a tenth of the time under load).
        gc.freeze()
        gc.set_threshold(50_000, 50, 100)
        # The event loop releases the GIL at every signature and every response. A thread that assembles a
        # page, or moves the journal, must return it sooner than after 5 ms, the default (measured: beside a
        # reader of a stream, submits are nearly twice as fast; alone, they are as fast as before).
        sys.setswitchinterval(0.001)
        with json_lines(to_stderr(), settings.log_level):
            code = Server(directory, settings, ready).run()
    except (ConfigError, StartError, TlsError) as error:
        if fd >= 0:
            _report(fd, {"ok": False, "detail": str(error)})
        raise UsageError(str(error)) from None
    raise typer.Exit(code)


def _banner(running: RunningHub, directory: Path, log: str) -> dict[str, Any]:
    home = running.home
    return {
        "ok": True,
        "pid": running.pid,
        "listen": list(running.urls),
        "data_dir": str(directory),
        "log": log,
        "hub_id": home.identity.hub_id.hex(),
        "profile_id": home.settings.profiles[0].profile_id.hex(),
        "require_cap": home.settings.require_cap,
        "new": running.first_start,
    }


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StartError(
            f"{directory} cannot be created: {error.strerror}; choose another --data-dir"
        ) from None


def _report(fd: int, what: dict[str, Any]) -> None:
    with os.fdopen(fd, "w", encoding="utf-8") as pipe:
        pipe.write(json.dumps(what))


def _notify_service() -> None:
    """Notify systemd that the hub serves, if it asked for it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        # Not fatal: the hub serves without a listener too.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"READY=1", "\0" + address[1:] if address.startswith("@") else address)
