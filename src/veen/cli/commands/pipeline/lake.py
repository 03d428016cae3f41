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
from veen.cli.commands.pipeline.verify import HubIdOption, LogArgument, StreamsOption
from veen.cli.errors import FAILED, FailedError, UsageError
from veen.cli.options import parse_hub_id
from veen.cli.output import command, plain, print_result, progress, warn
from veen.cli.overlay import choose
from veen.cli.settings import common
from veen.cli.spark import SparkOptions, require_extra, show_job_progress
from veen.client.keys.keystore import asker
from veen.core.objects import labels
from veen.stdx.atomic_file import PRIVATE
from veen.stdx.grammar import by_count, counted

if TYPE_CHECKING:
    from veen.pipeline.lake.lake import Lake
    from veen.pipeline.lake_jobs.ingest import Ingest, IngestStats
    from veen.pipeline.lake_sql.views import Views
    from veen.pipeline.log.log import Log
    from veen.pipeline.open.keyring import Keyring
    from veen.pipeline.spark.session import SparkSession

_FORMS: Final = ("table", "jsonl", "parquet")
_CHECKS: Final = ("roots", "full")
# Rows that are printed as a table.
_MOST_ROWS: Final = 1000
# Literals, names and comments of SQL, complete or not: a semicolon inside them does not end a query.
_SQL_TOKEN: Final = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|--[^\n]*|/\*.*?\*/|['"`].*|/\*.*|.""", re.DOTALL
)

LakeOption = Annotated[Path, typer.Option("--lake", help="Directory of the lake.", show_default=False)]
KeyringOption = Annotated[
    Path | None,
    typer.Option(
        "--keyring",
        help="Keys that open messages: a client directory, or its keystore.enc.",
        show_default=False,
    ),
]


CheckedFlag = Annotated[
    bool, typer.Option("--checked", help="Compare the files with the commit by hash, not only by size.")
]


@contextmanager
def lake_errors_exit() -> Iterator[None]:
    """Exit 4 if a log or a lake fails a check, and 1 if a lake cannot be used."""
    from veen.pipeline.errors import DamagedLakeError, LakeBusyError, LakeError, RejectedEntryError
    from veen.pipeline.finding_format import to_json

    try:
        yield
    except RejectedEntryError as error:
        if common.json:
            document = {"ok": False, "code": "E.PROOF", "detail": str(error), "first": to_json(error.finding)}
            print_result(document, as_json=True)
            raise typer.Exit(FAILED) from None
        raise FailedError(f"first bad: {error}", "E.PROOF") from None
    except DamagedLakeError as error:
        raise FailedError(str(error), "E.PROOF") from None
    except LakeBusyError as error:
        raise UsageError(str(error), "E.BUSY") from None
    except LakeError as error:
        raise UsageError(str(error), "E.LAKE") from None


@contextmanager
def opening_log(location: str, hub_id: str, streams: list[str] | None) -> Iterator["Log"]:
    """Open a log, and close it afterwards."""
    from veen.pipeline.log.open import open_log

    log = open_log(location, parse_hub_id(hub_id), streams or ())
    try:
        yield log
    finally:
        log.close()


def load_keys(path: Path | None) -> "Keyring | None":
    """Unlock the keys that open messages, if any are given."""
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
        typer.Option(
            help="Store states of this overlay; may be repeated. Default: all overlays that have events."
        ),
    ] = None,
    no_gold: Annotated[bool, typer.Option("--no-gold", help="Do not store states of overlays.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Continue as the log grows, until interrupted.")
    ] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, help="Time between checks for new entries, in seconds.")
    ] = 1.0,
    checked: CheckedFlag = False,
) -> None:
    """Ingest a log into a lake of Parquet tables.

    Entries are verified in full, and opened with your keys. Each run ingests only what the lake does not
    contain, so an interrupted run can be repeated. A later run opens entries whose keys were missing, and
    resolves streams whose names were unknown. Exits 4 at the first entry that fails a check, and does not
    ingest it. Exits 4 before it starts if a committed file of the lake is missing or has another size; with
    --checked, also if its hash differs.
    """
    if overlay and no_gold:
        raise UsageError("--overlay and --no-gold exclude each other")
    with (
        engine.running("pipeline ingest", oneshot=not follow) as spark,
        lake_errors_exit(),
        ExitStack() as stack,
    ):
        from veen.pipeline.lake.lake import lock_lake
        from veen.pipeline.lake_jobs.ingest import (
            Ingest,
            stoppable,
        )
        from veen.pipeline.lake_jobs.ingest import follow as follow_log
        from veen.pipeline.shared_keys import sharing

        keys = load_keys(keyring)
        shared = None if keys is None else stack.enter_context(sharing(spark, keys))
        opened = stack.enter_context(opening_log(log, hub_id, stream))
        held = stack.enter_context(lock_lake(lake.expanduser(), create=True))
        _warn_of_foreign_files(held.foreign)
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
            stats = follow_log(work, opened, stopped, interval_sec=interval, on_run=_print_step)
        else:
            with show_job_progress(spark, "ingesting"):
                stats = work.run()
            _require_found(work, stream or [])
        fields = _described(stats, held)
        _warn_of_rest(stats, held)
    print_result(fields, common.json)


