"""``veen recovery``: recoveries of lost identities."""

from typing import Any

import typer

from veen.cli.client import ClientOptions, StreamOption
from veen.cli.commands.op.operation import Guardians
from veen.cli.commands.op.recovery import TargetOption
from veen.cli.options import hex32
from veen.cli.output import command, plain, print_result, warn
from veen.cli.overlay import fold_stream
from veen.cli.settings import common

app = typer.Typer(help="Show recoveries of lost identities.", no_args_is_help=True)


@app.callback()
def recovery() -> None:
    """Show recoveries of lost identities."""


@app.command()
@command
def timeline(
    stream: StreamOption,
    target_identity: TargetOption,
    guardians: Guardians,
    at: ClientOptions,
) -> None:
    """List the recovery events of an identity, in order.

    An execution is valid if enough guardians approved it. Without --guardian, none is valid.
    """
    target = hex32(target_identity, "--target-identity")
    overlay = guardians.recoveries()
    with at.open() as opened:
        tables = fold_stream(opened, overlay, stream).tables
    state = overlay.view_key(tables, target)
    rows: list[dict[str, Any]] = overlay.timeline(tables, target)
    identity = state["identity"] if isinstance(state, dict) else target.hex()
    if common.json:
        print_result({"target_identity": target.hex(), "identity": identity, "timeline": rows}, as_json=True)
        return
    for row in rows:
        typer.echo(plain("  ".join(_parts(row))))
    if not rows:
        warn(f"{stream} has no recovery events of this identity")
    print_result({"identity": identity}, as_json=False)


def _parts(row: dict[str, Any]) -> list[str]:
    new = row.get("requested_new_identity") or row.get("new_identity")
    parts = [str(row["stream_seq"]), row["type"], row["msg_id"][:16], f"new={new}"]
    if "approver_identity" in row:
        parts += [f"approver={row['approver_identity']}", row["decision"]]
    return [*parts, row["code"]] if row["code"] else parts
