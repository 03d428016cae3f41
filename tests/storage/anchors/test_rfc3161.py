"""Time stamps by a real authority: they bind their root, and nothing that was altered does."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests import builders
from tests.hub.certificates import make_certificate
from tests.storage.anchors.timestamp_authority import Authority, Served, needs_openssl, served
from veen.core.objects.anchor import AnchorRef
from veen.core.types import NodeHash
from veen.storage.anchors import AnchorError
from veen.storage.anchors.rfc3161 import Rfc3161, load_roots

pytestmark = needs_openssl

ROOT, OTHER = NodeHash(builders.digest("root")), NodeHash(builders.digest("other"))
NONCE = builders.digest("nonce")[:16]
AT = (3, 1_700_000_000, NONCE)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("authority") / "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("authority") / "theirs")


@pytest.fixture
def service(authority: Authority) -> Iterator[Served]:
    with served(authority.stamp) as made:
        yield made


@pytest.fixture(scope="module")
def anchor_ref(authority: Authority) -> bytes:
    with served(authority.stamp) as service:
        return backend(service, authority).publish(ROOT, *AT)


def backend(service: Served | None, authority: Authority | None) -> Rfc3161:
    roots = None if authority is None else load_roots(authority.root.read_bytes())
    return Rfc3161("http://localhost/" if service is None else service.url, roots, timeout_sec=5)


# --- verifying ----------------------------------------------------------------------------------------------


def test_a_time_stamp_binds_its_root_and_no_other(authority: Authority, anchor_ref: bytes) -> None:
    verdict = backend(None, authority).verify(ROOT, anchor_ref)
    assert verdict, verdict
    assert verdict.reason.startswith("time stamp of 20")
    assert "another root" in backend(None, authority).verify(OTHER, anchor_ref).reason


def test_what_the_digest_was_made_of_is_bound_too(authority: Authority, anchor_ref: bytes) -> None:
    ref = AnchorRef.decode(anchor_ref)
    assert (ref.backend, ref.epoch, ref.ts, ref.nonce) == ("rfc3161", *AT)
    for changed in ({"epoch": 4}, {"ts": 1}, {"nonce": NONCE + b"\0"}):
        values = {"backend": ref.backend, "epoch": ref.epoch, "ts": ref.ts, "nonce": ref.nonce} | changed
        other = AnchorRef(token=ref.token, **values)  # type: ignore[arg-type] # by name
        assert "another root" in backend(None, authority).verify(ROOT, other.encode()).reason


def test_without_a_certificate_nothing_is_verifiable(anchor_ref: bytes) -> None:
    verdict = backend(None, None).verify(ROOT, anchor_ref)
    assert not verdict
    assert "cannot be verified" in verdict.reason
    assert "another root" in backend(None, None).verify(OTHER, anchor_ref).reason


def test_the_certificate_of_another_authority_does_not_do(
    stranger: Authority, anchor_ref: bytes, tmp_path: Path
) -> None:
    assert "not valid" in backend(None, stranger).verify(ROOT, anchor_ref).reason
    unrelated, _ = make_certificate(tmp_path)
    roots = load_roots(unrelated.read_bytes())
    assert not Rfc3161("http://localhost/", roots).verify(ROOT, anchor_ref)


def test_several_certificates_may_be_given(
    authority: Authority, stranger: Authority, anchor_ref: bytes
) -> None:
    pem = stranger.root.read_bytes() + authority.root.read_bytes() + authority.root.read_bytes()
    assert Rfc3161("http://localhost/", load_roots(pem)).verify(ROOT, anchor_ref)


@pytest.mark.parametrize(
    "pem", [b"", b"junk", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate_is_said_to_be_none(pem: bytes) -> None:
    with pytest.raises(AnchorError, match="not a PEM certificate"):
        load_roots(pem)


def test_no_altered_time_stamp_binds_another_root_or_another_time(
    authority: Authority, anchor_ref: bytes
) -> None:
    """One bit in each byte: what still holds (version numbers that nobody reads) says exactly the same."""
    ref = AnchorRef.decode(anchor_ref)
    assert ref.token is not None
    ours = backend(None, authority)
    before = ours.verify(ROOT, anchor_ref)
    held = 0
    for at in range(len(ref.token)):
        token = bytearray(ref.token)
        token[at] ^= 1 << at % 8
        altered = AnchorRef(
            backend=ref.backend, epoch=ref.epoch, ts=ref.ts, nonce=ref.nonce, token=bytes(token)
        ).encode()
        verdict = ours.verify(ROOT, altered)
        assert not ours.verify(OTHER, altered)
        assert not verdict or verdict == before
        held += bool(verdict)
    assert held < len(ref.token) / 20


@pytest.mark.parametrize("wrong", [b"", b"\xff", b"\xa0"])
def test_what_is_no_anchor_binds_nothing(authority: Authority, wrong: bytes) -> None:
    assert "not an anchor_ref" in backend(None, authority).verify(ROOT, wrong).reason


def test_an_anchor_of_a_ledger_is_no_time_stamp(authority: Authority) -> None:
    ref = AnchorRef(backend="file", epoch=0, ts=0, nonce=NONCE, index=0, entry_hash=bytes(32))
    assert "not a time stamp" in backend(None, authority).verify(ROOT, ref.encode()).reason


# --- publishing ---------------------------------------------------------------------------------------------


def test_a_time_stamp_of_a_stranger_is_refused_at_once(service: Served, stranger: Authority) -> None:
    with pytest.raises(AnchorError, match="cannot be verified"):
        backend(service, stranger).publish(ROOT, *AT)


def test_a_time_stamp_of_something_else_is_refused(service: Served, authority: Authority) -> None:
    backend(service, authority).publish(ROOT, *AT)
    earlier = authority.stamp(service.queries[0])
    service.answer = lambda _: earlier
    with pytest.raises(AnchorError, match="something other than the request"):
        backend(service, None).publish(OTHER, *AT)
    # The same digest, but an answer to an earlier question: the nonce of the query tells.
    with pytest.raises(AnchorError, match="something other than the request"):
        backend(service, None).publish(ROOT, *AT)


def answers(data: bytes) -> Callable[[bytes], bytes]:
    return lambda _: data


@pytest.mark.parametrize("data", [b"", b"junk", b"\x30\x03\x02\x01\x00", bytes(70_000)])
def test_what_is_no_time_stamp_is_refused(service: Served, data: bytes) -> None:
    service.answer = answers(data)
    with pytest.raises(AnchorError):
        backend(service, None).publish(ROOT, *AT)


def test_a_refusal_of_the_authority_is_told(service: Served, authority: Authority) -> None:
    service.answer = lambda _: authority.stamp(b"junk")
    with pytest.raises(AnchorError, match="rejected the request: Bad request"):
        backend(service, authority).publish(ROOT, *AT)


def test_other_answers_are_errors(service: Served) -> None:
    service.status = 500
    with pytest.raises(AnchorError, match="status 500"):
        backend(service, None).publish(ROOT, *AT)
    service.status, service.content_type = 200, "text/html"
    with pytest.raises(AnchorError, match="something other than a time stamp"):
        backend(service, None).publish(ROOT, *AT)


def test_nobody_there_is_an_error(unused: str) -> None:
    with pytest.raises(AnchorError, match="cannot be reached"):
        Rfc3161(unused).publish(ROOT, *AT)


@pytest.fixture
def unused() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}/"


@pytest.mark.parametrize(
    "head", [b"", b"HTTP/1.1 200 OK\r\ncontent-type: application/timestamp-reply\r\n\r\nx"]
)
def test_an_authority_that_says_nothing_is_not_waited_for(head: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted: list[socket.socket] = []

        def accept() -> None:
            accepted.append(server.accept()[0])
            accepted[0].sendall(head)

        thread = Thread(target=accept)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        with pytest.raises(AnchorError, match="cannot be reached"):
            Rfc3161(url, timeout_sec=0.2).publish(ROOT, *AT)
        thread.join()
        accepted[0].close()
