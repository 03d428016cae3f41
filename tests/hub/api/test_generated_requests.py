"""Requests made by chance: whatever comes, the hub answers in its forms, finds no fault in itself, and lives.

The shapes of the requests are the schema: what is generated follows from them, in CBOR and JSON side by
side, so that a new field is met here without a word. Both forms must get the same answer.
"""

import json
import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import builders, rawcbor
from tests.hub.api.test_routes import REQUESTS
from tests.hub.hub_thread import CBOR, CBOR_SEQ, JSON, Answer, Raw, Sender, Service, answers, serving
from veen.core.api import data_plane, tooling
from veen.core.encoding.field_types import BOOL, BYTES, CIPHERTEXT, TEXT, UINT, VER, Kind, ListOf
from veen.core.encoding.shape import ArrayShape, MapShape, NamedShape
from veen.core.encoding.wire_object import Nested, Wire
from veen.core.objects.labels import label

#: What a request of each path is answered with.
RESPONSES: dict[str, type[Wire]] = {
    "/v1/submit": data_plane.SubmitResponse,
    "/v1/stream": data_plane.StreamResponse,
    "/v1/receipt": data_plane.ReceiptResponse,
    "/v1/proof": data_plane.ProofResponse,
    "/v1/checkpoint": data_plane.CheckpointResponse,
    "/tooling/authorize": tooling.AuthorizeResponse,
    "/tooling/cap_status": tooling.CapStatusResponse,
    "/tooling/proof_at": data_plane.ProofResponse,
    "/tooling/epochs": tooling.StreamEpochsResponse,
    "/tooling/consistency": tooling.ConsistencyResponse,
    "/tooling/checkpoint_latest": data_plane.CheckpointResponse,
    "/tooling/checkpoint_range": tooling.CheckpointRangeResponse,
    "/tooling/report_equivocation": tooling.EquivocationResponse,
    "/tooling/backup": tooling.BackupResponse,
    "/tooling/anchor": tooling.AnchorResponse,
    "/anchor": tooling.AnchorResponse,
    "/report_equivocation": tooling.EquivocationResponse,
}
SIZE = 9
#: Fixed, so that labels are known before there is a hub.
ROUTING = builders.routing_key()
#: One hub for all examples of a test: what they leave behind makes the next ones more interesting.
EXAMPLES = int(os.environ.get("VEEN_REQUEST_EXAMPLES", "100"))
by_chance = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    place = tmp_path_factory.mktemp("hub") / "data"
    with serving(place, trust_all_issuers=True, max_page_items=4, routing_key=ROUTING.hex()) as service:
        Sender(service).send(SIZE)
        token = builders.cap_token()
        service.post("/tooling/authorize", tooling.AuthorizeRequest(cap_token=token))
        upto = data_plane.CheckpointRequest(label=Sender(service).label, upto_seq=3)
        assert service.post("/v1/checkpoint", upto).status == 200
        yield service
        service.check_healthy()


# --- values of all kinds, in both forms ---------------------------------------------------------------------

Both = tuple[bytes, Any]


