"""``veen attachment``: fetch attachments, and verify files against messages."""

from pathlib import Path
from typing import Annotated

import typer

from veen.cli.client import (
    ClientOption,
    HubOption,
    StreamOption,
    load_secrets,
    open_client,
    read_bytes,
    write_bytes,
)
from veen.cli.errors import FailedError, UsageError
from veen.cli.options import INDEX_HELP, OUT_FILE_HELP
from veen.cli.output import command, print_result
from veen.cli.settings import common
from veen.client.body import attachments_of, decode_body
from veen.client.contexts import find_client
from veen.client.read import ReadOptions, open_any, read_stream
from veen.core.errors import Detail, ProtocolError
from veen.core.objects import attachment as att
from veen.core.objects.msg import Msg
from veen.stdx.grammar import counted

app = typer.Typer(help="Fetch and verify attachments of messages.", no_args_is_help=True)

MsgFile = Annotated[
    Path, typer.Option("--msg", help="File of the message (CBOR), as written by veen send --dump-raw.")
]
FileOption = Annotated[
    Path, typer.Option("--file", help="File to verify: the attachment, or its ciphertext.")
]


@app.command()
@command
def verify(
    msg: MsgFile,
    file: FileOption,
    index: Annotated[int, typer.Option(min=0, help=INDEX_HELP)] = 0,
    client: ClientOption = "",
) -> None:
    """Verify that a file is an attachment of a message.

    Exits 4 if it is not.
    """
    _verify(msg, file, index, client)


@command
def verify_first_attachment(msg: MsgFile, file: FileOption, client: ClientOption = "") -> None:
    """Verify the first attachment, like 'veen attachment verify --index 0'."""
    _verify(msg, file, 0, client)


def _verify(msg_file: Path, file: Path, index: int, client: str) -> None:
    _, secrets, _ = load_secrets(find_client(client))
    try:
        msg = Msg.decode(read_bytes(msg_file))
        msg.verify()
    except ProtocolError as error:
        raise FailedError(f"{msg_file} is not a message: {error}", error.code.value) from None
    opened = open_any(msg, secrets)
    if opened is None:
        raise FailedError("no key of this client opens the message; choose another with --client", "E.OPEN")
    declared = attachments_of(decode_body(opened.body))
    if index >= len(declared):
        raise UsageError(f"the message has {counted(len(declared), 'attachment')}; --index counts from 0")
    coids = [item.coid for item in declared]
    att.verify_root(opened.header.att_root, coids)
    data = read_bytes(file)
    sealed = data if att.coid(data) == coids[index] else opened.seal_again(index, data)
    if att.coid(sealed) != coids[index]:
        raise ProtocolError(
            Detail.ATT_ROOT, f"{file} is not attachment {index} of the message", field="attachments"
        )
    root = opened.header.att_root
    print_result(
        {
            "ok": True,
            "index": index,
            "coid": coids[index].hex(),
            "size": declared[index].size,
            "att_root": None if root is None else root.hex(),
        },
        common.json,
    )


@app.command()
@command
def get(
    stream: StreamOption,
    seq: Annotated[int, typer.Option(min=1, help="Position of the message in the stream.")],
    out: Annotated[Path, typer.Option(help=OUT_FILE_HELP)],
    index: Annotated[int, typer.Option(min=0, help=INDEX_HELP)] = 0,
    epoch: Annotated[int | None, typer.Option(min=0, help="Epoch of the message.")] = None,
    hub: HubOption = "",
    client: ClientOption = "",
) -> None:
    """Fetch, verify and open an attachment, and write it to a file."""
    with open_client(client, hub) as opened:
        options = ReadOptions(start=seq, stop=seq, epoch=epoch)
        message = next(read_stream(opened, stream, options), None)
        if message is None:
            raise FailedError(f"stream {stream} does not have an entry {seq}", "E.NOT_FOUND")
        if not message.is_open or message.problem:
            raise FailedError(f"the content of entry {seq} cannot be used: {message.problem}", "E.OPEN")
        data = opened.attachment(message, index)
    write_bytes(out, data)
    print_result(
        {"ok": True, "file": str(out), "size": len(data), "coid": message.attachments[index].coid.hex()},
        common.json,
    )
