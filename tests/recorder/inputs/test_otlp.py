"""Requests of OpenTelemetry, over HTTP and from files: what is not recorded is never acknowledged."""

import gzip
import http.client
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import User
from tests.hub.hub_process import HubProcess
from tests.recorder.feed.feed_reader import recorded
from tests.recorder.inputs.otlp_process import listening
from tests.recorder.recorder_parties import aside_line
from veen.recorder.errors import BadLineError
from veen.recorder.event import Captured, Defaults, described
from veen.recorder.inputs.json_lines import parse
from veen.recorder.inputs.otlp import read_request


def _event(captured: Captured) -> dict[str, Any]:
    return described(captured.pack(Defaults(subject="s", origin="o"))[1])


_RECORD = {
    "timeUnixNano": "1700000000123456789",
    "severityNumber": 13,
    "severityText": "WARN",
    "body": {"stringValue": "disk is nearly full"},
    "traceId": "5b8efff798038103d269b633813fc60c",
    "spanId": "eee19b7ec3c1b174",
    "attributes": [
        {"key": "enduser.id", "value": {"stringValue": "anna"}},
        {"key": "free", "value": {"intValue": "-5"}},
        {"key": "share", "value": {"doubleValue": 0.25}},
        {"key": "urgent", "value": {"boolValue": True}},
        {"key": "raw", "value": {"bytesValue": "AAE="}},
        {"key": "disks", "value": {"arrayValue": {"values": [{"stringValue": "a"}, {"intValue": 2}]}}},
        {"key": "more", "value": {"kvlistValue": {"values": [{"key": "k", "value": {"boolValue": False}}]}}},
    ],
}


def _request(*records: Any) -> dict[str, Any]:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "storage"}}]}
    logs = [{"scope": {"name": "lib"}, "logRecords": list(records)}]
    return {"resourceLogs": [{"resource": resource, "scopeLogs": logs}]}


def test_a_record_of_otlp() -> None:
    (found,) = read_request(_request(_RECORD))
    assert isinstance(found, Captured)
    assert _event(found) == {
        "subject_id": "anna",
        "event_type": "log.warn",
        "event_time": 1_700_000_000,
        "origin": "storage",
        "payload": {
            "body": "disk is nearly full",
            "severity": "warn",
            "severity_number": 13,
            "time_unix_nano": 1_700_000_000_123_456_789,
            "trace_id": "5b8efff798038103d269b633813fc60c",
            "span_id": "eee19b7ec3c1b174",
            "attributes": {
                "enduser.id": "anna",
                "free": "-5",
                "share": "0.25",
                "urgent": True,
                "raw": "0001",
                "disks": ["a", 2],
                "more": {"k": False},
            },
        },
        "metadata": {"resource": {"service.name": "storage"}, "scope": "lib"},
    }
    for value, body in (({"boolValue": False}, False), ({"intValue": 0}, 0), ({"stringValue": ""}, "")):
        (empty,) = read_request(_request({"body": value, "severityText": "", "attributes": []}))
        assert isinstance(empty, Captured)
        assert _event(empty)["payload"] == {"body": body}
    (named,) = read_request(_request({"eventName": "disk.full", "severityNumber": 17}))
    assert isinstance(named, Captured)
    assert named.event_type == "disk.full"


def test_records_that_are_none() -> None:
    deep: dict[str, Any] = {"stringValue": "x"}
    for _ in range(400):
        deep = {"arrayValue": {"values": [deep]}}
    bad = [{"timeUnixNano": "soon"}, {"body": {"what": 1}}, {"attributes": 5}, {"body": deep}]
    found = list(read_request(_request(*bad, {"body": {"stringValue": "good"}})))
    assert [isinstance(item, Captured) for item in found] == [False] * 3 + [True] * 2
    assert isinstance(found[3], Captured)
    assert _event(found[3])["payload"]["body"], "what is too deep is text"
    none: tuple[Any, ...] = (7, [], {"resourceLogs": 7}, {"resourceLogs": {}}, {"resourceLogs": ""})
    for nothing in none:
        with pytest.raises(BadLineError):
            list(read_request(nothing))


def _told(request: Any) -> tuple[int, list[str]]:
    """Return how many events are in a request, and what is said of the rest."""
    found = list(read_request(request))
    return (
        sum(isinstance(item, Captured) for item in found),
        [str(item) for item in found if isinstance(item, BadLineError)],
    )


def _with(level: int, **more: Any) -> dict[str, Any]:
    """Return a request with two records, and something more at one of its levels."""
    request = _request(_RECORD, _RECORD)
    (resource_logs,) = request["resourceLogs"]
    (scope_logs,) = resource_logs["scopeLogs"]
    place = (request, resource_logs, scope_logs, resource_logs["resource"], scope_logs["scope"])[level]
    place.update(more)
    return request


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"resourceLogs": []},
        {"resourceLogs": None},
        {"resourceLogs": [{}]},
        {"resourceLogs": [{"resource": {}}]},
    ],
)
def test_a_request_may_be_empty(request_: Any) -> None:
    assert _told(request_) == (0, [])


