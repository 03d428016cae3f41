"""A hub in trouble says so: too much to do, damage on its disk, and the end."""

import json
import os
import select
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, current_thread

import pytest

from tests import builders
from tests.hub.hub_thread import CBOR, JSON, PATIENCE_SEC, Raw, Sender, Service, answers, eventually, serving
from veen.core.api.data_plane import (
    CheckpointRequest,
    CheckpointResponse,
    ProofRequest,
    ReceiptRequest,
    StreamRequest,
    SubmitRequest,
    SubmitResponse,
)
from veen.core.api.tooling import AuthorizeRequest, BackupRequest, ProofAtRequest
from veen.core.crypto.hash import sha256
from veen.core.encoding.wire_object import Wire
from veen.hub import hub as hub_module
from veen.hub.read.thread_pool import MAX_WAITING, THREADS, Job
from veen.stdx.lru import LruCache


@contextmanager
def held(hub: Service) -> Iterator[None]:
    """Hold the hub's loop, so that what is sent meanwhile comes to it all at once."""
    holding, release = Event(), Event()

    def hold() -> None:
        holding.set()
        release.wait(30)

    loop = hub.loop
    loop.call_soon_threadsafe(hold)
    assert holding.wait(30)
    try:
        yield
    finally:
        release.set()


def test_a_full_queue_refuses_and_writes_nothing(tmp_path: Path) -> None:
    with serving(tmp_path / "data", max_queue=10) as hub, hub.connect() as many, hub.connect() as one:
        first, second = Sender(hub, "first", "first"), Sender(hub, "second", "second")
        bulk = b"".join(first.next().encode() for _ in range(10))
        message = second.next()
        with held(hub):
            many.ask("POST", "/v1/submit", bulk, {"content-type": "application/cbor-seq"})
            one.ask("POST", "/v1/submit", SubmitRequest(msg=message).encode())
        # Whichever is read first fills the queue; the other one is told to come back.
        got_many, got_one = many.answer(), one.answer()
        assert sorted((got_many.status, got_one.status)) == [200, 503]
        refused = got_many if got_many.status == 503 else got_one
        error = refused.error()
        assert (error.code, error.retry_after) == ("E.UNAVAILABLE", 1)
        if got_one.status == 503:
            assert all(isinstance(item, SubmitResponse) for item in answers(got_many))
            assert hub.accept(message).stream_seq == 1
        else:
            many.ask("POST", "/v1/submit", bulk, {"content-type": "application/cbor-seq"})
            assert all(isinstance(item, SubmitResponse) for item in answers(many.answer()))
        assert b"veen_overloaded_total 1.0" in hub.get("/metrics").body
        as_json = json.loads(hub.get("/tooling/admission").body)
        assert as_json["stages"][1]["queue_depth"] == 0


def test_too_many_reads_are_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as hub:
        sender = Sender(hub)
        sender.send()
        release = Event()
        for _ in range(THREADS + MAX_WAITING):
            hub.hub.readers.put(Job(lambda: release.wait(30), lambda _: None))
        try:
            eventually(lambda: not hub.hub.readers.has_room)
            request = StreamRequest(label=sender.label, from_seq=1)
            for kind in (None, JSON):
                error = hub.post("/v1/stream", request, kind).error()
                assert (error.code, error.retry_after) == ("E.UNAVAILABLE", 1)
            receipt = ReceiptRequest(label=sender.label, stream_seq=1)
            hub.post("/v1/receipt", receipt).decode(SubmitResponse)  # a small read is not for the threads
            hub.check_healthy()
            sender.send()
        finally:
            release.set()
        eventually(lambda: hub.post("/v1/stream", request).status == 200)


