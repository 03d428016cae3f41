"""A real hub process, and clients that keep every receipt they were given."""

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from tests import builders
from veen.core.api.data_plane import (
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    SubmitRequest,
    SubmitResponse,
)
from veen.core.api.tooling import ConsistencyRequest, ConsistencyResponse
from veen.core.encoding import cbor
from veen.core.encoding.wire_object import Wire
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
from veen.core.types import AuthRef, Label
from veen.hub.home import SECRETS, HubSecrets

VEEN: Final = (sys.executable, "-m", "veen.cli.main")
#: Nothing here takes so long; a hub that hangs fails the test and not the whole run.
TIMEOUT: Final = 60.0
CBOR: Final = "application/cbor"
CBOR_SEQ: Final = "application/cbor-seq"
#: The hub can not open it, so one will do for all messages.
CIPHERTEXT: Final = builders.sealed().ciphertext
_GARBAGE_ENV: Final = ("NOTIFY_SOCKET", "INVOCATION_ID")

W = TypeVar("W", bound=Wire)


def environment(**more: str) -> dict[str, str]:
    """Return our environment without what would change a hub, and with more."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _GARBAGE_ENV and not name.startswith("VEEN_")
    }
    return {**kept, **more}


def veen(*args: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*VEEN, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
        stdin=subprocess.DEVNULL,
        env=environment(**env),
    )


@contextlib.contextmanager
def ending(place: Path) -> Iterator[None]:
    """Let no hub that was started in the background in a directory outlive the test."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            fd = os.pidfd_open(json.loads((place / "state/hub.json").read_text())["pid"])
            signal.pidfd_send_signal(fd, signal.SIGKILL)
            select.select([fd], [], [], TIMEOUT)
            os.close(fd)


class HubProcess:
    """``veen hub start --foreground`` on a port that the system has chosen."""

    def __init__(
        self,
        place: Path,
        *flags: str,
        config: str = "",
        wrapper: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        listen: bool = True,
        log: Path | None = None,
    ) -> None:
        """``config`` is the text of its TOML file, ``wrapper`` a command that starts it."""
        self.place = place
        self.log = log or place.with_name(place.name + ".log")
        command = [*wrapper, *VEEN, "hub", "start", "--foreground", "--json", "--data-dir", str(place)]
        if listen and "--listen" not in flags:
            command += ["--listen", "127.0.0.1:0"]
        if config:
            file = place.with_name(place.name + ".toml")
            file.write_text(config)
            command += ["--config", str(file)]
        with self.log.open("ab") as sink:
            self.process = subprocess.Popen(
                [*command, *flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=sink,
                env=environment(**(env or {})),
            )
        self.banner: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Wait until it serves."""
        try:
            self.banner = self._read_banner()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def interrupt(self, seconds: float) -> None:
        """Kill it so long after it was started, or as soon as it serves."""
        assert self.process.stdout is not None
        select.select([self.process.stdout], [], [], seconds)
        self._end()

    def _end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read_banner(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], TIMEOUT)[0], "the hub says nothing"
        line = self.process.stdout.readline()
        assert line, f"the hub did not start: {self.log.read_text()}"
        said: dict[str, Any] = json.loads(line)
        assert said["ok"], said
        return said

    @property
    def url(self) -> str:
        return str(self.banner["listen"][0])

    @property
    def pid(self) -> int:
        return int(self.banner["pid"])

    def kill(self) -> None:
        """End it as the kernel does: at once."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(TIMEOUT)

    def terminate(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end; return its exit code."""
        os.kill(self.pid, number)
        return self.process.wait(TIMEOUT)

    def stop(self) -> None:
        """End it cleanly."""
        assert self.terminate() == 0, self.log.read_text()[-2000:]

    def children(self) -> list[int]:
        """Return the processes that check messages."""
        text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(word) for word in text.split()]

    def rss_mb(self) -> float:
        """Return how much memory it has."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")

    def connect(self, timeout: float = TIMEOUT) -> socket.socket:
        """Open a connection of one's own."""
        host, port = self.url.partition("://")[2].rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout)

    def connect_deaf(self) -> socket.socket:
        """Open a connection that has room for next to no answers, and blocks nobody."""
        host, port = self.url.partition("://")[2].rsplit(":", 1)
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        made.connect((host, int(port)))
        made.settimeout(0)
        return made

    def api(self) -> "Api":
        return Api(self.url)

    def get(self, path: str) -> dict[str, Any]:
        """Return a description."""
        with self.api() as api:
            status, _, body = api.ask("GET", path)
        found: dict[str, Any] = json.loads(body)
        assert status in (200, 503), found
        return found

    def metric(self, name: str) -> float:
        """Return one number of /metrics."""
        with self.api() as api:
            lines = api.ask("GET", "/metrics")[2].decode().splitlines()
        for line in lines:
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise AssertionError(f"there is no metric {name}")


class Refused(Exception):  # noqa: N818 - an answer, not an error of ours
    """The hub has answered with an error."""

    def __init__(self, status: int, headers: Mapping[str, str], envelope: ErrorEnvelope) -> None:
        super().__init__(f"{status} {envelope.code}: {envelope.message}")
        self.status = status
        self.headers = headers
        self.envelope = envelope
        self.detail = envelope.detail or {}


