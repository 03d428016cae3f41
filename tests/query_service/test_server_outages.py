"""Hubs that are down, services that are told to end, certificates in place of tokens."""

import hashlib
import os
import signal
import socket
import ssl
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.hub.certificates import make_certificate
from tests.hub.hub_process import TIMEOUT, HubProcess
from tests.query_service.service_process import APP, Service, make_place, recorded, until
from veen.query_service.server import STORE
from veen.query_service.store import Kind, State, Store


def free_port() -> int:
    """Return a port that nobody gets by chance while a hub is away: the system gives higher ones."""
    for port in Random(os.getpid()).sample(range(20_000, 32_000), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("all ports are taken")


def test_a_hub_that_is_down_keeps_queries_waiting_and_loses_none(tmp_path: Path) -> None:
    tokens = make_place(tmp_path / "service")
    listen = f"127.0.0.1:{free_port()}"
    hub = HubProcess(tmp_path / "hub", "--listen", listen)
    with hub, Service(tmp_path / "service", hub.url, record_wait_sec=0.5) as service:
        alice = tokens["alice"]
        done = service.submit(alice, query_id="before")
        service.wait(alice, done)
        (service.place / "hold").touch()
        running = service.submit(alice, query_id="across")
        service.wait(alice, running, "running")
        hub.stop()
        answer = service.ask(alice, "submit", {"query_id": "during", "scope": [APP]})
        assert answer.error == (500, "internal_error")
        assert "during" in answer.json["message"]
        (kept,) = (word for word in answer.json["message"].replace(",", " ").split() if word.startswith("r-"))
        assert service.ask(alice, f"status/{kept}").json["status"] == "pending"
        until(lambda: service.ask("", "readyz", prefix="/").status == 503, "the hub to be missed")
        again = service.ask(alice, "submit", {"query_id": "during", "scope": [APP]})
        assert again.error == (409, "duplicate_query_id")
        (service.place / "hold").unlink()
        assert service.ask(alice, f"result/{running}").error == (409, "result_not_ready")
        with HubProcess(tmp_path / "hub", "--listen", listen) as back:
            for result_id in (running, kept):
                assert service.wait(alice, result_id)["status"] == "completed"
            until(lambda: service.ask("", "readyz", prefix="/").status == 200, "the service to be ready")
            for name in ("before", "across", "during"):
                for kind in Kind:
                    found = [item.raw_body() for item in recorded(service.place, back.url, kind)]
                    assert sum(f'"{name}"'.encode() in body for body in found) == 1, (name, kind)


def kept(place: Path, result_id: str) -> tuple[State, int]:
    """Return the state of a query, and how often it was begun."""
    store = Store(place / "state" / STORE)
    found = store.find(result_id)
    store.close()
    assert found is not None
    return found.state, found.attempts


def test_a_service_whose_engine_dies_ends_though_nobody_asks(tmp_path: Path) -> None:
    tokens = make_place(tmp_path / "service")
    with HubProcess(tmp_path / "hub") as hub, Service(tmp_path / "service", hub.url) as service:
        service.wait(tokens["alice"], service.submit(tokens["alice"]))
        (service.place / "gone").touch()
        assert service.process.wait(TIMEOUT) == 1
        until(lambda: "engine-gone" in service.log.read_text(), "the line of the log")


@pytest.mark.slow
def test_a_hub_that_hangs_is_told_and_does_not_keep_a_service_from_ending(tmp_path: Path) -> None:
    tokens = make_place(tmp_path / "service")
    alice = tokens["alice"]
    with HubProcess(tmp_path / "hub") as hub, ExitStack() as stack:
        service = stack.enter_context(
            Service(tmp_path / "service", hub.url, record_wait_sec=0.2, timeout_sec=3600)
        )
        service.wait(alice, service.submit(alice))
        os.kill(hub.process.pid, signal.SIGSTOP)
        stack.callback(os.kill, hub.process.pid, signal.SIGCONT)
        answer = service.ask(alice, "submit", {"query_id": "hanging", "scope": [APP]})
        assert answer.error == (500, "internal_error")
        until(lambda: service.ask("", "readyz", prefix="/").status == 503, "the service to notice")
        assert service.terminate() == 0
        stack.close()
        with Service(tmp_path / "service", hub.url) as again:
            result_id = again.ask(alice, "descriptor/hanging").json["result_id"]
            assert again.wait(alice, result_id)["status"] == "completed"
        for kind in (Kind.REQUEST, Kind.RESULT):
            found = [item.raw_body() for item in recorded(service.place, hub.url, kind)]
            assert sum(b'"hanging"' in body for body in found) == 1, kind


def test_a_service_that_is_told_to_end_ends_and_goes_on_later(tmp_path: Path) -> None:
    tokens = make_place(tmp_path / "service")
    with HubProcess(tmp_path / "hub") as hub:
        place, alice = tmp_path / "service", tokens["alice"]
        (place / "hold").touch()
        with Service(place, hub.url, settings={"drain_sec": 0.05, "concurrency": 1}) as service:
            ids = [service.submit(alice, query_id=name) for name in ("one", "two")]
            service.wait(alice, ids[0], "running")
            assert service.terminate() == 0
        assert kept(place, ids[0]) == (State.PENDING, 0), "it is not to blame"
        (place / "hold").unlink()
        (place / "gone").touch()
        with Service(place, hub.url) as service:
            assert service.process.wait(TIMEOUT) == 1, "without an engine there is no service"
        assert kept(place, ids[0]) == (State.PENDING, 0), "for which no query is to blame"
        (place / "gone").unlink()
        with Service(place, hub.url) as service:
            for result_id in ids:
                assert service.wait(alice, result_id)["status"] == "completed"
            with pytest.raises(AssertionError, match="another service uses"), Service(place, hub.url):
                pass
            service.process.send_signal(signal.SIGINT)
            assert service.process.wait(10) == 0


def make_authority(directory: Path) -> tuple[Path, dict[str, Path], dict[str, bytes]]:
    """Make an authority and the certificates of two clients; returns files, and the clients' in DER."""
    directory.mkdir()
    now = datetime.now(UTC)

    def sign(
        name: str, issuer: str, key: ec.EllipticCurvePrivateKey, by: ec.EllipticCurvePrivateKey, *, ca: bool
    ) -> x509.Certificate:
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .sign(by, hashes.SHA256())
        )

    root = ec.generate_private_key(ec.SECP256R1())
    authority = directory / "authority.pem"
    authority.write_bytes(sign("root", "root", root, root, ca=True).public_bytes(serialization.Encoding.PEM))
    files, ders = {}, {}
    for name in ("known", "unknown"):
        key = ec.generate_private_key(ec.SECP256R1())
        made = sign(name, "root", key, root, ca=False)
        form = serialization.PrivateFormat.PKCS8
        files[name] = directory / f"{name}.pem"
        files[name].write_bytes(
            made.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        )
        ders[name] = made.public_bytes(serialization.Encoding.DER)
    return authority, files, ders


