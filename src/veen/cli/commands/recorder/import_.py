"""``veen recorder import``: events from files, pipes and OpenTelemetry."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep, time
from typing import Annotated, BinaryIO, Final

import typer

from veen.cli.client import ClientOptions, read_bytes, read_card
from veen.cli.errors import MALFORMED, MalformedError, UnreachableError, UsageError
from veen.cli.options import HOST_HELP, READER_HELP, RECORD_STREAM_HELP
from veen.cli.output import command, print_result, warn
from veen.cli.settings import common
from veen.client.session import Session
from veen.recorder.configuration import GET_KEY, has_readers, record_stream
from veen.recorder.errors import BadLineError
from veen.recorder.event import Captured
from veen.recorder.feed.feed import Feed
from veen.recorder.feed.settings import FeedSettings
from veen.recorder.feed.shipper import Shipper
from veen.recorder.inputs.file_import import LINE_BYTES, BadLine, Convert, Import, Imports, report_damage
from veen.recorder.inputs.json_lines import UNITS, Fields, parse, read_event
from veen.recorder.inputs.otlp import SUBJECT, read_request
from veen.stdx.grammar import counted
from veen.stdx.loopback import is_loopback

# Maximum size of a line in bytes; a line of OTLP has many events.
_FORMATS: Final = {"jsonl": LINE_BYTES, "otlp": 32 << 20}
# Bad lines that are printed; all are counted.
_MOST_SHOWN: Final = 20
_LOOK_SEC: Final = 0.02
_PROGRESS_SEC: Final = 2.0
_ORIGIN: Final = "import"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """Options that map the fields of a line to those of an event."""

    time_field: Annotated[str, typer.Option(help="Field of the time: a number, or a text in ISO 8601.")] = (
        "event_time"
    )
    time_unit: Annotated[str, typer.Option(help="Unit of a numeric time: s, ms, us or ns.")] = "s"
    type_field: Annotated[str, typer.Option(help="Field of the event type.")] = "event_type"
    subject_field: Annotated[str, typer.Option(help="Field, or OTLP attribute, of the subject.")] = ""
    origin_field: Annotated[str, typer.Option(help="Field of the origin.")] = "origin"
    default_type: Annotated[str, typer.Option("--type", help="Event type of lines without one.")] = "log.line"
    subject: Annotated[str, typer.Option(help="Subject of lines without one.")] = _ORIGIN
    origin: Annotated[str, typer.Option(help="Origin of lines without one.")] = _ORIGIN

    @property
    def attribute(self) -> str:
        """The OTLP attribute of the subject."""
        return self.subject_field or SUBJECT

    def fields(self) -> Fields:
        """Return the mapping of fields."""
        if self.time_unit not in UNITS:
            raise UsageError(f"--time-unit takes one of {', '.join(UNITS)}, not {self.time_unit!r}")
        return Fields(
            time=self.time_field,
            type=self.type_field,
            subject=self.subject_field or "subject_id",
            origin=self.origin_field,
            unit=self.time_unit,
            default_type=self.default_type,
        )


@command
def import_(
    stream: Annotated[str, typer.Option(help=RECORD_STREAM_HELP)],
    at: ClientOptions,
    mapped: Mapped,
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to import; - reads standard input.")] = "",
    form: Annotated[
        str, typer.Option("--format", help="Format of each line: jsonl, an event; otlp, an OTLP request.")
    ] = "jsonl",
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first line that is not an event.")
    ] = False,
    listen: Annotated[
        str,
        typer.Option(help="Address to accept requests on, HOST:PORT: POST /v1/logs (OTLP) and POST /jsonl."),
    ] = "",
    token_file: Annotated[
        Path | None, typer.Option(help="File with the bearer token that requests must contain.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help=f"Requires --listen. {HOST_HELP}"),
    ] = None,
    to: Annotated[str, typer.Option(help=READER_HELP)] = "",
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Import the file from its start; lines that were imported before are recorded twice.",
        ),
    ] = False,
) -> None:
    """Import events from files, pipes or OpenTelemetry.

    A file can be imported again when it has grown, or after an interruption: it is recognized by its content,
    and no line is recorded twice. A pipe is always imported as a whole. Lines that are not events are
    skipped. If no line is an event, exits 3, and the next run reads the lines again. With --listen, a request
    is answered when its events are on disk; requests of other machines must contain a token: --token-file.
    """
    try:
        record_stream(stream)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if form not in _FORMATS:
        raise UsageError(f"--format takes one of {', '.join(_FORMATS)}, not {form!r}")
    if host and not listen:
        raise UsageError("--host requires --listen")
    if bool(file) == bool(listen):
        raise UsageError("give either FILE (- for standard input) or --listen")
    mapped.fields()
    settings = FeedSettings(
        stream=stream,
        origin=mapped.origin,
        subject=mapped.subject,
        timeout=common.timeout_ms / 1000,
        to=read_card(to).seal_key(int(time())) if to else None,
    )
    with at.open() as opened:
        _check_readers(opened.session, settings)
        if listen:
            address = _ListenOptions(listen, tuple(host or ()), token_file)
            _listen(opened.session, mapped, settings, address)
            return
        wish = _ImportOptions(file, _reader(form, mapped, stream), _FORMATS[form], strict, again)
        _import(opened.session, wish, settings)


def _check_readers(session: Session, settings: FeedSettings) -> None:
    """Reject events that only this client could read, unless --to is given."""
    if not has_readers(session.secrets, settings.send_options, settings.stream):
        raise UsageError(
            f"this client has no reader key of {settings.stream}, so others could not read the events: "
            f"{GET_KEY}; or name a recipient with --to CARD, which may be its own",
        )


@dataclass(frozen=True, slots=True)
class _ImportOptions:
    """What to import, and how."""

    file: str
    convert: Convert
    line_bytes: int
    strict: bool
    again: bool


def _reader(form: str, mapped: Mapped, stream: str) -> Convert:
    fields = mapped.fields()

    def lines(line: bytes) -> Iterator[Captured | BadLineError]:
        yield read_event(line, fields, stream)

    def requests(line: bytes) -> Iterator[Captured | BadLineError]:
        yield from read_request(parse(line), mapped.attribute)

    return lines if form == "jsonl" else requests


def _import(session: Session, wish: _ImportOptions, settings: FeedSettings) -> None:
    reported: dict[str, int] = {}

    def report(stream: str, count: int) -> None:
        name, number = report_damage(shipper.root, stream, count, settings)
        reported[name] = number

    shipper = Shipper(session, settings, report)
    try:
        imports = Imports(shipper.root, settings)
    except BlockingIOError as error:
        raise UsageError(f"another import to {settings.stream} is running: {error}") from None
    waiting = _ImportProgress(shipper, imports, reported)
    run = Import(imports, wish.convert, wait=waiting.after_portion, line_bytes=wish.line_bytes)
    bad: list[str] = []
    with ExitStack() as stack:
        stack.callback(lambda: imports.spool.close(shipper.done(imports.spool.name)))
        stack.callback(lambda: shipper.stop(common.timeout_ms / 1000))
        shipper.start()
        for bad_line in run.run(stack.enter_context(_open(wish.file)), again=wish.again):
            _tell_bad(bad_line, bad, strict=wish.strict)
        waiting.for_all()
    if run.incomplete:
        warn("the last line is incomplete; the next run reads it")
    _report(settings.stream, run, waiting, bad)


def _tell_bad(bad_line: BadLine, bad: list[str], *, strict: bool) -> None:
    text = f"line {bad_line.line}: {bad_line.reason}"
    if strict:
        raise MalformedError(text)
    if len(bad) < _MOST_SHOWN:
        bad.append(text)
        warn(text)


def _report(stream: str, run: Import, waiting: "_ImportProgress", bad: list[str]) -> None:
    """Print the result; the import failed if there were lines, but no events."""
    failed = run.bad > 0 and not run.has_read
    fields: dict[str, object] = {
        "ok": not failed,
        "stream": stream,
        "lines": run.lines,
        "lines_before": run.known,
        "bad_lines": run.bad,
        "events": run.events,
        "recorded": waiting.recorded(),
    }
    passed = waiting.passed()
    if passed:
        fields["not_recorded"] = passed
    if common.json and bad:
        fields["reasons"] = bad
    problem = "no line is an event, so nothing was imported; the next run reads the lines again"
    if failed and common.json:
        fields |= {"code": "E.MALFORMED", "detail": f"{problem}; {bad[0]}"}
    print_result(fields, common.json)
    if failed and not common.json:
        raise MalformedError(problem)
    if failed:
        raise typer.Exit(MALFORMED)


def _open(file: str) -> BinaryIO:
    if file == "-":
        return sys.stdin.buffer
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None


class _ImportProgress:
    """Prints the progress of an import, and waits for the hub."""

    def __init__(self, shipper: Shipper, imports: Imports, others: Mapping[str, int]) -> None:
        """``others``: other spools to wait for, up to which number."""
        self._shipper = shipper
        self._spool = imports.spool
        self._others = others
        self._before = shipper.done(imports.spool.name)
        self._told = monotonic()

    def after_portion(self, full: bool) -> None:
        """Ship the portion; if the spool is full, wait."""
        self._shipper.wake()
        self._look(full)

    def for_all(self) -> None:
        """Wait until the hub has all events."""
        self._shipper.hurry()
        while self._shipper.done(self._spool.name) < self._spool.next - 1 or any(
            self._shipper.done(name) < number for name, number in list(self._others.items())
        ):
            self._look(True)

    def passed(self) -> int:
        """Return the number of events that were set aside in this run, or damaged on disk."""
        return self._shipper.shipped.passed.get(self._spool.name, 0)

    def recorded(self) -> int:
        """Return the number of events that the hub accepted in this run, including those read earlier."""
        return self._shipper.done(self._spool.name) - self._before - self.passed()

    def _look(self, wait: bool) -> None:
        shipped, pending = self._shipper.shipped, self._spool.next - 1 - self._shipper.done(self._spool.name)
        if wait and shipped.failures:
            reason = shipped.trouble or shipped.held.get(self._spool.stream, "")
            if reason:
                raise UnreachableError(
                    f"the hub has not accepted {counted(pending, 'event')} yet, stored in "
                    f"{self._spool.place}: {reason}; run the command again to resume",
                )
        if monotonic() - self._told > _PROGRESS_SEC:
            self._told = monotonic()
            warn(f"{self._spool.next - 1 - pending} recorded, {pending} pending")
        if wait:
            sleep(_LOOK_SEC)


@dataclass(frozen=True, slots=True)
class _ListenOptions:
    """Address, host names and token of the receiver."""

    address: str
    hosts: tuple[str, ...]
    token_file: Path | None

    def token(self) -> str:
        """Return the token; it may be empty only on a loopback address."""
        file = self.token_file
        token = "" if file is None else read_bytes(file).decode("ascii", "replace").strip()
        if file is not None and not token:
            raise UsageError(f"{file} does not contain a token")
        if not token and not is_loopback(self.address.rpartition(":")[0]):
            raise UsageError(f"anyone who reaches {self.address} could record events; give --token-file")
        return token


def _listen(session: Session, mapped: Mapped, settings: FeedSettings, address: _ListenOptions) -> None:
    from veen.net.errors import StartError
    from veen.net.host_names import served_names
    from veen.net.sockets import bind
    from veen.recorder.inputs.otlp_server import Receiver, receive

    token = address.token()
    try:
        names = served_names(address.hosts)
        sockets = bind([address.address])
    except StartError as error:
        raise UsageError(str(error)) from None
    with Feed.of_session(session, settings) as feed:

        def make() -> Receiver:
            return Receiver(feed, token=token, fields=mapped.fields(), subject=mapped.attribute)

        def ready(urls: tuple[str, ...]) -> None:
            print_result({"ok": True, "listen": list(urls), "stream": settings.stream}, common.json)
            sys.stdout.flush()

        asyncio.run(receive(make, sockets, names, ready))
