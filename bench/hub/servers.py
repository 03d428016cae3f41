"""The servers that are measured: the hub, and two that order and store messages without checking them."""

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep

_START_SEC = 20


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def _process(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_START_SEC)


@dataclass(frozen=True, slots=True)
class RunningHub:
    """The hub under test."""

    port: int
    hub_id: str
    pid: int


@contextmanager
def hub(directory: Path) -> Iterator[RunningHub]:
    """Run a hub with default settings; it logs to a file, as in the background."""
    command = [sys.executable, "-m", "veen.cli.main", "hub", "start", "--foreground", "--json"]
    command += ["--data-dir", str(directory), "--listen", "127.0.0.1:0"]
    directory.mkdir(parents=True, mode=0o700)
    with (directory / "hub.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)  # noqa: S603
        try:
            assert process.stdout is not None
            banner = json.loads(process.stdout.readline())
            yield RunningHub(int(banner["listen"][0].rpartition(":")[2]), banner["hub_id"], process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


@dataclass(frozen=True, slots=True)
class Peer:
    """Another server: how to request that it stores a message durably, and how to parse its response."""

    name: str
    port: int
    # By the number of the connection: its first bytes, and the request that stores a message.
    hello: Callable[[int], bytes]
    request: Callable[[int, bytes], bytes]
    whole: Callable[[bytes], int]


@contextmanager
def nats(directory: Path) -> Iterator[Peer | None]:
    """Run NATS JetStream that syncs before it acknowledges; None if it is not installed."""
    beside_python = str(Path(sys.executable).parent)
    program = shutil.which("nats-server", path=beside_python) or shutil.which("nats-server")
    if program is None:
        yield None
        return
    port = _free_port()
    directory.mkdir(parents=True)
    config = directory / "nats.conf"
    config.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{directory}/js", sync_interval: always }}\n'
    )
    with _process([program, "-c", str(config)]):
        _wait_for(port)
        hello = b'CONNECT {"verbose":false,"pedantic":false,"headers":false}\r\n'
        _create_nats_stream(port, hello)
        yield Peer(
            "NATS JetStream", port, lambda nth: hello + b"SUB inbox.%d 1\r\n" % nth, _publish, _nats_answer
        )


def _create_nats_stream(port: int, hello: bytes) -> None:
    stream = json.dumps({"name": "bench", "subjects": ["bench"], "storage": "file"}).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=_START_SEC) as sock:
        request = b"PUB $JS.API.STREAM.CREATE.bench made %d\r\n%s\r\n" % (len(stream), stream)
        sock.sendall(hello + b"SUB made 1\r\n" + request)
        response = b""
        while b"MSG made" not in response:
            response += sock.recv(65536)
        assert b'"error"' not in response, response


def _publish(nth: int, message: bytes) -> bytes:
    return b"PUB bench inbox.%d %d\r\n%s\r\n" % (nth, len(message), message)


def _nats_answer(buffer: bytes) -> int:
    """Return the length of the next acknowledgement, including the bytes before it."""
    at = buffer.find(b"MSG inbox")
    if at < 0:
        return 0
    line = buffer.find(b"\r\n", at)
    if line < 0:
        return 0
    end = line + 2 + int(buffer[buffer.rfind(b" ", at, line) + 1 : line]) + 2
    return end if len(buffer) >= end else 0


@contextmanager
def redis(directory: Path) -> Iterator[Peer | None]:
    """Run Redis Streams that sync before they acknowledge; None if it is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    port = _free_port()
    directory.mkdir(parents=True)
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory), "--save", ""]
    command += ["--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no"]
    with _process(command):
        _wait_for(port)
        yield Peer("Redis Streams", port, lambda _: b"", _xadd, _redis_answer)


def _xadd(_: int, message: bytes) -> bytes:
    return b"*5\r\n$4\r\nXADD\r\n$5\r\nbench\r\n$1\r\n*\r\n$1\r\nm\r\n$%d\r\n%s\r\n" % (len(message), message)


def _redis_answer(buffer: bytes) -> int:
    line = buffer.find(b"\r\n")
    if line < 0:
        return 0
    assert buffer[:1] == b"$", buffer
    end = line + 2 + int(buffer[1:line]) + 2
    return end if len(buffer) >= end else 0


def _wait_for(port: int) -> None:
    """Wait until a server accepts connections."""
    for _ in range(1000):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=_START_SEC).close()
        except ConnectionRefusedError:
            sleep(0.02)
        else:
            return
    raise TimeoutError(f"nothing listens on port {port}")
