"""HTTP itself: connections kept and cut, bodies in pieces, and clients that are slow, greedy or rude."""

import socket
from collections.abc import Iterator

import pytest

from tests.hub.hub_thread import CBOR, Raw, Sender, Service, eventually, serving
from veen.core.api.data_plane import ReceiptRequest, StreamRequest, SubmitRequest, SubmitResponse

HEADER_BYTES = 4096


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(
        tmp_path_factory.mktemp("hub") / "data",
        max_header_bytes=HEADER_BYTES,
        header_timeout_sec=1,
        body_timeout_sec=1,
        idle_timeout_sec=2,
        max_page_bytes=1 << 20,
    ) as service:
        yield service


@pytest.fixture
def raw(hub: Service) -> Iterator[Raw]:
    with hub.connect() as connection:
        yield connection
    hub.check_healthy()


def test_a_connection_serves_one_request_after_the_other(raw: Raw) -> None:
    for _ in range(3):
        raw.ask("GET", "/healthz")
        answer = raw.answer("GET")
        assert answer.status == 200
        assert "connection" not in answer.headers


def test_a_client_can_ask_for_the_end(raw: Raw) -> None:
    raw.ask("GET", "/healthz", headers={"connection": "close"})
    assert raw.answer("GET").headers["connection"] == "close"
    assert raw.ended()


def test_http_1_0_ends_unless_it_is_asked_to_stay(hub: Service) -> None:
    with hub.connect() as once:
        once.ask("GET", "/healthz", version="1.0")
        assert once.answer("GET").headers["connection"] == "close"
        assert once.ended()
    with hub.connect() as kept:
        for _ in range(2):
            kept.ask("GET", "/healthz", version="1.0", headers={"connection": "keep-alive"})
            assert kept.answer("GET").status == 200


def test_pipelined_requests_are_answered_in_order(hub: Service, raw: Raw) -> None:
    sender = Sender(hub, "pipelined", "pipelined")
    bodies = [SubmitRequest(msg=sender.next()).encode() for _ in range(5)]
    requests = b"".join(
        b"POST /v1/submit HTTP/1.1\r\nhost: hub\r\ncontent-length: %d\r\n\r\n%s"
        b"GET /nowhere HTTP/1.1\r\nhost: hub\r\n\r\n" % (len(body), body)
        for body in bodies
    )
    raw.send(requests)
    for nth in range(5):
        assert raw.answer().decode(SubmitResponse).receipt.stream_seq == nth + 1
        assert raw.answer().status == 404


def test_thousands_of_pipelined_requests_wait_for_the_one_in_front(hub: Service, raw: Raw) -> None:
    sender = Sender(hub, "thousands", "thousands")
    first = SubmitRequest(msg=sender.next()).encode()
    count = 3_000
    raw.send(
        b"POST /v1/submit HTTP/1.1\r\nhost: hub\r\ncontent-length: %d\r\n\r\n" % len(first)
        + first
        + count * b"GET /nowhere HTTP/1.1\r\nhost: hub\r\n\r\n"
    )
    assert raw.answer().status == 200
    for _ in range(count):
        assert raw.answer("GET").status == 404


@pytest.mark.slow
def test_requests_behind_a_long_poll_have_no_deadline(hub: Service) -> None:
    """They wait for us: whoever has sent everything in time is not cut off."""
    sender = Sender(hub, "behind", "behind")
    sender.send()
    body = StreamRequest(label=sender.label, from_seq=2).encode()
    with hub.connect() as raw:
        raw.ask("POST", "/v1/stream?wait=3", body)
        raw.ask("GET", "/healthz")
        assert raw.answer().status == 200
        assert raw.answer("GET").status == 200
    hub.check_healthy()


@pytest.mark.slow
def test_a_client_that_takes_no_answers_is_cut_off(hub: Service) -> None:
    """And what it asks for meanwhile is not made: it would pile up in memory."""
    sender = Sender(hub, "greedy", "greedy")
    for _ in range(4):
        hub.accept(sender.next(b"x" * 500_000))
    body = StreamRequest(label=sender.label, from_seq=1).encode()
    page = b"POST /v1/stream HTTP/1.1\r\nhost: hub\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(30)
        sock.connect(hub.address)
        sock.sendall(400 * page)
        for _ in range(20):
            hub.check_healthy()
            assert _unsent_bytes(hub) < 4 << 20
        eventually(lambda: not _is_open(hub, sock))
        # What the kernels hold still comes, and then the end.
        got = 0
        while piece := sock.recv(1 << 20):
            got += len(piece)
        assert got < 50 << 20
    hub.check_healthy()


