"""``veen query run`` and ``veen query verify``: queries without a service, over a lake or a log."""

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from veen.cli.errors import MALFORMED, REFUSED, USAGE, CommandError
from veen.cli.pipeline_lake import KeyringOption, LakeOption, load_keys, opening_log, telling
from veen.cli.pipeline_progress import following
from veen.cli.pipeline_verify import HubIdOption
from veen.cli.pipelining import Engine
from veen.cli.printing import plain_json, reporting, show
from veen.cli.query_asking import FileArgument, checked_id, read_descriptor, rows_out, show_json
from veen.cli.query_zones import Zones
from veen.cli.settings import common
from veen.cli.using import At, read_bytes
from veen.core import canonical_json, labels
from veen.core.canonical_json import Json
from veen.core.errors import ProtocolError
from veen.query.comparing import Comparison, Item, compare
from veen.query.descriptor import (
    Descriptor,
    from_json,
    new_query_id,
    new_result_id,
    normalize,
    parse_descriptor,
)
from veen.query.digest import ResultDigest, RowsHasher
from veen.query.errors import QueryError

if TYPE_CHECKING:
    from veen.core.identity import HubIdentity
    from veen.pipeline.query.engine import Answer
    from veen.pipeline.query.engine import Engine as Queries
    from veen.pipeline.session import SparkSession
    from veen.pipeline.signers import HubKeys
    from veen.service.recording import Sender
    from veen.service.store import Kind, Query


#: Where requests and digests are recorded, and by which type of event (QRY-026, QRY-037).
_REQUESTED: Final = ("record/query/requests", "query.submitted")
_ANSWERED: Final = ("record/query/results", "query.result")


@contextmanager
def _failing() -> Iterator[None]:
    """End a command with 4 where a query fails, and with 1 where it is none."""
    try:
        yield
    except QueryError as error:
        known = error.status == 400
        raise CommandError(error.message, USAGE if known else REFUSED, error.error_code) from None


# --- run ----------------------------------------------------------------------------------------------------


class _Recording:
    """What a service records of a query, for one that is run here (QRY-001, QAL-003)."""

    def __init__(self, sender: "Sender", query: "Query") -> None:
        self._sender = sender
        self.query = query

    def send(self, kind: "Kind", **changed: Any) -> None:  # noqa: ANN401 - fields of a query
        """Record something, of the query as it is now."""
        from veen.service.events import event_of  # noqa: PLC0415 - needs the extra of a hub

        self.query = replace(self.query, **changed)
        self._sender.send(event_of(kind, self.query, self._sender.signer))


def _recording(at: At, descriptor: Descriptor, result_id: str, now: int) -> _Recording:
    from veen.service.recording import Sender  # noqa: PLC0415 - needs the extra of a hub
    from veen.service.store import Query, State  # noqa: PLC0415

    client = at.open()
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
    return _Recording(Sender(client), query)


@reporting
def run_command(
    file: FileArgument,
    lake: LakeOption,
    at: At,
    zones: Zones,
    engine: Engine,
    unrecorded: Annotated[
        bool, typer.Option("--unrecorded", help="Leave no trace of the query in any log.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write rows to this file, one in each line.", show_default=False)
    ] = None,
) -> None:
    """Run a query over a lake, here. Request, digest and an audit record go to --hub, as a service does it.

    With --unrecorded nothing does.
    """
    if (unrecorded and at.hub) or not (unrecorded or at.hub or os.environ.get("VEEN_HUB")):
        raise CommandError(
            "give --hub and --client to record the query, or --unrecorded to do without", USAGE
        )
    with _failing():
        descriptor = parse_descriptor(read_descriptor(file), lambda: new_query_id(os.urandom))
    names, origins = zones.names(), zones.origins()
    result_id, now = new_result_id(os.urandom), int(time.time())
    with engine.running("query run") as spark, telling(), ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="veen-query-")))
        queries = _queries(spark, lake.expanduser(), names, origins)
        recording = None if unrecorded else _recording(at, descriptor, result_id, now)
        with _failing():
            answer = _run(spark, queries, descriptor, result_id, place / "rows", recording)
        _show_answer(answer, out)


def _queries(
    spark: "SparkSession", lake: Path, names: Mapping[str, str], origins: Mapping[bytes, "HubIdentity"]
) -> "Queries":
    from veen.pipeline.lake.holding import load  # noqa: PLC0415 - an extra, and slow to import
    from veen.pipeline.query.engine import Engine as Queries  # noqa: PLC0415

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
        with following(spark, "asking"):
            return queries.run(descriptor, result_id=result_id, out=out, executed_at=now)
    from veen.service.events import recordable  # noqa: PLC0415 - needs the extra of a hub
    from veen.service.store import Kind, State  # noqa: PLC0415

    for stream in descriptor.scope:
        if not queries.knows(stream):
            raise QueryError("forbidden_scope", f"there is no stream {stream} in the lake")
    recording.send(Kind.REQUEST)
    try:
        with following(spark, "asking"):
            answer = queries.run(descriptor, result_id=result_id, out=out, executed_at=now)
        text = recordable(answer.digest)
    except (Exception, KeyboardInterrupt) as error:
        code = _code_of(error)
        recording.send(Kind.AUDIT, state=State.FAILED, error_code=code, ended_at=int(time.time()))
        raise
    recording.send(Kind.RESULT, state=State.COMMITTING, digest=text, ended_at=int(time.time()))
    recording.send(Kind.AUDIT, state=State.COMPLETED)
    return answer


