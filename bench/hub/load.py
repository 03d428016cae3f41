"""Load generators: bounded, on loopback, and as cheap as possible, since they share the machine."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import uvloop

_HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Load:
    """Result of a load: number of responses, duration and latencies."""

    count: int
    seconds: float
    # In seconds, sorted.
    latencies: Sequence[float]
    bytes_in: int = 0

    @property
    def rate(self) -> float:
        """Responses per second."""
        return self.count / self.seconds

    def percentile(self, share: float) -> float:
        """Return the latency that this share of the responses did not exceed."""
        return self.latencies[min(int(len(self.latencies) * share), len(self.latencies) - 1)]


# Returns the length of the first response in a buffer; 0 if it is incomplete.
Whole = Callable[[bytes], int]


def http_answer(buffer: bytes) -> int:
    """Return the length of an HTTP response with a content-length."""
    head = buffer.find(_HEAD_END)
    if head < 0:
        return 0
    at = buffer.find(b"content-length: ") + 16
    size = int(buffer[at : buffer.find(b"\r", at)])
    end = head + 4 + size
    return end if len(buffer) >= end else 0


class _Client(asyncio.Protocol):
    """Sends requests on one connection, at most ``ahead`` of them unanswered."""

    def __init__(
        self, requests: Iterator[bytes], whole: Whole, done: Callable[[float, bytes], None], ahead: int
    ) -> None:
        self._requests = requests
        self._whole = whole
        self._done = done
        self._ahead = ahead
        self._sent: list[float] = []
        self._buffer = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def begin(self) -> None:
        for _ in range(self._ahead):
            self._send()

    def _send(self) -> None:
        request = next(self._requests, None)
        if request is not None:
            self._sent.append(perf_counter())
            self._transport.write(request)
        elif not self._sent and not self.ended.done():
            self._transport.close()
            self.ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        while size := self._whole(self._buffer):
            answer, self._buffer = self._buffer[:size], self._buffer[size:]
            self._done(perf_counter() - self._sent.pop(0), answer)
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("the server closed the connection"))


def _same(client: _Client) -> _Client:
    return client


def run_load(
    port: int,
    per_connection: Sequence[Sequence[bytes]],
    *,
    whole: Whole = http_answer,
    check: Callable[[bytes], None] = lambda _: None,
    ahead: int = 1,
    hello: Callable[[int], bytes] = lambda _: b"",
) -> Load:
    """Send all requests, those of one connection in order; every response is checked."""

    async def work() -> Load:
        loop = asyncio.get_running_loop()
        latencies: list[float] = []
        size = 0

        def done(seconds: float, answer: bytes) -> None:
            nonlocal size
            latencies.append(seconds)
            size += len(answer)
            check(answer)

        clients: list[_Client] = []
        for nth, requests in enumerate(per_connection):
            client = _Client(iter(requests), whole, done, ahead)
            transport, _ = await loop.create_connection(partial(_same, client), "127.0.0.1", port)
            transport.write(hello(nth))
            clients.append(client)
        started = perf_counter()
        for client in clients:
            client.begin()
        await asyncio.gather(*(client.ended for client in clients))
        return Load(len(latencies), perf_counter() - started, sorted(latencies), size)

    return uvloop.run(work())


def post(path: str, body: bytes, content_type: str = "application/cbor") -> bytes:
    """Return the bytes of a request."""
    lines = [
        f"POST {path} HTTP/1.1",
        "host: localhost",
        f"content-type: {content_type}",
        f"content-length: {len(body)}",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body