def test_clients_that_break_off_leave_nothing_behind(tmp_path: Path) -> None:
    with serving(tmp_path / "data", verify_workers=1) as hub:
        reset = struct.pack("ii", 1, 0)  # close at once, without a word to the other side

        def send(number: int) -> None:
            sender = Sender(hub, f"client {number}", f"stream {number % 2}")
            for nth in range(20):
                with hub.connect() as raw:
                    raw.ask("POST", "/v1/submit", SubmitRequest(msg=sender.next()).encode())
                    if (nth + number) % 3:
                        raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                    else:
                        assert raw.answer().status in {200, 409}  # 409: the one before was lost

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(send, range(6)))
        eventually(lambda: not hub.connections)
        eventually(lambda: (hub.hub.intake.depth, hub.hub.intake.depth_bytes) == (0, 0))
        Sender(hub, "another").send()


def test_one_copy_is_made_at_a_time(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "data", backup_dir=tmp_path / "copies") as hub,
        hub.connect() as first,
        hub.connect() as second,
    ):
        Sender(hub).send(5)
        with held(hub):
            for raw, name in ((first, "one"), (second, "two")):
                raw.ask("POST", "/tooling/backup", BackupRequest(name=name).encode())
        got = [first.answer(), second.answer()]
        assert sorted(answer.status for answer in got) == [200, 503]
        (error,) = [answer.error() for answer in got if answer.status != 200]
        assert (error.code, error.retry_after) == ("E.UNAVAILABLE", 5)
        assert hub.post("/tooling/backup", BackupRequest(name="three")).status == 200


