"""``veen resync`` and ``veen verify-state``: the state of a client against the hub."""

import typer

from veen.cli.client import ClientOption, ClientOptions, HubOption, StreamOption, open_client
from veen.cli.errors import FAILED
from veen.cli.output import command, print_result, progress
from veen.cli.settings import common


@command
def resync_command(stream: StreamOption, at: ClientOptions) -> None:
    """Bring the client's state of a stream up to date.

    Reads and verifies new entries, or all of them if the state was lost. Messages that were not acknowledged
    are sent again.
    """
    with at.open() as opened, progress("reading") as advance:
        heads = opened.resync(stream, advance)
        delivered = opened.flush(stream)
    rows = [
        {
            "stream": item.stream,
            "epoch": item.epoch,
            "last_stream_seq": item.last_stream_seq,
            "last_mmr_root": None if item.last_mmr_root is None else item.last_mmr_root.hex(),
            "entries_read": item.read,
            "rebuilt": item.rebuilt,
        }
        for item in heads
    ]
    if common.json:
        print_result({"ok": True, "labels": rows, "delivered": delivered}, as_json=True)
        return
    for row in rows:
        print_result(row, as_json=False)
    if delivered:
        print_result({"delivered": delivered}, as_json=False)


@command
def verify_state_command(stream: StreamOption, hub: HubOption = "", client: ClientOption = "") -> None:
    """Compare the client's state of a stream with the hub.

    Exits 4 if they differ.
    """
    with open_client(client, hub) as opened:
        comparisons = opened.verify_state(stream)
    consistent = all(item.consistent for item in comparisons)
    first = next((item.first_mismatch for item in comparisons if not item.consistent), None)
    rows = [
        {
            "label": item.label.hex(),
            "epoch": item.epoch,
            "checked": item.checked,
            "consistent": item.consistent,
            "first_mismatch": item.first_mismatch,
            "why": item.why or None,
        }
        for item in comparisons
    ]
    if common.json:
        print_result(
            {"ok": consistent, "consistent": consistent, "first_mismatch": first, "labels": rows},
            as_json=True,
        )
    else:
        print_result({"consistent": consistent}, as_json=False)
        for row in rows:
            print_result({name: value for name, value in row.items() if value is not None}, as_json=False)
    if not consistent:
        raise typer.Exit(FAILED)
