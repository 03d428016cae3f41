"""``veen agreement``: the status of agreements."""

from time import time
from typing import Annotated, Any

import typer

from veen.cli.client import ClientOptions, StreamOption
from veen.cli.commands.op.agreement import AgreementOption
from veen.cli.errors import UsageError
from veen.cli.options import UPTO_HELP, hex32
from veen.cli.output import command, plain, print_result
from veen.cli.overlay import fold_stream
from veen.cli.settings import common
from veen.core.crypto.hash import U64_MAX
from veen.overlays.operations.agreement import Agreements

app = typer.Typer(help="Show the status of agreements.", no_args_is_help=True)


@app.callback()
def agreement() -> None:
    """Show the status of agreements."""


@app.command()
@command
def status(
    stream: StreamOption,
    agreement_id: AgreementOption,
    at: ClientOptions,
    version: Annotated[
        int | None,
        typer.Option(min=0, max=U64_MAX, help="Version to show. Default: the highest active version."),
    ] = None,
    upto: Annotated[int | None, typer.Option(min=1, max=U64_MAX, help=UPTO_HELP)] = None,
    when: Annotated[
        int | None,
        typer.Option(
            "--at", min=0, max=U64_MAX, help="Time to evaluate it at, in seconds since 1970. Default: now."
        ),
    ] = None,
) -> None:
    """Show the decisions on an agreement, and whether it is active."""
    one = hex32(agreement_id, "--agreement-id")
    agreements = Agreements()
    with at.open() as opened:
        tables = fold_stream(opened, agreements, stream, upto).tables
    now = int(time()) if when is None else when
    chosen_version = agreements.current(tables, one, now) if version is None else version
    view = None if chosen_version is None else agreements.view_version(tables, one, chosen_version, now)
    if view is None:
        what = "the agreement" if version is None else f"version {version} of the agreement"
        raise UsageError(f"{what} is not defined in {stream}")
    fields: dict[str, Any] = {
        "active": view["active"],
        "version": view["version"],
        "current_version": agreements.current(tables, one, now),
        **{name: value for name, value in view.items() if name not in ("active", "version", "parties")},
        "parties": view["parties"],
    }
    if common.json:
        print_result(fields, as_json=True)
        return
    parties = fields.pop("parties")
    print_result(fields, as_json=False)
    for party in parties:
        typer.echo(plain(f"party: {party['identity']} {party['decision'] or 'undecided'}"))
