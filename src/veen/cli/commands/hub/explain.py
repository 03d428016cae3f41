"""``veen hub explain``: the admission checks of a message, run again on files."""

import os
from contextlib import closing
from pathlib import Path
from time import time
from typing import Annotated, Any

import typer

from veen.cli.client import read_bytes
from veen.cli.commands.hub.start import DataDir
from veen.cli.data_dir import open_data_dir
from veen.cli.errors import FAILED, UsageError
from veen.cli.extras import needing_hub
from veen.cli.hub_connection import directory_of
from veen.cli.options import JsonFlag, hex32, parse_number
from veen.cli.output import command, print_result
from veen.client.contexts import DEFAULT_DATA_DIR
from veen.core.objects import labels
from veen.core.objects.hub_identity import HubIdentity
from veen.core.types import Label
from veen.stdx.grammar import counted
from veen.storage import Reader
from veen.storage.directory import read_public


@command
def explain(
    what: Annotated[
        str, typer.Argument(metavar="SEQ|MSG_FILE", help="Position of an entry, or file of a message (CBOR).")
    ],
    data_dir: DataDir = DEFAULT_DATA_DIR,
    label: Annotated[str, typer.Option(help="Label of the entry: 64 hex digits.")] = "",
    stream: Annotated[
        str, typer.Option(help="Stream of the entry, instead of --label: a name, or an id (64 hex digits).")
    ] = "",
    epoch: Annotated[int, typer.Option(help="Epoch of the stream.")] = 0,
    at: Annotated[
        int | None,
        typer.Option(help="Time at which the message arrives, in seconds since 1970. Default: now."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration file of the hub (TOML).")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show why a message is accepted or rejected.

    Runs all admission checks, in order. Reads the files of a hub, which need not be running.
    """
    directory = directory_of(data_dir).expanduser()
    with open_data_dir(directory) as fs, closing(Reader.open(fs)) as reader:
        settings = needing_hub("veen.hub.config").load({}, os.environ, config)
        identity, stored_settings = read_public(fs)
        explainer = needing_hub("veen.hub.explain").Explainer(reader, identity, stored_settings, settings)
        seq = parse_number(what)
        if seq is not None:
            explanation = explainer.entry(_label(reader, identity, label, stream, epoch), seq)
        else:
            now = max(int(time()) if at is None else at, reader.floor_ts)
            explanation = explainer.message(read_bytes(Path(what)), now)
    _print(explanation, as_json)
    if not explanation.accepted:
        raise typer.Exit(FAILED)


def _label(reader: Reader, identity: HubIdentity, label: str, stream: str, epoch: int) -> Label:
    if label:
        return Label(hex32(label, "--label"))
    if stream:
        return labels.label(identity.routing_key, labels.stream_id(stream), epoch)
    reserved = {labels.authorize_label(identity.hub_id), labels.control_label(identity.hub_id)}
    candidates = [item for item in reader.labels() if item not in reserved]
    if len(candidates) != 1:
        raise UsageError(
            f"the hub has {counted(len(candidates), 'label')}; choose one with --label or --stream"
        )
    return candidates[0]


def _print(explanation: Any, as_json: bool) -> None:  # noqa: ANN401 - of the extra
    if as_json:
        print_result(
            {
                "accepted": explanation.accepted,
                "hub_ts": explanation.hub_ts,
                "code": None if explanation.error is None else explanation.error.code.value,
                "detail": None if explanation.error is None else explanation.error.detail.value,
                "rows": [
                    {"row": row.row, "stage": row.stage.value, "detail": row.detail.value, "result": result}
                    for row, result in explanation.rows
                ],
                "facts": explanation.facts,
            },
            as_json,
        )
        return
    for row, result in explanation.rows:
        typer.echo(f"{row.row:>3}  {row.stage.value:<10}  {row.detail.value:<16}  {result}")
    typer.echo("")
    print_result(explanation.facts, as_json)
    typer.echo(f"hub_ts: {explanation.hub_ts}")
    typer.echo("accepted" if explanation.accepted else f"rejected: {explanation.error}")
