"""``veen hub start``: start a hub in the background or in the foreground."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from veen.cli.commands.hub.key_arguments import issuer_of
from veen.cli.errors import UsageError
from veen.cli.extras import needing_hub
from veen.cli.hub_connection import directory_of
from veen.cli.options import (
    HOST_HELP,
    LISTEN_HELP,
    LOG_LEVEL_HELP,
    TLS_CERT_HELP,
    TLS_KEY_HELP,
    JsonFlag,
)
from veen.cli.output import command, print_result
from veen.client.contexts import DEFAULT_DATA_DIR

LOG: Final = "hub.log"
# The child of a start in the background reports through this descriptor.
READY_FD: Final = "VEEN_READY_FD"
# Settings that are lists, and whose flags name one.
_PLURAL: Final = ("hosts", "trust_issuers", "admins")
DataDir = Annotated[
    str,
    typer.Option(
        "--data-dir",
        envvar="VEEN_DATA_DIR",
        help="Data directory of the hub: a path or a file:// URI.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingOptions:
    """Options that override settings of the hub (see ``option_groups``)."""

    listen: Annotated[
        list[str] | None,
        typer.Option(help=f"{LISTEN_HELP} Default: 127.0.0.1:37411."),
    ] = None
    host: Annotated[
        list[str] | None,
        typer.Option(help=HOST_HELP),
    ] = None
    profile_id: Annotated[
        str | None, typer.Option(help="Id of a profile (64 hex digits). Fail if the hub does not serve it.")
    ] = None
    log_level: Annotated[str | None, typer.Option(help=f"{LOG_LEVEL_HELP} Default: info.")] = None
    role: Annotated[
        str | None, typer.Option(help="Role of the hub: primary or replica. Default: primary.")
    ] = None
    require_cap: Annotated[
        str | None,
        typer.Option(help="Require a capability token for messages: auto, true or false. Default: auto."),
    ] = None
    trust_issuer: Annotated[
        list[str] | None,
        typer.Option(
            help="Public key of a trusted issuer of tokens: 64 hex digits or a file; may be repeated."
        ),
    ] = None
    admin: Annotated[
        list[str] | None,
        typer.Option(
            help="Public key of an admin, who can revoke: 64 hex digits or a file; may be repeated."
        ),
    ] = None
    epoch_sec: Annotated[
        int | None,
        typer.Option(help="Length of an epoch in seconds, after which labels change; 0: never. Default: 0."),
    ] = None
    pow_difficulty: Annotated[
        int | None, typer.Option(help="Difficulty of the proof of work for a message, in bits. Default: 0.")
    ] = None
    tls_cert: Annotated[Path | None, typer.Option(help=TLS_CERT_HELP)] = None
    tls_key: Annotated[Path | None, typer.Option(help=TLS_KEY_HELP)] = None

    def flags(self) -> dict[str, Any]:
        """Return the settings by name; None where an option is not given."""
        return {
            "listen": self.listen,
            "hosts": self.host,
            "profile_id": self.profile_id,
            "log_level": self.log_level,
            "role": self.role,
            "require_cap": self.require_cap,
            "trust_issuers": _keys(self.trust_issuer),
            "admins": _keys(self.admin),
            "epoch_sec": self.epoch_sec,
            "pow_difficulty": self.pow_difficulty,
            "tls_cert": self.tls_cert,
            "tls_key": self.tls_key,
        }


def _keys(texts: list[str] | None) -> list[str] | None:
    return None if texts is None else [issuer_of(text).hex() for text in texts]


@command
def start(
    settings: SettingOptions,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: Annotated[
        Path | None, typer.Option(help="Configuration file (TOML). Options and VEEN_* variables override it.")
    ] = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Run in the foreground, and log to standard error.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Start a hub.

    Creates the hub if there is none in the data directory.
    """
    flags = settings.flags()
    directory = directory_of(data_dir).expanduser().absolute()
    if foreground or _is_service():
        needing_hub("veen.cli.commands.hub.server_process").serve(directory, flags, config, as_json=as_json)
    else:
        _detach(directory, _arguments(directory, flags, config), as_json=as_json)


def _arguments(directory: Path, flags: dict[str, Any], config: Path | None) -> list[str]:
    """Return the command line of the same start, in the foreground."""
    words = ["hub", "start", "--foreground", "--data-dir", str(directory)]
    if config is not None:
        words += ["--config", str(config.absolute())]
    for name, value in flags.items():
        flag = "--" + name.removesuffix("s" * (name in _PLURAL)).replace("_", "-")
        for item in value if isinstance(value, list) else [value]:
            words += [] if item is None else [flag, str(item)]
    return words


def _is_service() -> bool:
    """Return whether systemd runs this process: it must then stay in the foreground (OS-015)."""
    return bool({"NOTIFY_SOCKET", "INVOCATION_ID"} & set(os.environ)) and not sys.stdin.isatty()


def _detach(directory: Path, arguments: list[str], *, as_json: bool) -> None:
    """Start the hub as a new process, and wait until it serves or reports why it cannot."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = os.open(directory / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise UsageError(
            f"{directory} cannot be used: {error.strerror}; choose another with --data-dir"
        ) from None
    reading, writing = os.pipe()
    with os.fdopen(log, "wb") as sink:
        child = subprocess.Popen(  # noqa: S603 - our own program, with the arguments that it was given
            [sys.executable, "-m", "veen.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            pass_fds=(writing,),
            env={**os.environ, READY_FD: str(writing)},
            start_new_session=True,
        )
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        output = pipe.read()
    if not output:
        child.wait()
        raise UsageError(f"the hub did not start; see {directory / LOG}")
    banner = json.loads(output)
    if not banner.pop("ok"):
        raise UsageError(banner["detail"])
    print_result({"ok": True, **banner} if as_json else banner, as_json)
