"""``veen recorder verify`` and ``status``: verdicts about a record, and its present state."""

from time import time
from typing import Annotated, Any, Final

import typer

from veen.cli.client import ClientOptions
from veen.cli.commands.recorder.admin import record_stream
from veen.cli.commands.recorder.replay import CheckpointOption, StreamsOption, read_manifest, record_streams
from veen.cli.errors import FAILED, FailedError, UsageError
from veen.cli.options import RETENTION_HELP
from veen.cli.output import command, plain, print_result, warn
from veen.cli.settings import common
from veen.client.client import Client
from veen.client.transport.http import HttpHub
from veen.core.crypto.hash import U64_MAX
from veen.overlays.recorder.schemas import CHANGES_STREAM, CHECKPOINTS_STREAM, LONG_TERM_SEC
from veen.recorder.cadence import EACH_EVENTS, EVERY_SEC, Cadence, UncoveredEntries
from veen.recorder.checkpoint import CoveredLog, last_seq
from veen.recorder.configuration import Configuration, keeps, read_classes, read_configuration, stream_labels
from veen.recorder.feed.shipper import spool_depth
from veen.recorder.verify.judge import VERDICTS, Judgement, judge, to_json, to_text
from veen.stdx.grammar import counted

Every = Annotated[
    int, typer.Option("--every", min=1, help="Time after which a checkpoint is due, in seconds.")
]
Each = Annotated[
    int, typer.Option("--each", min=1, help="Number of entries after which a checkpoint is due.")
]
Retention = Annotated[int, typer.Option("--retention-hint", min=0, max=U64_MAX, help=RETENTION_HELP)]
# How a verdict is printed.
_SHOWN: Final = {True: "good", False: "bad", None: "not judged"}


@command
def verify(
    at: ClientOptions,
    stream: StreamsOption = None,
    checkpoint: CheckpointOption = None,
    every: Every = EVERY_SEC,
    each: Each = EACH_EVENTS,
    retention_hint: Retention = LONG_TERM_SEC,
    only: Annotated[
        list[str] | None, typer.Option(help="Require only this verdict; may be repeated.")
    ] = None,
) -> None:
    """Verify the whole record, and print verdicts.

    Works at a hub, and offline in a data directory (--hub DIR) or an exported set. Verdicts: order,
    completeness, stability, roles, event_types, retention, checkpoint_cadence. With --checkpoint, also
    verifies that the entries covered by your file still exist. Exits 4 if a verdict is bad, or cannot be
    given because a stream that it needs is unreadable.
    """
    chosen = tuple(only or VERDICTS)
    unknown = sorted(set(chosen) - set(VERDICTS))
    if unknown:
        raise UsageError(f"unknown verdict {', '.join(unknown)}; use one of {', '.join(VERDICTS)}")
    named = [record_stream(name) for name in stream or ()]
    with at.open() as opened:
        live = isinstance(opened.hub, HttpHub)
        judgement = judge(
            opened,
            streams=named,
            checkpoint=None if checkpoint is None else read_manifest(checkpoint),
            cadence=Cadence(every, each),
            least_sec=retention_hint,
            now=int(time()) if live else None,
        )
    _print(judgement, chosen)


def _print(judgement: Judgement, chosen: tuple[str, ...]) -> None:
    verdicts = {name: judgement.verdict(name) for name in VERDICTS}
    bad = [name for name in chosen if verdicts[name] is False]
    open_ones = [name for name in chosen if verdicts[name] is None]
    counts = {
        "streams": judgement.streams,
        "entries": judgement.entries,
        "events": judgement.events,
        "checkpoints": judgement.checkpoints,
        "unreadable": judgement.unreadable,
        "others": judgement.others,
    }
    if common.json:
        _print_json(judgement, verdicts, (bad, open_ones), counts)
        return
    print_result({**{name: _SHOWN[good] for name, good in verdicts.items()}, **counts}, as_json=False)
    for item in judgement.findings:
        typer.echo(plain(to_text(item)))
    if judgement.undeclared:
        warn(
            f"not declared: {', '.join(judgement.undeclared)}; an admin can declare them with: "
            "veen recorder init"
        )
    _print_sealed(judgement)
    if bad or open_ones:
        raise FailedError(_problem(judgement, bad, open_ones), "E.RECORD")


