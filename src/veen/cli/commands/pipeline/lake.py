"""``veen pipeline ingest``, ``check``, ``replay``, ``compact`` and ``sql``: a log as tables."""

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from veen.cli.client import prompt_passphrase
from veen.cli.commands.pipeline.verify import HubIdOption, LogArgument, StreamsOption, parse_hub_id
from veen.cli.errors import FAILED, FailedError, UsageError
from veen.cli.output import command, plain, print_result, progress, warn
from veen.cli.overlay import choose
from veen.cli.settings import common
from veen.cli.spark import SparkOptions, require_extra, show_job_progress
from veen.client.keys.keystore import asker
from veen.core.objects import labels
from veen.stdx.atomic_file import PRIVATE

if TYPE_CHECKING:
    from veen.pipeline.lake.lake import Lake
    from veen.pipeline.lake_jobs.ingest import Ingest, IngestStats
    from veen.pipeline.lake_sql.views import Views
    from veen.pipeline.log.log import Log
    from veen.pipeline.open.keyring import Keyring
    from veen.pipeline.spark.session import SparkSession

_FORMS: Final = ("table", "jsonl", "parquet")
_CHECKS: Final = ("roots", "full")
#: Rows that are shown as a table; more than a person reads.
_MOST_ROWS: Final = 1000
#: Literals, names and comments of SQL, whole or not ended yet: a semicolon inside of them ends no query.
_SQL_TOKEN: Final = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|--[^\n]*|/\*.*?\*/|['"`].*|/\*.*|.""", re.DOTALL
)

LakeOption = Annotated[Path, typer.Option("--lake", help="Directory of the lake.", show_default=False)]
KeyringOption = Annotated[
    Path | None,
    typer.Option(
        "--keyring",
        help="Keys to open messages with: a client's directory, or its keystore.enc.",
        show_default=False,
    ),
]


CheckedFlag = Annotated[
    bool, typer.Option("--checked", help="Compare files with the commit by their hashes, not by their sizes.")
]


@contextmanager
def reporting_progress() -> Iterator[None]:
    """End a command with 4 where a log or a lake is not what it should be, else with 1."""
    from veen.pipeline.errors import DamagedLakeError, LakeBusyError, LakeError, RejectedEntryError
    from veen.pipeline.finding_format import to_json

    try:
        yield
    except RejectedEntryError as error:
        if common.json:
            found = {"ok": False, "code": "E.PROOF", "detail": str(error), "first": to_json(error.finding)}
            print_result(found, as_json=True)
            raise typer.Exit(FAILED) from None
        raise FailedError(f"first bad: {error}", "E.PROOF") from None
    except DamagedLakeError as error:
        raise FailedError(str(error), "E.PROOF") from None
    except LakeBusyError as error:
        raise UsageError(str(error), "E.BUSY") from None
    except LakeError as error:
        raise UsageError(str(error), "E.LAKE") from None


@contextmanager
def opening_log(place: str, hub_id: str, streams: list[str] | None) -> Iterator["Log"]:
    """Have a log open for as long as a command needs it."""
    from veen.pipeline.log.open import open_log

    log = open_log(place, parse_hub_id(hub_id), streams or ())
    try:
        yield log
    finally:
        log.close()


def load_keys(path: Path | None) -> "Keyring | None":
    """Unlock the keys that messages are opened with, if any are given."""
    from veen.pipeline.open.keyring import load_keyring

    return None if path is None else load_keyring(path.expanduser(), asker(os.environ, prompt_passphrase))


