"""Steps about queries: digests, pages, valid and invalid evidence, and the same answer in two zones."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from veen.client.client import Client
from veen.client.fold.interpret import typed
from veen.client.home.pins import read_facts
from veen.client.models import Sent
from veen.client.send import send_drafts
from veen.client.transport.http import HttpRequest
from veen.core.crypto.hash import sha256
from veen.core.crypto.hpke import public_key
from veen.core.encoding import canonical_json
from veen.core.types import ReaderSecretKey
from veen.overlays.operations.schemas import QUERY
from veen.overlays.recorder.schemas import EVENT, IMPORTED
from veen.query.descriptor import Mode
from veen.query.digest import NONE_HASH, EvidenceHasher, RowsHasher, sampled
from veen.recorder.event import RECORDING, event_draft
from veen.selftest.context import STATUS, Context
from veen.selftest.errors import StepFailedError
from veen.selftest.servers import CONFIGS, Server, TempHub, veen
from veen.selftest.step import Needs, check, equal, poll, step

STREAM: Final = "record/selftest/logins"
_REQUESTS, _RESULTS = "record/query/requests", "record/query/results"
# The stream on which the service records who queried what.
AUDIT: Final = "record/query/audit/service"
_EVENTS: Final = 90
_LOGIN, _LOGOUT = "login", "logout"
_FIELDS: Final = ["subject_id", "event_time", "hub_commit_time", "payload.n", "receipt_id"]
# Spark is slow to start.
SPARK_SEC: Final = 180.0
_FIRST_TIME: Final = 1_700_000_000


class TempService(Server):
    """``veen query serve`` on a port that the system chooses."""

    what = "the query service"
    patience_sec = SPARK_SEC

    def close(self) -> None:
        """Stop it as an operator does: Spark's own processes must end with it."""
        with contextlib.suppress(StepFailedError):
            if self.is_alive:
                self.stop()
        self.kill()


def event_fields(number: int) -> dict[str, Any]:
    """Return the fields of an event, except its principal."""
    return {
        "subject_id": f"user-{number % 7}",
        "event_type": _LOGIN if number % 3 else _LOGOUT,
        "event_time": _FIRST_TIME + number,
        "origin": "selftest",
        "payload": {"n": number},
    }


