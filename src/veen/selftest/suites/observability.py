"""Steps about what a hub reports to operators and auditors: health, metrics, log, anchors."""

import json
import socket
import threading
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from veen.client.transport.http import read_json
from veen.core.api.data_plane import CheckpointRequest, CheckpointResponse
from veen.core.errors import Code, Detail
from veen.core.types import Label
from veen.selftest.authors import Author, submit
from veen.selftest.context import Context
from veen.selftest.errors import StepFailedError
from veen.selftest.servers import ANCHOR_EVERY, veen
from veen.selftest.step import Needs, check, equal, poll, refused, step
from veen.selftest.suites.messages import ask, author_of

_LOG: Final = "it reads the hub's log, so it needs its own hub"
_LEDGER: Final = "it reads the hub's ledger, so it needs its own hub"
_LOAD: Final = "it puts load on a hub that others use"
_HEALTH: Final = {
    "ok": bool,
    "profile_id": str,
    "peaks_count": int,
    "last_stream_seq": int,
    "last_mmr_root": str,
}
_COUNTERS: Final = ("veen_submit_ok_total", "veen_rate_limited_total", "veen_anchor_fail_total")
_GAUGES: Final = ("veen_queue_depth",)
_HISTOGRAMS: Final = (
    "veen_verify_latency_ms",
    "veen_commit_latency_ms",
    "veen_end_to_end_latency_ms",
    "veen_checkpoint_interval",
    "veen_proof_time_ms",
    "veen_fsync_latency_ms",
)
_LINE: Final = {
    "label": str,
    "client_id_prefix": str,
    "stream_seq": int,
    "leaf_hash_prefix": str,
    "bytes_in": int,
    "bytes_out": int,
    "verify_ms": float,
    "commit_ms": float,
}


@step(Needs.ANY)
def health(ctx: Context) -> str:
    """The health response has all its fields, with the right types."""
    reply = ctx.get("/healthz")
    equal(reply.status, 200, "status of /healthz")
    document = read_json(reply.body, "the hub")
    for name, kind in _HEALTH.items():
        check(
            type(document.get(name)) is kind,
            f"/healthz has no {name}, or of another type: {document.get(name)!r}",
        )
    check(document["ok"], "the hub is not healthy")
    equal(len(bytes.fromhex(document["last_mmr_root"])), 32, "length of the root")
    equal(ctx.get("/readyz").status, 200, "status of /readyz")
    return f"{len(_HEALTH)} fields"


@step()
def health_follows(ctx: Context) -> str:
    """The health response follows the log."""
    author = author_of(ctx, "health")
    receipts = [author.write()[1] for _ in range(6)]
    document = read_json(ctx.get(f"/tooling/status?label={author.label().hex()}").body, "the hub")
    last = receipts[-1]
    equal(document["last_stream_seq"], last.stream_seq, "last_stream_seq")
    equal(document["last_mmr_root"], last.mmr_root.hex(), "last_mmr_root")
    equal(document["peaks_count"], last.stream_seq.bit_count(), "peaks_count")
    if not ctx.url:
        seen = read_json(ctx.get("/healthz").body, "the hub")
        equal(seen["last_mmr_root"], last.mmr_root.hex(), "last_mmr_root of /healthz")
    return "it names the last entry and its root"