#: Ids that mean something to the hub, and others.
SOME_B32 = st.one_of(
    st.sampled_from(
        [
            label(ROUTING, builders.stream(), 0),
            label(ROUTING, builders.stream("other"), 0),
            builders.stream(),
            builders.cap_token().auth_ref,
            builders.verify_key(),
            builders.profile().profile_id,
            bytes(32),
        ]
    ),
    st.binary(min_size=32, max_size=32),
)
NUMBERS = st.one_of(
    st.integers(0, SIZE + 2), st.sampled_from([255, 2**32, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1)
)


def both(kind: Kind) -> st.SearchStrategy[Both]:
    """Return values of a kind: their CBOR, and what JSON has for them."""
    match kind:
        case Nested():
            return of_shape(kind.shape)
        case ListOf():
            return st.lists(both(kind.kind), max_size=3).map(
                lambda items: (rawcbor.array(item[0] for item in items), [item[1] for item in items])
            )
    scalars: dict[int, st.SearchStrategy[Both]] = {
        id(VER): st.just((rawcbor.uint(1), 1)),
        id(UINT): NUMBERS.map(lambda value: (rawcbor.uint(value), value)),
        id(BOOL): st.booleans().map(lambda value: (rawcbor.TRUE if value else rawcbor.FALSE, value)),
        id(TEXT): st.text(max_size=80).map(lambda value: (rawcbor.tstr(value), value)),
        id(BYTES): st.binary(max_size=80).map(_bytes),
        id(CIPHERTEXT): st.binary(max_size=400).map(_bytes),
    }
    if id(kind) in scalars:
        return scalars[id(kind)]
    size = kind.size  # type: ignore[attr-defined] # all others have a fixed one
    made = SOME_B32 if size == 32 else st.binary(min_size=size, max_size=size)
    fixed = made.map(_bytes)
    return st.one_of(fixed, st.just((rawcbor.NULL, None))) if "null" in kind.name else fixed


def _bytes(value: bytes) -> Both:
    return rawcbor.bstr(value), value.hex()


@cache
def of_shape(shape: ArrayShape | MapShape) -> st.SearchStrategy[Both]:
    assert not isinstance(shape, NamedShape), "no request has one"
    fields = {
        field.name: st.none() | both(field.kind) if field.optional else both(field.kind)
        for field in shape.fields
    }

    def put_together(values: dict[str, Both | None]) -> Both:
        there = [(field, values[field.name]) for field in shape.fields if values[field.name] is not None]
        pairs = [(field, value) for field, value in there if value is not None]
        if isinstance(shape, ArrayShape):
            return rawcbor.array(value[0] for _, value in pairs), [value[1] for _, value in pairs]
        encoded = rawcbor.mapping((rawcbor.uint(field.key), value[0]) for field, value in pairs)
        return encoded, {field.name: value[1] for field, value in pairs}

    return st.fixed_dictionaries(fields).map(put_together)


def shape_of(path: str) -> ArrayShape | MapShape:
    body = REQUESTS[path]
    assert isinstance(body, Wire)
    return body.SHAPE


# --- what must hold of every answer -------------------------------------------------------------------------


def judge(path: str, answer: Answer) -> object:
    """Return what an answer says, whatever its form; fail if it has none."""
    if answer.status == 200 and answer.content_type == CBOR_SEQ:
        return answers(answer)
    if answer.status == 200:
        cls = RESPONSES[path]
        return answer.from_json(cls) if answer.content_type == JSON else answer.decode(cls)
    error = answer.error()
    assert answer.status < 500, answer.body
    return error.code, (error.detail or {}).get("detail_enum")


def test_every_request_has_a_response() -> None:
    with_shape = {path for path, body in REQUESTS.items() if isinstance(body, Wire)}
    assert with_shape == set(RESPONSES) | {"/submit", "/authorize"}


@pytest.mark.slow
@pytest.mark.parametrize("path", RESPONSES)
@by_chance
@given(data=st.data())
def test_both_forms_of_a_request_get_the_same_answer(hub: Service, path: str, data: st.DataObject) -> None:
    encoded, as_json = data.draw(of_shape(shape_of(path)))
    first = judge(path, hub.post(path, encoded))
    second = judge(path, hub.post(path, json.dumps(as_json).encode(), JSON))
    assert first == second


@pytest.mark.slow
@pytest.mark.parametrize("path", RESPONSES)
@by_chance
@given(data=st.data())
def test_damaged_cbor_is_answered_too(hub: Service, path: str, data: st.DataObject) -> None:
    encoded, _ = data.draw(of_shape(shape_of(path)))
    kind = data.draw(st.sampled_from([CBOR, CBOR, CBOR_SEQ, JSON]))
    judge(path, hub.call("POST", path, data.draw(damaged(encoded)), content_type=kind))


@pytest.mark.slow
@pytest.mark.parametrize("path", RESPONSES)
@by_chance
@given(data=st.data())
def test_damaged_json_is_answered_too(hub: Service, path: str, data: st.DataObject) -> None:
    _, as_json = data.draw(of_shape(shape_of(path)))
    text = json.dumps(data.draw(changed(as_json)))
    body = data.draw(st.one_of(st.just(text.encode()), damaged(text.encode())))
    judge(path, hub.post(path, body, JSON))


def damaged(data: bytes) -> st.SearchStrategy[bytes]:
    """Bytes cut, doubled, flipped and mixed with others."""
    ways: list[Callable[[int, bytes], bytes]] = [
        lambda at, new: data[:at] + new + data[at:],
        lambda at, new: data[:at] + new + data[at + len(new) :],
        lambda at, _: data[:at],
        lambda at, _: data[at:],
        lambda at, _: data[:at] + data[at + 1 :],
        lambda at, _: data + data[:at],
    ]
    places = st.integers(0, max(len(data), 1))
    return st.tuples(st.sampled_from(ways), places, st.binary(min_size=1, max_size=9)).map(
        lambda drawn: drawn[0](drawn[1], drawn[2])
    )


STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(st.characters(), max_size=20),
    st.just("\ud800"),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
)


