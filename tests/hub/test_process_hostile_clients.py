"""Clients that break off, repeat themselves, flood, or never listen: the hub serves the others meanwhile."""

import contextlib
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Final

import pytest

from tests.builders import some_label
from tests.hub.hub_process import (
    CBOR_SEQ,
    TIMEOUT,
    Client,
    HubProcess,
    Refused,
    check_no_secrets,
    check_sound,
)
from veen.core.api.data_plane import SubmitRequest
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.msg import Msg

MAX_RSS_MB: Final = 300
#: Connections of good clients are idle, too, when a slow machine gives them no time.
_IMPATIENT: Final = "header_timeout_sec = 1\nbody_timeout_sec = 1\nidle_timeout_sec = 5\n"


def head(path: str, size: int, content_type: str = "application/cbor") -> bytes:
    sent = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\n"
    return f"{sent}content-length: {size}\r\n\r\n".encode()


def submit(msg: Msg) -> bytes:
    body = SubmitRequest(msg=msg).encode()
    return head("/v1/submit", len(body)) + body


@contextlib.contextmanager
def a_good_client(hub: HubProcess, name: str) -> Iterator[Client]:
    """Somebody who does nothing wrong, and must be served all the time."""
    client = Client(some_label("good"), name)
    ending = Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with hub.api() as api:
                while not ending.is_set():
                    client.send(api)
        except BaseException as error:  # noqa: BLE001 - the test tells it
            errors.append(error)

    thread = Thread(target=run)
    thread.start()
    try:
        yield client
    finally:
        ending.set()
        thread.join(TIMEOUT)
    assert not errors, errors
    assert client.receipts


def check_well(hub: HubProcess) -> None:
    """Check that a hub has survived, in memory and mind."""
    assert hub.get("/healthz")["ok"]
    assert hub.rss_mb() < MAX_RSS_MB
    text = hub.log.read_text()
    assert "Traceback" not in text
    assert '"fault"' not in text
    check_no_secrets(hub.place, text)
    hub.stop()
    check_sound(hub.place)