@pytest.mark.parametrize(
    "request_",
    [
        {"resource_logs": []},
        {"resourceSpans": [{"scopeSpans": []}]},
        {"resourceMetrics": [], "resourceSpans": []},
        {"ResourceLogs": []},
        {"resourceLogs": [{"scope_logs": [{"log_records": [_RECORD]}]}]},
        {"resourceLogs": [{"instrumentationLibraryLogs": [{"logs": [_RECORD]}]}]},
        {"resourceLogs": [{"resource": {}, "scopeLogs": [{"log_records": [_RECORD]}]}]},
        {"resourceLogs": [{"scopeLogs": {"logRecords": [_RECORD]}}]},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": {}}]}]},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": False}]}]},
        {"resourceLogs": [None]},
        {"resourceLogs": [{"scopeLogs": [None]}]},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [None]}]}]},
        {"resourceLogs": [{"resource": [], "scopeLogs": [{"logRecords": [_RECORD]}]}]},
        {"resourceLogs": [{"scopeLogs": [{"scope": 0, "logRecords": [_RECORD]}]}]},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [{**_RECORD, "traceId": []}]}]}]},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [{**_RECORD, "timeUnixNano": False}]}]}]},
        {"resourceLogs": [{"resource": 7, "scopeLogs": [{"logRecords": [_RECORD]}]}]},
        {"resourceLogs": [{"scopeLogs": [{"scope": "lib", "logRecords": [_RECORD]}]}]},
    ],
    ids=str,
)
def test_what_is_not_understood_is_never_passed_over(request_: Any) -> None:
    events, told = _told(request_)
    assert events == 0
    assert told


@pytest.mark.parametrize("level", range(5))
def test_what_is_beside_the_events_is_told_and_they_are_taken(level: int) -> None:
    events, (told,) = _told(_with(level, resourceSpans=[1, 2]))
    assert events == 2
    assert "resourceSpans" in told
    assert "not recorded" in told


@pytest.mark.parametrize(
    ("level", "more"),
    [
        (1, {"schemaUrl": "https://opentelemetry.io/schemas/1.2.0"}),
        (2, {"schemaUrl": "https://opentelemetry.io/schemas/1.2.0"}),
        (3, {"droppedAttributesCount": 1, "entityRefs": [{"type": "service"}]}),
        (4, {"version": "1", "droppedAttributesCount": 0, "attributes": []}),
    ],
)
def test_names_of_otlp_that_are_not_recorded_are_no_mistakes(level: int, more: dict[str, Any]) -> None:
    assert _told(_with(level, **more)) == (2, [])


def test_all_records_under_what_can_not_be_read_are_counted() -> None:
    bad = {"attributes": [{"key": 7}]}
    events, told = _told(
        {"resourceLogs": [*_request(_RECORD)["resourceLogs"], *_with(1, resource=bad)["resourceLogs"]]}
    )
    assert (events, told) == (1, ["an attribute needs a key and a value"] * 2)
    events, told = _told(_with(2, scope=7))
    assert (events, told) == (0, ["scope is not a JSON object"] * 2)


def test_fields_of_a_record_that_otlp_does_not_have_are_recorded() -> None:
    known = {"flags": 1, "droppedAttributesCount": 2, "observedTimeUnixNano": "1700000000123456789"}
    (found,) = read_request(_request({**_RECORD, **known, "time_unix_nano": "5", "tenant": {"id": [1]}}))
    assert isinstance(found, Captured)
    assert _event(found)["payload"]["other"] == {"time_unix_nano": "5", "tenant": {"id": [1]}}
    (found,) = read_request(_request({**_RECORD, **known}))
    assert isinstance(found, Captured)
    assert "other" not in _event(found)["payload"]


@pytest.mark.parametrize(
    "value",
    [
        {"stringValue": "a", "intValue": 1},
        {"string_value": "a"},
        {"arrayValue": {"vals": []}},
        {"kvlistValue": {"values": [], "more": 1}},
        {"doubleValue": {"x": 1}},
        {"doubleValue": True},
        {"intValue": False},
        "a",
        0,
        [],
    ],
)
def test_values_that_are_none(value: Any) -> None:
    assert _told(_request({"body": value}))[0] == 0
    assert _told(_request({"attributes": [{"key": "a", "value": value}]}))[0] == 0
    assert _told(_request({"attributes": [{"key": "a", "value": None, "more": value}]}))[0] == 0


@pytest.mark.parametrize(
    "text",
    [
        '{"resourceLogs": [{"scopeLogs": []}], "resourceLogs": []}',
        '{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"intValue": 1}, "body": null}]}]}]}',
    ],
)
def test_a_name_that_is_there_twice_hides_nothing(text: str) -> None:
    with pytest.raises(BadLineError, match="is repeated"):
        parse(text.encode())
    twice = [{"key": "a", "value": {"intValue": number}} for number in (1, 2)]
    assert _told(_request({"attributes": twice}))[0] == 0