def _code_of(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "cancelled"
    return error.error_code if isinstance(error, QueryError) else "execution_failed"


def _show_answer(answer: "Answer", out: Path | None) -> None:
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
    show_json({"result_digest": digest, "rows": rows})


# --- verify -------------------------------------------------------------------------------------------------


@reporting
def verify_command(
    zones: Zones,
    engine: Engine,
    log: Annotated[
        str,
        typer.Argument(
            metavar="[LOG]", help="A data directory, an exported set, or a URL.", show_default=False
        ),
    ] = "",
    lake: Annotated[Path | None, typer.Option(help="A lake that has the events.", show_default=False)] = None,
    keyring: KeyringOption = None,
    hub_id: HubIdOption = "",
    descriptor: Annotated[
        Path | None, typer.Option(help="What was asked: JSON, in its normal form.", show_default=False)
    ] = None,
    digest: Annotated[
        Path | None, typer.Option(help="What was answered: the digest, JSON.", show_default=False)
    ] = None,
    result_id: Annotated[
        str, typer.Option(help="Take both from the lake, which has record/query/requests and results.")
    ] = "",
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Rows that somebody has got, one in each line: compare them too.", show_default=False
        ),
    ] = None,
) -> None:
    """Compute the digest of an answer again, from a lake or a log, and say equal or what differs.

    The log counts as far as it went when the query was answered. Ends with 0 if all is equal, with 4 if not.
    """
    if bool(log) == (lake is not None):
        raise CommandError("give a LOG or --lake, one of them", USAGE)
    if bool(result_id) == (descriptor is not None and digest is not None) or (result_id and lake is None):
        raise CommandError("give --descriptor and --digest, or --result-id and --lake", USAGE)
    asked = None if descriptor is None else _read_descriptor(descriptor)
    answered = None if digest is None else _read_digest(digest)
    given = None if rows is None else _read_rows(rows)
    names, origins = zones.names(), zones.origins()
    with engine.running("query verify") as spark, telling(), ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="veen-verify-")))
        if lake is None:
            assert asked is not None, "a log comes with files"
            keys = _take_in(spark, place / "lake", _Source(log, keyring, hub_id), asked.scope, names)
            queries = replace(_queries(spark, place / "lake", names, origins), keys=lambda: keys)
        else:
            queries = _queries(spark, lake.expanduser(), names, origins)
        with _failing():
            if asked is None or answered is None:
                asked, answered = _find(queries, checked_id(result_id), place)
            request = _request_of(queries, asked, answered.result_id, place)
            with following(spark, "asking again"):
                again = queries.run(
                    asked,
                    result_id=new_result_id(os.urandom),
                    out=place / "rows",
                    executed_at=int(time.time()),
                    replay_of=answered,
                )
            found = _with_left_out(compare(request, answered, asked, again.digest), queries, asked, answered)
    if given is not None:
        found = _with_rows(found, answered, given)
    _show_comparison(found, answered)


class _Source(NamedTuple):
    """A log, and what it is read with."""

    log: str
    keyring: Path | None
    hub_id: str


def _take_in(
    spark: "SparkSession", place: Path, source: _Source, scope: Sequence[str], names: Mapping[str, str]
) -> "HubKeys":
    """Make a lake of the streams in scope alone, whatever they are called in this log; return its keys."""
    from veen.pipeline.keyring import sharing  # noqa: PLC0415 - an extra, and slow to import
    from veen.pipeline.lake.holding import holding  # noqa: PLC0415
    from veen.pipeline.lake.ingesting import Ingest  # noqa: PLC0415
    from veen.pipeline.query.scope import local_names  # noqa: PLC0415

    keys = load_keys(source.keyring)
    local = [choice for name in scope for choice in local_names(name, names)]
    with ExitStack() as stack:
        opened = stack.enter_context(opening_log(source.log, source.hub_id, local))
        held = stack.enter_context(holding(place, create=True))
        shared = None if keys is None else stack.enter_context(sharing(spark, keys))
        streams = [labels.stream_id(name) for name in local]
        work = Ingest(spark, held, opened, keyring=keys, shared=shared, overlays=None, streams=streams)
        with following(spark, "taking in"):
            work.run()
        return opened.keys


