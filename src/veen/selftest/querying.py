"""Steps about queries: digests, pages, evidence, evidence that fails, and the same answer in another zone."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from veen.client.client import Client
from veen.client.interpreting import typed
from veen.client.sending import Sent
from veen.core import canonical_json
from veen.core.hashing import h
from veen.overlays.operation_schemas import QUERY
from veen.overlays.recorder_schemas import IMPORTED
from veen.query.descriptor import Mode
from veen.query.digest import NONE_HASH, EvidenceHasher
from veen.query.sampling import sampled
from veen.recorder.emitting import RECORDING
from veen.selftest.context import Context
from veen.selftest.hubs import CONFIGS, veen
from veen.selftest.query_desk import (
    AUDIT,
    SPARK_SEC,
    STREAM,
    Desk,
    digests,
    make_desk,
    requests,
    rows_hash,
    said,
)
from veen.selftest.steps import Needs, check, equal, poll, step

_OWN: Final = "it starts a query service over the files of a hub, and this hub is not ours"
_FULL: Final = {"mode": "full"}
_RATE: Final = Decimal("0.4")
_PAGES: Final = (1, 7, 2, 13, 1000)
_COPIES: Final = "import/selftest/logins"


@step(Needs.NONE, own=_OWN)
def query_digest(ctx: Context) -> str:
    """An answer is what was recorded; request, digest and an audit record of it are in the log."""
    desk = ctx.once(make_desk)
    found = desk.complete(ctx)
    digest, rows = found["result_digest"], found["rows"]
    seen = [(row["subject_id"], row["payload.n"], row["receipt_id"]) for row in rows]
    expected = [
        (said(number)["subject_id"], number, h(sent.receipt.encode()).hex()) for number, sent in desk.logins()
    ]
    equal(seen, expected, "the rows of the answer")
    equal((digest["row_count"], digest["rows_hash"]), (len(rows), rows_hash(rows)), "row_count and rows_hash")
    equal(digest["evidence_hash"], NONE_HASH, "evidence_hash of an answer without evidence")
    asked = desk.ask(ctx, "GET", f"descriptor/{digest['query_id']}")["descriptor"]
    reader, result_id = desk.reader(ctx), digest["result_id"]
    equal(requests(reader, result_id), [canonical_json.encode(asked).decode()], "the request in the log")
    equal(digests(reader, result_id), [canonical_json.encode(digest).decode()], "the digest in the log")
    poll(lambda: _audits(reader, result_id), "an audit record of the query")
    audited = [("completed", bytes.fromhex(digest["rows_hash"]))]
    equal(_audits(reader, result_id), audited, "audit records of the query")
    return f"{len(rows)} rows, hashed here to the same"


def _audits(reader: Client, result_id: str) -> list[tuple[str, bytes | None]]:
    """Return what audit records say of a result: how it ended, and the hash of its rows."""
    bodies = [QUERY.decode(message.raw_body()) for message in reader.stream(AUDIT)]
    return [
        (body["metadata"]["status"], body.get("result_digest"))
        for body in bodies
        if body["metadata"]["result_id"] == result_id
    ]


@step(Needs.NONE, own=_OWN)
def query_pages(ctx: Context) -> str:
    """Pages of whatever size, one after the other, are the rows that the digest is of."""
    desk = ctx.once(make_desk)
    whole = desk.complete(ctx)
    digest = whole["result_digest"]
    rows: list[Any] = []
    sizes = iter(_PAGES)
    at: int | None = 0
    while at is not None:
        equal(at, len(rows), "where the next page begins")
        part = desk.page(ctx, digest["result_id"], at, next(sizes))
        equal(part["result_digest"], digest, "the digest beside a page")
        rows += part["rows"]
        at = part["page"]["next_offset"]
    equal(rows, whole["rows"], "rows of the pages")
    equal(rows_hash(rows), digest["rows_hash"], "the hash of the pages")
    equal(desk.page(ctx, digest["result_id"], len(rows), 5)["rows"], [], "rows behind the last")
    return f"{len(rows)} rows in {len(_PAGES)} pages"


@step(Needs.NONE, own=_OWN)
def query_evidence(ctx: Context) -> str:
    """Evidence, of some rows or of all, is that of the receipts which the hub gave for the events."""
    desk = ctx.once(make_desk)
    events = [sent for _, sent in desk.logins()]
    full = desk.complete(ctx, evidence=_FULL)["result_digest"]
    spot = desk.complete(ctx, evidence={"mode": "spot", "sample_rate": _RATE})["result_digest"]
    some = [events[at] for at in sampled(spot["query_id"], range(len(events)), _RATE)]
    check(0 < len(some) < len(events), "the sample is no sample")
    equal(full["rows_hash"], spot["rows_hash"], "rows_hash of the same rows")
    for digest, mode, rate, verified in ((full, Mode.FULL, None, events), (spot, Mode.SPOT, _RATE, some)):
        hasher = EvidenceHasher(digest["query_id"], digest["result_id"], mode, rate)
        for item in verified:
            receipt = item.receipt
            hasher.add(h(receipt.encode()), receipt.mmr_root, desk.hub_id)
        equal(digest["evidence_hash"], hasher.evidence_hash, f"evidence_hash of mode {mode}")
    return f"{len(events)} events verified, then {len(some)}"


@step(Needs.NONE, own=_OWN)
def query_damage(ctx: Context) -> str:
    """Where an entry behind an answer is damaged the query fails, and no digest of it is in the log."""
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
    """Have files with one bit changed in the middle, and then as they were."""
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
    """Another zone, which has copies of the events alone, gives the same answer, evidence included."""
    desk = ctx.once(make_desk)
    found = desk.complete(ctx, evidence=_FULL)
    asked = desk.ask(ctx, "GET", f"descriptor/{found['result_digest']['query_id']}")
    files = {"descriptor": asked, "digest": found}
    for name, value in files.items():
        (ctx.scratch / f"query-{name}.json").write_bytes(canonical_json.encode(value))
    there, home = ctx.hubs.fresh(CONFIGS[Needs.OPEN]), ctx.home()
    copies = [typed(IMPORTED, _copy(desk, number, sent)) for number, sent in enumerate(desk.sent)]
    # Bridges promise no order.
    ctx.random.shuffle(copies)
    taken = ctx.client(home, there.url).send_many(_COPIES, copies, options=RECORDING)
    equal(len(list(taken)), len(copies), "copies")
    # The other zone does not reach the origin: it has a set of its files.
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
    said_there = json.loads(done.stdout)
    check("items" in said_there, f"query verify: {said_there.get('detail')}")
    items = said_there["items"]
    equal([name for name, item in items.items() if not item["equal"]], [], "what differs in the other zone")
    check({"row_count", "rows_hash", "evidence_hash"} <= set(items), "not all of the digest was compared")
    return f"{found['result_digest']['row_count']} rows, from copies"


def _copy(desk: Desk, number: int, sent: Sent) -> dict[str, Any]:
    """Return the copy of an event, as a bridge makes it (AGB-015)."""
    return IMPORTED.make(
        **said(number),
        principal_id=sent.msg.client_id.hex(),
        origin_stream=STREAM,
        origin_epoch=sent.epoch,
        origin_stream_seq=sent.receipt.stream_seq,
        origin_hub_id=desk.hub_id,
        origin_receipt=sent.receipt.encode(),
        import_time=said(number)["event_time"] + 1,
        bridge_id="selftest",
    )


STEPS: Final = (query_digest, query_pages, query_evidence, query_damage, query_elsewhere)