def metrics_of(ctx: Context) -> dict[str, float]:
    """Return the metrics of a hub, by name and labels."""
    reply = ctx.get("/metrics")
    equal(reply.status, 200, "status of /metrics")
    lines = [line for line in reply.body.decode().splitlines() if line and not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


@step()
def metrics(ctx: Context) -> str:
    """Metrics have the documented names, and count what happens."""
    author = author_of(ctx, "metrics")
    wrong = author.with_(client_seq=9)
    refused(lambda: submit(author.hub, wrong.encode()), Code.SEQ, Detail.CLIENT_SEQ)
    before = metrics_of(ctx)
    error = f'veen_submit_err_total{{code="{Code.SEQ}"}}'
    expected = [*_COUNTERS, *_GAUGES, error, *(f"{name}_count" for name in _HISTOGRAMS)]
    missing = [name for name in expected if name not in before]
    check(not missing, f"/metrics has no {', '.join(missing)}")
    author.write()
    refused(lambda: submit(author.hub, wrong.encode()), Code.SEQ)
    after = metrics_of(ctx)
    for name in (
        "veen_submit_ok_total",
        error,
        "veen_commit_latency_ms_count",
        "veen_end_to_end_latency_ms_count",
    ):
        check(after[name] > before[name], f"{name} does not count")
        if not ctx.url and "ms" not in name:
            equal(after[name] - before[name], 1, f"{name} of one message")
    return f"{len(expected)} names"


@step(own=_LOG)
def submit_logs(ctx: Context) -> str:
    """Every submit writes one JSON line to the hub's log, with its fields and without its content."""
    author = author_of(ctx, "logs")
    written = [author.write() for _ in range(5)]
    wrong = author.with_(client_seq=99)
    refused(lambda: submit(author.hub, wrong.encode()), Code.SEQ)
    label = author.label().hex()
    poll(lambda: len(_lines(ctx.hub.log, label)) >= 6, "a line in the log for each of 6 submits", 5)
    lines = _lines(ctx.hub.log, label)
    equal(len(lines), 6, "lines for 6 submits")
    for line in lines:
        for name, kind in _LINE.items():
            check(isinstance(line.get(name), kind), f"a line has no {name}, or of another type: {line}")
        equal(line["client_id_prefix"], author.client_id.hex()[:8], "client_id_prefix")
    for line, (msg, receipt) in zip(lines, written, strict=False):
        equal(line["stream_seq"], receipt.stream_seq, "stream_seq")
        check(receipt.leaf_hash.hex().startswith(line["leaf_hash_prefix"]), "leaf_hash_prefix")
        check(line["bytes_in"] >= len(msg.encode()) and line["bytes_out"] > 0, "bytes_in or bytes_out")
    equal(lines[-1].get("code"), str(Code.SEQ), "code of the rejection")
    return "6 submits, 6 lines"


def _lines(log: Path, label: str) -> list[dict[str, Any]]:
    lines = []
    for text in log.read_text(encoding="utf-8").splitlines():
        if label in text:
            try:
                lines.append(json.loads(text))
            except ValueError:
                raise StepFailedError(f"a line of the log is not JSON: {text[:80]}") from None
    return lines


# --- overload -----------------------------------------------------------------------------------------------


@step(own=_LOAD)
def oversize_load(ctx: Context) -> str:
    """Many oversize requests at once are rejected by size, and the hub stays responsive."""
    pid, answers = ctx.hub.pid, []
    limit = int(ctx.status()["limits"]["max_msg_bytes"])

    def push() -> None:
        for _ in range(5):
            answers.append(_announce(ctx.hub_url, 64 * limit))  # noqa: PERF401 - seen by the others too

    threads = [threading.Thread(target=push) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(len(answers), 40, "requests that were answered")
    for answer in answers:
        check(answer.startswith(b"HTTP/1.1 413"), f"a request of 64 MiB was answered {answer[:40]!r}")
        check(str(Code.SIZE).encode() in answer, "the rejection does not have the code for size")
    check(ctx.hub.is_alive, "the hub has died")
    equal(ctx.hub.pid, pid, "process of the hub")
    before = _cpu_ticks(pid)
    author_of(ctx, "after").write()
    equal(ctx.get("/healthz").status, 200, "status of /healthz")
    spent = _cpu_ticks(pid) - before
    check(spent < 200, f"the hub is still busy: {spent} ticks for one message")
    return "40 requests of 64 MiB announced, all rejected"


def _announce(url: str, size: int) -> bytes:
    """Announce a large body, send a little of it, and return the response."""
    parts = urlsplit(url)
    head = (
        f"POST /v1/submit HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/cbor\r\n"
        f"content-length: {size}\r\n\r\n"
    )
    with socket.create_connection((parts.hostname, parts.port), 10) as sock:
        sock.sendall(head.encode() + bytes(1000))
        reply = b""
        while b"\r\n\r\n" not in reply or str(Code.SIZE).encode() not in reply:
            piece = sock.recv(65_536)
            if not piece:
                break
            reply += piece
    return reply


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


# --- anchors ------------------------------------------------------------------------------------------------


@step(own=_LEDGER)
def anchor_cadence(ctx: Context) -> str:
    """A label is anchored automatically when it has enough new entries."""
    before = _anchors(ctx)
    author = author_of(ctx, "cadence")
    for _ in range(ANCHOR_EVERY):
        author.write()
    poll(lambda: _anchored(ctx, author.label()), f"an anchor after {ANCHOR_EVERY} entries", 10)
    (first,) = _anchored(ctx, author.label())
    check(first >= ANCHOR_EVERY, f"anchored after {first} entries, too early")
    for _ in range(ANCHOR_EVERY):
        author.write()
    poll(lambda: len(_anchored(ctx, author.label())) >= 2, "the next anchor", 10)
    poll(lambda: _anchors(ctx) >= before + 2, "anchors, as the hub counts them", 5)
    check(metrics_of(ctx)["veen_anchor_fail_total"] == 0, "anchors have failed")
    return f"anchored every {ANCHOR_EVERY} entries"


def _anchors(ctx: Context) -> int:
    anchoring = ctx.status()["anchoring"]
    equal(anchoring["backend"], "file", "where anchors are published")
    return int(anchoring["anchors"])


def _anchored(ctx: Context, label: Label) -> list[int]:
    names = [path.name for path in (ctx.hub.place / "anchors").glob(f"anchor-{label.hex()}-*.cbor")]
    return sorted(int(name.rpartition("-")[2].removesuffix(".cbor")) for name in names)


@step(own=_LEDGER)
def anchor_binding(ctx: Context) -> str:
    """An anchor binds one root: it verifies from files, and for no other root."""
    author, data_dir = author_of(ctx, "binding"), ctx.hub.place
    author.write()
    good = ctx.scratch / f"checkpoint-{author.stream.rpartition('/')[2]}.cbor"
    done = veen(
        ctx.scratch,
        "anchor",
        "publish",
        "--hub",
        data_dir,
        "--label",
        author.label().hex(),
        "--out",
        good,
        "--json",
    )
    equal(done.returncode, 0, f"exit code of veen anchor publish ({done.stderr.strip()})")
    anchored = json.loads(done.stdout)
    _verify_anchor(ctx, good, 0)
    other = _other_checkpoint(ctx, author)
    _verify_anchor(ctx, other, 4, anchored["anchor_ref"])
    ledger = data_dir / "anchors" / "ledger.cborseq"
    forged = ctx.scratch / f"{good.stem}.ledger"
    data = ledger.read_bytes()
    root = bytes.fromhex(anchored["mmr_root"])
    at = data.index(root)
    forged.write_bytes(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :])
    _verify_anchor(ctx, good, 4, anchored["anchor_ref"], forged)
    return "verified from files; another root and a changed ledger rejected"


def _other_checkpoint(ctx: Context, author: Author) -> Path:
    author.write()
    checkpoint = ask(
        author.hub, CheckpointRequest(label=author.label(), upto_seq=2), CheckpointResponse
    ).checkpoint
    path = ctx.scratch / f"other-{author.stream.rpartition('/')[2]}.cbor"
    path.write_bytes(checkpoint.encode())
    return path


def _verify_anchor(
    ctx: Context, checkpoint: Path, code: int, ref: str = "", ledger: Path | None = None
) -> None:
    args: list[object] = [
        "anchor",
        "verify",
        "--checkpoint",
        checkpoint,
        "--data-dir",
        ctx.hub.place,
        "--json",
    ]
    args += ["--anchor-ref", ref] if ref else []
    args += ["--ledger", ledger] if ledger else []
    done = veen(ctx.scratch, *args)
    equal(
        done.returncode, code, f"exit code of veen anchor verify ({done.stdout.strip()}{done.stderr.strip()})"
    )


STEPS: Final = (
    health,
    health_follows,
    metrics,
    submit_logs,
    oversize_load,
    anchor_cadence,
    anchor_binding,
)
