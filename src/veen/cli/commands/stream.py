"""``veen stream``: read a stream, and verify each entry."""

import json
from typing import Annotated, Any

import typer

from veen.cli.client import ClientOptions, StreamOption
from veen.cli.errors import as_command_error, interrupted
from veen.cli.options import LAST_HELP
from veen.cli.output import command, plain, warn
from veen.cli.settings import common
from veen.client.body import to_json
from veen.client.models import Message
from veen.client.read import ReadOptions, read_stream
from veen.core.crypto.hash import U64_MAX
from veen.core.errors import VeenError


@command
def stream(
    stream: StreamOption,
    at: ClientOptions,
    from_seq: Annotated[
        int,
        typer.Option(
            "--from",
            min=0,
            max=U64_MAX,
            help="Position of the first entry; 0 and 1 are the start of the stream.",
        ),
    ] = 1,
    to_seq: Annotated[int | None, typer.Option("--to", min=1, max=U64_MAX, help=LAST_HELP)] = None,
    epoch: Annotated[int | None, typer.Option(min=0, max=U64_MAX, help="Read only this epoch.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume after the last entry that this client read.")
    ] = False,
    with_proof: Annotated[
        bool,
        typer.Option("--with-proof", "--with-proofs", help="Also request and verify a proof of each page."),
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for new entries until interrupted.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many entries.")] = None,
) -> None:
    """Read a stream, and verify each entry.

    Signatures, hashes, order and the root are verified before an entry is printed. Exits 4 at the first entry
    that fails. With --json, prints one array, or an error that includes the entries before it; with --follow
    --json, one object per line.
    """
    options = ReadOptions(
        start=from_seq, stop=to_seq, epoch=epoch, resume=resume, prove=with_proof, limit=limit
    )
    with at.open() as opened:
        epochs = False
        printed: list[dict[str, Any]] = []
        count = 0
        try:
            for message in read_stream(opened, stream, options, follow=follow):
                epochs = epochs or opened.session.profiles[0].epoch_sec > 0
                fields = describe(message)
                if common.json and not follow:
                    printed.append(fields)
                elif common.json:
                    typer.echo(json.dumps(fields))
                else:
                    _print(message, fields, with_epoch=epochs)
                count += 1
        except (VeenError, KeyboardInterrupt) as error:
            _fail_with(error, printed)
    if common.json and not follow:
        typer.echo(json.dumps(printed))
    elif not count:
        warn(f"stream {stream} has no entries{' in this range' if from_seq > 1 else ''}")


def _fail_with(error: VeenError | KeyboardInterrupt, printed: list[dict[str, Any]]) -> None:
    """Raise an error that includes the entries before it: --resume would not read them again."""
    if not printed:
        raise error
    known = as_command_error(error) if isinstance(error, VeenError) else interrupted()
    if known is None:
        raise error
    raise known.with_document({"entries": printed}) from error


def describe(message: Message) -> dict[str, Any]:
    """Return the fields of an entry for scripts."""
    header = message.header
    return {
        "stream_seq": message.position,
        "epoch": message.epoch,
        "msg_id": message.msg_id.hex(),
        "client_id": message.sender.hex(),
        "client_seq": message.msg.client_seq,
        "hub_ts": message.receipt.hub_ts,
        "auth_ref": None if message.msg.auth_ref is None else message.msg.auth_ref.hex(),
        "opened": message.is_open,
        "problem": message.problem,
        "header": None if header is None else header.to_json(),
        "body": to_json(message.body),
        "attachments": [
            {"coid": item.coid.hex(), "size": item.size, "name": item.name} for item in message.attachments
        ],
    }


def _print(message: Message, fields: dict[str, Any], *, with_epoch: bool) -> None:
    position = f"{message.epoch}/{message.position}" if with_epoch else str(message.position)
    body = json.dumps(fields["body"], ensure_ascii=False) if message.is_open else ""
    parts = [position, message.msg_id.hex()[:16], body or f"({message.problem})"]
    parts.append(f"from={message.sender.hex()[:16]}")
    header = message.header
    if header is not None:
        parts.append(f"schema={header.schema.hex()[:16]}")
        parts += [f"parent={header.parent_id.hex()[:16]}"] if header.parent_id is not None else []
        parts += [f"expires={header.expires_at}"] if header.expires_at is not None else []
        parts += [f"problem={message.problem}"] if message.problem else []
    typer.echo(plain("  ".join(parts)))