def _find(queries: "Queries", result_id: str, place: Path) -> tuple[Descriptor, ResultDigest]:
    """Return descriptor and digest of a result, as they are recorded."""
    texts: list[str] = []
    for stream, event_type in (_REQUESTED, _ANSWERED):
        found = _recorded(queries, stream, event_type, result_id, place)
        if len(found) != 1:
            raise CommandError(f"the lake has {len(found)} events {event_type} of {result_id}", REFUSED)
        texts += found
    digest = _digest_of(texts[1].encode(), result_id)
    if digest.result_id != result_id:
        raise CommandError(f"the digest that is recorded for {result_id} is of {digest.result_id}", REFUSED)
    return _descriptor_of(texts[0].encode(), result_id), digest


def _recorded(queries: "Queries", stream: str, event_type: str, result_id: str, place: Path) -> list[str]:
    """Return what a stream of the lake has recorded of a result."""
    asked = normalize(
        {
            "scope": [stream],
            "filter": {"event_type": [event_type]},
            "projection": ["metadata.result_id", "payload"],
        },
        lambda: new_query_id(os.urandom),
    )
    answer = queries.run(
        asked, result_id=asked.query_id, out=place / asked.query_id, executed_at=int(time.time())
    )
    rows: Iterator[Any] = (json.loads(row) for row in answer.rows.iterate())
    return [str(row["payload"]) for row in rows if row["metadata.result_id"] == result_id]


def _request_of(queries: "Queries", asked: Descriptor, result_id: str, place: Path) -> Descriptor | None:
    """Return what was asked for a result as it is recorded; None if the lake does not have it."""
    stream, event_type = _REQUESTED
    if not queries.knows(stream):
        return None
    texts = _recorded(queries, stream, event_type, result_id, place)
    found = [_descriptor_of(text.encode(), result_id) for text in texts]
    # Anybody may have written others beside it.
    return next((item for item in found if item.encode() == asked.encode()), found[0] if found else None)


def _read_descriptor(path: Path) -> Descriptor:
    return _descriptor_of(read_bytes(path), str(path))


def _descriptor_of(data: bytes, name: str) -> Descriptor:
    found = _parse(data, name)
    if isinstance(found, dict) and "descriptor" in found:  # as the service gives it
        found = found["descriptor"]
    try:
        return from_json(found)
    except QueryError as error:
        raise CommandError(f"{name}: {error.message}", MALFORMED) from None


def _read_digest(path: Path) -> ResultDigest:
    return _digest_of(read_bytes(path), str(path))


def _digest_of(data: bytes, name: str) -> ResultDigest:
    found = _parse(data, name)
    if isinstance(found, dict) and "result_digest" in found:  # as the service gives it
        found = found["result_digest"]
    try:
        return ResultDigest.from_json(found)
    except ProtocolError as error:
        raise CommandError(f"{name}: {error.message}", MALFORMED) from None


def _parse(data: bytes, name: str) -> Json:
    try:
        return canonical_json.parse(data)
    except ProtocolError as error:
        raise CommandError(f"{name} is not JSON: {error.message}", MALFORMED) from None


def _read_rows(path: Path) -> RowsHasher:
    hasher = RowsHasher()
    for nth, line in enumerate(read_bytes(path).splitlines(), 1):
        hasher.add(canonical_json.encode(_parse(line, f"line {nth} of {path}")))
    return hasher


def _with_left_out(
    found: Comparison, queries: "Queries", asked: Descriptor, answered: ResultDigest
) -> Comparison:
    """Add which labels had entries when the query was answered, and are not in the answer."""
    from veen.pipeline.lake.holding import load  # noqa: PLC0415 - an extra, and slow to import
    from veen.pipeline.query.scope import left_out  # noqa: PLC0415

    passed = left_out(load(queries.root), asked.scope, called=queries.names, digest=answered)
    labels_passed: list[Json] = [fact.label for fact in passed]
    return Comparison((*found.items, Item("left_out", not passed, [], labels_passed)))


def _with_rows(found: Comparison, answered: ResultDigest, given: RowsHasher) -> Comparison:
    """Add what rows that somebody has got are, beside those that were answered."""
    rows = Item("rows", given.rows_hash == answered.rows_hash, answered.rows_hash, given.rows_hash)
    return Comparison((*found.items, rows))


def _show_comparison(found: Comparison, answered: ResultDigest) -> None:
    names = {"query_id": answered.query_id, "result_id": answered.result_id}
    if common.json:
        form = {"ok": found.equal, **names, **found.to_json()}
        typer.echo(canonical_json.encode(form).decode())
    else:
        told = {
            item.name: "equal" if item.equal else f"differs: {item.a} and {item.b}" for item in found.items
        }
        show({"ok": found.equal, "result_id": answered.result_id, **told}, as_json=False)
    if not found.equal:
        raise typer.Exit(REFUSED)
