"""Orders of the operator: whom to trust, what to refuse, a new key. To a running hub, or to its directory."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Annotated, Any, Final

import typer

from veen.cli.commands.hub.key_arguments import issuer_of, target_of
from veen.cli.commands.hub.start import DataDir
from veen.cli.errors import UsageError
from veen.cli.extras import needing_hub
from veen.cli.hub_connection import HubClient, directory_of
from veen.cli.options import JsonFlag
from veen.cli.output import command, print_result
from veen.client.contexts import DEFAULT_DATA_DIR
from veen.storage import RealFilesystem

_DAY_SEC: Final = 86_400

trust_app = typer.Typer(help="Issuers whose capability tokens count.", no_args_is_help=True)


def _change(data_dir: str, running: Callable[[HubClient], Any], stopped: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - what the two return
    place = _place(data_dir)
    client = HubClient.operator(place)
    if client is not None:
        return running(client)
    fs = RealFilesystem(place)
    try:
        owner = f"veen (process {os.getpid()} on {socket.gethostname()})"
        return stopped(
            needing_hub("veen.hub.control.offline_orders").Offline(
                fs, clock=lambda: int(time()), random=os.urandom, owner=owner
            )
        )
    finally:
        fs.close()


def _place(data_dir: str) -> Path:
    place = directory_of(data_dir).expanduser()
    if not place.is_dir():
        raise UsageError(f"there is no directory {place}; give the data directory of a hub")
    return place


@trust_app.command("add")
@command
def add(
    issuer: Annotated[str, typer.Argument(help="Public key of the issuer: 64 hex digits or a file.")],
    data_dir: DataDir = DEFAULT_DATA_DIR,
    note: Annotated[str | None, typer.Option(help="Why, for the record.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Let tokens of an issuer count; at once, and recorded in the control log."""
    _record(issuer, data_dir, note, trusted=True, as_json=as_json)


@trust_app.command("remove")
@command
def remove(
    issuer: Annotated[str, typer.Argument(help="Public key of the issuer: 64 hex digits or a file.")],
    data_dir: DataDir = DEFAULT_DATA_DIR,
    note: Annotated[str | None, typer.Option(help="Why, for the record.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Let tokens of an issuer no longer count; an issuer of the configuration has to be removed there."""
    _record(issuer, data_dir, note, trusted=False, as_json=as_json)


def _record(issuer: str, data_dir: str, note: str | None, *, trusted: bool, as_json: bool) -> None:
    key = issuer_of(issuer)
    _change(
        data_dir,
        lambda hub: hub.order("/admin/trust", {"issuer_pk": key.hex(), "trusted": trusted, "note": note}),
        lambda home: home.trust(key, trusted=trusted, note=note),
    )
    print_result({"ok": True, "issuer_pk": key.hex(), "trusted": trusted}, as_json)


@trust_app.command("list")
@command
def list_trusted(data_dir: DataDir = DEFAULT_DATA_DIR, as_json: JsonFlag = False) -> None:
    """List the issuers whose tokens count."""
    found = _change(data_dir, lambda hub: hub.get("/admin/trust"), lambda home: home.trusted())
    if as_json:
        print_result(found, as_json)
        return
    if found["trust_all"]:
        typer.echo("every issuer is trusted (trust_all_issuers)")
    for item in found["issuers"]:
        typer.echo(f"{item['issuer_pk']}  {item['from']}")


@command
def revoke(
    kind: Annotated[str, typer.Option(help="client-id, auth-ref or cap-token.")],
    target: Annotated[
        str,
        typer.Option(help="64 hex digits, or a file: the card of the client, or the token."),
    ],
    data_dir: DataDir = DEFAULT_DATA_DIR,
    ttl: Annotated[int | None, typer.Option(min=0, help="For so many seconds; by default for good.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why, for the record.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Refuse a client or a token from now on; at once, and recorded in the control log."""
    asked = {"kind": kind, "target": target_of(kind, target), "ttl": ttl, "reason": reason}
    order = {name: value for name, value in asked.items() if value is not None}
    done = _change(data_dir, lambda hub: hub.order("/admin/revoke", order), lambda home: home.revoke(order))
    print_result(done, as_json)


@command
def rotate_key(
    data_dir: DataDir = DEFAULT_DATA_DIR,
    overlap_sec: Annotated[
        int,
        typer.Option(
            min=0,
            max=100 * 365 * _DAY_SEC,
            help="How long the old key stays valid, and both witness checkpoints.",
        ),
    ] = _DAY_SEC,
    as_json: JsonFlag = False,
) -> None:
    """Give the hub a new signing key; receipts signed with the old one stay valid for ever."""
    done = _change(
        data_dir,
        lambda hub: hub.order("/admin/rotate_key", {"overlap_sec": overlap_sec}),
        lambda home: home.rotate(overlap_sec),
    )
    print_result(done, as_json)
