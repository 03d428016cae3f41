"""``veen query serve`` and ``veen query grant``: the service, and who may use it."""

from pathlib import Path
from typing import Annotated

import typer

from veen.cli.client import ClientOptions
from veen.cli.commands.pipeline.lake import KeyringOption, LakeOption
from veen.cli.commands.query.zones import Zones
from veen.cli.errors import UsageError
from veen.cli.extras import needing_hub
from veen.cli.options import hex32_or_none
from veen.cli.output import command, print_result
from veen.cli.settings import common
from veen.cli.spark import SparkOptions

PolicyOption = Annotated[
    Path, typer.Option("--policy", help="Who may ask what; see: veen query grant.", show_default=False)
]


@command
def serve_command(
    lake: LakeOption,
    policy: PolicyOption,
    state: Annotated[Path, typer.Option(help="Directory of the service's own state.", show_default=False)],
    at: ClientOptions,
    engine: SparkOptions,
    zones: Zones,
    listen: Annotated[
        list[str] | None,
        typer.Option(help="Address to serve, HOST:PORT; may be repeated. By default 127.0.0.1:37413."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="A name under which requests may come; may be repeated. By default the machine's host name "
            "and its full name. Addresses and localhost always may."
        ),
    ] = None,
    log: Annotated[
        str, typer.Option(help="Take this log into the lake: a data directory, a set of files or a URL.")
    ] = "",
    keyring: KeyringOption = None,
    stream: Annotated[
        list[str] | None, typer.Option(help="Take in this stream from the start; may be repeated.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain (PEM): serve HTTPS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key of the certificate (PEM).")] = None,
    client_ca: Annotated[
        Path | None, typer.Option(help="Authorities (PEM) whose certificates clients may show.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Queries that run at once.")] = 2,
    max_waiting: Annotated[
        int, typer.Option(min=1, help="Queries that may wait; more are told to come back.")
    ] = 1000,
    log_level: Annotated[str, typer.Option(help="debug, info, warn or error.")] = "info",
) -> None:
    """Serve queries over HTTP until told to stop. Requests and digests are recorded at --hub by --client.

    With --log the lake takes in what is new before each query; else it answers from the lake as it is.
    """
    if (tls_cert is None) != (tls_key is None) or (client_ca is not None and tls_cert is None):
        raise UsageError("--tls-cert and --tls-key go together, and --client-ca needs them")
    if log_level not in ("debug", "info", "warn", "error"):
        raise UsageError(f"--log-level is debug, info, warn or error, not {log_level}")
    if (keyring is not None or stream) and not log:
        raise UsageError("--keyring and --stream are for taking in a log: give --log too")
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
    name: Annotated[str, typer.Argument(help="Who it is for.", show_default=False)],
    policy: PolicyOption,
    scope: Annotated[
        list[str],
        typer.Option(
            help="A stream, or all below a name: 'record/app/*'; may be repeated.", show_default=False
        ),
    ],
    identity: Annotated[
        str,
        typer.Option(help="The identity that audit records name: 64 hex digits. Default: one of its own."),
    ] = "",
    auditor: Annotated[
        bool, typer.Option("--auditor", help="Let it see what others have asked, within its scopes.")
    ] = False,
) -> None:
    """Let somebody ask: adds a principal to the policy, and prints its token, once. Only its hash is kept."""
    grants = needing_hub("veen.query_service.grants")
    try:
        token = grants.grant(
            policy.expanduser(),
            name,
            scope,
            identity=hex32_or_none(identity, "--identity"),
            auditor=auditor,
        )
    except grants.PolicyError as error:
        raise UsageError(str(error)) from None
    print_result({"ok": True, "principal": name, "scopes": scope, "token": token}, common.json)