def _is_open(hub: Service, sock: socket.socket) -> bool:
    transports = [item._transport for item in list(hub.connections)]
    peers = [item.get_extra_info("peername") for item in transports if item is not None]
    return sock.getsockname() in peers


def _unsent_bytes(hub: Service) -> int:
    transports = [item._transport for item in list(hub.connections)]
    return sum(item.get_write_buffer_size() for item in transports if item is not None)


def test_a_body_may_come_in_chunks(hub: Service, raw: Raw) -> None:
    body = SubmitRequest(msg=Sender(hub, "chunks", "chunks").next()).encode()
    raw.send("POST /v1/submit HTTP/1.1\r\nhost: hub\r\ntransfer-encoding: chunked\r\n\r\n")
    for at in range(0, len(body), 100):
        piece = body[at : at + 100]
        raw.send(b"%x;some=extension\r\n%s\r\n" % (len(piece), piece))
    raw.send("0\r\nsome: trailer\r\n\r\n")
    assert raw.answer().decode(SubmitResponse).receipt.stream_seq == 1
    raw.ask("GET", "/healthz")
    assert raw.answer("GET").status == 200


def test_a_trailer_does_not_say_otherwise_what_a_header_has_said(raw: Raw) -> None:
    raw.send("POST /v1/receipt HTTP/1.1\r\nhost: hub\r\ncontent-type: text/plain\r\n")
    raw.send("transfer-encoding: chunked\r\n\r\n1\r\n\xa0\r\n0\r\ncontent-type: application/cbor\r\n\r\n")
    refused = raw.answer().error()
    assert refused.detail is not None
    assert refused.detail["field"] == "content-type"


def test_chunks_are_counted_as_they_come(raw: Raw) -> None:
    raw.send("POST /v1/receipt HTTP/1.1\r\nhost: hub\r\ntransfer-encoding: chunked\r\n\r\n")
    piece = b"4000\r\n" + bytes(0x4000) + b"\r\n"
    raw.send(5 * piece)
    assert raw.answer().refusal() == ("E.LIMIT", "FIELD_SIZE")
    assert raw.ended()


def test_a_client_may_ask_before_it_sends_a_body(hub: Service, raw: Raw) -> None:
    body = SubmitRequest(msg=Sender(hub, "polite", "polite").next()).encode()
    head = f"POST /v1/submit HTTP/1.1\r\nhost: hub\r\ncontent-length: {len(body)}"
    raw.send(head + "\r\nexpect: 100-continue\r\n\r\n")
    assert raw.line() == b"HTTP/1.1 100 Continue\r\n"
    assert raw.line() == b"\r\n"
    raw.send(body)
    assert raw.answer().status == 200


def test_a_client_that_asks_learns_that_its_body_is_too_large(raw: Raw) -> None:
    head = "POST /v1/receipt HTTP/1.1\r\nhost: hub\r\ncontent-length: 99999999"
    raw.send(head + "\r\nexpect: 100-continue\r\n\r\n")
    assert raw.answer().refusal() == ("E.LIMIT", "FIELD_SIZE")
    assert raw.ended()


def test_head_is_get_without_the_body(raw: Raw) -> None:
    raw.ask("HEAD", "/tooling/kex_policy")
    head = raw.answer("HEAD")
    raw.ask("GET", "/tooling/kex_policy")
    whole = raw.answer("GET")
    assert (head.status, head.headers) == (whole.status, whole.headers)
    raw.ask("HEAD", "/v1/submit")
    assert raw.answer("HEAD").status == 405
    raw.ask("HEAD", "/nowhere")
    assert raw.answer("HEAD").status == 404
    raw.ask("GET", "/healthz")
    assert raw.answer("GET").status == 200


def test_options_is_a_method_like_any_other(raw: Raw) -> None:
    raw.ask("OPTIONS", "/v1/submit")
    answer = raw.answer()
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    raw.ask("OPTIONS", "*")
    assert raw.answer().status == 404


