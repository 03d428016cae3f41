"""``veen recorder replay`` and ``tail``: recorded events, in order."""

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
from veen.cli.options import LAST_HELP, parse_number
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
# The start of a JSON document that is printed incrementally.
_BEGIN: Final = '{"events": ['
StreamsOption = Annotated[
    list[str] | None,
    typer.Option("--stream", help="Stream of the recorder; may be repeated. Default: all known streams."),
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option("--checkpoint", help="File of a checkpoint, instead of the newest one in the log."),
]


def read_manifest(path: Path) -> Manifest:
    """Read a checkpoint of a recorder from a file."""
    try:
        return Manifest.decode(read_bytes(path))
    except InvalidBodyError as error:
        raise UsageError(f"{path} is not a checkpoint of a recorder: {error}") from None


def _time(text: str, option: str) -> int:
    """Parse a time: seconds since 1970, or a date."""
    seconds = parse_number(text)
    if seconds is not None:
        return seconds
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} takes seconds since 1970 or a date such as 2026-01-31T12:00:00Z, not {text!r}"
        ) from None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())


@command
def replay(
    at: ClientOptions,
    stream: StreamsOption = None,
    from_seq: Annotated[int | None, typer.Option("--from", help="First entry, from 1.")] = None,
    to_seq: Annotated[int | None, typer.Option("--to", help=LAST_HELP)] = None,
    epoch: Annotated[int | None, typer.Option(min=0, max=U64_MAX, help="Epoch of --from and --to.")] = None,
    start_time: Annotated[
        str,
        typer.Option(
            help="Start of a range of hub time, instead of --from and --to: seconds since 1970, or "
            "a date such as 2026-01-31T12:00:00Z."
        ),
    ] = "",
    end_time: Annotated[str, typer.Option(help="End of the range of hub time, inclusive.")] = "",
    with_proof: Annotated[
        bool, typer.Option("--with-proof", help="Verify each entry against the root of a checkpoint.")
    ] = False,
    checkpoint: CheckpointOption = None,
) -> None:
    """Replay a range of recorded events.

    Replays a range of one stream, or a time range of several streams; both ends are inclusive. Entries of
    several streams are ordered by hub time, then by stream name, then by position. Each entry is verified;
    with --with-proof, also against the newest checkpoint. Exits 4 at the first entry that fails. With --json,
    events include their receipts, and the end of the document reports whether all events were printed.
    """
    with at.open() as opened:
        try:
            vouched = _checkpoint(opened, checkpoint) if with_proof or checkpoint is not None else None
            names = stream or _all_streams(opened, vouched)
            selected = _asked(opened, stream or [], names, (from_seq, to_seq, epoch), (start_time, end_time))
            count = print_all(selected if vouched is None else proven(opened, vouched, names, selected))
        except (RangeError, ManifestError) as error:
            raise _as_command_error(error) or error from None
    if not count:
        warn("no matching entries")


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
            raise UsageError("give --start-time and --end-time together, without --from, --to and --epoch")
        return replay_time(opened, names, _time(times[0], "--start-time"), _time(times[1], "--end-time"))
    if len(streams) != 1 or first is None or last is None:
        raise UsageError("give either one --stream with --from and --to, or --start-time and --end-time")
    return replay_range(opened, streams[0], first, last, epoch)


def _all_streams(opened: Client, vouched: Manifest | None) -> list[str]:
    """Return all streams, including those of a checkpoint; it covers all checkpoints but itself."""
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
            f"{CHECKPOINTS_STREAM} has no checkpoint; create one with: veen recorder checkpoint", UNPROVEN
        )
    return standing.manifest


def print_all(entries: Iterable[Recorded]) -> int:
    """Print entries as they are verified; with --json, one document whose end reports the outcome.

    A failure before the first entry is an error like any other.
    """
    count = 0
    try:
        for item in entries:
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


def _end(outcome: dict[str, Any]) -> str:
    """Return the end of a document that was printed incrementally."""
    return f"], {json.dumps(outcome)[1:]}"


def _as_command_error(error: Exception) -> CommandError | None:
    match error:
        case RangeError():
            return UsageError(str(error))
        case ManifestError():
            return FailedError(str(error), UNPROVEN)
    return as_command_error(error)


def print_one(item: Recorded) -> None:
    """Print the time, position, subject, type, origin and payload of an entry."""
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
    all_entries: Annotated[
        bool, typer.Option("--all", help="Start at the first entry. Default: only new entries.")
    ] = False,
    for_sec: Annotated[
        int | None,
        typer.Option("--for", min=0, help="Stop after this many seconds. Default: when interrupted."),
    ] = None,
) -> None:
    """Follow recorded events.

    Prints time, position, subject, type, origin and payload of each event as it is recorded.
    """
    end = None if for_sec is None else monotonic() + for_sec
    named = [record_stream(name) for name in stream or ()]
    with at.open() as opened, suppress(KeyboardInterrupt):
        names = named or record_streams(opened)
        options = ReadOptions(resume=not all_entries)
        readers = [(name, StreamReader(opened.session, name, options)) for name in names]
        for name, message in follow(opened, readers, end):
            _print_followed(recorded(name, message))


class _Reader(Protocol):
    """A reader of a stream that continues."""

    def fetch(self, wait_sec: int = 0) -> Operation[list[Message]]:
        """Wait for new entries, and return them."""
        ...


def follow(
    opened: Client, readers: Sequence[tuple[str, _Reader]], end: float | None
) -> Iterator[tuple[str, Message]]:
    """Yield entries as they arrive, until the end time has passed and none is left.

    While there are no new entries, long polls go to one stream after the other.
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
    """Return the time of a long poll in seconds: short, if there are other streams."""
    max_sec = _WAIT_SEC if streams == 1 else 1
    return max_sec if end is None else max(1, min(max_sec, ceil(end - monotonic())))


def _print_followed(item: Recorded) -> None:
    if common.json:
        typer.echo(json.dumps(item.to_json()))
    else:
        print_one(item)
