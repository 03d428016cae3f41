"""``veen snapshot``: verify snapshots against the log."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from veen.cli.client import ClientOptions, StreamOption
from veen.cli.commands.op.operation import fail_check, present
from veen.cli.options import hex32, hex32_or_none
from veen.cli.output import command, print_result, progress
from veen.cli.settings import common
from veen.client.fold.snapshots import verify_snapshot
from veen.core.crypto.hash import U64_MAX

app = typer.Typer(help="Verify snapshots of states against the log.", no_args_is_help=True)


@app.callback()
def snapshot() -> None:
    """Verify snapshots of states against the log."""


@app.command()
@command
def verify(
    stream: StreamOption,
    state_id: Annotated[
        str, typer.Option(help="Id of the state: 64 hex digits. For a map or a set, the id of the stream.")
    ],
    upto_stream_seq: Annotated[
        int, typer.Option(min=1, max=U64_MAX, help="Last entry that the snapshot covers.")
    ],
    state_class: Annotated[str, typer.Option(help="Class of the state, for example lww.map.")],
    at: ClientOptions,
    expected_root: Annotated[
        str, typer.Option(help="Root that the log must have at that entry: 64 hex digits.")
    ] = "",
) -> None:
    """Verify the last snapshot of a state.

    Folds the log again, and exits 4 if the snapshot differs.
    """
    root = hex32_or_none(expected_root, "--expected-root")
    one = hex32(state_id, "--state-id")
    with at.open() as opened, progress("entries") as advance:
        checked = verify_snapshot(
            opened,
            stream,
            state_class=state_class,
            state_id=one,
            upto=upto_stream_seq,
            expected_root=root,
            progress=advance,
        )
    state, mismatch = checked.state, checked.mismatch
    fields: dict[str, Any] = {
        "consistent": checked.consistent,
        "state_hash": None if state is None else state.state_hash.hex(),
        "mmr_root": None if state is None else state.mmr_root.hex(),
        "snapshot_stream_seq": checked.snapshot_seq,
        "first_mismatch": None if mismatch is None else asdict(mismatch),
    }
    if mismatch is not None:
        text = f"{mismatch.field}: {mismatch.actual} instead of {mismatch.expected}"
        fail_check(fields, text, "E.SNAPSHOT")
    print_result(present({"ok": True, **fields}), common.json)
