"""HTTPS: the same hub behind TLS, with none but strong ciphers (SH0-003)."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.hub.certificates import make_certificate
from tests.hub.hub_process import veen
from tests.hub.hub_thread import Raw, Sender, Service, eventually, serving
from veen.core.api.data_plane import StreamRequest, StreamResponse

#: More than the buffers of two sockets take.
PAGE_BYTES = 24 << 20


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    base = tmp_path_factory.mktemp("hub")
    # RSA: the suites that are to be refused below need such a key, and would fail with another for that.
    cert, key = make_certificate(base, rsa.generate_private_key(public_exponent=65537, key_size=2048))
    with serving(
        base / "data", tls_cert=cert, tls_key=key, header_timeout_sec=1, max_page_bytes=PAGE_BYTES
    ) as service:
        service.tls = ssl.create_default_context(cafile=cert)
        yield service
        service.check_healthy()


def test_it_is_the_same_hub(hub: Service) -> None:
    assert hub.running.urls[0].startswith("https://")
    sender = Sender(hub)
    sender.send(200)
    found = hub.post("/v1/stream", StreamRequest(label=sender.label, from_seq=1)).decode(StreamResponse)
    assert len(found.items) == 200
    with hub.connect() as raw:
        for _ in range(3):
            raw.ask("GET", "/healthz")
            assert raw.answer("GET").status == 200


def test_its_own_pages_are_those_of_https(hub: Service) -> None:
    own = f"{hub.address[0]}:{hub.address[1]}"
    for origin, status in ((f"https://{own}", 200), (f"http://{own}", 403), ("https://127.0.0.1", 403)):
        with hub.connect() as raw:
            raw.send(f"GET /healthz HTTP/1.1\r\nhost: {own}\r\norigin: {origin}\r\n\r\n")
            assert raw.answer("GET").status == status


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_ciphers_are_authenticated_and_nothing_is_compressed(hub: Service, version: ssl.TLSVersion) -> None:
    assert hub.settings.tls_cert is not None
    context = ssl.create_default_context(cafile=hub.settings.tls_cert)
    context.minimum_version = context.maximum_version = version
    with Raw(hub.address, context) as raw:
        sock = raw.sock
        assert isinstance(sock, ssl.SSLSocket)
        cipher = sock.cipher()
        assert cipher is not None
        assert "GCM" in cipher[0] or "CHACHA20" in cipher[0]
        assert sock.compression() is None
        raw.ask("GET", "/healthz")
        assert raw.answer("GET").status == 200


@pytest.mark.parametrize("ciphers", ["ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES256-SHA384", "AES128-GCM-SHA256"])
def test_other_ciphers_are_refused(hub: Service, ciphers: str) -> None:
    assert hub.settings.tls_cert is not None
    context = ssl.create_default_context(cafile=hub.settings.tls_cert)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(ciphers)
    with pytest.raises(ssl.SSLError):
        Raw(hub.address, context)


def test_plain_http_is_not_spoken(hub: Service) -> None:
    with Raw(hub.address) as raw:
        raw.ask("GET", "/healthz")
        assert raw.ended()


def test_a_refusal_comes_also_to_a_client_that_goes_on_sending(hub: Service) -> None:
    with hub.connect() as raw:
        raw.send(f"POST /v1/receipt HTTP/1.1\r\nhost: hub\r\ncontent-length: {1 << 40}\r\n\r\n")
        answer = raw.answer()
        assert answer.refusal() == ("E.LIMIT", "FIELD_SIZE")
    with hub.connect() as raw:
        raw.send(
            b"POST /v1/receipt HTTP/1.1\r\nhost: hub\r\ncontent-length: 10000000\r\n\r\n" + bytes(200_000)
        )
        assert raw.answer().refusal() == ("E.LIMIT", "FIELD_SIZE")


def test_a_slow_client_is_cut_off(hub: Service) -> None:
    with hub.connect() as raw:
        raw.send("GET /healthz HTT")
        assert "took too long" in raw.answer().error().message


def test_answers_that_a_client_does_not_take_are_counted(hub: Service) -> None:
    """uvloop takes whatever it is given over TLS, and says that nothing is left to send."""

    def held() -> float:
        lines = hub.get("/metrics").body.decode().splitlines()
        return float(next(line for line in lines if line.startswith("veen_held_bytes ")).split()[1])

    sender = Sender(hub, "greedy", "greedy")
    for _ in range(PAGE_BYTES // 900_000):
        hub.accept(sender.next(b"x" * 900_000))
    body = StreamRequest(label=sender.label, from_seq=1).encode()
    with hub.connect() as raw:
        raw.ask("POST", "/v1/stream", body)
        eventually(lambda: held() > 1 << 20)
        assert raw.answer().decode(StreamResponse).items, "and all of it comes"
    eventually(lambda: held() == 0)


def test_a_client_that_never_shakes_hands_is_cut_off(hub: Service) -> None:
    with Raw(hub.address) as raw:
        assert raw.ended()


def test_a_hub_is_asked_by_its_directory_whoever_signed_its_certificate(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    with serving(tmp_path / "data", tls_cert=cert, tls_key=key) as service:
        done = veen("hub", "health", "--hub", service.data_dir)
        assert (done.returncode, done.stderr) == (0, "")
        assert veen("hub", "health", "--hub", service.running.urls[0]).returncode == 2


def test_who_does_not_shake_hands_is_cut_off(hub: Service) -> None:
    """After ``header_timeout_sec``, not after the minute of asyncio."""
    with socket.create_connection(hub.address, timeout=20) as sock, suppress(ConnectionResetError):
        assert sock.recv(1) == b""