@command
def ingest_command(
    log: LogArgument,
    lake: LakeOption,
    engine: SparkOptions,
    keyring: KeyringOption = None,
    hub_id: HubIdOption = "",
    stream: StreamsOption = None,
    overlay: Annotated[
        list[str] | None,
        typer.Option(help="Keep states of this overlay; may be repeated. Default: all that have events."),
    ] = None,
    no_gold: Annotated[bool, typer.Option("--no-gold", help="Keep no states of overlays.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on as the log grows, until interrupted.")
    ] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two looks for new entries.")
    ] = 1.0,
    checked: CheckedFlag = False,
) -> None:
    """Take a log into a lake: entries checked in full, opened with your keys, in tables of Parquet.

    Takes what the lake does not have. Entries that fail their checks are not taken in: then it ends with 4
    and the first of them. Run it again after whatever has stopped it. Entries that no key opened are opened
    by a later run whose keys do; so are streams found whose names come later. Ends with 4 before it begins if
    a file that the lake has committed is gone or has another size; with --checked, if it is another one.
    """
    if overlay and no_gold:
        raise UsageError("--overlay keeps states and --no-gold keeps none: give one of them")
    with (
        engine.running("pipeline ingest", oneshot=not follow) as spark,
        reporting_progress(),
        ExitStack() as stack,
    ):
        from veen.pipeline.lake.lake import lock_lake
        from veen.pipeline.lake_jobs.ingest import (
            Ingest,
            stoppable,
        )
        from veen.pipeline.lake_jobs.ingest import follow as go_on
        from veen.pipeline.shared_keys import sharing

        keys = load_keys(keyring)
        shared = None if keys is None else stack.enter_context(sharing(spark, keys))
        opened = stack.enter_context(opening_log(log, hub_id, stream))
        held = stack.enter_context(lock_lake(lake.expanduser(), create=True))
        _tell_foreign(held.foreign)
        _compare(spark, held, checked=checked)
        work = Ingest(
            spark,
            held,
            opened,
            keyring=keys,
            shared=shared,
            overlays=None if no_gold else [choose(name).overlay.name for name in overlay or ()],
            streams=[labels.stream_id(name) for name in stream or ()],
        )
        if follow:
            stopped = stack.enter_context(stoppable())
            taken = go_on(work, opened, stopped, interval_sec=interval, on_run=_tell_step)
        else:
            with show_job_progress(spark, "taking in"):
                taken = work.run()
            _require_found(work, stream or [])
        found = _described(taken, held)
        _tell_rest(taken, held)
    print_result(found, common.json)


def _compare(spark: "SparkSession", held: "Lake", *, checked: bool) -> None:
    """Refuse a lake whose files are not those that it has committed; states that are lost are made again."""
    from veen.pipeline.lake.committed_files import kept_in, require_sizes, states_in
    from veen.pipeline.lake_jobs.file_hashes import require_committed

    files = kept_in(held.state)
    require_sizes(held.root, files)
    if checked:
        with show_job_progress(spark, "comparing"):
            require_committed(spark.sparkContext, held.root, [*files, *states_in(held.root, held.state)])


def _tell_foreign(paths: list[str]) -> None:
    if paths:
        warn(f"{len(paths)} files among those of the lake are not its own and were left, first {paths[0]}")


def _require_found(work: "Ingest", names: list[str]) -> None:
    """Refuse streams of which there is nothing at all; some of several may be without entries yet."""
    nothing = [name for name in names if labels.stream_id(name) in work.unknown]
    if not nothing:
        return
    text = f"there are no entries of {', '.join(nothing)}"
    if len(nothing) == len(names):
        raise UsageError(f"{text}: nothing was taken in")
    warn(text)


def _tell_rest(taken: "IngestStats", held: "Lake") -> None:
    """Tell what has become of entries that were taken in before, and what keys or names are missing for."""
    if taken.bound:
        warn(f"{taken.bound} labels have got their stream, and their tables were made again")
    if taken.opened:
        warn(f"{taken.opened} entries that were sealed are open now; states were made again")
    sealed = held.state.sealed
    if sealed:
        warn(f"{sealed} entries could not be opened; run it again with a keyring that opens them")
    unknown = sum(fact.stream is None for fact in held.state.labels.values())
    if unknown:
        warn(
            f"it is not known of which streams {unknown} labels are: name them with --stream, to have states"
        )


def _tell_step(taken: "IngestStats") -> None:
    if common.json:
        typer.echo(json.dumps({"entries": taken.entries, "files": taken.files}))
        sys.stdout.flush()
    else:
        warn(f"{taken.entries} entries taken in")


def _described(taken: "IngestStats", held: "Lake") -> dict[str, Any]:
    return {
        "ok": True,
        "lake": str(held.root),
        "commit": held.state.number,
        "entries": taken.entries,
        "labels": len(taken.labels),
        "files": taken.files,
        "missing": taken.missing,
        "sealed": held.state.sealed,
        "states": taken.states,
    }


