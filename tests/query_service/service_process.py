"""A query service as a process, who may use it, and how tests ask it."""

import http.client
import json
import os
import select
import signal
import ssl
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from tests.client.participants import make_home
from tests.hub.hub_process import TIMEOUT, environment
from tests.paths import ROOT
from tests.query_service.plain_service import event
from veen.client.client import Client
from veen.query.policy import Policy
from veen.query_service.grants import grant
from veen.query_service.recorder import STREAMS
from veen.query_service.store import Kind

APP, SECRET, EMPTY = "record/app/logins", "record/security/keys", "record/app/nothing"
#: A stream of which the engine knows the id alone.
RAW: Final = "ab" * 32
ROWS: Final = 25


def make_place(place: Path) -> dict[str, str]:
    """Make what a service needs in a directory; returns the tokens of its principals."""
    place.mkdir(exist_ok=True)
    make_home(place / "client")
    events = [event(APP, seq) for seq in range(1, ROWS + 1)] + [event(SECRET, seq) for seq in range(1, 4)]
    events.append(event(RAW, 1))
    (place / "events.jsonl").write_text("".join(json.dumps(item) + "\n" for item in events))
    policy = place / "policy.toml"
    return {
        "alice": grant(policy, "alice", ["record/app/*"]),
        "bob": grant(policy, "bob", ["record/app/*"]),
        "eve": grant(policy, "eve", ["record/other/*"]),
        "audit": grant(policy, "audit", ["record/app/*"], auditor=True),
    }


def until(found: Callable[[], Any], what: str, seconds: float = TIMEOUT) -> Any:
    """Return what there is, as soon as there is something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        select.select([], [], [], 0.02)
    raise AssertionError(f"{what} did not come in {seconds} s")


def recorded(place: Path, hub: str, kind: Kind) -> Iterator[Any]:
    """Yield what the log has of a kind, opened with the keys of the service."""
    with Client.open(place / "client", hub) as client:
        yield from client.read(STREAMS[kind])


class Asked:
    """An answer."""

    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        assert set(self.json) == {"error_code", "message"}, self.json
        return self.status, self.json["error_code"]


def read_policy(path: Path) -> Policy:
    """Read the file that says who may ask what."""
    return Policy.from_dict(tomllib.loads(path.read_text(encoding="utf-8")))


class Service:
    """The process of a service: ``tests.query_service.plain_service`` unless another command is given."""

    def __init__(self, place: Path, hub: str, command: tuple[str, ...] = (), **options: Any) -> None:
        self.place, self.hub = place, hub
        self.log = place / "service.log"
        self.url = ""
        self._command = command or (
            sys.executable,
            "-m",
            "tests.query_service.plain_service",
            str(place),
            json.dumps({"hub": hub, **options}),
        )

    def __enter__(self) -> Self:
        """Wait until it serves."""
        with self.log.open("ab") as sink:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=sink,
                env=environment(PYTHONPATH=f"{ROOT / 'src'}:{ROOT}"),
                cwd=ROOT,
            )
        assert self.process.stdout is not None
        try:
            assert select.select([self.process.stdout], [], [], 2 * TIMEOUT)[0], "the service says nothing"
            line = self.process.stdout.readline()
            assert line, f"the service did not start: {self.log.read_text()}"
            self.url = json.loads(line)["listen"][0]
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """End it as the kernel does."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def terminate(self) -> int:
        """Ask it to end; returns its exit code."""
        os.kill(self.process.pid, signal.SIGTERM)
        return self.process.wait(TIMEOUT)

    def connect(self, context: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        if context is not None:
            return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=TIMEOUT, context=context)
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT)

    def ask(
        self,
        token: str,
        path: str,
        body: Any = None,
        *,
        method: str = "",
        prefix: str = "/api/query/",
        context: ssl.SSLContext | None = None,
        **headers: str,
    ) -> Asked:
        """Ask something; a body that is not bytes is sent as JSON, with POST."""
        connection = self.connect(context)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            sent["authorization"] = f"Bearer {token}"
        if data is not None:
            sent.setdefault("content-type", "application/json")
        try:
            connection.request(method or ("POST" if body is not None else "GET"), prefix + path, data, sent)
            answer = connection.getresponse()
            return Asked(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def submit(self, token: str, **descriptor: Any) -> str:
        """Submit a query; returns the id of its result."""
        answer = self.ask(token, "submit", {"scope": [APP], **descriptor})
        assert answer.status == 202, answer.body
        return str(answer.json["result_id"])

    def wait(self, token: str, result_id: str, *wanted: str) -> dict[str, Any]:
        """Wait for a state; returns the status."""

        def look() -> dict[str, Any] | None:
            found: dict[str, Any] = self.ask(token, f"status/{result_id}").json
            return found if found["status"] in (wanted or ("completed", "failed")) else None

        found: dict[str, Any] = until(look, f"state {wanted}")
        return found
