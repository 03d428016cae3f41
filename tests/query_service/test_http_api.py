"""The service over its socket: what a client is told, what is in the log before, and what nobody learns."""

import hashlib
import http.client
import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.hub.hub_process import HubProcess
from tests.query_service import plain_service
from tests.query_service.service_process import (
    APP,
    EMPTY,
    RAW,
    ROWS,
    SECRET,
    Asked,
    Service,
    make_place,
    read_policy,
    recorded,
    until,
)
from veen.core.crypto.hash import sha256
from veen.core.objects.receipt import Receipt
from veen.overlays.operations.schemas import QUERY
from veen.overlays.recorder.schemas import EVENT
from veen.query.errors import STATUS
from veen.query_service.grants import grant
from veen.query_service.openapi import document
from veen.query_service.server import STORE
from veen.query_service.store import Kind


class World:
    def __init__(self, service: Service, hub: HubProcess, tokens: dict[str, str]) -> None:
        self.service, self.hub, self.tokens = service, hub, tokens

    def ask(self, who: str, path: str, body: Any = None, **more: Any) -> Asked:
        return self.service.ask(self.tokens.get(who, who), path, body, **more)

    def identity(self, who: str) -> str:
        principals = read_policy(self.service.place / "policy.toml").principals
        return next(item.identity.hex() for item in principals if item.name == who)

    def completed(self, who: str = "alice", **descriptor: Any) -> str:
        result_id = self.service.submit(self.tokens[who], **descriptor)
        assert self.service.wait(self.tokens[who], result_id)["status"] == "completed"
        return result_id


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    place = tmp_path_factory.mktemp("world")
    with HubProcess(place / "hub") as hub:
        tokens = make_place(place / "service")
        settings = {"max_waiting": 20, "retry_sec": 0.05}
        with Service(place / "service", hub.url, settings=settings) as service:
            yield World(service, hub, tokens)


def bodies(world: World, kind: Kind) -> list[dict[str, Any]]:
    schema = QUERY if kind is Kind.AUDIT else EVENT
    found = recorded(world.service.place, world.hub.url, kind)
    return [schema.decode(message.raw_body()) for message in found]


def test_a_query_is_recorded_then_run_then_its_digest_is_recorded(world: World) -> None:
    answer = world.ask(
        "alice", "submit", {"query_id": "first", "scope": [APP], "meta": {"reason": "audit 7"}}
    )
    assert answer.status == 202
    assert answer.json == {"query_id": "first", "result_id": answer.json["result_id"], "status": "pending"}
    result_id = answer.json["result_id"]
    request = next(body for body in bodies(world, Kind.REQUEST) if '"first"' in body["payload"])
    assert (request["event_type"], request["subject_id"]) == ("query.submitted", "alice")
    who = world.identity("alice")
    assert request["metadata"] == {"result_id": result_id, "requester_identity": who}
    status = world.service.wait(world.tokens["alice"], result_id)
    assert (status["status"], status["error_code"], status["message"]) == ("completed", None, None)
    assert status["received_at"] <= status["started_at"] <= status["ended_at"]
    page = world.ask("alice", f"result/{result_id}").json
    digest = page["result_digest"]
    made = next(body for body in bodies(world, Kind.RESULT) if body["metadata"]["result_id"] == result_id)
    assert made["event_type"] == "query.result"
    assert json.loads(made["payload"]) == digest
    receipt = bytes.fromhex(page["receipt"])
    assert sha256(receipt).hex() == page["record_event"]["receipt_id"]
    assert Receipt.decode(receipt).stream_seq == page["record_event"]["seq"]

    def audited() -> dict[str, Any] | None:
        found = [body for body in bodies(world, Kind.AUDIT) if body["metadata"]["result_id"] == result_id]
        return found[0] if found else None

    audit = until(audited, "the audit record")
    assert audit["result_digest"].hex() == digest["rows_hash"]
    assert audit["resource_identifier"] == APP
    assert audit["metadata"]["resources"] == [APP]
    assert audit["requester_identity"].hex() == who
    assert audit["purpose_code"] == "audit 7"
    assert audit["metadata"]["status"] == "completed"
    described = world.ask("alice", "descriptor/first").json
    assert described["descriptor"] == json.loads(request["payload"])
    assert described["record_event"]["stream"] == "record/query/requests"
    assert described["record_event"]["hub_id"] == world.hub.banner["hub_id"]