@command
def check_command(
    lake: LakeOption,
    engine: SparkOptions,
    log: Annotated[
        str, typer.Argument(metavar="[LOG]", help="The log that it was made of, to compare with.")
    ] = "",
    keyring: KeyringOption = None,
    level: Annotated[
        str, typer.Option(help="How entries are checked: full, or roots, which leaves signatures out.")
    ] = "full",
    hub_id: HubIdOption = "",
    stream: StreamsOption = None,
) -> None:
    """Check a lake: each entry by its signatures and roots, and that all else in it follows from the entries.

    Senders and the hub have signed the entries, by the identity of the hub that the lake keeps. Records,
    typed rows, refusals and states are made again and compared. With --keyring messages are opened again too:
    without it nothing ties bodies to what was signed. With the log, also that it continues what the lake has,
    and by how much. A lake that was set back to an earlier commit is a sound lake of an earlier time: only
    the log, or a newer receipt, tells. Ends with 4 and what is wrong first.
    """
    if level not in _CHECKS:
        raise UsageError(f"no level {level!r}; use one of {', '.join(_CHECKS)}")
    with engine.running("pipeline check") as spark, reporting_progress(), ExitStack() as stack:
        from veen.core.objects.finding import Level
        from veen.pipeline.lake_jobs.check import check_lake
        from veen.pipeline.shared_keys import sharing

        keys = load_keys(keyring)
        shared = None if keys is None else stack.enter_context(sharing(spark, keys))
        opened = stack.enter_context(opening_log(log, hub_id, stream)) if log else None
        with show_job_progress(spark, "checking"):
            verdict = check_lake(spark, lake.expanduser(), opened, level=Level[level.upper()], shared=shared)
    print_result({"ok": True, "lake": str(lake), **verdict._asdict()}, common.json)


@command
def replay_command(
    lake: LakeOption,
    into: Annotated[Path, typer.Option(help="Directory to make; it must be empty.", show_default=False)],
    partial: Annotated[
        bool, typer.Option("--partial", help="Write what the lake has, though the hub has more.")
    ] = False,
) -> None:
    """Write a hub's data directory again from a lake: the same log, byte by byte, without secret keys.

    Refuses a lake that has not all entries of its hub, as far as its checkpoints tell: some were pruned
    before, or only some streams were taken in. Ends with 4 if the lake is damaged; nothing is left of the
    directory then.
    """
    with require_extra():
        from veen.pipeline.lake_jobs.restore import replay
    with reporting_progress(), progress("writing") as advance:
        done = replay(lake.expanduser(), into.expanduser(), advance, partial=partial)
    print_result({"ok": True, "directory": str(into), **done._asdict()}, common.json)


@command
def compact_command(lake: LakeOption, engine: SparkOptions) -> None:
    """Join the small files that runs have left; tables stay the same, row by row.

    Ends with 4, and changes nothing, if a file is not the one that was committed.
    """
    with engine.running("pipeline compact") as spark, reporting_progress():
        from veen.pipeline.lake.lake import lock_lake
        from veen.pipeline.lake_jobs.compact import compact

        with lock_lake(lake.expanduser()) as held, show_job_progress(spark, "joining"):
            done = compact(spark, held)
    print_result(
        {"ok": True, "lake": str(lake), "slices": done.slices, "before": done.before, "after": done.after},
        common.json,
    )


@command
def sql_command(
    lake: LakeOption,
    engine: SparkOptions,
    query: Annotated[str, typer.Argument(metavar="[QUERY]", help="What to ask; without it, a prompt.")] = "",
    form: Annotated[str, typer.Option("--format", help="table, jsonl or parquet.")] = "table",
    out: Annotated[
        Path | None, typer.Option(help="Write the answer here: a file, or a directory of Parquet.")
    ] = None,
    checked: CheckedFlag = False,
) -> None:
    """Ask a lake in SQL: bronze_entries, silver_records, silver_SCHEMA, gold_OVERLAY; try SHOW TABLES.

    Byte strings are shown in hex; write them as X'..' in a query. In JSON, numbers with places behind the
    point that must be exact are strings, as are NaN, infinity and intervals; a second column a is a_2. Only
    questions are answered: what would change anything is refused. Ends with 4 if a file of a table that the
    query names is gone or has another size than was committed; with --checked, if it is another one.
    """
    if form not in _FORMS:
        raise UsageError(f"no format {form!r}; use one of {', '.join(_FORMS)}")
    if form == "parquet" and out is None:
        raise UsageError("Parquet needs a place: --out DIRECTORY")
    if out is not None:
        _check_place(out, lake, asked=bool(query))
    wanted = "jsonl" if common.json and form == "table" else form
    with engine.running("pipeline sql", oneshot=bool(query)) as spark, reporting_progress():
        from veen.pipeline.lake_sql.views import Views

        views = Views(spark, lake.expanduser(), checked=checked)
        if not query:
            _prompt(spark, views, wanted)
        elif out is None:
            _answer(views, query, wanted)
        else:
            place = out.expanduser()
            count = _written(views, query, wanted, place)
            print_result({"ok": True, "out": str(place), "format": wanted, "rows": count}, common.json)


