"""Runs of ``veen selftest`` as a user starts it, in a world of its own; and roads that are broken."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

VEEN: Final = (sys.executable, "-m", "veen.cli.main")
#: Two starts of Spark on a busy machine take a while.
TIMEOUT: Final = 240.0


def surroundings(place: Path, **more: str) -> dict[str, str]:
    """Return an environment in which everything that a run writes is below a directory."""
    scratch = place / "scratch"
    scratch.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VEEN_")}
    return {**kept, "TMPDIR": str(scratch), "HOME": str(place), **more}


def selftest(place: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a suite to its end."""
    return subprocess.run(
        [*VEEN, "selftest", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
        stdin=subprocess.DEVNULL,
        env=surroundings(place, **env),
        cwd=place,
    )


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the one document that a run has printed."""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def only(*steps: str) -> list[str]:
    """Return the options that choose steps."""
    return [word for step in steps for word in ("--only", step)]


def assert_fails(done: subprocess.CompletedProcess[str], *steps: str) -> dict[str, str]:
    """Check that a run failed at exactly these steps, and return what it says about them."""
    assert done.returncode == 5, done.stdout + done.stderr
    found = report_of(done)
    assert not found["ok"]
    failed = {item["name"]: item["detail"] for item in found["steps"] if not item["ok"]}
    assert set(failed) == set(steps), failed
    return failed


def assert_nothing_left(place: Path) -> None:
    """Check that no file and no process of a run is left."""
    scratch = place / "scratch"
    assert list(scratch.iterdir()) == []
    left = processes_of(scratch)
    assert left == [], [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]


def processes_of(scratch: Path) -> list[int]:
    """Return the processes that were started with a directory in their command or environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if str(scratch).encode() in text and state != "Z":
            found.append(int(entry.name))
    return found


@contextmanager
def started(place: Path, *args: str) -> Iterator[subprocess.Popen[str]]:
    """Start a run, and let it not outlive the test."""
    run = subprocess.Popen(
        [*VEEN, "selftest", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
        env=surroundings(place),
        cwd=place,
    )
    try:
        yield run
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGTERM)
        run.communicate(timeout=TIMEOUT)


def until(question: Callable[[], object], what: str) -> None:
    """Wait for something."""
    end = time.monotonic() + TIMEOUT / 2
    while not question():
        assert time.monotonic() < end, what
        threading.Event().wait(0.01)


# --- a road that changes what travels on it -----------------------------------------------------------------


@dataclass
class Answer:
    """An answer of the hub on its way back, with the request that it is for."""

    method: str
    path: str
    asked: bytes
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


Alter = Callable[[Answer], None]


@contextmanager
def road(hub_url: str, alter: Alter) -> Iterator[str]:
    """Stand between a client and a hub, and change answers; yields the URL to use in place of the hub's."""
    parts = urlsplit(hub_url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Two small writes and Nagle's rule are 40 ms a request.
        disable_nagle_algorithm = True

        def handle_one(self) -> None:
            asked = self.rfile.read(int(self.headers.get("content-length", 0)))
            hub = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
            try:
                kind = self.headers.get("content-type")
                hub.request(self.command, self.path, asked, {"content-type": kind} if kind else {})
                got = hub.getresponse()
                answer = Answer(self.command, self.path, asked, got.status, got.read(), dict(got.headers))
            finally:
                hub.close()
            alter(answer)
            self.send_response_only(answer.status)
            self.send_header("content-type", answer.headers.get("content-type", ""))
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = do_PUT = handle_one  # noqa: N815 - names of the library

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
