"""``veen recorder replay`` and ``tail``: recorded events, in their order."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import cycle
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Final, Protocol

import typer

from veen.cli.client import ClientOptions, read_bytes
from veen.cli.commands.recorder.admin import record_stream
from veen.cli.errors import CommandError, FailedError, UsageError, as_command_error
from veen.cli.output import command, plain, shown_time, warn
from veen.cli.settings import common
from veen.client.client import Client
from veen.client.effects import Operation
from veen.client.models import Message
from veen.client.read import ReadOptions, StreamReader
from veen.core.crypto.hash import U64_MAX
from veen.overlays.errors import InvalidBodyError
from veen.overlays.recorder.schemas import CHECKPOINTS_STREAM, EVENT, IMPORTED
from veen.recorder.checkpoint import CoveredLog, Manifest
from veen.recorder.configuration import known_record_streams, read_configuration
from veen.recorder.errors import ManifestError, RangeError
from veen.recorder.replay import Recorded, proven, recorded, replay_range, replay_time

UNPROVEN: Final = "E.CHECKPOINT"
_WAIT_SEC: Final = 2
#: How a document of events begins that is printed as they come.
_BEGIN: Final = '{"events": ['
StreamsOption = Annotated[
    list[str] | None,
    typer.Option("--stream", help="Stream of the recorder; may be repeated.  [default: all that are known]"),
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option("--checkpoint", help="A checkpoint that was kept in a file, in place of the newest one."),
]


def read_manifest(path: Path) -> Manifest:
    """Read a checkpoint that a command was given."""
    try:
        return Manifest.decode(read_bytes(path))
    except InvalidBodyError as error:
        raise UsageError(f"{path} is no checkpoint of a recorder: {error}") from None


def _time(text: str, option: str) -> int:
    """Read a time: seconds since 1970, or a date."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} takes seconds since 1970 or a date like 2026-01-31T12:00:00Z") from None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())


@command
def replay(
    at: ClientOptions,
    stream: StreamsOption = None,
    from_seq: Annotated[int | None, typer.Option("--from", help="First entry, counted from 1.")] = None,
    to_seq: Annotated[int | None, typer.Option("--to", help="Last entry.")] = None,
    epoch: Annotated[int | None, typer.Option(min=0, max=U64_MAX, help="Epoch of --from and --to.")] = None,
    start_time: Annotated[str, typer.Option(help="In place of numbers: from this time of the hub on.")] = "",
    end_time: Annotated[str, typer.Option(help="Until this time, included.")] = "",
    with_proof: Annotated[
        bool, typer.Option("--with-proof", help="Prove each entry against the root of a checkpoint.")
    ] = False,
    checkpoint: CheckpointOption = None,
) -> None:
    """Show recorded events again: a range of one stream, or a time of several, both ends included.

    Entries of several streams are in the order of the hub's time, then of the names of streams, then of
    their numbers. Each is checked; with --with-proof, also that the newest checkpoint vouches for it. The
    first that fails ends the command with code 4. With --json, events have their receipts; whether all are
    there is at the end of the document.
    """
    with at.open() as opened:
        try:
            vouched = _checkpoint(opened, checkpoint) if with_proof or checkpoint is not None else None
            names = stream or _all_streams(opened, vouched)
            found = _asked(opened, stream or [], names, (from_seq, to_seq, epoch), (start_time, end_time))
            count = print_all(found if vouched is None else proven(opened, vouched, names, found))
        except (RangeError, ManifestError) as error:
            raise _as_command_error(error) or error from None
    if not count:
        warn("there are no such entries")


def _asked(
    opened: Client,
    streams: list[str],
    names: list[str],
    numbers: tuple[int | None, int | None, int | None],
    times: tuple[str, str],
) -> Iterator[Recorded]:
    first, last, epoch = numbers
    if times[0] or times[1]:
        if first is not None or last is not None or epoch is not None or not all(times):
            raise UsageError("a time is --start-time and --end-time, without --from and --to")
        return replay_time(opened, names, _time(times[0], "--start-time"), _time(times[1], "--end-time"))
    if len(streams) != 1 or first is None or last is None:
        raise UsageError("give one --stream with --from and --to; or --start-time and --end-time")
    return replay_range(opened, streams[0], first, last, epoch)


def _all_streams(opened: Client, vouched: Manifest | None) -> list[str]:
    """Return all streams there are, also by a checkpoint; which vouches for all checkpoints but itself."""
    known = {*record_streams(opened), *(() if vouched is None else (item.stream for item in vouched.streams))}
    return sorted(known - {CHECKPOINTS_STREAM}, key=str.encode)