@pytest.mark.parametrize("limit", [1, 7, ROWS, 10_000])
def test_pages_together_are_what_was_hashed(world: World, limit: int) -> None:
    result_id = world.completed()
    rows: list[bytes] = []
    while True:
        answer = world.ask("alice", f"result/{result_id}?offset={len(rows)}&limit={limit}")
        page = answer.json["page"]
        rows += [
            json.dumps(row, sort_keys=True, separators=(",", ":")).encode() for row in answer.json["rows"]
        ]
        assert page["total"] == ROWS
        if not page["has_more"]:
            break
        assert page["next_offset"] == len(rows)
    digest = answer.json["result_digest"]
    assert digest["row_count"] == len(rows) == ROWS
    assert hashlib.sha256(b"[" + b",".join(rows) + b"]").hexdigest() == digest["rows_hash"]


def test_rows_that_were_removed_are_told_so(world: World) -> None:
    result_id = world.completed()
    (world.service.place / "state" / "results" / result_id / plain_service.ROWS).write_bytes(b"")
    answer = world.ask("alice", f"result/{result_id}")
    assert answer.error == (500, "execution_failed")
    assert "no longer stored" in answer.json["message"]


def test_a_page_behind_the_end_is_empty(world: World) -> None:
    answer = world.ask("alice", f"result/{world.completed()}?offset={ROWS + 5}", prefix="/api/v1/query/")
    assert answer.json["rows"] == []
    assert answer.json["page"]["has_more"] is False


@pytest.mark.parametrize(
    "query",
    [
        "offset=-1",
        "offset=x",
        "limit=0",
        "limit=10001",
        "offset=",
        "offset=1&offset=2",
        "color=red",
        "limit=1e3",
    ],
)
def test_wrong_parameters_are_refused(world: World, query: str) -> None:
    answer = world.ask("alice", f"result/{world.completed(query_id=None)}?{query}")
    assert answer.error == (400, "invalid_query_descriptor")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{", (400, "invalid_json")),
        (b'{"scope": ["a"], "scope": ["b"]}', (400, "invalid_json")),
        (b"\xff\xfe", (400, "invalid_json")),
        (b"[]", (400, "invalid_query_descriptor")),
        (b'{"scope": []}', (400, "invalid_query_descriptor")),
        (b'{"version": 2, "scope": ["a"]}', (400, "unsupported_version")),
        (b'{"scope": ["record/app/logins"], "where": 1}', (400, "invalid_query_descriptor")),
        (b'{"scope": ["record/app/logins"], "query_id": "a b"}', (400, "invalid_query_descriptor")),
        (b" " * 70_000, (400, "invalid_query_descriptor")),
        (b"[" * 50_000, (400, "invalid_json")),
    ],
)
def test_what_is_no_descriptor_is_refused_and_not_recorded(
    world: World, body: bytes, error: tuple[int, str]
) -> None:
    before = len(bodies(world, Kind.REQUEST))
    assert world.ask("alice", "submit", body).error == error
    assert len(bodies(world, Kind.REQUEST)) == before


def test_a_wrong_content_type_is_refused(world: World) -> None:
    answer = world.ask("alice", "submit", b"{}", content_type="text/plain")
    assert answer.error == (400, "invalid_json")


