"""Something between client and hub that loses, delays or changes what passes."""

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Passing:
    """A request on its way."""

    method: str
    path: str
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What the hub has answered."""

    status: int
    content_type: str
    body: bytes


class LostError(Exception):
    """The connection breaks here."""


#: Looks at a request before it reaches the hub.
Before = Callable[[Passing], None]
#: Looks at an answer before it reaches the client, and returns what it gets.
After = Callable[[Passing, Answer], Answer]


class Proxy:
    """Passes everything on, except for what ``before`` and ``after`` do to it."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.before: Before = lambda _: None
        self.after: After = lambda _, answer: answer
        self.seen: list[Passing] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def pass_on(self, passing: Passing, content_type: str) -> Answer:
        """Have the hub answer."""
        parts = urlsplit(self.target)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        try:
            headers = {"content-type": content_type} if content_type else {}
            connection.request(passing.method, passing.path, passing.body or None, headers)
            response = connection.getresponse()
            return Answer(response.status, response.headers.get("content-type", ""), response.read())
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _do(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                passing = Passing(self.command, self.path, body)
                proxy.seen.append(passing)
                try:
                    proxy.before(passing)
                    answer = proxy.after(
                        passing, proxy.pass_on(passing, self.headers.get("content-type", ""))
                    )
                except (LostError, OSError):
                    self.close_connection = True
                    self.connection.close()
                    return
                self.send_response(answer.status)
                self.send_header("content-type", answer.content_type)
                self.send_header("content-length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_POST = do_PUT = _do  # noqa: N815 - of the library

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the library
                """Say nothing."""

        return Handler