def _check_place(out: Path, lake: Path, *, asked: bool) -> None:
    """Refuse a place where answers would overwrite each other, or the lake."""
    if not asked:
        raise UsageError("--out is for the answer of one QUERY, not for a prompt")
    if out.expanduser().resolve().is_relative_to(lake.expanduser().resolve()):
        raise UsageError(f"{out} is in the lake; choose another place for the answer")


def _written(views: "Views", query: str, form: str, place: Path) -> int:
    """Write an answer to a place; return how many rows it has."""
    if form != "parquet":
        return _answer(views, query, form, place)
    from veen.pipeline.lake_sql.json_rows import write_parquet

    return views.ask(query, lambda found: write_parquet(found, place))


def _answer(views: "Views", query: str, form: str, place: Path | None = None) -> int:
    """Print an answer; return how many rows were printed."""
    count = 0
    names, rows = views.rows(query, None if form == "jsonl" else _MOST_ROWS + 1)
    with ExitStack() as stack:
        file = sys.stdout if place is None else stack.enter_context(_private(place))
        if form != "jsonl":
            listed = list(rows)
            file.writelines(f"{line}\n" for line in _table(names, listed))
            return min(len(listed), _MOST_ROWS)
        for row in rows:
            file.write(json.dumps(row, allow_nan=False) + "\n")
            count += 1
    return count


def _private(place: Path) -> TextIO:
    """Open a file to write to; a new one is for its owner alone."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    return os.fdopen(os.open(place, flags, PRIVATE), "w", encoding="utf-8")


def _table(names: list[str], rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table."""
    listed = [[_cell(row[name]) for name in names] for row in rows]
    more = len(listed) > _MOST_ROWS
    shown = [list(map(plain, names)), *listed[:_MOST_ROWS]]
    widths = [max(len(row[nth]) for row in shown) for nth in range(len(names))]
    for row in shown:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    if more:
        yield f"... only the first {_MOST_ROWS} rows; --format jsonl has all"


def _cell(value: object) -> str:
    if value is None:
        return "null"
    return plain(value if isinstance(value, str) else json.dumps(value))


def _prompt(spark: "SparkSession", views: "Views", form: str) -> None:
    """Ask a person for queries, each ended by a semicolon."""
    from veen.pipeline.errors import LakeError
    from veen.pipeline.spark.failures import reason_of

    if sys.stdin.isatty():
        import readline  # noqa: F401 - for whoever types
    warn(f"tables: {', '.join(views.names)}; end a query with a semicolon, leave with quit")
    for query in _queries():
        try:
            _answer(views, query, form)
        except LakeError as error:
            warn(str(error))
        except Exception as error:  # what Spark says of a query is for the person to read
            reason = reason_of(error)
            if reason is None:
                raise
            warn(reason)
    spark.catalog.clearCache()


def _queries() -> Iterator[str]:
    text = ""
    while True:
        try:
            line = input(("veen> " if not text else "    > ") if sys.stdin.isatty() else "")
        except EOFError:
            if text.strip():
                yield text
            return
        if not text and line.strip().rstrip(";") in ("quit", "exit"):
            return
        text = f"{text}{line}\n"
        ended, text = _statements(text)
        yield from ended


def _statements(text: str) -> tuple[list[str], str]:
    """Return the queries of a text that are ended, and the rest."""
    found, start = [], 0
    for token in _SQL_TOKEN.finditer(text):
        if token[0] == ";":
            found.append(text[start : token.start()])
            start = token.end()
    return [query for query in found if query.strip()], text[start:].lstrip()
