"""``veen query verify``: verify the digest of a query."""

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from veen.cli.client import read_bytes
from veen.cli.commands.pipeline.lake import KeyringOption, lake_errors_exit, load_keys, opening_log
from veen.cli.commands.pipeline.verify import HubIdOption
from veen.cli.commands.query.ask import checked_id
from veen.cli.commands.query.recorded import descriptor_of, digest_of, find, parse_json, request_of
from veen.cli.commands.query.run import open_queries, query_errors_exit
from veen.cli.commands.query.zones import Zones
from veen.cli.errors import FAILED, UsageError
from veen.cli.options import LOG_HELP
from veen.cli.output import command, print_result, warn
from veen.cli.settings import common
from veen.cli.spark import SparkOptions, show_job_progress
from veen.core.encoding import canonical_json
from veen.core.encoding.canonical_json import Json
from veen.core.objects import labels
from veen.query.comparison import Comparison, Item, compare
from veen.query.descriptor import Descriptor, new_result_id
from veen.query.digest import ResultDigest, RowsHasher
from veen.query.timestamps import format_time
from veen.stdx.grammar import by_count, counted

if TYPE_CHECKING:
    from veen.pipeline.log.hub_keys import HubKeys
    from veen.pipeline.query.coverage import Coverage
    from veen.pipeline.query.engine import Answer
    from veen.pipeline.query.engine import Engine as Queries
    from veen.pipeline.spark.session import SparkSession


@command
def verify_command(
    zones: Zones,
    engine: SparkOptions,
    log: Annotated[
        str,
        typer.Argument(metavar="[LOG]", help=LOG_HELP, show_default=False),
    ] = "",
    lake: Annotated[
        Path | None,
        typer.Option(
            help="Directory of a lake that contains the events, instead of LOG.", show_default=False
        ),
    ] = None,
    keyring: KeyringOption = None,
    hub_id: HubIdOption = "",
    descriptor: Annotated[
        Path | None, typer.Option(help="File of the descriptor, in normal form (JSON).", show_default=False)
    ] = None,
    digest: Annotated[
        Path | None, typer.Option(help="File of the digest (JSON).", show_default=False)
    ] = None,
    result_id: Annotated[
        str, typer.Option(help="Result whose descriptor and digest are read from the lake.")
    ] = "",
    rows: Annotated[
        Path | None,
        typer.Option(help="File of rows to compare as well, one per line.", show_default=False),
    ] = None,
) -> None:
    """Verify the digest of a query.

    Runs the query again over a lake or a log, up to the entries at the time of the digest, and prints what
    differs. Exits 4 if something differs.
    """
    if bool(log) == (lake is not None):
        raise UsageError("give either LOG or --lake")
    if bool(result_id) == (descriptor is not None and digest is not None) or (result_id and lake is None):
        raise UsageError("give --descriptor and --digest, or --result-id and --lake")
    query = None if descriptor is None else _read_descriptor(descriptor)
    answered = None if digest is None else _read_digest(digest)
    given_rows = None if rows is None else _read_rows(rows)
    names, origins = zones.names(), zones.origins()
    with engine.running("query verify") as spark, lake_errors_exit(), ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="veen-verify-")))
        if lake is None:
            assert query is not None, "a log comes with files"
            keys = _ingest(spark, directory / "lake", _Source(log, keyring, hub_id), query.scope, names)
            queries = replace(open_queries(spark, directory / "lake", names, origins), keys=lambda: keys)
        else:
            queries = open_queries(spark, lake.expanduser(), names, origins)
        with query_errors_exit():
            if query is None or answered is None:
                query, answered = find(queries, checked_id(result_id), directory)
            request = request_of(queries, answered.result_id, directory)
            with show_job_progress(spark, "running the query"):
                rerun = queries.run(
                    query,
                    result_id=new_result_id(os.urandom),
                    out=directory / "rows",
                    executed_at=int(time.time()),
                    replay_of=answered,
                )
            stands = _standing(queries, query, answered)
    comparison = Comparison(
        (*compare(request, answered, query, rerun.digest).items, *_standing_items(stands, answered, rerun))
    )
    if given_rows is not None:
        comparison = _with_rows(comparison, answered, given_rows)
    _show_comparison(comparison, answered, _notes(stands, rerun.digest))


class _Source(NamedTuple):
    """A log, and the options it is read with."""

    log: str
    keyring: Path | None
    hub_id: str