def test_a_damaged_label_is_reported_and_others_are_served(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as hub:
        bad, good = Sender(hub, "bad", "bad"), Sender(hub, "good", "good")
        bad.send(20)
        good.send(20)
    chunks = [path for path in (tmp_path / "data").rglob("*") if bad.label.hex() in str(path)]
    largest = max((path for path in chunks if path.is_file()), key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.chmod(0o600)
    largest.write_bytes(data)
    with serving(tmp_path / "data") as hub:
        hub.expect_faults = True
        request = StreamRequest(label=bad.label, from_seq=1)
        for kind in (None, JSON):
            error = hub.post("/v1/stream", request, kind).error()
            assert (error.code, error.retry_after) == ("E.UNAVAILABLE", 60)
        hub.check_healthy()
        assert hub.post("/v1/stream", StreamRequest(label=good.label, from_seq=1)).status == 200
        assert hub.post("/v1/proof", ProofRequest(label=good.label, stream_seq=7)).status == 200
        Sender(hub, "good", "good", client_seq=20).send()
        assert [line["event"] for line in hub.log].count("fault") == 2


def test_what_clients_make_the_hub_hold_is_bounded(tmp_path: Path) -> None:
    def gauge(hub: Service) -> float:
        lines = hub.get("/metrics").body.decode().splitlines()
        return float(next(line for line in lines if line.startswith("veen_held_bytes ")).split()[1])

    half = b"POST /v1/submit HTTP/1.1\r\nhost: hub\r\ncontent-length: 60000\r\n\r\n" + bytes(50_000)
    with serving(tmp_path / "data", max_held_bytes=150_000) as hub:
        with hub.connect() as first, hub.connect() as second, hub.connect() as third, hub.connect() as late:
            for client in (first, second, third):
                client.sock.sendall(half)
            eventually(lambda: gauge(hub) >= 150_000)
            late.ask("POST", "/v1/submit", bytes(100))
            refused = late.answer().error()
            assert (refused.code, refused.retry_after) == ("E.UNAVAILABLE", 1)
            assert hub.get("/healthz").status == 200, "who sends no body is served"
        eventually(lambda: gauge(hub) == 0)
        hub.accept(Sender(hub, "client", "stream").next())
        assert gauge(hub) == 0


def test_a_target_may_be_a_whole_url(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as hub, hub.connect() as client:
        for target in ("http://hub/healthz", "https://hub:1/healthz?x=1"):
            client.ask("GET", target)
            assert client.answer().status == 200
        client.ask("GET", "http://hub")
        assert client.answer().error().code == "E.NOT_FOUND"


def test_what_is_not_in_memory_is_read_by_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same answers, whether they are found at once or not; and refusals."""
    with serving(tmp_path / "data") as hub:
        sender = Sender(hub)
        sender.send(20)
        hub.hub.writer.flush()

        def ask() -> list[bytes]:
            asked: list[tuple[str, Wire]] = []
            for seq in (1, 7, 20, 21):
                asked += [
                    ("/v1/receipt", ReceiptRequest(label=sender.label, stream_seq=seq)),
                    ("/v1/proof", ProofRequest(label=sender.label, stream_seq=seq)),
                    ("/tooling/proof_at", ProofAtRequest(label=sender.label, stream_seq=seq, upto_seq=20)),
                ]
            return [hub.post(path, body).body for path, body in asked]

        waited: list[str] = []

        def not_in_memory(*_: object) -> int:
            waited.append(current_thread().name)
            raise BlockingIOError

        at_once = ask()
        hub.hub.reader._proofs = LruCache(1)  # else they are found there
        with monkeypatch.context() as patch:
            patch.setattr(os, "preadv", not_in_memory)
            assert ask() == at_once
        assert waited, "they were tried first"
        assert not any(name.startswith("veen-reader") for name in waited)


# --- answers that nobody takes ------------------------------------------------------------------------------

MEGABYTE = 1 << 20


def path_of(data: bytes) -> str:
    return f"/tooling/attachment/{sha256(data).hex()}"


def metric(service: Service, name: str) -> float:
    lines = service.get("/metrics").body.decode().splitlines()
    (value,) = [line.split()[1] for line in lines if line.startswith(f"{name} ")]
    return float(value)


def ask_deaf(service: Service, path: str) -> tuple[socket.socket, bytes]:
    """Ask, and take next to nothing of the answer; return its status."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sock.settimeout(PATIENCE_SEC)
    sock.connect(service.address)
    sock.sendall(f"GET {path} HTTP/1.1\r\nhost: hub\r\n\r\n".encode())
    return sock, sock.recv(12)[9:]


def test_a_large_attachment_that_nobody_takes_is_not_held_for_everybody(tmp_path: Path) -> None:
    data, most = bytes(6 * MEGABYTE), 12 * MEGABYTE
    limits = {"max_attachment_bytes": len(data)}
    with serving(tmp_path / "data", max_held_bytes=most, limits=limits) as service:
        assert service.call("PUT", path_of(data), data).status == 201
        with ExitStack() as stack:
            found = []
            for _ in range(30):
                sock, status = ask_deaf(service, path_of(data))
                stack.enter_context(sock)
                found.append(status)
            held = metric(service, "veen_held_bytes")
            assert most <= held < most + len(data)
            served = found.index(b"503")
            assert 0 < served < 15
            assert found == [b"200"] * served + [b"503"] * (30 - served)
            refused = service.get(path_of(data))
            assert (refused.status, refused.error().code) == (503, "E.UNAVAILABLE")
        eventually(lambda: metric(service, "veen_held_bytes") == 0)
        assert service.get(path_of(data)).body == data


# --- jobs that wait for their turn --------------------------------------------------------------------------


@contextmanager
def writer_held(service: Service) -> Iterator[None]:
    """Keep the thread busy that writes."""
    begun, end, done = Event(), Event(), Event()

    def hold() -> None:
        begun.set()
        end.wait(2 * PATIENCE_SEC)  # longer than any client waits

    loop = service.loop
    loop.call_soon_threadsafe(service.hub.turn, hold, lambda _: done.set())
    assert begun.wait(PATIENCE_SEC)
    try:
        yield
    finally:
        end.set()
        assert done.wait(PATIENCE_SEC)


def wait_answered(raws: list[Raw], count: int, most: int | None = None) -> list[Raw]:
    """Wait until so many have an answer, and return them; it is not read."""

    def ready() -> list[Raw]:
        socks = select.select([raw.sock for raw in raws], [], [], PATIENCE_SEC)[0]
        return [raw for raw in raws if raw.sock in socks]

    eventually(lambda: len(ready()) >= count)
    found = ready()
    assert count <= len(found) <= (most or count)
    return found


def check_bounded(service: Service, path: str, asked: list[Wire]) -> None:
    """Check that only some of these wait while the disk is busy, and all of those are answered then."""
    with ExitStack() as stack:
        raws = [stack.enter_context(service.connect()) for _ in asked]
        with writer_held(service):
            for raw, item in zip(raws, asked, strict=True):
                raw.ask("POST", path, item.encode(), {"content-type": CBOR})
            refused = wait_answered(raws, len(asked) - (hub_module._MAX_JOBS - 1))
            for raw in refused:
                assert raw.answer().refusal()[0] == "E.UNAVAILABLE"
            service.check_healthy()
        for raw in raws:
            if raw not in refused:
                assert raw.answer().status == 200


def test_a_checkpoint_that_was_made_is_served_without_a_turn_and_few_wait_for_new_ones(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "data") as service:
        sender = Sender(service)
        sender.send(30)
        stored = CheckpointRequest(label=sender.label, upto_seq=30)
        made = service.post("/v1/checkpoint", stored).decode(CheckpointResponse)
        with writer_held(service):
            assert service.post("/v1/checkpoint", stored).decode(CheckpointResponse) == made
        asked: list[Wire] = [CheckpointRequest(label=sender.label, upto_seq=seq) for seq in range(1, 25)]
        check_bounded(service, "/v1/checkpoint", asked)
        for item in asked:  # also those that were refused
            assert service.post("/v1/checkpoint", item).status == 200


def test_few_tokens_wait_to_be_taken(tmp_path: Path) -> None:
    with serving(tmp_path / "data", trust_all_issuers=True) as service:
        tokens = [builders.cap_token(subject=f"client {number}") for number in range(24)]
        asked: list[Wire] = [AuthorizeRequest(cap_token=token) for token in tokens]
        check_bounded(service, "/tooling/authorize", asked)
        for item in asked:
            assert service.post("/tooling/authorize", item).status == 200


# --- attachments --------------------------------------------------------------------------------------------


def test_attachments_leave_some_space_for_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "data") as service:
        assert service.call("PUT", path_of(b"before"), b"before").status == 201
        with monkeypatch.context() as patch:
            patch.setattr(hub_module, "_SPACE_BYTES", 1 << 62)
            refused = service.call("PUT", path_of(b"after"), b"after")
            assert (refused.status, refused.error().code) == (503, "E.UNAVAILABLE")
            assert service.get(path_of(b"after")).status == 404
            assert service.get(path_of(b"before")).body == b"before"
            Sender(service).send(3)
        assert service.call("PUT", path_of(b"after"), b"after").status == 201


def test_who_reads_does_not_wait_for_those_who_store(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as service, ExitStack() as stack:
        service.call("PUT", path_of(b"before"), b"before")
        sender = Sender(service)
        sender.send(2)
        store = service.hub.attachments
        assert store is not None
        data = [str(number).encode() for number in range(25)]
        with store._lock:  # as long as a slow disk takes
            raws = [stack.enter_context(service.connect()) for _ in data]
            for raw, item in zip(raws, data, strict=True):
                raw.ask("PUT", path_of(item), item)
            # One is at work, if it was begun before the others came, and all others wait or are refused.
            few = len(raws) - hub_module._MAX_PUTS - 1
            refused = wait_answered(raws, few, few + 1)
            assert {raw.answer("PUT").refusal()[0] for raw in refused} == {"E.UNAVAILABLE"}
            assert service.get(path_of(b"before")).body == b"before"
            sender.send(2)
        rest = [raw.answer("PUT").status for raw in raws if raw not in refused]
        assert hub_module._MAX_PUTS <= rest.count(201) <= hub_module._MAX_PUTS + 1
