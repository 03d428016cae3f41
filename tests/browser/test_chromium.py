"""A real browser with pages of strangers, from another port and under a name that was rebound (C-196).

``make browser`` runs this with a Chromium that it finds. What the pages do is in ``page.html``.
"""

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, Final, Self

import pytest

from tests.builders import some_label
from tests.client.participants import make_home
from tests.hub.hub_process import Client, HubProcess
from tests.query_service import service_process
from tests.recorder.feed.feed_reader import eventually, recorded
from tests.recorder.inputs.otlp_process import listening
from veen.core.api.data_plane import SubmitRequest
from veen.query_service.store import Kind

BROWSER: Final = os.environ.get("VEEN_BROWSER", "")
PAGE: Final = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
STREAM: Final = "record/app/browser"
_SEC: Final = 120

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BROWSER, reason="no Chromium: make browser names one in VEEN_BROWSER"),
]


class Site:
    """The server of a stranger, with one page, which tells it what it has found.

    All else is passed on to a server ``behind``, byte for byte: as if its name led there by now.
    """

    def __init__(self, config: Mapping[str, Any], behind: tuple[str, int] | None = None) -> None:
        self._behind = behind
        #: One for the page and what is behind it, one for what the page has found.
        self._socks = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self._threads = [Thread(target=self._serve, args=(sock,)) for sock in self._socks]
        self.port, ear = (sock.getsockname()[1] for sock in self._socks)
        told = {**config, "report": f"http://127.0.0.1:{ear}/found"}
        self._page = PAGE.replace("__CONFIG__", json.dumps(told)).encode()
        self.found: Queue[dict[str, str]] = Queue()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for sock, thread in zip(self._socks, self._threads, strict=True):
            sock.shutdown(socket.SHUT_RDWR)
            thread.join()
            sock.close()

    def _serve(self, sock: socket.socket) -> None:
        with suppress(OSError):  # it is closed
            while True:
                peer, _ = sock.accept()
                Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        with peer, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                data = peer.recv(65536)
                if not data:
                    return
                head += data
            if head.startswith(b"GET / "):
                self._send(peer, self._page)
            elif head.startswith(b"POST /found "):
                self._take(peer, head)
            elif self._behind is not None:
                with socket.create_connection(self._behind) as target:
                    target.sendall(head)
                    Thread(target=_pass_on, args=(peer, target), daemon=True).start()
                    _pass_on(target, peer)

    def _take(self, peer: socket.socket, data: bytes) -> None:
        head, _, body = data.partition(b"\r\n\r\n")
        (size,) = re.findall(rb"content-length: (\d+)", head.lower())
        while len(body) < int(size):
            body += peer.recv(65536)
        self._send(peer, b"")
        self.found.put(json.loads(body))

    def _send(self, peer: socket.socket, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n"
        peer.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)

    def visit(self, name: str, profile: Path) -> dict[str, str]:
        """Open the page in the browser; returns what it has found."""
        flags = (
            "--headless",
            "--no-sandbox",  # it does not run as root otherwise; it sees nothing but our own pages
            "--disable-gpu",
            "--no-first-run",
            "--no-proxy-server",
            "--disable-background-networking",
            f"--user-data-dir={profile}",
            "--host-resolver-rules=MAP evil.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        )
        log = profile.with_name("browser.log")
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [BROWSER, *flags, f"http://{name}:{self.port}/"],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )
        try:
            return self.found.get(timeout=_SEC)
        except Empty:
            raise AssertionError(f"the page has not told anything: {log.read_text()[-2000:]}") from None
        finally:
            process.terminate()
            process.wait(_SEC)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):  # one of them has closed
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


class Servers:
    """All three, each with a request that it takes from a program."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self.place = place
        self.hub = stack.enter_context(HubProcess(place / "hub"))
        self.log = stack.enter_context(HubProcess(place / "log"))
        make_home(place / "app")
        self.tokens = service_process.make_place(place / "queries")
        options = (
            "--stream",
            STREAM,
            "--hub",
            self.log.url,
            "--client",
            place / "app",
            "--to",
            place / "app",
        )
        self.receiver = stack.enter_context(listening(*options))
        self.queries = stack.enter_context(service_process.Service(place / "queries", self.log.url))
        message = SubmitRequest(msg=Client(some_label("browser")).message()).encode()
        line = b'{"event_type": "forged", "event_time": 5}\n'
        request = json.dumps({"scope": [service_process.APP]}).encode()
        self.requests = {
            "hub": _request(self.hub.url, "/tooling/status", "/v1/submit", message, "application/cbor"),
            "older hub": _request(self.hub.url, "/metrics", "/submit", message[4:], "application/cbor"),
            "receiver": _request(f"http://{self.receiver}", "/jsonl", "/jsonl", line, "application/x-ndjson"),
            "queries": _request(
                self.queries.url, "/healthz", "/api/query/submit", request, "application/json"
            ),
        }

    def turned_away(self) -> float:
        with self.hub.api() as api:
            text = api.ask("GET", "/metrics")[2].decode()
        lines = [line for line in text.splitlines() if line.startswith("veen_turned_away_total{")]
        return sum(float(line.split()[-1]) for line in lines)

    def check_untouched(self) -> None:
        """Check that nothing is in a record, nor in the log of what was refused."""
        status, log = self.hub.get("/tooling/status"), self.hub.get("/tooling/admission_log")
        assert (status["last_stream_seq"], log["failures"]) == (0, [])
        assert recorded(self.place / "app", self.log.url, STREAM) == []
        assert list(service_process.recorded(self.place / "queries", self.log.url, Kind.REQUEST)) == []


def _request(url: str, look: str, path: str, body: bytes, kind: str) -> dict[str, str]:
    return {"url": url, "look": look, "path": path, "body": body.hex(), "type": kind}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        made = Servers(tmp_path_factory.mktemp("servers"), stack)
        yield made
        made.check_untouched()
        # They were there all the time: what a program sends is taken.
        host, _, port = made.receiver.rpartition(":")
        with socket.create_connection((host, int(port))) as sock:
            head = f"POST /jsonl HTTP/1.1\r\nhost: {made.receiver}\r\ncontent-type: application/x-ndjson\r\n"
            body = bytes.fromhex(made.requests["receiver"]["body"])
            sock.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            assert sock.recv(12).endswith(b"200")
        eventually(lambda: len(recorded(made.place / "app", made.log.url, STREAM)) == 1)


@pytest.mark.parametrize("site", ["127.0.0.1", "evil.example"])
def test_a_page_of_another_origin(servers: Servers, tmp_path: Path, site: str) -> None:
    before = servers.turned_away()
    with Site({"rebound": False, "requests": servers.requests}) as made:
        found = made.visit(site, tmp_path / "profile")
    assert len(found) == 12 * len(servers.requests)
    assert set(found.values()) <= {"nothing", "opaque"}, "whatever was sent, nothing of an answer is seen"
    assert servers.turned_away() - before >= len(found) / 2, "and it was sent"
    servers.check_untouched()


@pytest.mark.parametrize("name", ["hub", "older hub", "receiver", "queries"])
def test_a_page_whose_name_leads_to_a_server(servers: Servers, tmp_path: Path, name: str) -> None:
    request = servers.requests[name]
    host, _, port = request["url"].partition("://")[2].rpartition(":")
    with Site({"rebound": True, "requests": {name: request}}, (host, int(port))) as made:
        found = made.visit("evil.example", tmp_path / "profile")
    assert len(found) == 3
    for what, answer in found.items():
        assert answer.startswith("421 "), what
        assert "evil.example is not one of the names" in answer
    servers.check_untouched()
