"""``veen query serve`` and ``veen query grant``: the service, and its access policy."""

from pathlib import Path
from typing import Annotated

import typer

from veen.cli.client import ClientOptions
from veen.cli.commands.pipeline.lake import KeyringOption, LakeOption
from veen.cli.commands.query.zones import Zones
from veen.cli.errors import UsageError
from veen.cli.extras import needing_hub
from veen.cli.options import (
    HOST_HELP,
    LISTEN_HELP,
    LOG_LEVEL_HELP,
    TLS_CERT_HELP,
    TLS_KEY_HELP,
    hex32_or_none,
)
from veen.cli.output import command, print_result
from veen.cli.settings import common
from veen.cli.spark import SparkOptions
from veen.query_service.errors import PolicyError

PolicyOption = Annotated[
    Path,
    typer.Option(
        "--policy", help="File of the access policy, written by veen query grant.", show_default=False
    ),
]


@command
def serve_command(
    lake: LakeOption,
    policy: PolicyOption,
    state: Annotated[Path, typer.Option(help="Directory for the state of the service.", show_default=False)],
    at: ClientOptions,
    engine: SparkOptions,
    zones: Zones,
    listen: Annotated[
        list[str] | None,
        typer.Option(help=f"{LISTEN_HELP} Default: 127.0.0.1:37413."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help=HOST_HELP),
    ] = None,
    log: Annotated[
        str,
        typer.Option(
            help="Log to ingest into the lake: a data directory, an exported set or the URL of a hub."
        ),
    ] = "",
    keyring: KeyringOption = None,
    stream: Annotated[
        list[str] | None, typer.Option(help="Stream to ingest when the service starts; may be repeated.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help=TLS_CERT_HELP)] = None,
    tls_key: Annotated[Path | None, typer.Option(help=TLS_KEY_HELP)] = None,
    client_ca: Annotated[Path | None, typer.Option(help="CA certificates of clients (PEM).")] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, max=64, help="Maximum number of queries that run at once.")
    ] = 2,
    max_waiting: Annotated[
        int, typer.Option(min=1, help="Maximum number of waiting queries; more are rejected.")
    ] = 1000,
    log_level: Annotated[str, typer.Option(help=LOG_LEVEL_HELP)] = "info",
) -> None:
    """Serve queries over HTTP until stopped.

    Requests and digests are recorded at --hub by --client. With --log, new entries are ingested before each
    query.
    """
    if (tls_cert is None) != (tls_key is None) or (client_ca is not None and tls_cert is None):
        raise UsageError("--tls-cert and --tls-key must be given together; --client-ca requires both")
    if log_level not in ("debug", "info", "warn", "error"):
        raise UsageError(f"--log-level takes debug, info, warn or error, not {log_level!r}")
    if (keyring is not None or stream) and not log:
        raise UsageError("--keyring and --stream require --log")
    serving = needing_hub("veen.cli.commands.query.service_process")
    serving.serve(
        serving.ServiceOptions(
            lake=lake.expanduser(),
            policy=policy.expanduser(),
            state=state.expanduser(),
            at=at,
            engine=engine,
            names=zones.names(),
            origins=zones.origins(),
            listen=tuple(listen or ()),
            hosts=tuple(host or ()),
            log=log,
            keyring=keyring,
            streams=tuple(stream or ()),
            tls_cert=tls_cert,
            tls_key=tls_key,
            client_ca=client_ca,
            concurrency=concurrency,
            max_waiting=max_waiting,
            log_level=log_level,
        )
    )


@command
def grant_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the principal.", show_default=False)],
    policy: PolicyOption,
    scope: Annotated[
        list[str],
        typer.Option(
            help="Stream that may be queried, or a prefix such as 'record/app/*'; may be repeated.",
            show_default=False,
        ),
    ],
    identity: Annotated[
        str,
        typer.Option(help="Identity in audit records: 64 hex digits. Default: a new one."),
    ] = "",
    auditor: Annotated[
        bool,
        typer.Option(
            "--auditor", help="Allow the principal to see the queries of others, within its scopes."
        ),
    ] = False,
) -> None:
    """Grant a principal access to the query service.

    Adds the principal to the policy, and prints its token once. Only the hash of the token is stored.
    """
    grants = needing_hub("veen.query_service.grants")
    try:
        token = grants.grant(
            policy.expanduser(),
            name,
            scope,
            identity=hex32_or_none(identity, "--identity"),
            auditor=auditor,
        )
    except PolicyError as error:
        raise UsageError(str(error)) from None
    print_result({"ok": True, "principal": name, "scopes": scope, "token": token}, common.json)