class Api:
    """One connection, and the requests of the protocol on it."""

    def __init__(self, url: str) -> None:
        host, port = url.partition("://")[2].rsplit(":", 1)
        self._connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT)
        self.headers: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def ask(
        self, method: str, path: str, body: bytes | None = None, content_type: str = CBOR
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body."""
        headers = self.headers if body is None else {**self.headers, "content-type": content_type}
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        got = {name.lower(): value for name, value in response.headers.items()}
        return response.status, got, response.read()

    def post(self, path: str, body: Wire, answer: type[W]) -> W:
        """Send a request, and read the answer."""
        status, headers, data = self.ask("POST", path, body.encode())
        if status != 200:
            raise Refused(status, headers, ErrorEnvelope.decode(data))
        return answer.decode(data)

    def submit(self, msg: Msg) -> Receipt:
        return self.post("/v1/submit", SubmitRequest(msg=msg), SubmitResponse).receipt

    def submit_many(self, messages: Iterable[Msg]) -> list[Receipt | ErrorEnvelope]:
        """Send a sequence of messages; return an answer for each."""
        body = b"".join(msg.encode() for msg in messages)
        status, headers, data = self.ask("POST", "/v1/submit", body, CBOR_SEQ)
        if status != 200:
            raise Refused(status, headers, ErrorEnvelope.decode(data))
        return list(_answers(data))

    def receipt(self, label: Label, seq: int) -> Receipt:
        asked = ReceiptRequest(label=label, stream_seq=seq)
        return self.post("/v1/receipt", asked, SubmitResponse).receipt

    def check(self, receipt: Receipt, newest: Receipt) -> None:
        """Check that a receipt is served unchanged, is proved, and that the log has only grown since."""
        label, seq = receipt.label, receipt.stream_seq
        assert self.receipt(label, seq) == receipt
        proof = self.post("/v1/proof", ProofRequest(label=label, stream_seq=seq), ProofResponse).mmr_proof
        proof.verify(receipt.mmr_root, receipt.leaf_hash, stream_seq=seq)
        asked = ConsistencyRequest(label=label, old_size=seq, new_size=newest.stream_seq)
        grown = self.post("/tooling/consistency", asked, ConsistencyResponse).proof
        grown.verify(
            old_root=receipt.mmr_root, old_size=seq, new_root=newest.mmr_root, new_size=newest.stream_seq
        )


def _answers(data: bytes) -> Iterable[Receipt | ErrorEnvelope]:
    at = 0
    while at < len(data):
        end = cbor.item_end(data, at)
        item = data[at:end]
        fields = cbor.decode(item)
        assert isinstance(fields, dict)
        refused = isinstance(fields[2], str)
        yield ErrorEnvelope.decode(item) if refused else SubmitResponse.decode(item).receipt
        at = end


_names = count()


@dataclass
class Client:
    """A client of one label. Messages that were sent and not answered are sent again, the same (C-63)."""

    label: Label
    name: str = field(default_factory=lambda: f"client {next(_names)}")
    auth_ref: AuthRef | None = None
    receipts: list[Receipt] = field(default_factory=list)
    #: Made and perhaps sent, not answered.
    pending: list[Msg] = field(default_factory=list)

    def message(self, client_seq: int | None = None) -> Msg:
        """Make the next message."""
        due = len(self.receipts) + len(self.pending) + 1
        # All that wait for an answer have the same: an older one could not be sent again behind a newer one.
        known = self.receipts[-1].stream_seq if self.receipts else 0
        ctx = builders.context(
            label=self.label,
            client=self.name,
            client_seq=due if client_seq is None else client_seq,
            prev_ack=self.pending[0].prev_ack if self.pending else known,
            auth_ref=self.auth_ref,
        )
        return Msg.sign(builders.signing_key(self.name), ctx, CIPHERTEXT)

    def send(self, api: Api) -> Receipt:
        """Send one message."""
        if not self.pending:
            self.pending.append(self.message())
        self._take(api, api.submit_many(self.pending) if len(self.pending) > 1 else [self._one(api)])
        return self.receipts[-1]

    def send_many(self, api: Api, number: int) -> None:
        """Send so many in one request."""
        while len(self.pending) < number:
            self.pending.append(self.message())
        self._take(api, api.submit_many(self.pending))

    def _one(self, api: Api) -> Receipt | ErrorEnvelope:
        try:
            return api.submit(self.pending[0])
        except Refused as refused:
            if refused.envelope.code != "E.SEQ":
                raise
            return refused.envelope

    def _take(self, api: Api, answers: Sequence[Receipt | ErrorEnvelope]) -> None:
        assert len(answers) == len(self.pending)
        for answer in answers:
            if isinstance(answer, ErrorEnvelope):
                # It was taken before the answer was lost: its receipt is there.
                assert answer.code == "E.SEQ", answer
                seq = (answer.detail or {})["stream_seq"]
                assert isinstance(seq, int)
                got = api.receipt(self.label, seq)
            else:
                got = answer
            got.verify_msg(self.pending[0])
            self.receipts.append(got)
            del self.pending[0]


def secrets_of(place: Path) -> list[bytes]:
    """Return all that must never leave a data directory."""
    kept = HubSecrets.decode((place / SECRETS).read_bytes())
    return [*kept.seeds, kept.control_sk, kept.pow_key]


def check_no_secrets(place: Path, *texts: bytes | str) -> None:
    """Check that none of these outputs, nor any other file of the hub, holds a secret, raw or in hex."""
    outputs = [text.encode() if isinstance(text, str) else text for text in texts]
    outputs += [
        path.read_bytes()
        for path in place.rglob("*")
        if path.is_file() and path.name != SECRETS and "index" not in path.parts
    ]
    for secret in secrets_of(place):
        for form in (secret, secret.hex().encode(), secret.hex().upper().encode(), repr(secret).encode()):
            assert not any(form in output for output in outputs)


def check_sound(place: Path) -> None:
    """Check that ``veen fsck`` finds nothing."""
    done = veen("fsck", place)
    assert done.returncode == 0, done.stdout + done.stderr