def _compare(spark: "SparkSession", held: "Lake", *, checked: bool) -> None:
    """Reject a lake whose files differ from the commit; lost states are rebuilt."""
    from veen.pipeline.lake.committed_files import kept_in, require_sizes, states_in
    from veen.pipeline.lake_jobs.file_hashes import require_committed

    files = kept_in(held.state)
    require_sizes(held.root, files)
    if checked:
        with show_job_progress(spark, "comparing"):
            require_committed(spark.sparkContext, held.root, [*files, *states_in(held.root, held.state)])


def _warn_of_foreign_files(paths: list[str]) -> None:
    if paths:
        count = counted(len(paths), "foreign file")
        warn(f"the lake contains {count}, ignored; the first is {paths[0]}")


def _require_found(work: "Ingest", names: list[str]) -> None:
    """Reject the command if none of the given streams has entries; warn if some have none."""
    nothing = [name for name in names if labels.stream_id(name) in work.unknown]
    if not nothing:
        return
    text = f"no entries were found of stream {', '.join(nothing)}"
    if len(nothing) == len(names):
        raise UsageError(f"{text}; nothing was ingested")
    warn(text)


def _warn_of_rest(stats: "IngestStats", held: "Lake") -> None:
    """Warn about entries of earlier runs that were opened, and about missing keys and names."""
    if stats.bound:
        warn(f"the streams of {counted(stats.bound, 'label')} were resolved; tables were rebuilt")
    if stats.opened:
        were = by_count(stats.opened, "was", "were")
        warn(f"{counted(stats.opened, 'sealed entry')} {were} opened; states were rebuilt")
    sealed = held.state.sealed
    if sealed:
        warn(
            f"{counted(sealed, 'entry')} could not be opened; run the command again with a keyring that opens"
            f" {by_count(sealed, 'it', 'them')}"
        )
    unknown = sum(fact.stream is None for fact in held.state.labels.values())
    if unknown:
        warn(
            f"the streams of {counted(unknown, 'label')} are unknown; name them with --stream "
            "to compute states"
        )


def _print_step(stats: "IngestStats") -> None:
    if common.json:
        typer.echo(json.dumps({"entries": stats.entries, "files": stats.files}))
        sys.stdout.flush()
    else:
        warn(f"{counted(stats.entries, 'entry')} ingested")


def _described(stats: "IngestStats", held: "Lake") -> dict[str, Any]:
    return {
        "ok": True,
        "lake": str(held.root),
        "commit": held.state.number,
        "entries": stats.entries,
        "labels": len(stats.labels),
        "files": stats.files,
        "missing": stats.missing,
        "sealed": held.state.sealed,
        "states": stats.states,
    }


@command
def check_command(
    lake: LakeOption,
    engine: SparkOptions,
    log: Annotated[
        str, typer.Argument(metavar="[LOG]", help="Log that was ingested, to compare with the lake.")
    ] = "",
    keyring: KeyringOption = None,
    level: Annotated[
        str, typer.Option(help="Level of checks: full; or roots, which skips signatures.")
    ] = "full",
    hub_id: HubIdOption = "",
    stream: StreamsOption = None,
) -> None:
    """Verify a lake.

    Verifies signatures and roots of all entries, with the hub identity that the lake contains. Records, typed
    rows, rejections and states are rebuilt and compared. With --keyring, messages are opened again; without
    it, bodies are not compared with what was signed. With LOG, also verifies that the log continues the lake,
    and prints by how many entries. A lake that was reset to an earlier commit is valid for that time: only
    the log, or a newer receipt, reveals it. Exits 4, and names the first problem, if a check fails.
    """
    if level not in _CHECKS:
        raise UsageError(f"unknown level {level!r}; use one of {', '.join(_CHECKS)}")
    with engine.running("pipeline check") as spark, lake_errors_exit(), ExitStack() as stack:
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
    into: Annotated[
        Path, typer.Option(help="Directory to create. If it exists, it must be empty.", show_default=False)
    ],
    partial: Annotated[
        bool, typer.Option("--partial", help="Restore what the lake contains, even if the hub has more.")
    ] = False,
) -> None:
    """Restore a data directory from a lake.

    Restores the same log, byte by byte, without secret keys. Fails if checkpoints show that the lake does not
    contain all entries of the hub, because some were pruned or only some streams were ingested. Exits 4 if
    the lake is damaged, and then removes the directory.
    """
    with require_extra():
        from veen.pipeline.lake_jobs.restore import replay
    with lake_errors_exit(), progress("writing") as advance:
        done = replay(lake.expanduser(), into.expanduser(), advance, partial=partial)
    print_result({"ok": True, "directory": str(into), **done._asdict()}, common.json)