@pytest.mark.parametrize("given", ["", "wrong", "vq-" + "A" * 43])
@pytest.mark.parametrize(
    "path", ["submit", "status/r-1", "result/r-1", "descriptor/q", "openapi.json", "xyz"]
)
def test_without_a_good_token_there_is_nothing(world: World, path: str, given: str) -> None:
    answer = world.ask(given, path, b"{}" if path == "submit" else None)
    assert answer.error == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_forbidden_and_unknown_streams_look_alike(world: World) -> None:
    answers = []
    for stream in (SECRET, EMPTY, "record/security/nothing", "*", "record/app/*", RAW):
        answer = world.ask("alice", "submit", {"scope": [APP, stream]})
        assert answer.error == (403, "forbidden_scope")
        answers.append(answer.body.replace(stream.encode(), b"X"))
    assert len(set(answers)) == 1


def test_a_stream_is_asked_for_by_its_name(world: World) -> None:
    everything = grant(world.service.place / "policy.toml", "everything", ["*"])
    assert world.ask(everything, "submit", {"scope": [SECRET]}).status == 202
    answer = world.ask(everything, "submit", {"scope": [RAW]})
    assert answer.error == (403, "forbidden_scope"), "by its id nothing of it would be found"


def test_results_of_others_look_like_unknown_ones(world: World) -> None:
    result_id = world.completed(query_id="private")
    for path in ("status/{}", "result/{}"):
        theirs, nobodys = (world.ask("bob", path.format(one)) for one in (result_id, "r-" + "0" * 32))
        assert theirs.error == (404, "query_not_found")
        assert theirs.body == nobodys.body
    assert world.ask("bob", "descriptor/private").body == world.ask("bob", "descriptor/none").body
    assert world.ask("bob", f"cancel/{result_id}", b"").error == (404, "query_not_found")
    assert world.ask("audit", f"result/{result_id}").json["page"]["total"] == ROWS
    assert world.ask("audit", f"cancel/{result_id}", b"").error == (404, "query_not_found")
    assert world.ask("eve", f"result/{result_id}").error == (404, "query_not_found")


def test_a_scope_that_is_taken_away_takes_old_results_along(world: World) -> None:
    result_id = world.completed("bob")
    policy = world.service.place / "policy.toml"
    before = policy.read_text()
    try:
        policy.write_text(before.replace('[principals."bob"]', '[principals."bob" '))
        assert world.ask("bob", f"status/{result_id}").status == 200, "a broken file changes nothing"
        until(lambda: "policy-not-read" in world.service.log.read_text(), "the line of the log")
        changed = before.replace('"bob"]', '"bob"]#').replace("record/app/*", "record/app/other")
        policy.write_text(changed)
        assert world.ask("bob", f"status/{result_id}").error == (404, "query_not_found")
        assert world.ask("bob", "submit", {"scope": [APP]}).error == (403, "forbidden_scope")
    finally:
        policy.write_text(before)
    assert world.ask("bob", f"status/{result_id}").status == 200


def test_of_many_submissions_of_one_id_one_is_taken(world: World) -> None:
    def submit(who: str) -> Asked:
        return world.ask(who, "submit", {"query_id": "same", "scope": [APP]})

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(submit, ["alice", "bob"] * 8))
    assert sorted(answer.status for answer in answers) == [202] + [409] * 15
    assert {answer.error for answer in answers if answer.status == 409} == {(409, "duplicate_query_id")}
    assert sum('"same"' in body["payload"] for body in bodies(world, Kind.REQUEST)) == 1


def test_a_failure_has_a_reason_no_rows_and_no_digest(world: World) -> None:
    broken = world.service.place / "fail"
    broken.touch()
    try:
        result_id = world.service.submit(world.tokens["alice"])
        status = world.service.wait(world.tokens["alice"], result_id)
    finally:
        broken.unlink()
    assert (status["status"], status["error_code"]) == ("failed", "execution_failed")
    answer = world.ask("alice", f"result/{result_id}")
    assert answer.error == (500, "execution_failed")
    assert "row 3 of a.parquet" in answer.json["message"], "where files are is not for clients"
    until(lambda: "/srv/lake/a.parquet" in world.service.log.read_text(), "the line of the log")
    assert not any(body["metadata"]["result_id"] == result_id for body in bodies(world, Kind.RESULT))
    audits = until(
        lambda: [body for body in bodies(world, Kind.AUDIT) if body["metadata"]["result_id"] == result_id],
        "the audit record",
    )
    assert audits[0]["metadata"]["error_code"] == "execution_failed"
    assert audits[0]["result_digest"] is None