def _print_json(
    judgement: Judgement,
    verdicts: dict[str, bool | None],
    problems: tuple[list[str], list[str]],
    counts: dict[str, int],
) -> None:
    failed = any(problems)
    code = {"code": "E.RECORD", "detail": _problem(judgement, *problems)} if failed else {}
    details = {
        "findings": [to_json(item) for item in judgement.findings],
        "not_judged": {name: judgement.unjudged[name] for name, good in verdicts.items() if good is None},
        "hidden": {name: {"sealed": part, "entries": of} for name, (part, of) in judgement.hidden.items()},
        "undeclared": judgement.undeclared,
    }
    print_result({"ok": not failed, **code, "verdicts": verdicts, **details, **counts}, as_json=True)
    if failed:
        raise typer.Exit(FAILED)


def _problem(judgement: Judgement, bad: list[str], open_ones: list[str]) -> str:
    """Return in one line which verdicts are bad, and which could not be given and why."""
    parts = [f"bad verdicts: {', '.join(bad)}"] if bad else []
    if open_ones:
        needed = sorted({stream for name in open_ones for stream in judgement.unjudged[name]})
        parts.append(
            f"not judged: {', '.join(open_ones)}, because {', '.join(needed)} cannot be read; "
            "an admin can share the keys with: veen recorder share"
        )
    return "; ".join(parts)


def _print_sealed(judgement: Judgement) -> None:
    """Print what could not be read, even with --quiet: no verdict covers it."""
    notes = []
    if judgement.unreadable:
        notes.append(
            f"{judgement.unreadable} of {counted(judgement.entries, 'entry')} sealed to other readers: "
            "types and principals not judged"
        )
    for name, (sealed, entries) in judgement.hidden.items():
        notes.append(f"{name}: {sealed} of {counted(entries, 'entry')} sealed to other readers, and ignored")
    for text in notes:
        typer.echo(f"veen: {plain(text)}", err=True)


# --- status -------------------------------------------------------------------------------------------------


@command
def status(
    at: ClientOptions,
    stream: StreamsOption = None,
    every: Every = EVERY_SEC,
    each: Each = EACH_EVENTS,
    retention_hint: Retention = LONG_TERM_SEC,
) -> None:
    """Show streams, their retention and the last checkpoint.

    Also shows the events that wait in the spool. Does not read events; verify them with veen recorder verify.
    """
    named = [record_stream(name) for name in stream or ()]
    with at.open() as opened:
        known = read_configuration(opened)
        names = sorted({*record_streams(opened), *named}, key=str.encode)
        rows = _rows(opened, known, names, retention_hint)
        checkpoint = _last(opened, names, Cadence(every, each))
        spooled = spool_depth(opened.session.home.root)
    shared = known.shared_types
    fields: dict[str, Any] = {
        "streams": rows,
        "shared_types": shared,
        "checkpoint": checkpoint,
        "profile_id": known.profile_id.hex(),
        "spool": spooled,
    }
    if common.json:
        print_result({"ok": True, **fields}, as_json=True)
        return
    for row in rows:
        typer.echo(plain(_line(row)))
    for event_type, streams in shared.items():
        typer.echo(plain(f"type {event_type} is declared for several streams: {', '.join(streams)}"))
    printed = ("checkpoint", "profile_id", *(("spool",) if spooled else ()))
    print_result({name: fields[name] for name in printed}, as_json=False)


def _rows(opened: Client, known: Configuration, names: list[str], min_retention: int) -> list[dict[str, Any]]:
    classes = read_classes(opened)
    rows = []
    for name in names:
        declared = known.streams.get(name)
        heads = {label: last_seq(opened, label) for _, label in stream_labels(opened, name)}
        retention_sec = known.kept_for(name, min_retention)
        good = all(
            keeps(classes.get(bytes(label)), retention_sec) for label, entries in heads.items() if entries
        )
        own = name in (CHANGES_STREAM, CHECKPOINTS_STREAM)
        rows.append(
            {
                "stream": name,
                "state": "own" if own else "undeclared" if declared is None else declared.state,
                "entries": sum(heads.values()),
                "event_types": [] if declared is None else list(declared.event_types),
                "retention": "set" if good else "missing",
            }
        )
    return rows


def _line(row: dict[str, Any]) -> str:
    types = ", ".join(row["event_types"]) or "-"
    count = counted(row["entries"], "entry")
    return f"{row['stream']}  {row['state']}  {count}  retention {row['retention']}  {types}"


def _last(opened: Client, names: list[str], cadence: Cadence) -> dict[str, Any]:
    standing, now = CoveredLog(opened), int(time())
    waiting = UncoveredEntries(opened, names, standing)
    last = standing.newest
    return {
        "age_sec": None if last is None else max(0, now - last.created_at),
        "log_root": None if last is None else last.log_root.hex(),
        "events_since": waiting.count,
        "cadence_met": waiting.is_met(cadence, now),
    }
