"""A time stamp authority on this machine: openssl behind a few lines of HTTP."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import pytest

OPENSSL: Final = shutil.which("openssl")
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="there is no openssl to be the authority")
REPLY: Final = "application/timestamp-reply"
_CONFIG: Final = """
[tsa]
default_tsa = ours
[ours]
serial = {serial}
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
accuracy = secs:1
ess_cert_id_alg = sha256
"""


def _openssl(place: Path, *arguments: str) -> None:
    assert OPENSSL is not None
    subprocess.run([OPENSSL, *arguments], cwd=place, check=True, capture_output=True, timeout=30)


@dataclass(frozen=True)
class Authority:
    """Keys and certificates in a directory: a root, and a signer that it has certified."""

    place: Path

    @classmethod
    def create(cls, place: Path) -> "Authority":
        place.mkdir()
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        _openssl(
            place,
            *("req", "-x509", *key, "-keyout", "root.key", "-out", "root.pem", "-subj", "/CN=root"),
        )
        _openssl(place, *("req", *key, "-keyout", "tsa.key", "-out", "tsa.csr", "-subj", "/CN=tsa"))
        (place / "extensions").write_text(
            "extendedKeyUsage = critical,timeStamping\nkeyUsage = critical,digitalSignature\n"
        )
        _openssl(
            place,
            *("x509", "-req", "-in", "tsa.csr", "-CA", "root.pem", "-CAkey", "root.key", "-CAcreateserial"),
            *("-extfile", "extensions", "-out", "tsa.pem"),
        )
        (place / "config").write_text(_CONFIG.format(serial=place / "serial"))
        (place / "serial").write_text("01\n")
        return cls(place)

    @property
    def root(self) -> Path:
        """The certificate that everybody knows."""
        return self.place / "root.pem"

    def stamp(self, query: bytes) -> bytes:
        (self.place / "query").write_bytes(query)
        _openssl(
            self.place,
            *("ts", "-reply", "-config", "config", "-queryfile", "query", "-out", "reply"),
            *("-signer", "tsa.pem", "-inkey", "tsa.key"),
        )
        return (self.place / "reply").read_bytes()


@dataclass
class Served:
    """An authority that can be asked, and what it does about it."""

    url: str
    answer: Callable[[bytes], bytes]
    status: int = 200
    content_type: str = REPLY
    queries: list[bytes] = field(default_factory=list)


@contextmanager
def served(answer: Callable[[bytes], bytes], port: int = 0) -> Iterator[Served]:
    """Answer time stamp queries over HTTP."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = self.rfile.read(int(self.headers["content-length"]))
            assert self.headers["content-type"] == "application/timestamp-query"
            made.queries.append(query)
            body = made.answer(query) if made.status == 200 else b""
            self.send_response(made.status)
            self.send_header("content-type", made.content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the base class
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        made = Served(f"http://127.0.0.1:{server.server_port}/tsr", answer)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