def test_an_answer_that_can_not_be_recorded_fails_and_others_go_on(world: World) -> None:
    wide = world.service.place / "wide"
    wide.touch()
    try:
        result_id = world.service.submit(world.tokens["alice"])
        status = world.service.wait(world.tokens["alice"], result_id)
    finally:
        wide.unlink()
    assert (status["status"], status["error_code"]) == ("failed", "execution_failed")
    assert "ask for fewer streams" in status["message"]
    assert not (world.service.place / "state" / "results" / result_id).exists()
    world.completed()


def test_a_log_that_can_not_be_reached_keeps_queries_waiting(world: World) -> None:
    away = world.service.place / "unreachable"
    away.touch()
    try:
        result_id = world.service.submit(world.tokens["alice"])
        until(lambda: f'"{result_id}", "error": "the hub' in world.service.log.read_text(), "the first try")
        world.service.wait(world.tokens["alice"], result_id, "pending")
    finally:
        away.unlink()
    assert world.service.wait(world.tokens["alice"], result_id)["status"] == "completed"


def test_who_looks_does_not_wait_for_who_asks(world: World) -> None:
    result_id = world.completed()
    slow = world.service.place / "slow"
    slow.touch()
    try:
        with ThreadPoolExecutor(12) as threads:
            asked = [threads.submit(world.ask, "alice", "submit", {"scope": [APP]}) for _ in range(12)]
            assert world.ask("alice", f"result/{result_id}").status == 200
            slow.unlink()
            assert {item.result().status for item in asked} == {202}
    finally:
        slow.unlink(missing_ok=True)


def test_queries_are_of_an_identity_and_not_of_a_name(world: World) -> None:
    mine = world.completed("bob", query_id="of-bob")
    policy = world.service.place / "policy.toml"
    before = policy.read_text()
    who = bytes.fromhex(world.identity("bob"))
    try:
        policy.write_text(before.replace('"bob"', '"robert"'))
        another = grant(policy, "bob", ["record/app/*"])
        assert world.ask("bob", f"status/{mine}").status == 200, "a new name for the same identity"
        for path, body in ((f"status/{mine}", None), (f"cancel/{mine}", b"")):
            assert world.ask(another, path, body).error == (404, "query_not_found")
        again = world.ask(another, "submit", {"query_id": "of-bob", "scope": [APP]})
        assert mine not in again.json["message"]
        policy.write_text(before[: before.index('[principals."bob"]')])
        renewed = grant(policy, "bob", ["record/app/*"], identity=who)
        assert world.ask(renewed, f"result/{mine}").status == 200, "a new token"
    finally:
        policy.write_text(before)


def test_an_auditor_who_reads_leaves_a_record(world: World) -> None:
    result_id = world.completed()
    for _ in range(2):
        assert world.ask("audit", f"result/{result_id}").status == 200
    world.ask("alice", f"result/{result_id}")

    def readers() -> list[str]:
        found = [body for body in bodies(world, Kind.AUDIT) if body["metadata"]["result_id"] == result_id]
        return sorted(body["requester_identity"].hex() for body in found)

    both = sorted([world.identity("alice"), world.identity("audit")])
    until(lambda: len(readers()) >= 2, "the record of the auditor")
    assert readers() == both


def unfinished(service: Service) -> int:
    """Return how many queries wait or run."""
    with closing(sqlite3.connect(f"file:{service.place / 'state' / STORE}?mode=ro", uri=True)) as store:
        (count,) = store.execute(
            "SELECT count(*) FROM queries WHERE state NOT IN ('COMPLETED', 'FAILED')"
        ).fetchone()
    return int(count)


