"""A real hub in a thread, and clients that speak to it through sockets: politely, or byte by byte."""

import asyncio
import io
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any, Self

from tests import builders
from veen.core.api.data_plane import SubmitRequest, SubmitResponse
from veen.core.encoding import cbor
from veen.core.encoding.wire_object import W, Wire
from veen.core.errors import HTTP_STATUS, Code
from veen.core.objects import labels
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.hub_identity import HubIdentity
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
from veen.core.types import AuthRef, JsonValue, Label
from veen.hub.api.router import HubRoute
from veen.hub.config import Settings
from veen.hub.home import SECRETS, HubSecrets
from veen.hub.hub import Hub
from veen.hub.server import RunningHub, Server
from veen.net.http_connection import Connection
from veen.net.http_router import Routes
from veen.stdx.json_log import LogWriter, json_lines

CBOR = "application/cbor"
CBOR_SEQ = "application/cbor-seq"
JSON = "application/json"
#: Longer than anything takes; a test that waits so long has failed.
PATIENCE_SEC = 30.0


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        return self.headers["content-type"]

    def json(self) -> Any:
        assert self.content_type == JSON, self
        return json.loads(self.body)

    def decode(self, cls: type[W]) -> W:
        """Return what was asked for; an error is none."""
        assert self.status == 200, self.body
        assert self.content_type == CBOR
        return cls.decode(self.body)

    def from_json(self, cls: type[W]) -> W:
        assert self.status == 200, self.body
        return cls.from_json(self.json())

    def error(self) -> ErrorEnvelope:
        """Return the error; its form is strict, and status and headers follow from it (C-61)."""
        if self.content_type == JSON:
            found = ErrorEnvelope.from_json(self.json())
        else:
            assert self.content_type == CBOR
            found = ErrorEnvelope.decode(self.body)
        assert self.status in {HTTP_STATUS[Code(found.code)], 405} or self.is_misdirected(found)
        assert ("allow" in self.headers) == (self.status == 405)
        retry = None if found.retry_after is None else str(found.retry_after)
        assert self.headers.get("retry-after") == retry
        return found

    def is_misdirected(self, found: ErrorEnvelope) -> bool:
        """Tell whether it says that the request is for somebody else: a status of its own (C-196)."""
        return (self.status, found.code, (found.detail or {})["field"]) == (421, "E.FORBIDDEN", "host")

    def refusal(self) -> tuple[str, str]:
        """Return code and detail of an error: what programs branch on."""
        error = self.error()
        return error.code, str((error.detail or {}).get("detail_enum", ""))


def describe_body(body: bytes | Wire | JsonValue, content_type: str | None) -> tuple[bytes, str | None]:
    """Return the bytes of a body, and their type."""
    match body:
        case bytes():
            return body, content_type
        case Wire() if content_type == JSON:
            return json.dumps(body.to_json()).encode(), JSON
        case Wire():
            return body.encode(), content_type or CBOR
    return json.dumps(body).encode(), content_type or JSON


class Raw:
    """One connection, and what is sent through it."""

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None = None) -> None:
        self.sock = socket.create_connection(address, timeout=PATIENCE_SEC)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            try:
                self.sock = tls.wrap_socket(self.sock, server_hostname=address[0])
            except OSError:
                self.sock.close()
                raise
        self._incoming = self.sock.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._incoming.close()
        self.sock.close()

    def send(self, data: bytes | str) -> None:
        self.sock.sendall(data.encode("latin-1") if isinstance(data, str) else data)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        version: str = "1.1",
    ) -> None:
        """Send a whole request."""
        lines = [f"{method} {path} HTTP/{version}", "host: hub"]
        if body is not None:
            lines.append(f"content-length: {len(body)}")
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body or b""))

    def answer(self, method: str = "POST") -> Answer:
        """Wait for the next answer. A connection can have several."""
        response = HTTPResponse(_Kept(self._incoming), method=method)  # type: ignore[arg-type] # as a socket
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        if response.length is None and method != "HEAD":
            raise AssertionError("an answer says how long it is")
        body = response.read()
        assert method == "HEAD" or len(body) == int(headers["content-length"])
        return Answer(response.status, headers, body)

    def line(self) -> bytes:
        return self._incoming.readline()

    def ended(self) -> bool:
        """Wait for the end of the connection; what comes before it is none."""
        try:
            return self._incoming.read(1) == b""
        except ConnectionResetError:
            return True


