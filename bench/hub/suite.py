"""The hub rows of the report: each round runs every measurement once, and yields a ratio."""

import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.hub.floor import floor_rate
from bench.hub.load import Load, post, run_load
from bench.hub.messages import Author, routing_of
from bench.hub.servers import Peer, RunningHub, hub, nats, redis
from bench.measure import Result
from veen.core.api.data_plane import ProofRequest, StreamRequest
from veen.core.crypto import ed25519
from veen.core.crypto.ed25519 import SigningKey

CONNECTIONS = 64
_SUBMIT = b"\xa2\x01\x01\x02"
_BULK = 512
_PAGE = 1000


class HubBench:
    """One hub, its clients, and its peers."""

    def __init__(
        self, running: RunningHub, peers: Sequence[Peer], directory: Path, singles: int, bulks: int
    ) -> None:
        self._hub = running
        self._peers = peers
        self._directory = directory
        self._singles = singles
        self._bulks = bulks
        routing = routing_of(running.hub_id)
        self._authors = [Author(routing, f"bench-{number % 8}") for number in range(CONNECTIONS)]
        self._reading = Author(routing, "bench-read")
        self._size = len(self._authors[0].write(1)[0])
        self._authors[0] = Author(routing, "bench-0")
        self._read_entries = 0

    # --- one measurement each, in messages or responses per second ------------------------------------------

    def floor(self) -> float:
        """Return the rate of the bare primitives on all cores."""
        return floor_rate(self._size, 2000)

    def single(self) -> Load:
        """Submit single messages on many connections."""
        requests = [
            [post("/v1/submit", _SUBMIT + message) for message in author.write(self._singles)]
            for author in self._authors
        ]
        return run_load(self._hub.port, requests, check=_ok)

    def bulk(self) -> float:
        """Submit batches of messages on one connection."""
        written = [author.write(self._bulks) for author in self._authors]
        flat = [messages[nth] for nth in range(self._bulks) for messages in written]
        bodies = [b"".join(flat[at : at + _BULK]) for at in range(0, len(flat), _BULK)]
        requests = [post("/v1/submit", body, "application/cbor-seq") for body in bodies]
        load = run_load(self._hub.port, [requests], check=_all_taken, ahead=3)
        return len(flat) / load.seconds

    def lone(self) -> tuple[float, float]:
        """Return the seconds of one submit at a time, and of the bare work that each needs."""
        messages = self._reading.write(100)
        self._read_entries += len(messages)
        requests = [post("/v1/submit", _SUBMIT + message) for message in messages]
        load = run_load(self._hub.port, [requests], check=_ok)
        return load.percentile(0.5), self._bare(messages)

    def _bare(self, messages: Sequence[bytes]) -> float:
        """Return the seconds of write + fdatasync of the same bytes, plus those of the cryptography."""
        key = SigningKey.from_seed(bytes(32))
        digest = bytes(32)
        signature = key.sign(digest)
        times = []
        fd = os.open(self._directory / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            for message in messages:
                start = perf_counter()
                os.write(fd, message + bytes(290))  # header, receipt and the journal's own bytes
                os.fdatasync(fd)
                times.append(perf_counter() - start)
        finally:
            os.close(fd)
        started = perf_counter()
        for _ in messages:
            ed25519.verify(key.public_key, digest, signature)
            key.sign(digest)
        return median(times) + (perf_counter() - started) / len(messages)

    def peer(self, peer: Peer) -> Load:
        """Store messages of the same size in another server, with the same number in flight."""
        message = os.urandom(self._size)
        requests = [[peer.request(nth, message)] * self._singles for nth in range(CONNECTIONS)]
        return run_load(peer.port, requests, whole=peer.whole, hello=peer.hello)

    def fill(self, entries: int) -> None:
        """Write the entries that are read later."""
        for _ in range(0, entries, 4096):
            messages = self._reading.write(4096)
            self._read_entries += len(messages)
            bodies = [b"".join(messages[at : at + _BULK]) for at in range(0, len(messages), _BULK)]
            requests = [post("/v1/submit", body, "application/cbor-seq") for body in bodies]
            run_load(self._hub.port, [requests], check=_all_taken, ahead=2)

    def stream(self) -> float:
        """Read pages on one connection; return entries per second."""
        label = self._reading.label
        pages = self._read_entries // _PAGE
        requests = [
            post(
                "/v1/stream",
                StreamRequest(
                    label=label, from_seq=1 + nth * _PAGE, max_items=_PAGE, with_receipts=True
                ).encode(),
            )
            for nth in range(pages)
        ]
        load = run_load(self._hub.port, [requests], check=_ok, ahead=2)
        return pages * _PAGE / load.seconds

    def proofs(self) -> float:
        """Request proofs of different entries, spread over the label; return proofs per second."""
        label = self._reading.label
        step = max(1, self._read_entries // 2048)
        seqs = list(range(1, self._read_entries, step))[:2048]
        requests = [post("/v1/proof", ProofRequest(label=label, stream_seq=seq).encode()) for seq in seqs]
        parts = [requests[nth::8] for nth in range(8)]
        load = run_load(self._hub.port, parts, check=_ok)
        return load.rate


def _ok(answer: bytes) -> None:
    assert answer.startswith(b"HTTP/1.1 200 "), answer[:500]


def _all_taken(answer: bytes) -> None:
    _ok(answer)
    assert b"detail_enum" not in answer, "a message was rejected"


def measure_hub(rounds: int, *, entries: int = 50_000) -> Iterator[Result]:
    """Run all measurements; yield the rows of the report."""
    directory = Path(tempfile.mkdtemp(prefix="veen-bench-", dir=Path.cwd()))
    try:
        with ExitStack() as stack:
            running = stack.enter_context(hub(directory / "hub"))
            peers = [
                stack.enter_context(nats(directory / "nats")),
                stack.enter_context(redis(directory / "redis")),
            ]
            bench = HubBench(running, [peer for peer in peers if peer is not None], directory, 60, 64)
            bench.fill(entries)
            yield from _rows(bench, [peer for peer in peers if peer is not None], rounds)
    finally:
        shutil.rmtree(directory)


def _rows(bench: HubBench, peers: Sequence[Peer], rounds: int) -> Iterator[Result]:
    figures: dict[str, list[float]] = {}
    bench.bulk()  # processes started, caches warm
    for _ in range(rounds):
        floor = bench.floor()
        single = bench.single()
        bulk = bench.bulk()
        lone, bare = bench.lone()
        for name, value in (
            ("floor", floor),
            ("single", single.rate),
            ("single / floor", single.rate / floor),
            ("p50", single.percentile(0.5)),
            ("p99", single.percentile(0.99)),
            ("bulk", bulk),
            ("bulk / floor", bulk / floor),
            ("lone", lone),
            ("lone / bare", lone / bare),
            ("stream", bench.stream()),
            ("proofs", bench.proofs()),
        ):
            figures.setdefault(name, []).append(value)
        for peer in peers:
            load = bench.peer(peer)
            figures.setdefault(peer.name, []).append(load.rate)
            figures.setdefault(f"single / {peer.name}", []).append(single.rate / load.rate)
    mid = {name: median(values) for name, values in figures.items()}
    yield from _report(mid, peers)
    yield from _interference(bench)


def _report(mid: dict[str, float], peers: Sequence[Peer]) -> Iterator[Result]:
    def row(name: str, us: float, beside: str, ratio: float, min_ratio: float) -> Result:
        return Result(name, us, beside, round(ratio, 3), f">= {min_ratio:g} x", ratio >= min_ratio)

    def us(rate: float) -> float:
        return round(1e6 / rate, 2)

    yield row("hub: bulk submit", us(mid["bulk"]), "bare primitives", mid["bulk / floor"], 0.5)
    yield row("hub: 64 single submits", us(mid["single"]), "bare primitives", mid["single / floor"], 0.3)
    p99 = mid["p99"] * 1e6
    yield Result("hub: p99 of them", round(p99, 0), "50 ms", round(p99 / 50_000, 3), "<= 1 x", p99 <= 50_000)
    lone = mid["lone / bare"]
    yield Result(
        "hub: lone submit",
        round(mid["lone"] * 1e6, 1),
        "write + sync + crypto",
        round(lone, 3),
        "<= 1.6 x",
        lone <= 1.6,
    )
    for peer in peers:
        min_ratio = 1.5 if "NATS" in peer.name else 1.0
        yield row(
            f"hub beside {peer.name}",
            us(mid["single"]),
            us_text(mid[peer.name]),
            mid[f"single / {peer.name}"],
            min_ratio,
        )
    yield row("hub: stream, entries", us(mid["stream"]), "50,000 a second", mid["stream"] / 50_000, 1.0)
    yield row("hub: proofs", us(mid["proofs"]), "5,000 a second", mid["proofs"] / 5_000, 1.0)


def us_text(rate: float) -> str:
    """Return the microseconds per message of another server, as text."""
    return f"{1e6 / rate:.0f} us"


def _interference(bench: HubBench) -> Iterator[Result]:
    """Submit alone, then beside a reader, which may use its share of the CPU, and no more."""
    for name, read in (("stream reader", bench.stream), ("proof reader", bench.proofs)):
        alone = bench.single().rate
        with _reading(read):
            beside = bench.single().rate
        yield Result(
            f"hub: submits beside a {name}",
            round(1e6 / beside, 2),
            "submits alone",
            round(beside / alone, 3),
            "",
            None,
        )


@contextmanager
def _reading(read: Callable[[], object]) -> Iterator[None]:
    """Read repeatedly in a separate process, which slows down the hub, but not the load generator."""
    context = multiprocessing.get_context("fork")
    ended, started = context.Event(), context.Event()

    def work() -> None:
        while not ended.is_set():
            read()
            started.set()

    process = context.Process(target=work)
    process.start()
    started.wait()
    try:
        yield
    finally:
        ended.set()
        process.join()
