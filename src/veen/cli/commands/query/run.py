"""``veen query run``: queries without a service, over a lake."""

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veen.cli.client import ClientOptions
from veen.cli.commands.pipeline.lake import LakeOption, lake_errors_exit
from veen.cli.commands.query.ask import FileArgument, read_descriptor, rows_out, show_json
from veen.cli.commands.query.recorded import require_new
from veen.cli.commands.query.zones import Zones
from veen.cli.errors import FailedError, UsageError
from veen.cli.options import ROWS_OUT_HELP
from veen.cli.output import command, plain_json, warn
from veen.cli.settings import common
from veen.cli.spark import SparkOptions, show_job_progress
from veen.core.encoding import canonical_json
from veen.query.descriptor import (
    Descriptor,
    new_query_id,
    new_result_id,
    parse_descriptor,
)
from veen.query.errors import QueryError
from veen.stdx.grammar import by_count, counted

if TYPE_CHECKING:
    from veen.core.objects.hub_identity import HubIdentity
    from veen.pipeline.query.engine import Answer
    from veen.pipeline.query.engine import Engine as Queries
    from veen.pipeline.spark.session import SparkSession
    from veen.query_service.recorder import Sender
    from veen.query_service.store import Kind, Query


@contextmanager
def query_errors_exit() -> Iterator[None]:
    """Exit 4 if a query fails, and 1 if it is malformed."""
    try:
        yield
    except QueryError as error:
        failure = UsageError if error.status == 400 else FailedError
        raise failure(error.message, error.error_code) from None


class _Recording:
    """The events that a service records about a query, for one that runs here (QRY-001, QAL-003)."""

    def __init__(self, sender: "Sender", query: "Query") -> None:
        self._sender = sender
        self.query = query

    def send(self, kind: "Kind", **changed: Any) -> None:  # noqa: ANN401 - fields of a query
        """Record an event about the query in its present state."""
        from veen.query_service.recorder import event_of

        self.query = replace(self.query, **changed)
        self._sender.send(event_of(kind, self.query, self._sender.signer))


@contextmanager
def _recording(at: ClientOptions, descriptor: Descriptor, result_id: str, now: int) -> Iterator[_Recording]:
    from veen.query_service.recorder import Sender
    from veen.query_service.store import Query, State

    with at.open() as client:
        identity = client.session.secrets.identity.public_key.hex()
        query = Query(
            result_id=result_id,
            query_id=descriptor.query_id,
            principal=identity,
            identity=identity,
            descriptor=descriptor.encode().decode(),
            state=State.RECEIVED,
            received_at=now,
        )
        yield _Recording(Sender(client), query)


@command
def run_command(
    file: FileArgument,
    lake: LakeOption,
    at: ClientOptions,
    zones: Zones,
    engine: SparkOptions,
    unrecorded: Annotated[
        bool, typer.Option("--unrecorded", help="Do not record the query in any log.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help=ROWS_OUT_HELP, show_default=False)] = None,
) -> None:
    """Run a query over a lake, without a service.

    Request, digest and an audit record are recorded at --hub, as by a service, unless --unrecorded is given.
    """
    if (unrecorded and at.hub) or not (unrecorded or at.hub or os.environ.get("VEEN_HUB")):
        raise UsageError("give --hub and --client to record the query, or --unrecorded")
    new_id = new_query_id(os.urandom)
    with query_errors_exit():
        descriptor = parse_descriptor(read_descriptor(file), lambda: new_id)
    is_named = descriptor.query_id != new_id
    _require_place(out)
    names, origins = zones.names(), zones.origins()
    result_id, now = new_result_id(os.urandom), int(time.time())
    with engine.running("query run") as spark, lake_errors_exit(), ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="veen-query-")))
        queries = open_queries(spark, lake.expanduser(), names, origins)
        with query_errors_exit():
            recording = None
            if not unrecorded:
                if is_named:
                    require_new(queries, descriptor.query_id, directory)
                recording = stack.enter_context(_recording(at, descriptor, result_id, now))
            answer = _run(spark, queries, descriptor, result_id, directory / "rows", recording)
        _show_answer(descriptor, answer, out)


def _require_place(out: Path | None) -> None:
    """Reject a file that cannot be written, before anything is recorded."""
    if out is None:
        return
    target = out.expanduser()
    if target.is_dir() or not os.access(target if target.exists() else target.parent, os.W_OK):
        raise UsageError(f"{out} cannot be written; name a file in an existing directory")


def open_queries(
    spark: "SparkSession", lake: Path, names: Mapping[str, str], origins: Mapping[bytes, "HubIdentity"]
) -> "Queries":
    """Return the query engine of a lake, which must exist."""
    from veen.pipeline.lake.lake import load
    from veen.pipeline.query.engine import Engine as Queries

    load(lake)
    return Queries(spark, lake, names, origins)


def _run(
    spark: "SparkSession",
    queries: "Queries",
    descriptor: Descriptor,
    result_id: str,
    out: Path,
    recording: _Recording | None,
) -> "Answer":
    now = int(time.time())
    if recording is None:
        with show_job_progress(spark, "running the query"):
            return queries.run(descriptor, result_id=result_id, out=out, executed_at=now)
    from veen.query_service.recorder import recordable
    from veen.query_service.store import Kind, State

    for stream in descriptor.scope:
        if not queries.knows(stream):
            raise QueryError("forbidden_scope", f"the lake does not contain stream {stream}")
    recording.send(Kind.REQUEST)
    try:
        with show_job_progress(spark, "running the query"):
            answer = queries.run(descriptor, result_id=result_id, out=out, executed_at=now)
        text = recordable(answer.digest)
        recording.send(Kind.RESULT, state=State.COMMITTING, digest=text, ended_at=int(time.time()))
    except (Exception, KeyboardInterrupt) as error:
        code = _code_of(error)
        with suppress(Exception):  # the first error is reported
            recording.send(Kind.AUDIT, state=State.FAILED, error_code=code, ended_at=int(time.time()))
        raise
    recording.send(Kind.AUDIT, state=State.COMPLETED)
    return answer


def _code_of(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "cancelled"
    return error.error_code if isinstance(error, QueryError) else "execution_failed"


def _show_answer(descriptor: Descriptor, answer: "Answer", out: Path | None) -> None:
    digest: dict[str, Any] = answer.digest.to_json()
    rows: Any = answer.rows.count
    with rows_out(out) as sink:
        if sink is not None:
            sink.writelines(row + b"\n" for row in answer.rows.iterate())
        elif common.json:
            rows = [canonical_json.parse(row) for row in answer.rows.iterate()]
        elif not common.quiet:
            for row in answer.rows.iterate():
                typer.echo(plain_json(row))
    request = {"descriptor": descriptor.to_json()} if common.json else {}
    show_json({**request, "result_digest": digest, "rows": rows})
    _note_unread(answer.digest.unread)


def _note_unread(count: int | None) -> None:
    if count:
        warn(
            f"{counted(count, 'entry')} in scope could not be read: pruned, or ingested without the keys that"
            f" open {by_count(count, 'it', 'them')}"
        )