# --- over HTTP ----------------------------------------------------------------------------------------------


def _post(address: str, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
    host, _, port = address.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", path, body, {"content-type": "application/json", **named})
    answer = connection.getresponse()
    found = json.loads(answer.read())
    connection.close()
    return answer.status, found


def test_requests(tmp_path: Path, hub: HubProcess, place: Path, stream: str) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    good = json.dumps(_request(_RECORD)).encode()
    with listening(
        "--stream", stream, "--hub", hub.url, "--client", place, "--to", place, "--token-file", token
    ) as address:
        shown = {"authorization": "Bearer secret"}
        assert _post(address, "/v1/logs", good)[0] == 401
        assert _post(address, "/v1/logs", good, authorization="Bearer other")[0] == 401
        assert _post(address, "/v1/logs", good, **shown) == (200, {})
        packed = gzip.compress(good)
        assert _post(address, "/v1/logs", packed, content_encoding="gzip", **shown) == (200, {})
        part = json.dumps(_request(_RECORD, {"timeUnixNano": "x"})).encode()
        status, answer = _post(address, "/v1/logs", part, **shown)
        assert (status, answer["partialSuccess"]["rejectedLogRecords"]) == (200, "1")
        odd = {"attributes": [{"key": "a", "value": "\ud800"}]}
        status, answer = _post(address, "/v1/logs", json.dumps(_request(odd)).encode(), **shown)
        assert (status, answer["code"]) == (400, 3), "nothing of it is recorded"
        beside = json.dumps({**_request(_RECORD), "resourceSpans": [{}]}).encode()
        status, answer = _post(address, "/v1/logs", beside, **shown)
        assert (status, answer["partialSuccess"]["rejectedLogRecords"]) == (200, "1")
        assert "'resourceSpans'" in answer["partialSuccess"]["errorMessage"]
        renamed = json.dumps({"resource_logs": _request(_RECORD)["resourceLogs"]}).encode()
        for nothing in (renamed, b'{"resourceSpans": [{}]}'):
            assert _post(address, "/v1/logs", nothing, **shown)[0] == 400
        early = json.dumps(_request({**_RECORD, "timeUnixNano": "-5000000000"})).encode()
        assert _post(address, "/v1/logs", early, **shown)[0] == 400
        for empty in (b"{}", b'{"resourceLogs": []}'):
            assert _post(address, "/v1/logs", empty, **shown) == (200, {})
        lines = b'{"event_type": "line", "n": 1}\nbad\n{"event_type": "line", "event_time": -5}\n'
        status, answer = _post(address, "/jsonl", lines, content_type="application/x-ndjson", **shown)
        assert (status, answer["accepted"], answer["rejected"]) == (200, 1, 2)
        elsewhere = aside_line(f"{stream}/other", payload=1)
        status, answer = _post(address, "/jsonl", elsewhere, content_type="application/x-ndjson", **shown)
        assert (status, answer["accepted"], answer["rejected"]) == (200, 0, 1)
        refused = {
            400: _post(address, "/v1/logs", b"{", **shown),
            404: _post(address, "/v1/traces", b"{}", **shown),
            415: _post(address, "/v1/logs", b"", content_type="application/x-protobuf", **shown),
        }
        assert {status: answer[0] for status, answer in refused.items()} == {400: 400, 404: 404, 415: 415}
        assert all(set(answer[1]) == {"code", "message"} for answer in refused.values())
        for kind in ("text/plain", "text/plain;charset=UTF-8", "multipart/form-data", ""):
            assert _post(address, "/jsonl", lines, content_type=kind, **shown)[0] == 415
        assert _post(address, "/v1/logs", packed[:-9], content_encoding="gzip", **shown)[0] == 400
        assert _post(address, "/v1/logs", good, content_encoding="br", **shown)[0] == 415
        bomb = gzip.compress(b" " * (64 << 20))
        assert _post(address, "/v1/logs", bomb, content_encoding="gzip", **shown)[0] == 413
    assert [event["event_type"] for event in recorded(place, hub.url, stream)] == ["log.warn"] * 4 + ["line"]


def test_requests_in_a_file(tmp_path: Path, hub: HubProcess, place: Path, stream: str) -> None:
    """What a receiver would refuse, or count as rejected, is counted as well."""
    file, somebody = tmp_path / "export.jsonl", User(tmp_path)
    lines = [_request(_RECORD), {"resourceSpans": [{}]}, {**_request(_RECORD), "resourceSpans": [{}]}, {}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    said: list[str | Path] = ["recorder", "import", file, "--format", "otlp", "--stream", stream]
    said += ["--hub", hub.url, "--client", place, "--to", place]
    assert "resourceSpans" in somebody.fails(3, *said, "--strict")["detail"]
    found = somebody.ok(*said)
    assert (found["lines"], found["recorded"], found["bad_lines"]) == (4, 2, 2)
    assert [reason.partition(":")[0] for reason in found["reasons"]] == ["line 2", "line 3"]
    assert len(recorded(place, hub.url, stream)) == 2
