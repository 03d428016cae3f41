"""Orders of the operator: trust, revocation, key rotation. To a running hub, or to its directory."""

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
from veen.cli.options import ISSUER_KEY_HELP, KIND_HELP, REASON_HELP, REVOKE_TTL_HELP, TARGET_HELP, JsonFlag
from veen.cli.output import command, print_result
from veen.client.contexts import DEFAULT_DATA_DIR
from veen.storage import RealFilesystem
from veen.storage.errors import NotAStoreError

_DAY_SEC: Final = 86_400

trust_app = typer.Typer(help="Manage the trusted issuers of capability tokens.", no_args_is_help=True)


def _change(data_dir: str, running: Callable[[HubClient], Any], stopped: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - what the two return
    directory = _place(data_dir)
    client = HubClient.operator(directory)
    if client is not None:
        return running(client)
    fs = RealFilesystem(directory)
    try:
        owner = f"veen (process {os.getpid()} on {socket.gethostname()})"
        return stopped(
            needing_hub("veen.hub.control.offline_orders").Offline(
                fs, clock=lambda: int(time()), random=os.urandom, owner=owner
            )
        )
    except NotAStoreError:
        raise UsageError(
            f"{directory} is not a data directory; give the directory that the hub runs with", "E.STORAGE"
        ) from None
    finally:
        fs.close()


def _place(data_dir: str) -> Path:
    directory = directory_of(data_dir).expanduser()
    if not directory.is_dir():
        raise UsageError(f"there is no directory {directory}; give the data directory of a hub")
    return directory


@trust_app.command("add")
@command
def add(
    issuer: Annotated[str, typer.Argument(metavar="ISSUER", help=ISSUER_KEY_HELP)],
    data_dir: DataDir = DEFAULT_DATA_DIR,
    note: Annotated[str | None, typer.Option(help=REASON_HELP)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Trust an issuer of capability tokens.

    Applies at once, and is recorded in the control log.
    """
    _record(issuer, data_dir, note, trusted=True, as_json=as_json)


@trust_app.command("remove")
@command
def remove(
    issuer: Annotated[str, typer.Argument(metavar="ISSUER", help=ISSUER_KEY_HELP)],
    data_dir: DataDir = DEFAULT_DATA_DIR,
    note: Annotated[str | None, typer.Option(help=REASON_HELP)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Remove a trusted issuer.

    An issuer in the configuration of the hub must be removed there.
    """
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
    """List the trusted issuers."""
    trust = _change(data_dir, lambda hub: hub.get("/admin/trust"), lambda home: home.trusted())
    if as_json:
        print_result(trust, as_json)
        return
    if trust["trust_all"]:
        typer.echo("every issuer is trusted (trust_all_issuers)")
    for item in trust["issuers"]:
        typer.echo(f"{item['issuer_pk']}  {item['from']}")


@command
def revoke(
    kind: Annotated[str, typer.Option(help=KIND_HELP)],
    target: Annotated[
        str,
        typer.Option(help=TARGET_HELP),
    ],
    data_dir: DataDir = DEFAULT_DATA_DIR,
    ttl: Annotated[int | None, typer.Option(min=0, help=REVOKE_TTL_HELP)] = None,
    reason: Annotated[str | None, typer.Option(help=REASON_HELP)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Revoke a client or a token.

    Applies at once, and is recorded in the control log.
    """
    fields = {"kind": kind, "target": target_of(kind, target), "ttl": ttl, "reason": reason}
    order = {name: value for name, value in fields.items() if value is not None}
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
            help="Time that the old key remains valid, and both keys sign checkpoints, in seconds.",
        ),
    ] = _DAY_SEC,
    as_json: JsonFlag = False,
) -> None:
    """Rotate the signing key of the hub.

    Receipts that were signed with the old key remain valid.
    """
    done = _change(
        data_dir,
        lambda hub: hub.order("/admin/rotate_key", {"overlap_sec": overlap_sec}),
        lambda home: home.rotate(overlap_sec),
    )
    print_result(done, as_json)
