"""A hub under hostile use, over HTTP: answers not taken, attachments, jobs that wait, faults, warnings."""

import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import pytest

from tests import builders
from tests.hub.certificates import make_certificate
from tests.hub.process import veen
from tests.hub.serving import CBOR, PATIENCE_SEC, Raw, Sender, Service, eventually, serving
from veen.core.api import CheckpointRequest, CheckpointResponse, SubmitResponse
from veen.core.error_envelope import ErrorEnvelope
from veen.core.hashing import h
from veen.core.limits import SUBMIT_ENVELOPE_BYTES
from veen.core.msg import Msg
from veen.core.tooling import AuthorizeRequest
from veen.core.wire import Wire
from veen.hub import hub as hub_module
from veen.hub import verifier
from veen.hub.admission.message import MessageRules
from veen.hub.submission import Form
from veen.storage import Record

MEGABYTE = 1 << 20


def path_of(data: bytes) -> str:
    return f"/tooling/attachment/{h(data).hex()}"


def metric(service: Service, name: str) -> float:
    lines = service.get("/metrics").body.decode().splitlines()
    (value,) = [line.split()[1] for line in lines if line.startswith(f"{name} ")]
    return float(value)


# --- answers that nobody takes ------------------------------------------------------------------------------


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


# --- jobs that wait for their turn --------------------------------------------------------------------------


@contextmanager
def held(service: Service) -> Iterator[None]:
    """Keep the thread busy that writes."""
    begun, end, done = Event(), Event(), Event()

    def hold() -> None:
        begun.set()
        end.wait(2 * PATIENCE_SEC)  # longer than any client waits

    loop = service.server._loop
    assert loop is not None
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
        with held(service):
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
        with held(service):
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


# --- a fault of ours ----------------------------------------------------------------------------------------


def test_a_fault_in_the_check_of_one_message_is_that_message_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "data") as service:
        service.expect_faults = True
        messages = [Sender(service, name).next() for name in ("good", "bad", "fine")]
        check: Callable[[Form, bytes, MessageRules], Record] = verifier.verify

        def faulty(form: Form, body: bytes, rules: MessageRules) -> Record:
            if messages[1].encode() in body:
                raise RuntimeError("a fault of ours")
            return check(form, body, rules)

        with monkeypatch.context() as patch:
            patch.setattr(verifier, "verify", faulty)
            first, second, third = service.bulk(messages)
            assert isinstance(first, SubmitResponse)
            assert isinstance(second, ErrorEnvelope)
            assert second.code == "E.UNAVAILABLE"
            assert isinstance(third, SubmitResponse)
            assert service.submit(messages[1]).error().code == "E.UNAVAILABLE"
        assert (service.hub.verifying.depth, service.hub.verifying.depth_bytes) == (0, 0)
        service.accept(messages[1])
    assert [line.get("error") for line in service.log].count("RuntimeError: a fault of ours") == 2


# --- sizes --------------------------------------------------------------------------------------------------


def submit_bare(service: Service, data: bytes) -> tuple[str, str]:
    return service.call("POST", "/submit", data, content_type=CBOR).refusal()


def test_a_bare_message_has_the_bound_of_one_in_an_envelope(tmp_path: Path) -> None:
    with serving(tmp_path / "data", limits={"max_msg_bytes": 2000}, pad_blocks=[0]) as service:
        sender = Sender(service)
        exact, large = sized(sender, 2000), sized(sender, 2001)
        assert submit_bare(service, large.encode()) == ("E.SIZE", "SIZE_PREFILTER")
        assert service.submit(large).refusal() == ("E.SIZE", "SIZE_PREFILTER")
        assert submit_bare(service, bytes(2001)) == ("E.SIZE", "SIZE_PREFILTER")
        assert submit_bare(service, bytes(2001 + SUBMIT_ENVELOPE_BYTES)) == ("E.SIZE", "SIZE_PREFILTER")
        assert submit_bare(service, bytes(2000))[0] != "E.SIZE"
        assert service.call("POST", "/submit", exact, content_type=CBOR).status == 200


def test_its_size_is_looked_at_before_its_work(tmp_path: Path) -> None:
    with serving(tmp_path / "data", limits={"max_msg_bytes": 2000}, pow_difficulty=8) as service:
        assert submit_bare(service, bytes(2001)) == ("E.SIZE", "SIZE_PREFILTER")
        assert submit_bare(service, bytes(2000))[0] != "E.SIZE"


def sized(sender: Sender, size: int) -> Msg:
    """Return a message of so many bytes."""
    spare = size - len(sender.make(1, b"", pad_block=0).encode())
    made = (sender.make(1, bytes(body), pad_block=0) for body in range(spare, 0, -1))
    return next(item for item in made if len(item.encode()) == size)


# --- what is said at the start ------------------------------------------------------------------------------


def warned(place: Path, **settings: object) -> set[str]:
    with serving(place, **settings) as service:
        pass  # the log is written by a thread; at the end it is whole
    return {line["event"] for line in service.log if line["level"] == "warn"}


def test_what_is_allowed_and_probably_not_meant_is_said(tmp_path: Path) -> None:
    usual: dict[str, object] = {"epoch_sec": 3600}
    assert warned(tmp_path / "usual", **usual, limits={"max_epoch_skew_sec": 3600}) == set()
    assert warned(tmp_path / "none") == set()
    assert warned(tmp_path / "skew", **usual, limits={"max_epoch_skew_sec": 3599}) == {"no-skew"}
    assert warned(tmp_path / "trust", trust_all_issuers=True) == {"every-issuer-trusted"}


# --- its own certificate ------------------------------------------------------------------------------------


def test_a_hub_is_asked_by_its_directory_whoever_signed_its_certificate(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    with serving(tmp_path / "data", tls_cert=cert, tls_key=key) as service:
        done = veen("hub", "health", "--hub", service.data_dir)
        assert (done.returncode, done.stderr) == (0, "")
        assert veen("hub", "health", "--hub", service.running.urls[0]).returncode == 2