def record_streams(opened: Client) -> list[str]:
    """Return all streams of the recorder that are declared, or that this client has used."""
    return sorted({*read_configuration(opened).names, *known_record_streams(opened)}, key=str.encode)


def _checkpoint(opened: Client, path: Path | None) -> Manifest:
    if path is not None:
        return read_manifest(path)
    standing = CoveredLog(opened)
    standing.refresh()
    if standing.manifest is None:
        raise FailedError(
            f"{CHECKPOINTS_STREAM} has no checkpoint; make one: veen recorder checkpoint", UNPROVEN
        )
    return standing.manifest


def print_all(found: Iterable[Recorded]) -> int:
    """Print entries, each when it was checked; with --json as one document, whose end says how it went.

    What fails before the first one is an error like any other.
    """
    count = 0
    try:
        for item in found:
            if common.json:
                typer.echo(f"{', ' if count else _BEGIN}{json.dumps(item.to_json())}", nl=False)
            else:
                print_one(item)
            count += 1
    except Exception as error:
        known = _as_command_error(error)
        if known is None or not count or not common.json:
            raise
        typer.echo(_end({"ok": False, "code": known.code or "E.USAGE", "detail": str(known)}))
        raise typer.Exit(known.exit_code) from None
    if common.json:
        typer.echo(f"{'' if count else _BEGIN}{_end({'ok': True})}")
    return count


def _end(said: dict[str, Any]) -> str:
    """Return the end of a document that has begun with events."""
    return f"], {json.dumps(said)[1:]}"


def _as_command_error(error: Exception) -> CommandError | None:
    match error:
        case RangeError():
            return UsageError(str(error))
        case ManifestError():
            return FailedError(str(error), UNPROVEN)
    return as_command_error(error)


def print_one(item: Recorded) -> None:
    """Print an entry for people: when, where, who, what."""
    receipt, body = item.message.receipt, item.body
    parts = [shown_time(receipt.hub_ts), f"{item.stream}/{receipt.stream_seq}"]
    if body is not None and item.schema in (EVENT.name, IMPORTED.name):
        parts += [body["subject_id"], body["event_type"], body["origin"]]
        parts.append(json.dumps(body["payload"], ensure_ascii=False))
    elif body is not None:
        parts += [str(item.schema), json.dumps(body, ensure_ascii=False)]
    parts += [f"({item.problem})"] if item.problem else []
    typer.echo(plain("  ".join(parts)))


@command
def tail(
    at: ClientOptions,
    stream: StreamsOption = None,
    all_entries: Annotated[bool, typer.Option("--all", help="From the beginning; else what is new.")] = False,
    for_sec: Annotated[
        int | None,
        typer.Option("--for", min=0, help="Stop after so many seconds.  [default: when interrupted]"),
    ] = None,
) -> None:
    """Follow streams: time, place, subject, type, origin and payload of each event, as it is recorded."""
    end = None if for_sec is None else monotonic() + for_sec
    named = [record_stream(name) for name in stream or ()]
    with at.open() as opened, suppress(KeyboardInterrupt):
        names = named or record_streams(opened)
        options = ReadOptions(resume=not all_entries)
        readers = [(name, StreamReader(opened.session, name, options)) for name in names]
        for name, message in follow(opened, readers, end):
            _print_followed(recorded(name, message))


class _Reader(Protocol):
    """A stream that is read on."""

    def fetch(self, wait_sec: int = 0) -> Operation[list[Message]]:
        """Return what is new; waits for it."""
        ...


def follow(
    opened: Client, readers: Sequence[tuple[str, _Reader]], end: float | None
) -> Iterator[tuple[str, Message]]:
    """Yield entries as they come, until a time is over and nothing is left.

    When nothing has come, the hub is asked to wait for news of one stream, of each in its turn.
    """
    waiting: _Reader | None = None
    turns = cycle(reader for _, reader in readers)
    while True:
        met = False
        for name, reader in readers:
            for message in opened.run(reader.fetch(_patience(end, len(readers)) if reader is waiting else 0)):
                met = True
                yield name, message
        if end is not None and monotonic() >= end and not met:
            return
        waiting = None if met else next(turns)


def _patience(end: float | None, streams: int) -> int:
    """Return for how many seconds to wait: shortly, if others are to be looked at as well."""
    most = _WAIT_SEC if streams == 1 else 1
    return most if end is None else max(1, min(most, ceil(end - monotonic())))


def _print_followed(item: Recorded) -> None:
    if common.json:
        typer.echo(json.dumps(item.to_json()))
    else:
        print_one(item)
