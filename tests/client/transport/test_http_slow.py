"""Answers that come drop by drop, or in another way than usual."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic

import pytest

from veen.client.errors import NetworkError
from veen.client.transport.http import HttpHub, HttpRequest

HEAD = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def answering(start: bytes, drop: bytes) -> Iterator[str]:
    """Answer with a beginning, and then with drops until nobody listens any more."""
    over = threading.Event()

    def serve() -> None:
        with suppress(OSError), server.accept()[0] as peer:
            peer.recv(65536)
            peer.sendall(start)
            while drop and not over.wait(0.02):
                peer.sendall(drop)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        over.set()
        thread.join()


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (HEAD, b"x"),
        (HEAD + b"content-length: 100000\r\n\r\n", b"x"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n", b"0"),
    ],
)
def test_time_is_kept_over_the_whole_answer(start: bytes, drop: bytes) -> None:
    with answering(start, drop) as url:
        hub = HttpHub(url, 0.3)
        began = monotonic()
        with pytest.raises(NetworkError, match="did not answer in"):
            hub.exchange(HttpRequest("GET", "/"))
        assert monotonic() - began < 5
        hub.close()


@pytest.mark.parametrize("head", [b"connection: close\r\n\r\n", b"content-length: 5\r\n\r\n", b"\r\n"])
def test_a_connection_that_is_closed_behind_the_answer(head: bytes) -> None:
    with answering(HEAD + head + b"whole", b"") as url:
        hub = HttpHub(url, 5)
        assert hub.exchange(HttpRequest("GET", "/")).body == b"whole"
        hub.close()