@dataclass(frozen=True, slots=True)
class Desk:
    """A query service, and the events that it answers from."""

    hub: TempHub
    hub_id: bytes
    service: TempService
    # The client of the service: it records, and events are sealed to it.
    home: Path
    lake: Path
    token: str
    # The events, as the hub has accepted them.
    sent: Sequence[Sent]

    def logins(self) -> list[tuple[int, Sent]]:
        """Return the events that the queries here select, with their numbers."""
        return [pair for pair in enumerate(self.sent) if event_fields(pair[0])["event_type"] == _LOGIN]

    def ask(self, ctx: Context, method: str, path: str, body: Any = None) -> Any:  # noqa: ANN401 - JSON
        """Send a request to the service; fail if it is rejected."""
        data = None if body is None else canonical_json.encode(body)
        headers = {"authorization": f"Bearer {self.token}"}
        kind = "" if data is None else "application/json"
        message = HttpRequest(method, f"/api/query/{path}", data, kind, headers)
        reply = ctx.http(self.service.url).exchange(message)
        check(reply.status in (200, 202), f"{method} {path}: {reply.status} {reply.body[:200]!r}")
        return canonical_json.parse(reply.body)

    def submit(self, ctx: Context, **more: Any) -> str:  # noqa: ANN401 - JSON
        """Query all logins; return the id of the result."""
        descriptor = {"scope": [STREAM], "filter": {"event_type": [_LOGIN]}, "projection": _FIELDS, **more}
        return str(self.ask(ctx, "POST", "submit", descriptor)["result_id"])

    def ended(self, ctx: Context, result_id: str) -> dict[str, Any]:
        """Wait for the end of a query; return its status."""
        status: dict[str, Any] = {}

        def is_over() -> bool:
            status.update(self.ask(ctx, "GET", f"status/{result_id}"))
            return status["status"] in ("completed", "failed")

        poll(is_over, f"the end of query {result_id}", SPARK_SEC)
        return status

    def complete(self, ctx: Context, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Query, and return the whole answer."""
        result_id = self.submit(ctx, **more)
        end = self.ended(ctx, result_id)
        equal(end["status"], "completed", f"the end of a query ({end['message']})")
        return self.page(ctx, result_id, 0, 10_000)

    def page(self, ctx: Context, result_id: str, offset: int, limit: int) -> dict[str, Any]:
        """Return some rows of an answer, and its digest."""
        path = f"result/{result_id}?offset={offset}&limit={limit}"
        page: dict[str, Any] = self.ask(ctx, "GET", path)
        return page

    def reader(self, ctx: Context) -> Client:
        """Open the log with the keys of the service."""
        return ctx.client(self.home, self.hub.url)


def rows_hash(rows: Sequence[Any]) -> str:
    """Hash rows, as any receiver can."""
    hasher = RowsHasher()
    hasher.extend(map(canonical_json.encode, rows))
    return hasher.rows_hash


def recorded(client: Client, stream: str, result_id: str) -> Iterator[dict[str, Any]]:
    """Yield the events about a result in a stream of the service."""
    for message in client.read(stream):
        body = EVENT.decode(message.raw_body())
        if (body.get("metadata") or {}).get("result_id") == result_id:
            yield body


def requests(client: Client, result_id: str) -> list[str]:
    """Return the descriptors of a result in the log."""
    return [body["payload"] for body in recorded(client, _REQUESTS, result_id)]


def digests(client: Client, result_id: str) -> list[str]:
    """Return the digests of a result in the log."""
    return [body["payload"] for body in recorded(client, _RESULTS, result_id)]


def make_desk(ctx: Context) -> Desk:
    """Record events, and start a service that ingests them."""
    hub = ctx.hubs.fresh(CONFIGS[Needs.OPEN])
    home, root = ctx.home(), ctx.scratch / "query"
    auditor = ctx.client(home, hub.url)
    reader = public_key(ReaderSecretKey(auditor.session.secrets.id_dh))
    hub_id = read_facts(ctx.http(hub.url).answer(STATUS)).identity.hub_id
    drafts = [event_draft(**event_fields(number)) for number in range(_EVENTS)]
    options = replace(RECORDING, to=reader)
    sent = list(send_drafts(ctx.client(hub=hub.url), STREAM, drafts, options))
    root.mkdir()
    policy = ("--policy", root / "policy.toml")
    granted = veen(
        ctx.scratch, "query", "grant", "selftest", *policy, "--scope", "record/selftest/*", "--json"
    )
    equal(granted.returncode, 0, f"exit code of query grant ({granted.stderr})")
    words = (
        *("query", "serve", "--json", "--listen", "127.0.0.1:0", *policy, "--stream", STREAM),
        *("--hub", hub.url, "--log", hub.place, "--client", home, "--keyring", home),
        *("--lake", root / "lake", "--state", root / "state"),
    )
    service = TempService(ctx.scratch, "query-service", [*ctx.hubs.command, *map(str, words)])
    ctx.hubs.start(service)
    return Desk(hub, hub_id, service, home, root / "lake", json.loads(granted.stdout)["token"], sent)


_OWN: Final = "it starts a query service over the files of a hub, so it needs its own hub"
_FULL: Final = {"mode": "full"}
_RATE: Final = Decimal("0.4")
_PAGES: Final = (1, 7, 2, 13, 1000)
_COPIES: Final = "import/selftest/logins"


@step(Needs.NONE, own=_OWN)
def query_digest(ctx: Context) -> str:
    """An answer is what was recorded; request, digest and an audit record of it are in the log."""
    desk = ctx.once(make_desk)
    page = desk.complete(ctx)
    digest, rows = page["result_digest"], page["rows"]
    seen = [(row["subject_id"], row["payload.n"], row["receipt_id"]) for row in rows]
    expected = [
        (event_fields(number)["subject_id"], number, sha256(sent.receipt.encode()).hex())
        for number, sent in desk.logins()
    ]
    equal(seen, expected, "the rows of the answer")
    equal((digest["row_count"], digest["rows_hash"]), (len(rows), rows_hash(rows)), "row_count and rows_hash")
    equal(digest["evidence_hash"], NONE_HASH, "evidence_hash of an answer without evidence")
    descriptor = desk.ask(ctx, "GET", f"descriptor/{digest['query_id']}")["descriptor"]
    reader, result_id = desk.reader(ctx), digest["result_id"]
    equal(requests(reader, result_id), [canonical_json.encode(descriptor).decode()], "the request in the log")
    equal(digests(reader, result_id), [canonical_json.encode(digest).decode()], "the digest in the log")
    poll(lambda: _audits(reader, result_id), "an audit record of the query")
    audited = [("completed", bytes.fromhex(digest["rows_hash"]))]
    equal(_audits(reader, result_id), audited, "audit records of the query")
    return f"{len(rows)} rows, with the same hash here"


def _audits(reader: Client, result_id: str) -> list[tuple[str, bytes | None]]:
    """Return what audit records state about a result: its status, and the hash of its rows."""
    bodies = [QUERY.decode(message.raw_body()) for message in reader.read(AUDIT)]
    return [
        (body["metadata"]["status"], body.get("result_digest"))
        for body in bodies
        if body["metadata"]["result_id"] == result_id
    ]


@step(Needs.NONE, own=_OWN)
def query_pages(ctx: Context) -> str:
    """Pages of any size together are the rows that the digest covers."""
    desk = ctx.once(make_desk)
    whole = desk.complete(ctx)
    digest = whole["result_digest"]
    rows: list[Any] = []
    sizes = iter(_PAGES)
    at: int | None = 0
    while at is not None:
        equal(at, len(rows), "where the next page begins")
        part = desk.page(ctx, digest["result_id"], at, next(sizes))
        equal(part["result_digest"], digest, "the digest of a page")
        rows += part["rows"]
        at = part["page"]["next_offset"]
    equal(rows, whole["rows"], "rows of the pages")
    equal(rows_hash(rows), digest["rows_hash"], "the hash of the pages")
    equal(desk.page(ctx, digest["result_id"], len(rows), 5)["rows"], [], "rows after the last")
    return f"{len(rows)} rows in {len(_PAGES)} pages"


@step(Needs.NONE, own=_OWN)
def query_evidence(ctx: Context) -> str:
    """Evidence, for some rows or for all, consists of the hub's receipts for the events."""
    desk = ctx.once(make_desk)
    events = [sent for _, sent in desk.logins()]
    full = desk.complete(ctx, evidence=_FULL)["result_digest"]
    spot = desk.complete(ctx, evidence={"mode": "spot", "sample_rate": _RATE})["result_digest"]
    some = [events[at] for at in sampled(spot["query_id"], range(len(events)), _RATE)]
    check(0 < len(some) < len(events), "the sample is empty or has all events")
    equal(full["rows_hash"], spot["rows_hash"], "rows_hash of the same rows")
    for digest, mode, rate, verified in ((full, Mode.FULL, None, events), (spot, Mode.SPOT, _RATE, some)):
        hasher = EvidenceHasher(digest["query_id"], digest["result_id"], mode, rate)
        for item in verified:
            receipt = item.receipt
            hasher.add(sha256(receipt.encode()), receipt.mmr_root, desk.hub_id)
        equal(digest["evidence_hash"], hasher.evidence_hash, f"evidence_hash of mode {mode}")
    return f"{len(events)} events verified, then {len(some)}"


@step(Needs.NONE, own=_OWN)
def query_damage(ctx: Context) -> str:
    """If an entry behind an answer is damaged, the query fails and no digest is recorded."""
    desk = ctx.once(make_desk)
    desk.complete(ctx, evidence=_FULL)
    with _damaged((desk.lake / "bronze" / "entries").rglob("*.parquet")):
        result_id = desk.submit(ctx, evidence=_FULL)
        end = desk.ended(ctx, result_id)
    equal((end["status"], end["error_code"]), ("failed", "execution_failed"), "the end of the query")
    check("evidence" in end["message"], f"it failed for another reason: {end['message']}")
    reader = desk.reader(ctx)
    poll(lambda: _audits(reader, result_id), "an audit record of the query")
    equal(_audits(reader, result_id), [("failed", None)], "audit records of the query")
    equal(digests(reader, result_id), [], "digests in the log of a query that has failed")
    desk.complete(ctx, evidence=_FULL)
    return "a query failed while one bit was wrong, and one completed before and after"


@contextmanager
def _damaged(files: Iterable[Path]) -> Iterator[None]:
    """Within the block, files have one bit changed in the middle."""
    before = {path: path.read_bytes() for path in files}
    check(before, "the lake has no entries")
    for path, data in before.items():
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    try:
        yield
    finally:
        for path, data in before.items():
            path.write_bytes(data)


@step(Needs.NONE, own=_OWN)
def query_elsewhere(ctx: Context) -> str:
    """Another zone, which has only copies of the events, gives the same answer and evidence."""
    desk = ctx.once(make_desk)
    page = desk.complete(ctx, evidence=_FULL)
    descriptor = desk.ask(ctx, "GET", f"descriptor/{page['result_digest']['query_id']}")
    files = {"descriptor": descriptor, "digest": page}
    for name, value in files.items():
        (ctx.scratch / f"query-{name}.json").write_bytes(canonical_json.encode(value))
    there, home = ctx.hubs.fresh(CONFIGS[Needs.OPEN]), ctx.home()
    copies = [typed(IMPORTED, _copy(desk, number, sent)) for number, sent in enumerate(desk.sent)]
    # Bridges do not preserve the order.
    ctx.random.shuffle(copies)
    sent = send_drafts(ctx.client(home, there.url), _COPIES, copies, RECORDING)
    equal(len(list(sent)), len(copies), "copies")
    # The other zone cannot reach the origin: it has a set of its files.
    origin = ctx.scratch / "query-origin"
    exported = veen(ctx.scratch, "export", "--hub", desk.hub.url, "--stream", STREAM, "--out", origin)
    equal(exported.returncode, 0, f"exit code of export ({exported.stderr})")
    done = veen(
        ctx.scratch,
        *("query", "verify", there.place, "--keyring", home, "--json"),
        *("--origin", origin, "--map", f"{STREAM}={_COPIES}"),
        *(word for name in files for word in (f"--{name}", ctx.scratch / f"query-{name}.json")),
        command=ctx.hubs.command,
        timeout=SPARK_SEC,
    )
    check(done.returncode in (0, 4) and done.stdout, f"query verify: {done.stderr[-300:]}")
    report = json.loads(done.stdout)
    check("items" in report, f"query verify: {report.get('detail')}")
    items = report["items"]
    equal([name for name, item in items.items() if not item["equal"]], [], "differences in the other zone")
    check({"row_count", "rows_hash", "evidence_hash"} <= set(items), "not all of the digest was compared")
    return f"{page['result_digest']['row_count']} rows, from copies"


def _copy(desk: Desk, number: int, sent: Sent) -> dict[str, Any]:
    """Return the copy of an event, as a bridge creates it (AGB-015)."""
    return IMPORTED.make(
        **event_fields(number),
        principal_id=sent.msg.client_id.hex(),
        origin_stream=STREAM,
        origin_epoch=sent.epoch,
        origin_stream_seq=sent.receipt.stream_seq,
        origin_hub_id=desk.hub_id,
        origin_receipt=sent.receipt.encode(),
        import_time=event_fields(number)["event_time"] + 1,
        bridge_id="selftest",
    )


STEPS: Final = (query_digest, query_pages, query_evidence, query_damage, query_elsewhere)