def _ingest(
    spark: "SparkSession", lake: Path, source: _Source, scope: Sequence[str], names: Mapping[str, str]
) -> "HubKeys":
    """Ingest the streams in scope, under their names in this log, into a new lake; return its keys."""
    from veen.pipeline.lake.lake import lock_lake
    from veen.pipeline.lake_jobs.ingest import Ingest
    from veen.pipeline.query.scope import local_names
    from veen.pipeline.shared_keys import sharing

    keys = load_keys(source.keyring)
    local = [choice for name in scope for choice in local_names(name, names)]
    with ExitStack() as stack:
        opened = stack.enter_context(opening_log(source.log, source.hub_id, local))
        held = stack.enter_context(lock_lake(lake, create=True))
        shared = None if keys is None else stack.enter_context(sharing(spark, keys))
        streams = [labels.stream_id(name) for name in local]
        work = Ingest(spark, held, opened, keyring=keys, shared=shared, overlays=None, streams=streams)
        with show_job_progress(spark, "ingesting"):
            work.run()
        return opened.keys


def _read_descriptor(path: Path) -> Descriptor:
    return descriptor_of(read_bytes(path), str(path))


def _read_digest(path: Path) -> ResultDigest:
    return digest_of(read_bytes(path), str(path))


def _read_rows(path: Path) -> RowsHasher:
    hasher = RowsHasher()
    for nth, line in enumerate(read_bytes(path).splitlines(), 1):
        hasher.add(canonical_json.encode(parse_json(line, f"line {nth} of {path}")))
    return hasher


def _standing(queries: "Queries", descriptor: Descriptor, answered: ResultDigest) -> "Coverage":
    """Return what a digest does not cover of the log."""
    from veen.pipeline.lake.lake import load
    from veen.pipeline.query.coverage import standing

    state = load(queries.root)
    return standing(
        queries.root, state, descriptor.scope, answered, called=queries.names, origins=queries.origins
    )


def _standing_items(stands: "Coverage", answered: ResultDigest, rerun: "Answer") -> Iterator[Item]:
    """Yield the claims of a digest that the log does not confirm."""
    from veen.pipeline.query.coverage import SKEW_SEC

    passed: list[Json] = [fact.label for fact in stands.left_out]
    yield Item("left_out", not passed, [], passed)
    if answered.executed_at + SKEW_SEC < stands.newest:
        yield Item("executed_at", False, format_time(answered.executed_at), format_time(stands.newest))
    if not stands.is_elsewhere:
        yield Item("hub_id", answered.hub_id == rerun.digest.hub_id, answered.hub_id, rerun.digest.hub_id)


def _notes(stands: "Coverage", digest: ResultDigest) -> list[str]:
    """Return notes that are not differences."""
    notes = []
    if digest.unread:
        notes.append(f"{counted(digest.unread, 'entry')} in scope could not be read here")
    if stands.behind:
        notes.append(
            f"when the query ran, {counted(stands.behind, 'entry')} at the end of the log "
            f"{by_count(stands.behind, 'was', 'were')} not covered by the digest"
        )
    notes += [
        f"entry {item.upto_seq} of {item.stream} is not available here, so its root was not compared"
        for item in stands.unchecked
    ]
    return notes


def _with_rows(comparison: Comparison, answered: ResultDigest, rows_given: RowsHasher) -> Comparison:
    """Add the comparison of given rows with the digest."""
    rows = Item("rows", rows_given.rows_hash == answered.rows_hash, answered.rows_hash, rows_given.rows_hash)
    return Comparison((*comparison.items, rows))


def _show_comparison(comparison: Comparison, answered: ResultDigest, notes: list[str]) -> None:
    names = {"query_id": answered.query_id, "result_id": answered.result_id}
    if common.json:
        form = {"ok": comparison.equal, **names, **comparison.to_json(), "notes": list[Json](notes)}
        typer.echo(canonical_json.encode(form).decode())
    else:
        verdicts = {
            item.name: "equal" if item.equal else f"differs: {item.a} and {item.b}"
            for item in comparison.items
        }
        print_result({"ok": comparison.equal, "result_id": answered.result_id, **verdicts}, as_json=False)
        for text in notes:
            warn(text)
        if any(item.name == "unread" for item in comparison.items if not item.equal):
            warn(
                "give the keys that open the entries in scope with --keyring DIR, or a lake that was "
                "ingested with them"
            )
    if not comparison.equal:
        raise typer.Exit(FAILED)