def test_certificates_of_clients_stand_for_principals(tmp_path: Path) -> None:
    tokens = make_place(tmp_path / "service")
    cert, key = make_certificate(tmp_path)
    authority, files, ders = make_authority(tmp_path / "authority")
    policy = tmp_path / "service" / "policy.toml"
    digest = hashlib.sha256(ders["known"]).hexdigest()
    text = policy.read_text().replace(
        '[principals."alice"]', f'[principals."alice"]\ncertificate_sha256 = ["{digest}"]'
    )
    policy.write_text(text)

    def context(name: str = "") -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(cert))
        if name:
            made.load_cert_chain(files[name])
        return made

    options: dict[str, Any] = {"tls_cert": str(cert), "tls_key": str(key), "client_ca": str(authority)}
    with HubProcess(tmp_path / "hub") as hub, Service(tmp_path / "service", hub.url, **options) as service:
        answer = service.ask("", "submit", {"scope": [APP]}, context=context("known"))
        assert answer.status == 202
        result_id = answer.json["result_id"]
        path = f"status/{result_id}"
        assert service.ask(tokens["alice"], path, context=context()).status == 200
        assert service.ask("", path, context=context("unknown")).error == (401, "unauthorized")
        assert service.ask("", path, context=context()).error == (401, "unauthorized")
        # A token that is given counts, and not the certificate beside it.
        assert service.ask("wrong", path, context=context("known")).error == (401, "unauthorized")
        assert service.ask(tokens["bob"], path, context=context("known")).error == (404, "query_not_found")
