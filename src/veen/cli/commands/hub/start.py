"""``veen hub start``: in the foreground, or in the background once it serves."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from veen.cli.commands.hub.key_arguments import issuer_of
from veen.cli.errors import UsageError
from veen.cli.extras import needing_hub
from veen.cli.hub_connection import directory_of
from veen.cli.options import JsonFlag
from veen.cli.output import command, print_result
from veen.client.contexts import DEFAULT_DATA_DIR

LOG: Final = "hub.log"
#: The child of a start in the background reports through this descriptor.
READY_FD: Final = "VEEN_READY_FD"
_USAGE: Final = 1
#: Settings that are lists, and whose flags name one.
_PLURAL: Final = ("hosts", "trust_issuers", "admins")
DataDir = Annotated[
    str,
    typer.Option(
        "--data-dir",
        envvar="VEEN_DATA_DIR",
        help="Where the hub lives: a path or file:// URI.",
    ),
]


@command
def start(
    data_dir: DataDir = DEFAULT_DATA_DIR,
    listen: Annotated[
        list[str] | None,
        typer.Option(help="Address to serve, HOST:PORT; may be repeated. By default 127.0.0.1:37411."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name under which clients may address the hub; may be repeated. By default the machine's "
            "host name and its full name. Addresses and localhost always may."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file; flags and VEEN_* variables win over it.")
    ] = None,
    profile_id: Annotated[
        str | None, typer.Option(help="Refuse to start unless this profile is served.")
    ] = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay here, log to standard error.")
    ] = False,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warn or error; by default info.")
    ] = None,
    role: Annotated[str | None, typer.Option(help="primary or replica; by default primary.")] = None,
    require_cap: Annotated[
        str | None, typer.Option(help="Whether messages need a token: auto (default), true or false.")
    ] = None,
    trust_issuer: Annotated[
        list[str] | None,
        typer.Option(help="Issuer whose tokens count: 64 hex digits or a file; may be repeated."),
    ] = None,
    admin: Annotated[
        list[str] | None,
        typer.Option(help="Client that may revoke: 64 hex digits or a file; may be repeated."),
    ] = None,
    epoch_sec: Annotated[
        int | None, typer.Option(help="Seconds after which labels change; 0 (default): never.")
    ] = None,
    pow_difficulty: Annotated[
        int | None, typer.Option(help="Bits of proof of work for a submit; by default 0.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain (PEM): serve HTTPS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key of the certificate (PEM).")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Start a hub, and make it if there is none; on a fresh machine this one command is all."""
    flags: dict[str, Any] = {
        "listen": listen,
        "hosts": host,
        "profile_id": profile_id,
        "log_level": log_level,
        "role": role,
        "require_cap": require_cap,
        "trust_issuers": None if trust_issuer is None else [issuer_of(item).hex() for item in trust_issuer],
        "admins": None if admin is None else [issuer_of(item).hex() for item in admin],
        "epoch_sec": epoch_sec,
        "pow_difficulty": pow_difficulty,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
    }
    place = directory_of(data_dir).expanduser().absolute()
    if foreground or _is_service():
        needing_hub("veen.cli.commands.hub.server_process").serve(place, flags, config, as_json=as_json)
    else:
        _detach(place, _arguments(place, flags, config), as_json=as_json)


def _arguments(place: Path, flags: dict[str, Any], config: Path | None) -> list[str]:
    """Return the command line of the same start, in the foreground."""
    made = ["hub", "start", "--foreground", "--data-dir", str(place)]
    if config is not None:
        made += ["--config", str(config.absolute())]
    for name, value in flags.items():
        flag = "--" + name.removesuffix("s" * (name in _PLURAL)).replace("_", "-")
        for item in value if isinstance(value, list) else [value]:
            made += [] if item is None else [flag, str(item)]
    return made


def _is_service() -> bool:
    """Tell whether systemd runs us: it wants the hub itself, not something that goes away (OS-015)."""
    return bool({"NOTIFY_SOCKET", "INVOCATION_ID"} & set(os.environ)) and not sys.stdin.isatty()


def _detach(place: Path, arguments: list[str], *, as_json: bool) -> None:
    """Start the hub as a process of its own, and wait until it serves or has said why it can not."""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = os.open(place / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise UsageError(
            f"{place} can not be used: {error.strerror}; choose another with --data-dir"
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
        said = pipe.read()
    if not said:
        child.wait()
        raise UsageError(f"the hub did not start; see {place / LOG}")
    banner = json.loads(said)
    if not banner.pop("ok"):
        raise UsageError(banner["detail"])
    print_result({"ok": True, **banner} if as_json else banner, as_json)
