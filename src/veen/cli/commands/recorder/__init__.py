"""``veen recorder``: events recorded in a tamper-evident log."""

import json
import sys
from collections.abc import Iterator, Mapping
from socket import gethostname
from time import time
from typing import Annotated, Any, Final

import typer

from veen.cli.client import ClientOptions, parse_json, read_card
from veen.cli.commands.recorder import admin, checkpoint, import_, replay, verify
from veen.cli.commands.recorder.admin import record_stream
from veen.cli.errors import CommandError, FailedError, UsageError
from veen.cli.options import EVENT_TIME_HELP, METADATA_OBJECT_HELP, READER_HELP, RECORD_STREAM_HELP
from veen.cli.output import command, print_result, warn
from veen.cli.settings import common
from veen.client.client import Client
from veen.client.models import Draft, SendOptions
from veen.client.send import send_drafts
from veen.core.crypto.hash import U64_MAX
from veen.core.errors import ProtocolError
from veen.core.types import ReaderPublicKey
from veen.overlays.errors import InvalidBodyError
from veen.recorder.configuration import GET_KEY, Configuration, has_readers, read_configuration
from veen.recorder.event import PAYLOAD_BYTES, RECORDING, draft_of
from veen.stdx.grammar import counted

app = typer.Typer(help="Record events in a tamper-evident log.", no_args_is_help=True)
app.command("init")(admin.init)
app.add_typer(admin.change_app, name="change")
app.command("grant")(admin.grant)
app.command("share")(admin.share)
app.command("checkpoint")(checkpoint.checkpoint)
app.command("replay")(replay.replay)
app.command("tail")(replay.tail)
app.command("import")(import_.import_)
app.command("status")(verify.status)
app.command("verify")(verify.verify)

ROLE: Final = "E.ROLE"
NO_KEY: Final = "E.CLIENT"


@app.command()
@command
def emit(
    stream: Annotated[str, typer.Option(help=RECORD_STREAM_HELP)],
    at: ClientOptions,
    event_type: Annotated[str, typer.Option("--type", help="Type of the event.")] = "",
    subject: Annotated[str, typer.Option(help="Subject of the event. Default: the origin.")] = "",
    origin: Annotated[str, typer.Option(help="Component that records the event. Default: this host.")] = "",
    payload: Annotated[
        str, typer.Option(help="Payload, in JSON; @FILE reads a file, @- standard input.")
    ] = "",
    event_time: Annotated[
        int | None,
        typer.Option(min=0, max=U64_MAX, help=EVENT_TIME_HELP),
    ] = None,
    metadata: Annotated[str, typer.Option(help=METADATA_OBJECT_HELP)] = "",
    lines: Annotated[
        bool, typer.Option("--lines", help="Read events from standard input, one JSON object per line.")
    ] = False,
    max_payload: Annotated[
        int, typer.Option(min=1, help="Maximum size of an encoded payload, in bytes.")
    ] = PAYLOAD_BYTES,
    to: Annotated[str, typer.Option(help=READER_HELP)] = "",
) -> None:
    """Record events.

    Returns when they are on the hub's disk and their receipts are verified. Events are sealed to the key of
    the stream, which this client must have, or to an identity card (--to). Fractions and negative numbers in
    a payload are recorded as text. Events of a type that is declared for another stream are rejected, as are
    events of a client that administers the recorder. With --lines, the other options are defaults for lines
    without these fields.
    """
    record_stream(stream)
    usual = {
        **({"event_type": event_type} if event_type else {}),
        **({"subject_id": subject} if subject else {}),
        "origin": origin or gethostname(),
        **({} if event_time is None else {"event_time": event_time}),
        **({"payload": parse_json(payload, "--payload")} if payload else {}),
        **({"metadata": parse_json(metadata, "--metadata")} if metadata else {}),
    }
    if not lines and not event_type:
        raise UsageError("give --type or --lines")
    options = SendOptions(to=_reader(to), keep_key=RECORDING.keep_key)
    with at.open() as opened:
        known = _configuration(opened)
        if not lines:
            _check_type(known, event_type, stream)
        _require_reader(opened, options, stream)
        _note_undeclared(known, stream)
        events = _lines(usual) if lines else iter([(0, usual)])
        drafts = _drafts(events, known, stream, max_payload)
        count, last = 0, None
        try:
            for sent in send_drafts(opened, stream, drafts, options):
                count, last = count + 1, sent
        except CommandError as error:
            note = f"; {counted(count, 'event')} recorded before it" if lines else ""
            raise error.with_text(f"{error}{note}") from None
    if last is None:
        raise UsageError("standard input contains no events")
    print_result(
        {
            "ok": True,
            "stream": stream,
            "recorded": count,
            "stream_seq": last.position,
            "msg_id": last.msg_id.hex(),
            "hub_ts": last.receipt.hub_ts,
        },
        common.json,
    )


def _reader(to: str) -> ReaderPublicKey | None:
    return read_card(to).seal_key(int(time())) if to else None


def _configuration(opened: Client) -> Configuration:
    configuration = read_configuration(opened)
    # Keys are rotated, but their owner remains: declarations with an older key count (SDR-010).
    own = {key.hex() for key in opened.session.secrets.client_ids()} & configuration.admins
    if own:
        raise UsageError(
            f"{min(own)} administers the recorder, so it cannot produce events; use another client",
            ROLE,
        )
    return configuration


def _require_reader(opened: Client, options: SendOptions, stream: str) -> None:
    """Reject events that only this client could read."""
    if not has_readers(opened.session.secrets, options, stream):
        raise UsageError(
            f"this client has no reader key of {stream}, so others could not read the event: "
            f"{GET_KEY}; or name "
            "a recipient with --to CARD",
            NO_KEY,
        )


def _note_undeclared(known: Configuration, stream: str) -> None:
    if stream not in known.streams and not known.unreadable:
        warn(f"{stream} is not declared; an admin can declare it with: veen recorder init --stream {stream}")


def _check_type(known: Configuration, event_type: str, stream: str, where: str = "") -> None:
    """Reject an event of a type that belongs to another stream."""
    streams = known.streams_of(event_type)
    if streams and stream not in streams:
        raise UsageError(f"{where}events of type {event_type!r} belong to {', '.join(streams)}")


def _lines(usual: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    """Yield the events of lines; unlike options, lines cannot name files."""
    for number, line in enumerate(sys.stdin, 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"line {number} is not JSON: {error}") from None
        yield number, {**usual, **event} if isinstance(event, dict) else event


def _drafts(
    events: Iterator[tuple[int, Any]], known: Configuration, stream: str, max_payload: int
) -> Iterator[Draft]:
    for number, one in events:
        where = f"line {number}: " if number else ""
        if isinstance(one, dict):
            one.setdefault("subject_id", one["origin"])
        try:
            draft = draft_of(one, int(time()), max_payload)
        except InvalidBodyError as error:
            raise UsageError(f"{where}{error}") from None
        except ProtocolError as error:
            raise FailedError(f"{where}{error}", error.code.value) from None
        _check_type(known, one["event_type"], stream, where)
        yield draft
