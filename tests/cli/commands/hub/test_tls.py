"""``veen hub`` and TLS: commands that verify the hub's certificate, and the one that looks at the suite."""

import json
import socket
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.certificates import make_certificate
from tests.hub.hub_process import TIMEOUT, HubProcess, veen


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub that serves HTTPS only."""
    place = tmp_path_factory.mktemp("tls")
    cert, key = make_certificate(place)
    with HubProcess(place / "data", "--tls-cert", str(cert), "--tls-key", str(key)) as made:
        assert made.url.startswith("https://127.0.0.1:")
        yield made
        made.stop()


def certificate_of(hub: HubProcess) -> str:
    return str(hub.place.parent / "cert.pem")


@pytest.mark.slow
def test_the_suite_is_shown(hub: HubProcess) -> None:
    for place in (hub.url, str(hub.place)):
        done = veen("hub", "tls-info", "--hub", place, "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["version"] == "TLSv1.3"
        assert (found["aead"], found["compression"], found["ok"]) == (True, None, True)
    assert "aead: yes" in veen("hub", "tls-info", "--hub", hub.url).stdout


def test_a_certificate_is_verified_where_it_matters(hub: HubProcess) -> None:
    refused = veen("hub", "status", "--hub", hub.url)
    assert refused.returncode == 2
    assert "certificate" in refused.stderr.lower()
    assert refused.stderr.count("\n") == 1
    done = veen("hub", "status", "--hub", hub.place, "--json", SSL_CERT_FILE=certificate_of(hub))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["listen"] == [hub.url]


@pytest.mark.slow
def test_a_plain_hub_has_no_suite(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data") as plain:
        done = veen("hub", "tls-info", "--hub", plain.url)
        assert done.returncode == 1
        assert done.stderr == f"veen: {plain.url} does not use TLS\n"
        address = plain.url.removeprefix("http://")
        assert veen("hub", "tls-info", "--hub", f"https://{address}").returncode == 2


@pytest.mark.parametrize(
    ("version", "ciphers", "served"),
    [
        (ssl.TLSVersion.TLSv1_3, "", True),
        (ssl.TLSVersion.TLSv1_2, "ECDHE+AESGCM", True),
        (ssl.TLSVersion.TLSv1_2, "ECDHE+CHACHA20", True),
        (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-SHA256", False),
        (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES256-SHA", False),
        (ssl.TLSVersion.TLSv1_1, "ALL:@SECLEVEL=0", False),
        (ssl.TLSVersion.TLSv1, "ALL:@SECLEVEL=0", False),
    ],
)
def test_weak_suites_are_refused(
    hub: HubProcess,
    version: ssl.TLSVersion,
    ciphers: str,
    served: bool,  # noqa: FBT001 - a table
) -> None:
    context = ssl.create_default_context(cafile=certificate_of(hub))
    if ciphers:
        context.set_ciphers(ciphers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that they are old is the point
        context.minimum_version = context.maximum_version = version
    host, port = hub.url.removeprefix("https://").split(":")
    with socket.create_connection((host, int(port)), TIMEOUT) as plain:
        if served:
            with context.wrap_socket(plain, server_hostname=host) as secure:
                assert secure.compression() is None
                assert secure.version() == ("TLSv1.3" if version is ssl.TLSVersion.TLSv1_3 else "TLSv1.2")
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                context.wrap_socket(plain, server_hostname=host)
