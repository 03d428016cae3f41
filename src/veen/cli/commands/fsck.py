"""``veen fsck``: its options, and how the report is printed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from veen.cli.data_dir import open_data_dir
from veen.cli.errors import FAILED, OK, FailedError, UsageError
from veen.cli.options import HUB_ID_HELP, JsonFlag, hex32, parse_hub_id
from veen.cli.output import command, progress_bar, shown_time
from veen.cli.settings import common
from veen.core.errors import ProtocolError
from veen.core.objects.finding import Level
from veen.core.types import HubId, Label, VerifyKey
from veen.stdx.grammar import counted
from veen.storage.directory import read_identity
from veen.storage.errors import DamagedStoreError
from veen.storage.fs import RealFilesystem
from veen.storage.fsck import DERIVED, LEVELS, LabelReport, Report, check

# Labels that are listed; --json lists all of them.
_MOST_LABELS: Final = 20


@dataclass(frozen=True)
class Request:
    """What to check, and how thoroughly."""

    data_dir: Path
    level: Level
    hub_keys: tuple[VerifyKey, ...]
    labels: tuple[Label, ...] | None
    hub_id: HubId | None = None


@command
def fsck(
    data_dir: Annotated[
        Path, typer.Argument(metavar="DATA_DIR", help="Data directory of a hub.", show_default=False)
    ],
    level: Annotated[
        str,
        typer.Option(
            help="Level of checks: frames, hashes, roots or full; each includes the levels before it."
        ),
    ] = "full",
    hub_key: Annotated[
        list[str] | None,
        typer.Option(
            help="Public key of the hub: 64 hex digits; may be repeated. Default: as in hub-identity.cbor."
        ),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="Check only this label (64 hex digits); may be repeated.")
    ] = None,
    hub_id: Annotated[str, typer.Option(help=HUB_ID_HELP)] = "",
    as_json: JsonFlag = False,
) -> None:
    """Check the integrity of a data directory.

    Does not change anything, and the hub may be running. Exits 4 if a file is damaged or stale, or if the log
    belongs to another hub, and 1 if nothing was checked.
    """
    report = run(parse(data_dir, level, hub_key or [], label or [], hub_id))
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False))
    elif not (common.quiet and report.ok):
        _print(Console(), report)
    raise typer.Exit(OK if report.ok else FAILED)


def parse(data_dir: Path, level: str, hub_keys: list[str], labels: list[str], hub_id: str = "") -> Request:
    """Parse the options."""
    names = [item.name.lower() for item in LEVELS]
    if level not in names:
        raise UsageError(f"unknown level {level!r}; use one of {', '.join(names)}")
    return Request(
        data_dir=data_dir,
        level=Level[level.upper()],
        hub_keys=tuple(VerifyKey(hex32(text, "--hub-key")) for text in hub_keys),
        labels=tuple(Label(hex32(text, "--label")) for text in labels) or None,
        hub_id=parse_hub_id(hub_id),
    )


def run(request: Request) -> Report:
    """Check the directory."""
    try:
        with open_data_dir(request.data_dir) as files, progress_bar("checking", in_bytes=True) as progress:
            if request.hub_id is not None:
                _check_hub(files, request.hub_id)
            return check(files, request.level, request.hub_keys, progress, request.labels)
    except ProtocolError as error:
        raise UsageError(f"{error.message}; without --label all labels are listed") from None


def _check_hub(files: RealFilesystem, expected: HubId) -> None:
    try:
        public = read_identity(files)
    except DamagedStoreError as error:
        raise FailedError(
            f"the identity of the hub is damaged: {error}; nothing was checked", "E.DAMAGED"
        ) from None
    if public is None:
        raise FailedError("the directory does not name its hub; nothing was checked", "E.PIN")
    if public[0].hub_id != expected:
        raise FailedError(
            f"this is the log of hub {public[0].hub_id.hex()}, not of {expected.hex()}; nothing was checked",
            "E.PIN",
        )


def _print(console: Console, report: Report) -> None:
    for name, text, good in _verdicts(report):
        line = Text(f"{name:<15}", style="bold")
        line.append(text, style="green" if good else "red" if good is not None else "yellow")
        console.print(line, soft_wrap=True)
    for finding in report.findings:
        kind = "stale" if finding.verdict == DERIVED else "damaged"
        console.print(Text(f"{kind}: {finding}"), soft_wrap=True)
    unseen = report.findings_total - len(report.findings)
    if unseen:
        console.print(Text(f"and {unseen} more"))
    for note in report.notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)
    for item in report.labels[:_MOST_LABELS]:
        console.print(Text(_label_line(item)), soft_wrap=True)
    if len(report.labels) > _MOST_LABELS:
        more = counted(len(report.labels) - _MOST_LABELS, "more label")
        console.print(Text(f"and {more}; --json lists all of them"))
    if not report.ok:
        console.print(Text(_advice(report)), soft_wrap=True)


def _verdicts(report: Report) -> Iterator[tuple[str, str, bool | None]]:
    """Yield the verdicts: a name, a text, and whether it is good (None: not known)."""
    yield "integrity", report.integrity, {"ok": True, "damaged": False}.get(report.integrity)
    yield "signatures", report.signatures, True if report.signatures == "ok" else None
    clients = sum(item.clients or 0 for item in report.labels)
    text = report.completeness
    if text == "ok":
        text += f": {counted(clients, 'client')}, no gaps"
    pruned = [f"{item.label.hex()} 1 to {item.pruned_to}" for item in report.labels if item.pruned_to]
    if pruned:
        text += f"; pruned: {', '.join(pruned[:_MOST_LABELS])}"
    yield "completeness", text, {"ok": True, "broken": False}.get(report.completeness)
    newest = max((item.newest_ts for item in report.labels if item.newest_ts is not None), default=None)
    text = "no entries" if newest is None else f"newest entry of {shown_time(newest)}"
    text += f"; {counted(report.journal_entries, 'entry')} only in the journal"
    if report.lock:
        text += f"; last opened by {report.lock}"
    yield "freshness", text, True
    advice = ": run veen repair" if report.derived == "stale" else ""
    yield "derived files", report.derived + advice, {"ok": True, "stale": False}.get(report.derived)


def _label_line(item: LabelReport) -> str:
    parts = [f"{item.domain}/{item.label.hex()}: {counted(item.head_seq, 'entry')}"]
    if item.newest_ts is not None:
        parts.append(f"newest {shown_time(item.newest_ts)}")
    parts.append(f"checkpoint {item.newest_checkpoint}" if item.newest_checkpoint else "no checkpoint")
    if item.journal_entries:
        parts.append(f"{item.journal_entries} only in the journal")
    return ", ".join(parts)


def _advice(report: Report) -> str:
    if report.integrity == "damaged":
        return "The log is damaged. Leave this directory as it is, and restore a copy or a mirror next to it."
    return "The log is intact; only derived files are stale. Run: veen repair DATA_DIR"
