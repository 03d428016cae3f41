"""``veen reader``: reader keys of streams, created once and shared with members."""

import os
from pathlib import Path
from time import time
from typing import Annotated

import typer

from veen.cli.client import ClientOption, StreamOption, load_secrets, read_bytes, read_card, write_bytes
from veen.cli.errors import UsageError
from veen.cli.options import CARD_HELP
from veen.cli.output import command, plain, print_result
from veen.cli.settings import common
from veen.client.contexts import find_client
from veen.client.home.directory import ClientHome
from veen.client.keys.keystore import StreamKey
from veen.client.keys.stream_keys import SealedKey, accept, share
from veen.core.errors import ProtocolError
from veen.core.objects import labels

app = typer.Typer(help="Manage the reader keys of shared streams.", no_args_is_help=True)


def add_key(directory: Path, key: StreamKey) -> None:
    """Store a reader key in a client directory."""
    home = ClientHome(directory)
    with home.hold():
        _, secrets, passphrase = load_secrets(directory)
        home.save_secrets(secrets.with_stream(key), passphrase, int(time()))


def new_key(stream: str) -> StreamKey:
    """Create a reader key for a stream."""
    return StreamKey(
        stream_id=labels.stream_id(stream), secret=os.urandom(32), created_at=int(time()), name=stream
    )


@app.command()
@command
def new(stream: StreamOption, client: ClientOption = "") -> None:
    """Create a reader key for a stream.

    From then on, clients that have the key seal their messages to it.
    """
    directory = find_client(client)
    key = new_key(stream)
    add_key(directory, key)
    print_result({"ok": True, "stream": stream, "public_key": key.public_key.hex()}, common.json)


@app.command("share")
@command
def share_command(
    stream: StreamOption,
    to: Annotated[str, typer.Option(help=CARD_HELP)],
    out: Annotated[Path, typer.Option(help="File to write. Only the recipient can open it.")],
    client: ClientOption = "",
) -> None:
    """Seal the reader key of a stream for a new member."""
    _, secrets, _ = load_secrets(find_client(client))
    key = secrets.stream_key(labels.stream_id(stream))
    if key is None:
        raise UsageError(
            f"this client has no reader key of {stream}; create one with: veen reader new --stream {stream}"
        )
    card = read_card(to)
    write_bytes(out, share(secrets, key, card, int(time()), os.urandom).encode())
    print_result({"ok": True, "stream": stream, "to": card.id_sign.hex(), "file": str(out)}, common.json)


@app.command("accept")
@command
def accept_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File written by veen reader share.")],
    giver: Annotated[
        str, typer.Option("--from", help="Identity card of the expected sender; keys of others are rejected.")
    ] = "",
    client: ClientOption = "",
) -> None:
    """Accept a reader key that was shared with this client."""
    directory = find_client(client)
    _, secrets, _ = load_secrets(directory)
    try:
        sealed = SealedKey.decode(read_bytes(file))
    except ProtocolError as error:
        raise UsageError(f"{file} is not a shared key: {error}") from None
    shared = accept(secrets, sealed)
    if giver and read_card(giver).id_sign != shared.giver:
        raise UsageError(f"the key is from {shared.giver.hex()}, not from the owner of {giver}")
    add_key(directory, shared.key)
    print_result(
        {
            "ok": True,
            "stream": shared.key.name,
            "stream_id": shared.key.stream_id.hex(),
            "from": shared.giver.hex(),
            "public_key": shared.key.public_key.hex(),
        },
        common.json,
    )


@app.command("list")
@command
def list_keys(client: ClientOption = "") -> None:
    """List the reader keys of this client."""
    _, secrets, _ = load_secrets(find_client(client))
    rows = [
        {
            "stream": key.name or "-",
            "stream_id": key.stream_id.hex(),
            "public_key": key.public_key.hex(),
            "created_at": key.created_at,
        }
        for key in secrets.streams
    ]
    if common.json:
        print_result({"keys": rows}, as_json=True)
        return
    for row in rows:
        typer.echo(plain("  ".join(str(value) for value in row.values())))