def test_queries_wait_run_and_are_cancelled_and_too_many_are_sent_away(world: World) -> None:
    alice, service = world.tokens["alice"], world.service
    until(lambda: not unfinished(service), "the queries of other tests")
    hold = service.place / "hold"
    hold.touch()
    try:
        running = service.submit(alice)
        service.wait(alice, running, "running")
        half = {"tasks_done": 1, "tasks_total": 2}
        until(lambda: service.ask(alice, f"status/{running}").json["progress"] == half, "the first task")
        assert world.ask("alice", f"result/{running}").error == (409, "result_not_ready")
        other = service.submit(alice)
        service.wait(alice, other, "running")
        waiting = service.submit(alice)
        assert service.ask(alice, f"status/{waiting}").json["status"] == "pending"
        assert world.ask("alice", f"cancel/{waiting}", b"").json["error_code"] == "cancelled"
        answers = [world.ask("alice", "submit", {"scope": [APP]}) for _ in range(21)]
        assert [answer.status for answer in answers] == [202] * 20 + [503]
        assert answers[-1].error == (503, "internal_error")
        assert int(answers[-1].headers["retry-after"]) > 0
        world.ask("alice", f"cancel/{running}", b"")
        ended = service.wait(alice, running, "failed")
        assert ended["error_code"] == "cancelled"
        assert world.ask("alice", f"result/{running}").error == (500, "cancelled")
    finally:
        hold.unlink()
    for answer in answers[:20]:
        assert service.wait(alice, answer.json["result_id"])["status"] == "completed"
    assert world.ask("alice", f"cancel/{other}", b"").json["status"] == "completed"


def test_methods_and_paths_that_are_not_there(world: World) -> None:
    assert world.ask("alice", "submit").error == (405, "invalid_query_descriptor")
    assert world.ask("alice", "submit").headers["allow"] == "POST"
    assert world.ask("alice", "nothing").error == (404, "query_not_found")
    assert world.ask("alice", "status/").error == (404, "query_not_found")
    assert world.ask("alice", "status/..%2f..", None).error == (404, "query_not_found")
    assert world.ask("alice", "", prefix="/").error == (404, "query_not_found")


def test_what_is_no_http_is_told_so_in_the_same_form(world: World) -> None:
    connection = world.service.connect()
    connection.connect()
    connection.sock.sendall(b"hello\r\n\r\n")
    answer = http.client.HTTPResponse(connection.sock)
    answer.begin()
    assert answer.status == 400
    assert set(json.loads(answer.read())) == {"error_code", "message"}
    connection.close()


def test_health_and_the_document(world: World) -> None:
    assert world.ask("", "healthz", prefix="/").json == {"ok": True}
    assert world.ask("", "readyz", prefix="/").json == {"ok": True}
    found = world.ask("alice", "openapi.json").json
    assert found == json.loads(json.dumps(document()))
    assert set(found["components"]["schemas"]["Error"]["properties"]["error_code"]["enum"]) == set(STATUS)


def test_the_document_has_every_path_and_every_answer(world: World) -> None:
    paths = document()["paths"]
    for path, methods in paths.items():
        for method, operation in methods.items():
            everywhere = {"400", "401", "403", "405", "415", "421", "500", "503"}
            assert everywhere < set(operation["responses"]), path
            # Whatever is asked with the wrong method, parameters or token is told so, as it stands there.
            at = path.lstrip("/").format(result_id="r-1", query_id="q-1")
            wrong = "GET" if method == "post" else "POST"
            body = b"" if method == "post" else None
            assert world.ask("", at, body).status == 401
            assert world.ask("alice", at, b"", method=wrong).status == 405
            assert world.ask("alice", f"{at}?color=red", body).status == 400
    assert set(paths["/submit"]["post"]["responses"]) >= {"202", "403", "409"}
    assert set(paths["/result/{result_id}"]["get"]["responses"]) >= {"200", "404", "409"}


def test_no_token_is_in_files_or_logs(world: World) -> None:
    text = b"".join(path.read_bytes() for path in world.service.place.rglob("*") if path.is_file())
    assert not any(token.encode() in text for token in world.tokens.values())
    assert Path(world.service.place / "policy.toml").stat().st_mode & 0o077 == 0