def read_all(sock: socket.socket) -> bytes:
    """Read until the hub closes."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while data := sock.recv(65536):
            found += data
    return found


def wait_until(holds: Callable[[], bool]) -> None:
    """Ask the hub until it has noticed; each time takes a request."""
    end = monotonic() + TIMEOUT
    while not holds():
        assert monotonic() < end


def wait_closed(socks: list[socket.socket]) -> None:
    """Wait until the hub has closed all of them."""
    left = set(socks)
    while left:
        ready = select.select(left, [], [], TIMEOUT)[0]
        assert ready, f"{len(left)} connections are still open"
        for sock in ready:
            try:
                if sock.recv(65536):
                    continue
            except ConnectionError:
                pass
            left.discard(sock)


# --- one message, sent badly --------------------------------------------------------------------------------


def test_a_message_cut_short_is_nobodys(tmp_path: Path) -> None:
    client = Client(some_label())
    with HubProcess(tmp_path / "data") as hub:
        data = submit(client.message())
        with a_good_client(hub, "good 1"):
            for cut in (1, 20, len(data) // 2, len(data) - 1):
                for how in (socket.SHUT_WR, socket.SHUT_RDWR):
                    with hub.connect() as sock:
                        sock.sendall(data[:cut])
                        sock.shutdown(how)
                        if how == socket.SHUT_WR:
                            read_all(sock)
        with hub.api() as api:
            assert client.send(api).stream_seq == 1, "no piece of it was taken"
        check_well(hub)


def test_a_message_whose_sender_is_gone_is_taken_once(tmp_path: Path) -> None:
    """It was sent whole, and nobody read the answer: a retry learns where it is (C-63)."""
    client = Client(some_label())
    with HubProcess(tmp_path / "data") as hub:
        client.pending.append(client.message())
        with hub.connect() as sock:
            sock.sendall(submit(client.pending[0]))
            sock.shutdown(socket.SHUT_WR)
            assert read_all(sock).startswith(b"HTTP/1.1 200 ")
        with hub.api() as api:
            client.send(api)
            assert client.send(api).stream_seq == 2
        assert [receipt.stream_seq for receipt in client.receipts] == [1, 2]
        check_well(hub)


def test_duplicates_gaps_and_replays(tmp_path: Path) -> None:
    client = Client(some_label())
    with HubProcess(tmp_path / "data") as hub, hub.api() as api:
        first, second, third = (client.message(nth) for nth in (1, 2, 3))
        for early in (second, third):
            with pytest.raises(Refused) as caught:
                api.submit(early)
            assert (caught.value.status, caught.value.detail["detail_enum"]) == (409, "CLIENT_SEQ")
        assert api.submit(first).stream_seq == 1
        with pytest.raises(Refused) as caught:
            api.submit(first)
        assert (caught.value.detail["detail_enum"], caught.value.detail["stream_seq"]) == ("DUPLICATE", 1)
        answers = api.submit_many([third, second, second, third, first])
        kinds = [
            (item.detail or {})["detail_enum"] if isinstance(item, ErrorEnvelope) else item.stream_seq
            for item in answers
        ]
        assert kinds == ["CLIENT_SEQ", 2, "DUPLICATE", 3, "DUPLICATE"]
        check_well(hub)


def test_the_same_message_from_many_at_once_is_taken_once(tmp_path: Path) -> None:
    client = Client(some_label())
    data = submit(client.message())
    with HubProcess(tmp_path / "data") as hub, contextlib.ExitStack() as stack:
        socks = [stack.enter_context(hub.connect()) for _ in range(50)]
        for sock in socks:
            sock.sendall(data)
        statuses = sorted(int(sock.recv(65536).split(b" ")[1]) for sock in socks)
        assert statuses == [200] + [409] * 49
        check_well(hub)


# --- floods -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_flood_of_garbage(tmp_path: Path) -> None:
    """Ten thousand requests on many connections at once, pipelined; each gets its answer."""
    bad = [
        b"",
        b"\xff" * 40,
        b"\xa2\x01\x01\x02" + b"\x9b" + b"\xff" * 8,
        b"\xbf",
        b"\x5f" * 500,
        bytes(2000),
    ]
    requests = b"".join(head("/v1/submit", len(body)) + body for body in bad * 2)
    with HubProcess(tmp_path / "data", config="verify_workers = 1\n") as hub:
        with a_good_client(hub, "good 2"), contextlib.ExitStack() as stack:
            for _ in range(9):
                socks = [stack.enter_context(hub.connect()) for _ in range(100)]
                for sock in socks:
                    sock.sendall(requests)
                    sock.shutdown(socket.SHUT_WR)
                for sock in socks:
                    answers = read_all(sock)
                    assert answers.count(b"HTTP/1.1 400 ") == len(bad) * 2
                    sock.close()
        log = hub.get("/tooling/admission_log?limit=5")["failures"]
        assert {item["code"] for item in log} == {"E.FORMAT"}
        check_well(hub)


def test_a_bulk_of_garbage(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data") as hub, hub.api() as api:
        good = Client(some_label())
        assert api.ask("POST", "/v1/submit", bytes(1000), CBOR_SEQ)[0] == 200
        assert api.ask("POST", "/v1/submit", bytes(100_000), CBOR_SEQ)[0] == 413
        assert api.ask("POST", "/v1/submit", b"\x9f" * 100_000, CBOR_SEQ)[0] == 200
        good.send(api)
        check_well(hub)


@pytest.mark.slow
def test_half_open_connections_are_closed(tmp_path: Path) -> None:
    """Requests that come drop by drop, or not at all, hold nobody up and nothing for long."""
    pieces = (
        b"",
        b"P",
        b"POST /v1/submit HTTP/1.1\r\nhost: localhost",
        head("/v1/submit", 100),
        head("/v1/submit", 9) + b"x",
    )
    with HubProcess(tmp_path / "data", config=_IMPATIENT) as hub, contextlib.ExitStack() as stack:
        with a_good_client(hub, "good 3"):
            socks = [stack.enter_context(hub.connect()) for _ in range(300)]
            for nth, sock in enumerate(socks):
                sock.sendall(pieces[nth % len(pieces)])
            wait_closed(socks)
        stack.close()
        wait_until(lambda: hub.metric("veen_connections") <= 2)
        check_well(hub)


def test_more_connections_than_allowed_are_sent_away(tmp_path: Path) -> None:
    config = "max_connections = 20\nidle_timeout_sec = 60\n"
    with HubProcess(tmp_path / "data", config=config) as hub, contextlib.ExitStack() as stack:
        for _ in range(20):
            sock = stack.enter_context(hub.connect())
            sock.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert sock.recv(100).startswith(b"HTTP/1.1 200 ")
        with hub.connect() as more:
            said = read_all(more)
        assert said.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: " in said
        stack.close()
        wait_until(lambda: is_served(hub))
        check_well(hub)


def is_served(hub: HubProcess) -> bool:
    with contextlib.suppress(ConnectionError), hub.connect() as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        return read_all(sock).startswith(b"HTTP/1.1 200 ")
    return False


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/tooling/status", "/metrics"])
def test_clients_that_never_read_are_cut_off(tmp_path: Path, path: str) -> None:
    """They ask and ask; the answers do not pile up, and after a while they are gone."""
    asked = f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode() * 200
    with HubProcess(tmp_path / "data", config=_IMPATIENT) as hub, contextlib.ExitStack() as stack:
        with a_good_client(hub, "good 4"):
            left = {stack.enter_context(hub.connect_deaf()) for _ in range(3)}
            while left:
                ready = select.select([], left, [], TIMEOUT)[1]
                assert ready, "they are neither read from nor cut off"
                for sock in ready:
                    try:
                        sock.send(asked)
                    except BlockingIOError:
                        pass
                    except ConnectionError:
                        left.discard(sock)
                assert hub.rss_mb() < MAX_RSS_MB
        check_well(hub)


@pytest.mark.slow
def test_pipelined_messages_are_answered_in_order(tmp_path: Path) -> None:
    client = Client(some_label())
    number = 400
    with HubProcess(tmp_path / "data") as hub, hub.connect() as sock:
        data = b"".join(submit(client.message(nth + 1)) for nth in range(number))
        sender = Thread(target=sock.sendall, args=(data,))
        sender.start()
        got = b""
        while got.count(b"HTTP/1.1 ") < number:
            piece = sock.recv(65536)
            assert piece
            got += piece
        sender.join(TIMEOUT)
        assert got.count(b"HTTP/1.1 200 ") == number
        check_well(hub)


# --- too much to do -----------------------------------------------------------------------------------------


def test_a_full_queue_sends_clients_away_for_a_while(tmp_path: Path) -> None:
    """All at once; those that are refused try again later, and in the end all are there."""
    with HubProcess(tmp_path / "data", config="max_queue = 2\n") as hub, contextlib.ExitStack() as stack:
        clients = [Client(some_label(f"queue {nth % 4}")) for nth in range(60)]
        socks = [stack.enter_context(hub.connect()) for _ in clients]
        for client, sock in zip(clients, socks, strict=True):
            client.pending = [client.message()]
            sock.sendall(submit(client.pending[0]))
        answers = [sock.recv(65536) for sock in socks]
        refused = [item for item in answers if item.startswith(b"HTTP/1.1 503 ")]
        assert all(b"\r\nretry-after: 1\r\n" in item for item in refused)
        assert len(refused) + sum(item.startswith(b"HTTP/1.1 200 ") for item in answers) == len(clients)
        assert hub.metric("veen_overloaded_total") == len(refused)
        with hub.api() as api:
            for client in clients:
                client.send(api)
        assert len({(r.label, r.stream_seq) for client in clients for r in client.receipts}) == len(clients)
        check_well(hub)