def changed(value: Any) -> st.SearchStrategy[Any]:
    """A JSON value with something else in one place."""
    if isinstance(value, dict) and value:
        return st.one_of(
            st.sampled_from(sorted(value)).flatmap(
                lambda name: changed(value[name]).map(lambda new: {**value, name: new})
            ),
            st.text(max_size=8).map(lambda name: {**value, name: 1}),
        )
    if isinstance(value, list) and value:
        return st.integers(0, len(value) - 1).flatmap(
            lambda at: changed(value[at]).map(lambda new: [*value[:at], new, *value[at + 1 :]])
        )
    return STRANGE


@pytest.mark.slow
@by_chance
@given(items=st.lists(st.one_of(st.binary(max_size=30), st.integers(1, 5)), max_size=12))
def test_sequences_of_anything_are_answered_in_their_length(hub: Service, items: list[bytes | int]) -> None:
    sender = Sender(hub, "sequences", "sequences")
    parts = [rawcbor.bstr(item) if isinstance(item, bytes) else sender.make(item).encode() for item in items]
    got = answers(hub.post("/v1/submit", b"".join(parts), CBOR_SEQ))
    assert len(got) == len(items)


QUERIES = [
    "/stream",
    "/checkpoint_latest",
    "/checkpoint_range",
    "/tooling/status",
    "/tooling/admission_log",
    "/tooling/revocations",
    "/tooling/attachment/",
]


NAMES = [
    "active",
    "epoch_max",
    "epoch_min",
    "from",
    "kind",
    "label",
    "limit",
    "origin",
    "since",
    "stream_id",
    "with_proof",
]


@pytest.mark.slow
@pytest.mark.parametrize("path", QUERIES)
@by_chance
@given(
    query=st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.one_of(
                st.integers(-5, 2**65).map(str),
                st.binary(min_size=32, max_size=32).map(bytes.hex),
                st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=10),
                st.just("%ff%00"),
                st.just("%d9%a3"),  # a digit, but not one of ours
            ),
        ),
        max_size=4,
    )
)
def test_queries_of_anything_are_answered(hub: Service, path: str, query: list[tuple[str, str]]) -> None:
    target = path + "?" + "&".join(f"{name}={value}" for name, value in query)
    answer = hub.get(target.replace("#", ""))
    assert answer.status == 200 or answer.error().code in {"E.BAD_REQUEST", "E.NOT_FOUND", "E.FORBIDDEN"}


@pytest.mark.slow
@by_chance
@given(data=st.data())
def test_damaged_http_is_answered_or_cut_off(hub: Service, data: st.DataObject) -> None:
    body = REQUESTS["/v1/stream"]
    assert isinstance(body, Wire)
    whole = b"POST /v1/stream HTTP/1.1\r\nhost: hub\r\ncontent-length: %d\r\n\r\n" % len(body.encode())
    sent = data.draw(damaged(whole + body.encode() + b"GET /healthz HTTP/1.1\r\nhost: hub\r\n\r\n"))
    with hub.connect() as raw:
        raw.send(sent)
        raw.sock.shutdown(1)
        _read_all(raw)


def _read_all(raw: Raw) -> None:
    """Read answers until the end; what comes is HTTP."""
    while (line := raw.line()) != b"":
        assert line.startswith(b"HTTP/1.1 ")
        assert int(line.split()[1]) < 500
        length = 0
        while (header := raw.line()) != b"\r\n":
            if header.lower().startswith(b"content-length:"):
                length = int(header.split(b":")[1])
        assert len(raw._incoming.read(length)) == length