class _Kept:
    """Makes several responses come from one stream: each closes its own view only."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream

    def makefile(self, _mode: str) -> "_Kept":
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        pass

    def flush(self) -> None:
        pass


class _Lines(io.BytesIO):
    """Where the hub logs to."""


@dataclass
class Service:
    """A hub that serves."""

    data_dir: Path
    settings: Settings
    server: Server
    running: RunningHub
    lines: _Lines
    writer: LogWriter
    expect_faults: bool = field(default=False)
    #: How clients connect to a hub that serves HTTPS.
    tls: ssl.SSLContext | None = None

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.running.urls[0].partition("://")[2].rpartition(":")
        return host, int(port)

    @property
    def identity(self) -> HubIdentity:
        return self.running.home.identity

    @property
    def hub(self) -> Hub:
        assert self.server.endpoints is not None
        return self.server.endpoints._hub

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it serves on."""
        assert self.server._listener is not None
        return self.server._listener._loop

    @property
    def connections(self) -> set[Connection]:
        assert self.server._listener is not None
        return self.server._listener.connections

    @property
    def routes(self) -> Routes[HubRoute]:
        assert self.server.endpoints is not None
        return self.server.endpoints.app.routes

    @property
    def secrets(self) -> HubSecrets:
        return HubSecrets.decode((self.data_dir / SECRETS).read_bytes())

    @property
    def log(self) -> list[dict[str, Any]]:
        eventually(lambda: self.writer.is_idle)  # a thread of its own writes it
        return [json.loads(line) for line in self.lines.getvalue().splitlines()]

    def connect(self) -> Raw:
        return Raw(self.address, self.tls)

    def call(
        self,
        method: str,
        path: str,
        body: bytes | Wire | JsonValue = None,
        *,
        content_type: str | None = None,
        accept: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Ask once, on a connection of its own."""
        data, kind = (None, content_type) if body is None else describe_body(body, content_type)
        sent = {"connection": "close", **(headers or {})}
        if kind is not None:
            sent["content-type"] = kind
        if accept is not None:
            sent["accept"] = accept
        with self.connect() as raw:
            raw.ask(method, path, data, sent)
            return raw.answer(method)

    def post(self, path: str, body: bytes | Wire | JsonValue, content_type: str | None = None) -> Answer:
        return self.call("POST", path, body, content_type=content_type)

    def get(self, path: str, accept: str | None = None) -> Answer:
        return self.call("GET", path, accept=accept)

    def submit(self, message: Msg, **headers: str) -> Answer:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.call("POST", "/v1/submit", SubmitRequest(msg=message), headers=names)

    def accept(self, message: Msg) -> Receipt:
        """Submit a message that must be taken; its receipt verifies."""
        receipt = self.submit(message).decode(SubmitResponse).receipt
        self.identity.verify_receipt(receipt)
        assert receipt.label == message.label
        assert receipt.leaf_hash == message.leaf_hash
        return receipt

    def bulk(self, messages: Sequence[Msg]) -> list[SubmitResponse | ErrorEnvelope]:
        body = b"".join(message.encode() for message in messages)
        return answers(self.post("/v1/submit", body, CBOR_SEQ))

    def status(self) -> Any:
        return self.get("/tooling/status").json()

    def check_healthy(self) -> None:
        """Fail unless the hub still does its work."""
        assert self.get("/healthz").json()["ok"] is True


def answers(answer: Answer) -> list[SubmitResponse | ErrorEnvelope]:
    """Return the answers to a bulk submit, one by one."""
    assert answer.status == 200
    assert answer.content_type == CBOR_SEQ
    found: list[SubmitResponse | ErrorEnvelope] = []
    at = 0
    while at < len(answer.body):
        end = cbor.item_end(answer.body, at)
        item = answer.body[at:end]
        value = cbor.decode(item)
        assert isinstance(value, dict)
        found.append(ErrorEnvelope.decode(item) if isinstance(value[2], str) else SubmitResponse.decode(item))
        at = end
    return found


def eventually(done: Callable[[], bool]) -> None:
    """Ask again and again, until it is so."""
    end = monotonic() + PATIENCE_SEC
    pause = Event()
    while not done():
        assert monotonic() < end, "it never was"
        pause.wait(0.01)


#: Hubs that serve in this process: of several, the one that was started last is taken to be what logs.
_HUBS: list[Server] = []


@contextmanager
def serving(data_dir: Path, **settings: Any) -> Iterator[Service]:
    """Run a hub in a thread until the block ends; it must end clean, and have met no fault of its own."""
    usual = {"listen": ["127.0.0.1:0"], "hosts": ["hub"], "verify_workers": 0}
    chosen = Settings(**{**usual, **settings})
    lines = _Lines()
    service = None
    ready: Future[RunningHub] = Future()
    ended: Future[int] = Future()
    server = Server(data_dir, chosen, ready.set_result)

    def run() -> None:
        try:
            ended.set_result(server.run(signals=False))
        except Exception as error:  # noqa: BLE001 - whoever waits for the hub is told
            ended.set_exception(error)
            if not ready.done():
                ready.set_exception(error)

    data_dir.mkdir(mode=0o700, exist_ok=True)
    thread = Thread(target=run, name="hub")
    with json_lines(lines, chosen.log_level, lambda: "now") as handler:
        handler.addFilter(lambda _: _HUBS[-1] is server)
        _HUBS.append(server)
        thread.start()
        try:
            service = Service(data_dir, chosen, server, ready.result(PATIENCE_SEC), lines, handler.stream)
            yield service
        finally:
            with suppress(RuntimeError):  # the test has stopped it
                if service is not None and thread.is_alive():
                    server.stop()
            thread.join(PATIENCE_SEC)
            _HUBS.remove(server)
    assert ended.result(0) == 0
    faults = [line for line in service.log if line["event"] in {"fault", "fatal"}]
    assert bool(faults) == service.expect_faults, faults


@dataclass
class Sender:
    """A client that numbers its messages, on one label."""

    service: Service
    name: str = "client"
    stream: str = "stream"
    auth_ref: AuthRef | None = None
    client_seq: int = 0

    @property
    def label(self) -> Label:
        return labels.label(self.service.identity.routing_key, builders.stream(self.stream), 0)

    def next(self, body: bytes = b"hello", *, pad_block: int = 256, prev_ack: int = 0) -> Msg:
        """Make the next message; it is not sent."""
        self.client_seq += 1
        return self.make(self.client_seq, body, pad_block=pad_block, prev_ack=prev_ack)

    def make(
        self, client_seq: int, body: bytes = b"hello", *, pad_block: int = 256, prev_ack: int = 0
    ) -> Msg:
        context = builders.context(
            profile_id=builders.profile(pad_block=pad_block).profile_id,
            label=self.label,
            client=self.name,
            client_seq=client_seq,
            prev_ack=prev_ack,
            auth_ref=self.auth_ref,
        )
        return builders.msg(context, signer=self.name, body=body, pad_block=pad_block)

    def send(self, count: int = 1) -> list[Receipt]:
        """Send messages that must be taken, in one request."""
        got = self.service.bulk([self.next() for _ in range(count)])
        assert all(isinstance(item, SubmitResponse) for item in got), got
        return [item.receipt for item in got if isinstance(item, SubmitResponse)]