@command
def compact_command(lake: LakeOption, engine: SparkOptions) -> None:
    """Merge the small files of a lake.

    The rows of the tables do not change. Exits 4, and changes nothing, if a file is not the committed one.
    """
    with engine.running("pipeline compact") as spark, lake_errors_exit():
        from veen.pipeline.lake.lake import lock_lake
        from veen.pipeline.lake_jobs.compact import compact

        with lock_lake(lake.expanduser()) as held, show_job_progress(spark, "compacting"):
            done = compact(spark, held)
    print_result(
        {"ok": True, "lake": str(lake), "slices": done.slices, "before": done.before, "after": done.after},
        common.json,
    )


@command
def sql_command(
    lake: LakeOption,
    engine: SparkOptions,
    query: Annotated[
        str, typer.Argument(metavar="[QUERY]", help="SQL query. Default: an interactive prompt.")
    ] = "",
    form: Annotated[str, typer.Option("--format", help="Output format: table, jsonl or parquet.")] = "table",
    out: Annotated[
        Path | None, typer.Option(help="File to write the result to; for parquet, a directory.")
    ] = None,
    checked: CheckedFlag = False,
) -> None:
    """Query the tables of a lake in SQL.

    The tables are bronze_entries, silver_records, silver_SCHEMA and gold_OVERLAY; list them with SHOW TABLES.
    Byte strings are printed in hex; write them as X'..' in a query. In JSON, decimals are strings, as are
    NaN, infinity and intervals; a second column a is named a_2. Statements that change anything are rejected.
    Exits 4 if a file of a table in the query is missing or has another size than was committed; with
    --checked, also if its hash differs.
    """
    if form not in _FORMS:
        raise UsageError(f"unknown format {form!r}; use one of {', '.join(_FORMS)}")
    if form == "parquet" and out is None:
        raise UsageError("--format parquet requires --out DIRECTORY")
    if out is not None:
        _check_place(out, lake, has_query=bool(query))
    output_form = "jsonl" if common.json and form == "table" else form
    with engine.running("pipeline sql", oneshot=bool(query)) as spark, lake_errors_exit():
        from veen.pipeline.lake_sql.views import Views

        views = Views(spark, lake.expanduser(), checked=checked)
        if not query:
            _prompt(spark, views, output_form)
        elif out is None:
            _answer(views, query, output_form)
        else:
            target = out.expanduser()
            count = _written(views, query, output_form, target)
            print_result({"ok": True, "out": str(target), "format": output_form, "rows": count}, common.json)


def _check_place(out: Path, lake: Path, *, has_query: bool) -> None:
    """Reject a path where results would overwrite each other, or the lake."""
    if not has_query:
        raise UsageError("--out requires a QUERY")
    if out.expanduser().resolve().is_relative_to(lake.expanduser().resolve()):
        raise UsageError(f"{out} is inside the lake; choose another path")


def _written(views: "Views", query: str, form: str, target: Path) -> int:
    """Write a result to a path; return the number of rows."""
    if form != "parquet":
        return _answer(views, query, form, target)
    from veen.pipeline.lake_sql.json_rows import write_parquet

    return views.ask(query, lambda frame: write_parquet(frame, target))


def _answer(views: "Views", query: str, form: str, target: Path | None = None) -> int:
    """Print a result; return the number of rows printed."""
    count = 0
    names, rows = views.rows(query, None if form == "jsonl" else _MOST_ROWS + 1)
    with ExitStack() as stack:
        file = sys.stdout if target is None else stack.enter_context(_private(target))
        if form != "jsonl":
            listed = list(rows)
            file.writelines(f"{line}\n" for line in _table(names, listed))
            return min(len(listed), _MOST_ROWS)
        for row in rows:
            file.write(json.dumps(row, allow_nan=False) + "\n")
            count += 1
    return count


def _private(target: Path) -> TextIO:
    """Open a file to write to; a new one is readable by its owner only."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    return os.fdopen(os.open(target, flags, PRIVATE), "w", encoding="utf-8")


def _table(names: list[str], rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table."""
    listed = [[_cell(row[name]) for name in names] for row in rows]
    more = len(listed) > _MOST_ROWS
    printed = [list(map(plain, names)), *listed[:_MOST_ROWS]]
    widths = [max(len(row[nth]) for row in printed) for nth in range(len(names))]
    for row in printed:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    if more:
        yield f"... only the first {_MOST_ROWS} rows; --format jsonl prints all"


def _cell(value: object) -> str:
    if value is None:
        return "null"
    return plain(value if isinstance(value, str) else json.dumps(value))


def _prompt(spark: "SparkSession", views: "Views", form: str) -> None:
    """Prompt for queries, each ended by a semicolon."""
    from veen.pipeline.errors import LakeError
    from veen.pipeline.spark.failures import reason_of

    if sys.stdin.isatty():
        import readline  # noqa: F401 - for whoever types
    warn(f"tables: {', '.join(views.names)}; end a query with a semicolon, exit with quit")
    for query in _queries():
        try:
            _answer(views, query, form)
        except LakeError as error:
            warn(str(error))
        except Exception as error:  # errors of Spark about a query are printed
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
    """Split a text into complete queries and the rest."""
    statements, start = [], 0
    for token in _SQL_TOKEN.finditer(text):
        if token[0] == ";":
            statements.append(text[start : token.start()])
            start = token.end()
    return [query for query in statements if query.strip()], text[start:].lstrip()
