"""Every route meets what every route may meet: wrong methods, forms, sizes and bytes.

The routes come from the hub's own table, so that a new one can not be forgotten: it fails here until
``REQUESTS`` has a request for it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import builders
from tests.hub.hub_thread import CBOR, CBOR_SEQ, JSON, Answer, Sender, Service, serving
from tests.rawcbor import array, mapping, tstr, uint
from veen.core.api import tooling
from veen.core.api.data_plane import CheckpointRequest, ProofRequest, ReceiptRequest, StreamRequest
from veen.core.encoding.wire_object import Wire
from veen.core.types import JsonValue

LABEL = builders.some_label()
#: A well-formed request for every path that takes one; None for those that take no body.
REQUESTS: dict[str, Wire | bytes | None] = {
    "/v1/submit": builders.submit_request(),
    "/v1/stream": StreamRequest(label=LABEL, from_seq=1),
    "/v1/receipt": ReceiptRequest(label=LABEL, stream_seq=1),
    "/v1/proof": ProofRequest(label=LABEL, stream_seq=1),
    "/v1/checkpoint": CheckpointRequest(label=LABEL, upto_seq=1),
    "/tooling/authorize": tooling.AuthorizeRequest(cap_token=builders.cap_token()),
    "/tooling/cap_status": tooling.CapStatusRequest(auth_ref=builders.cap_token().auth_ref),
    "/tooling/proof_at": tooling.ProofAtRequest(label=LABEL, stream_seq=1, upto_seq=1),
    "/tooling/consistency": tooling.ConsistencyRequest(label=LABEL, old_size=1, new_size=1),
    "/tooling/checkpoint_latest": tooling.CheckpointLatestRequest(label=LABEL),
    "/tooling/checkpoint_range": tooling.CheckpointRangeRequest(
        stream_id=builders.stream(), epoch_min=0, epoch_max=0
    ),
    "/tooling/epochs": tooling.StreamEpochsRequest(stream_id=builders.stream()),
    "/tooling/report_equivocation": tooling.EquivocationRequest(
        first=builders.receipt(), second=builders.receipt(stream_seq=2)
    ),
    "/tooling/backup": tooling.BackupRequest(name="copy"),
    "/tooling/anchor": tooling.AnchorRequest(label=LABEL),
    "/tooling/status": None,
    "/tooling/identity": None,
    "/tooling/profile": None,
    "/tooling/kex_policy": None,
    "/tooling/admission": None,
    "/tooling/admission_log": None,
    "/tooling/pow_request": None,
    "/tooling/revocations": None,
    "/tooling/attachment/": b"",
    "/healthz": None,
    "/readyz": None,
    "/metrics": None,
    "/submit": builders.msg(),
    "/stream": None,
    "/authorize": builders.cap_token(),
    "/checkpoint_latest": None,
    "/checkpoint_range": None,
    "/anchor": tooling.AnchorRequest(label=LABEL),
    "/report_equivocation": tooling.EquivocationRequest(
        first=builders.receipt(), second=builders.receipt(stream_seq=2)
    ),
}
#: Faults of these have the codes of admission (C-61).
ADMISSION = {"/v1/submit", "/submit", "/tooling/authorize", "/authorize"}
#: These take the bytes of one object whatever the content type says, as older releases do.
BARE = {"/submit", "/authorize"}
#: What they take is judged here; /tooling/attachment takes any bytes.
BODIES = [path for path, body in REQUESTS.items() if isinstance(body, Wire)]
TYPED = [path for path in BODIES if path not in BARE]
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("hub") / "data") as service:
        Sender(service).send()
        yield service
        service.check_healthy()


def place(path: str) -> str:
    """Return a path that can be asked for."""
    return path + builders.digest("attachment").hex() if path.endswith("/") else path


def encoded(path: str) -> bytes:
    body = REQUESTS[path]
    assert isinstance(body, Wire)
    return body.encode()


def as_json(path: str) -> dict[str, JsonValue]:
    body = REQUESTS[path]
    assert isinstance(body, Wire)
    made = body.to_json()
    assert isinstance(made, dict)
    return dict(made)


@dataclass(frozen=True)
class Fault:
    """What one and the same mistake is called, in the two families."""

    admission: tuple[str, str]
    other: tuple[str, str]

    def check(self, path: str, answer: Answer) -> None:
        assert answer.refusal() == (self.admission if path in ADMISSION else self.other)


MALFORMED = Fault(("E.FORMAT", "CBOR_INVALID"), ("E.BAD_REQUEST", "CBOR_INVALID"))
OTHER_VERSION = Fault(("E.FORMAT", "VERSION"), ("E.BAD_REQUEST", "VERSION"))
OVERSIZE = Fault(("E.SIZE", "SIZE_PREFILTER"), ("E.LIMIT", "FIELD_SIZE"))


def test_every_route_is_met_here(hub: Service) -> None:
    served = {path for path, methods in hub.routes.items() if not all(way.local for way in methods.values())}
    assert served == set(REQUESTS)


@pytest.mark.parametrize("path", REQUESTS)
def test_other_methods_are_refused_with_those_that_are_allowed(hub: Service, path: str) -> None:
    allowed = sorted(hub.routes[path])
    for method in METHODS:
        if method in allowed:
            continue
        answer = hub.call(method, place(path))
        assert answer.status == 405
        assert answer.headers["allow"] == ", ".join(allowed)
        assert answer.error().code == "E.BAD_REQUEST"


@pytest.mark.parametrize("path", REQUESTS)
def test_a_body_that_is_too_large_is_refused_before_it_is_read(hub: Service, path: str) -> None:
    method = max(hub.routes[path])
    with hub.connect() as raw:
        raw.send(f"{method} {place(path)} HTTP/1.1\r\nhost: hub\r\ncontent-length: {1 << 40}\r\n\r\n")
        answer = raw.answer()
        OVERSIZE.check(path, answer)
        assert answer.status == 413
        assert (answer.error().detail or {})["actual"] == 1 << 40
        assert raw.ended()


@pytest.mark.parametrize("path", REQUESTS)
def test_a_client_may_leave_in_the_middle_of_its_body(hub: Service, path: str) -> None:
    method = max(hub.routes[path])
    with hub.connect() as raw:
        raw.send(f"{method} {place(path)} HTTP/1.1\r\nhost: hub\r\ncontent-length: 100\r\n\r\nhalf")
    with hub.connect() as raw:
        raw.send(
            f"{method} {place(path)} HTTP/1.1\r\nhost: hub\r\ntransfer-encoding: chunked\r\n\r\n64\r\nhalf"
        )
    hub.check_healthy()


@pytest.mark.parametrize("path", TYPED)
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "nonsense", "\xff"])
def test_other_content_types_are_refused(hub: Service, path: str, kind: str) -> None:
    answer = hub.post(path, encoded(path), kind)
    MALFORMED.check(path, answer)
    assert (answer.error().detail or {})["field"] == "content-type"


@pytest.mark.parametrize("path", [path for path in TYPED if path != "/v1/submit"])
def test_a_sequence_is_for_submit_only(hub: Service, path: str) -> None:
    MALFORMED.check(path, hub.post(path, encoded(path), CBOR_SEQ))


@pytest.mark.parametrize("path", TYPED)
@pytest.mark.parametrize("kind", [None, CBOR, "Application/CBOR", "application/cbor; charset=binary"])
def test_cbor_is_the_default_and_may_have_parameters(hub: Service, path: str, kind: str | None) -> None:
    answer = hub.post(path, encoded(path), kind)
    assert answer.content_type == CBOR
    assert answer.status == hub.post(path, encoded(path), CBOR).status or path == "/v1/submit"


GARBAGE = {
    "nothing": b"",
    "one byte": b"\xff",
    "another type": b"\x01",
    "an empty map": b"\xa0",
    "an endless map": b"\xbf\xff",
    "a float": b"\xa1\x01\xf9\x3c\x00",
    "a tag": b"\xc0\xa1\x01\x01",
    "null": b"\xf6",
    "deep": 1000 * b"\x81" + b"\x01",
    "huge": b"\x9b" + 8 * b"\xff",
    "huge string": b"\x5b" + 8 * b"\xff",
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("body", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_refused(hub: Service, path: str, body: bytes) -> None:
    MALFORMED.check(path, hub.post(path, body))


@pytest.mark.parametrize("path", BODIES)
def test_an_object_ends_where_the_body_ends(hub: Service, path: str) -> None:
    MALFORMED.check(path, hub.post(path, encoded(path) + b"\x00"))
    MALFORMED.check(path, hub.post(path, encoded(path)[:-1]))


@pytest.mark.parametrize("path", TYPED)
def test_unknown_and_missing_keys_are_refused(hub: Service, path: str) -> None:
    request = encoded(path)
    more = bytes([request[0] + 1]) + request[1:] + uint(23) + uint(0)
    MALFORMED.check(path, hub.post(path, more))
    MALFORMED.check(path, hub.post(path, mapping([(uint(1), uint(1))])))
    MALFORMED.check(path, hub.post(path, mapping([(tstr("ver"), uint(1))])))
    MALFORMED.check(path, hub.post(path, array([uint(1), uint(2)])))


@pytest.mark.parametrize("path", TYPED)
@pytest.mark.parametrize("ver", [0, 2, 2**64 - 1])
def test_other_versions_are_refused(hub: Service, path: str, ver: int) -> None:
    request = encoded(path)
    assert request[1:3] == b"\x01\x01"
    OTHER_VERSION.check(path, hub.post(path, request[:2] + uint(ver) + request[3:]))
    OTHER_VERSION.check(path, hub.post(path, {**as_json(path), "ver": ver}))


BAD_JSON = {
    "nothing": "",
    "half": "{",
    "a name twice": '{"ver": 1, "ver": 1}',
    "a float": '{"ver": 1.0}',
    "an exponent": '{"ver": 1e3}',
    "NaN": '{"ver": NaN}',
    "infinity": '{"ver": -Infinity}',
    "an array": "[]",
    "a string": '"text"',
    "null": "null",
    "not text": b"\xff\xfe\xfd",
    "UTF-16": '{"ver": 1}'.encode("utf-16"),
    "deep": 30_000 * "[",
    "deep and closed": 4_000 * '{"ver":' + "1" + 4_000 * "}",
    "a long number": '{"ver": ' + 10_000 * "9" + "}",
    "a negative number": '{"ver": -1}',
    "a lone surrogate as a name": '{"\\ud800": 1}',
    "a lone surrogate as a value": '{"ver": "\\ud800"}',
    "a name that is a key": '{"1": 1}',
}


@pytest.mark.parametrize("path", TYPED)
@pytest.mark.parametrize("body", BAD_JSON.values(), ids=BAD_JSON)
def test_json_is_as_strict_as_cbor(hub: Service, path: str, body: str | bytes) -> None:
    data = body.encode() if isinstance(body, str) else body
    answer = hub.call("POST", path, data, content_type=JSON)
    assert answer.content_type == JSON
    MALFORMED.check(path, answer)
    assert hub.call("POST", path, data, content_type=JSON, accept=CBOR).refusal() == answer.refusal()


@pytest.mark.parametrize("path", TYPED)
def test_json_has_no_other_names_and_no_nulls(hub: Service, path: str) -> None:
    good = as_json(path)
    MALFORMED.check(path, hub.post(path, {**good, "more": 1}))
    for name in good:
        MALFORMED.check(path, hub.post(path, {**good, name: None}))
        MALFORMED.check(path, hub.post(path, {key: value for key, value in good.items() if key != name}))


@pytest.mark.parametrize("path", TYPED)
def test_hex_is_lowercase(hub: Service, path: str) -> None:
    good = json.dumps(as_json(path))
    upper = json.dumps({name: _upper(value) for name, value in as_json(path).items()})
    if upper != good and path != "/tooling/backup":
        MALFORMED.check(path, hub.post(path, upper.encode(), JSON))


def _upper(value: JsonValue) -> JsonValue:
    match value:
        case str():
            return value.upper()
        case list():
            return [_upper(item) for item in value]
        case dict():
            return {key: _upper(item) for key, item in value.items()}
    return value


@pytest.mark.parametrize(
    "path", ["/v0/submit", "/v2/submit", "/v2", "/v2/", "/v10/stream", "/v01/submit", "/v2/nowhere"]
)
def test_other_versions_of_the_protocol_are_named(hub: Service, path: str) -> None:
    for method in ("GET", "POST"):
        answer = hub.call(method, path)
        assert answer.refusal() == ("E.VERSION", "VERSION")
        assert (answer.error().detail or {})["expected"] == 1


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/",
        "/v1/nowhere",
        "/v1/submit/",
        "//v1/submit",
        "/v1/submit/x",
        "/V1/submit",
        "/v/submit",
        "/vx/submit",
        "/tooling",
        "/tooling/",
        "/tooling/attachment",
        "/tooling/attachment/",
        "/tooling/attachment/a/b",
        "/%76%31/submit",
        "/../healthz",
        "/healthz/",
        "/healthz%00",
    ],
)
def test_there_is_nothing_at_other_paths(hub: Service, path: str) -> None:
    for method in ("GET", "POST", "PUT", "OPTIONS"):
        assert hub.call(method, path).error().code == "E.NOT_FOUND"


def test_the_paths_of_older_releases_can_be_left_out(tmp_path: Path) -> None:
    legacy = [path for path in REQUESTS if path.count("/") == 1]
    with serving(tmp_path / "data", legacy_paths=False) as hub:
        for path in legacy:
            root = path in {"/healthz", "/readyz", "/metrics"}
            for method in ("GET", "POST"):
                assert (hub.call(method, path).status == 404) is not root


def test_orders_are_taken_in_the_data_directory_only(hub: Service) -> None:
    local = [path for path in hub.routes if path.startswith("/admin/")]
    assert local
    assert all(way.local for path in local for way in hub.routes[path].values())
    for path in local:
        for method in METHODS:
            assert hub.call(method, path).error().code == "E.NOT_FOUND"
        with hub.connect() as raw:
            raw.send(f"POST {path} HTTP/1.1\r\nhost: hub\r\ncontent-length: {1 << 40}\r\n\r\n")
            assert raw.answer().status == 413


@pytest.mark.parametrize("path", ["/healthz", "/tooling/status", "/tooling/identity", "/nowhere"])
def test_what_is_read_by_people_is_json_unless_cbor_is_asked_for(hub: Service, path: str) -> None:
    assert hub.get(path).content_type == JSON
    assert hub.get(path, accept="*/*").content_type == JSON
    assert hub.get(path, accept="application/json").content_type == JSON
    assert hub.get(path, accept=CBOR).content_type == CBOR


def test_the_form_of_an_answer_can_be_chosen(hub: Service) -> None:
    body = StreamRequest(label=LABEL, from_seq=1)
    assert hub.call("POST", "/v1/stream", body, accept=JSON).content_type == JSON
    assert hub.call("POST", "/v1/stream", body, content_type=JSON, accept=CBOR).content_type == CBOR