@pytest.mark.parametrize("wish", ["h2c", "websocket"])
def test_a_wish_to_upgrade_is_ignored(hub: Service, raw: Raw, wish: str) -> None:
    """Java's client and curl send one with their first request, and go on in HTTP/1.1 without an answer."""
    body = SubmitRequest(msg=Sender(hub, wish, wish).next()).encode()
    upgrade = {"connection": "Upgrade, HTTP2-Settings", "upgrade": wish, "http2-settings": "AAMAAABk"}
    raw.ask("POST", "/v1/submit", body, {**upgrade, "content-type": CBOR})
    assert raw.answer().decode(SubmitResponse).receipt.stream_seq == 1
    raw.ask("GET", "/healthz", headers=upgrade)
    assert raw.answer("GET").status == 200
    raw.ask("GET", "/healthz", headers={**upgrade, "connection": "upgrade, close"})
    assert raw.answer("GET").status == 200
    assert raw.ended()


def test_an_upgrade_does_not_change_the_version_of_a_request(hub: Service) -> None:
    """In HTTP/1.0 a connection has one request, unless that says otherwise, and needs no Host."""
    with hub.connect() as raw:
        raw.send("GET /healthz HTTP/1.0\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
        assert raw.answer("GET").status == 200
        assert raw.ended()


def test_the_refusal_of_a_head_has_no_body(hub: Service) -> None:
    """It would be taken for the beginning of another answer."""
    for refused in ("host: evil.example\r\n", "host: hub\r\ncontent-length: 99999999\r\n"):
        with hub.connect() as raw:
            raw.send(f"HEAD /healthz HTTP/1.1\r\n{refused}\r\n")
            answer = raw.answer("HEAD")
            assert answer.status in {413, 421}
            assert int(answer.headers["content-length"]) > 0
            assert raw.ended()


def test_an_upgrade_with_a_body_in_pieces_is_read_to_its_end(hub: Service, raw: Raw) -> None:
    body = SubmitRequest(msg=Sender(hub, "pieces", "pieces").next()).encode()
    head = "POST /v1/submit HTTP/1.1\r\nhost: hub\r\nconnection: upgrade\r\nupgrade: h2c"
    raw.send(f"{head}\r\ncontent-length: {len(body)}\r\nexpect: 100-continue\r\n\r\n")
    assert raw.line() == b"HTTP/1.1 100 Continue\r\n"
    assert raw.line() == b"\r\n"
    raw.send(body[:100])
    raw.send(body[100:] + b"GET /healthz HTTP/1.1\r\nhost: hub\r\n\r\n")
    assert raw.answer().status == 200
    assert raw.answer("GET").status == 200


@pytest.mark.parametrize(
    "sent",
    [
        "CONNECT hub:443 HTTP/1.1\r\nhost: hub\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET /healthz HTTP/9.9\r\n\r\n",
        "GET  HTTP/1.1\r\nhost: hub\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "NONSENSE /healthz HTTP/1.1\r\nhost: hub\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: hub\r\nno colon\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: hub\r\nname : value\r\n\r\n",
        "POST /v1/submit HTTP/1.1\r\nhost: hub\r\ncontent-length: x\r\n\r\n",
        "POST /v1/submit HTTP/1.1\r\nhost: hub\r\ncontent-length: -1\r\n\r\n",
        "POST /v1/submit HTTP/1.1\r\nhost: hub\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nhost: hub\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /v1/submit HTTP/1.1\r\nhost: hub\r\ntransfer-encoding: chunked\r\n\r\nnot a length\r\n",
        f"POST /v1/submit HTTP/1.1\r\nhost: hub\r\ncontent-length: {'9' * 3000}\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused_once(raw: Raw, sent: str) -> None:
    raw.send(sent)
    assert raw.answer().error().code == "E.BAD_REQUEST"
    assert raw.ended()


def test_too_many_headers_are_refused(raw: Raw) -> None:
    raw.send("GET /healthz HTTP/1.1\r\nhost: hub\r\n" + 101 * "a: b\r\n" + "\r\n")
    assert raw.answer().error().code == "E.BAD_REQUEST"
    assert raw.ended()


@pytest.mark.parametrize(
    "sent", ["GET /{} HTTP/1.1\r\nhost: hub\r\n\r\n", "GET / HTTP/1.1\r\nhost: hub\r\na: {}\r\n\r\n"]
)
def test_headers_have_a_bound_in_bytes(hub: Service, sent: str) -> None:
    with hub.connect() as fits:
        fits.send(sent.format("x" * (HEADER_BYTES - 100)))
        assert fits.answer("GET").status == 404
    with hub.connect() as greedy:
        greedy.send(sent.format("x" * HEADER_BYTES))
        assert greedy.answer().error().code == "E.BAD_REQUEST"
        assert greedy.ended()


@pytest.mark.parametrize(
    "begun",
    [
        "GET / HTTP/1.1\r\nhost: hub\r\na: ",
        "GET /healthz HTTP/1.1\r\nhost: hub\r\n\r\nGET / HTTP/1.1\r\nhost: hub\r\na: ",
    ],
)
def test_a_header_without_end_is_cut_off_before_it_fills_the_memory(hub: Service, begun: str) -> None:
    with hub.connect() as raw:
        raw.send(begun)
        if begun.count("GET") > 1:
            assert raw.answer("GET").status == 200
        raw.send(1_000_000 * "x")
        assert raw.answer().error().code == "E.BAD_REQUEST"
        assert raw.ended()
    hub.check_healthy()


def test_a_trailer_without_end_is_cut_off_as_well(hub: Service) -> None:
    with hub.connect() as raw:
        raw.send("POST /v1/receipt HTTP/1.1\r\nhost: hub\r\ntransfer-encoding: chunked\r\n\r\n0\r\na: ")
        raw.send(1_000_000 * "x")
        assert raw.answer().error().code == "E.BAD_REQUEST"
        assert raw.ended()
    hub.check_healthy()


@pytest.mark.slow
def test_a_slow_header_is_cut_off(raw: Raw) -> None:
    raw.send("GET /healthz HTT")
    assert "took too long" in raw.answer().error().message
    assert raw.ended()


@pytest.mark.slow
def test_a_slow_body_is_cut_off(raw: Raw) -> None:
    raw.send("POST /v1/submit HTTP/1.1\r\nhost: hub\r\ncontent-length: 100\r\n\r\nx")
    assert "took too long" in raw.answer().error().message
    assert raw.ended()


@pytest.mark.slow
def test_half_a_request_behind_a_whole_one_is_cut_off(raw: Raw) -> None:
    raw.send("GET /healthz HTTP/1.1\r\nhost: hub\r\n\r\nGET /hea")
    assert raw.answer("GET").status == 200
    assert "took too long" in raw.answer().error().message
    assert raw.ended()


@pytest.mark.slow
def test_an_idle_connection_is_closed(raw: Raw) -> None:
    raw.ask("GET", "/healthz")
    assert raw.answer("GET").status == 200
    assert raw.ended()


@pytest.mark.slow
def test_a_connection_on_which_nothing_comes_is_closed(raw: Raw) -> None:
    assert raw.ended()


def test_an_answer_comes_also_to_a_client_that_has_closed_its_side(hub: Service, raw: Raw) -> None:
    body = SubmitRequest(msg=Sender(hub, "half", "half").next()).encode()
    raw.ask("POST", "/v1/submit", body)
    raw.sock.shutdown(socket.SHUT_WR)
    assert raw.answer().status == 200
    assert raw.ended()


def test_a_client_that_has_left_is_forgotten(hub: Service) -> None:
    sender = Sender(hub, "left", "left")
    message = sender.next()
    with hub.connect() as gone:
        gone.ask("POST", "/v1/submit", SubmitRequest(msg=message).encode())
    # The message may be in the log or not; the next request finds out, and the hub is well.
    assert hub.submit(message).status in {200, 409}
    assert hub.post("/v1/receipt", ReceiptRequest(label=sender.label, stream_seq=1)).status == 200


def test_connections_have_a_bound(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("hub") / "data"
    with (
        serving(place, max_connections=2) as hub,
        hub.connect() as first,
        hub.connect() as second,
    ):
        for kept in (first, second):
            kept.ask("GET", "/healthz")
            assert kept.answer("GET").status == 200
        with hub.connect() as third:
            error = third.answer().error()
            assert (error.code, error.retry_after) == ("E.UNAVAILABLE", 1)
            assert third.ended()
        first.ask("GET", "/healthz")
        assert first.answer("GET").status == 200
