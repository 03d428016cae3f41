"""``veen hub`` against a running hub, by URL and by directory: what it prints, and how it exits."""

import json
import os
import re
import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.builders import digest, some_label, stream, verify_key
from tests.hub.hub_process import Client, HubProcess, veen
from veen.cli.main import app
from veen.core.crypto.hash import sha256
from veen.core.objects import labels
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.types import RoutingKey

LABEL = some_label("commands")
#: Commands that ask a hub, with what else they need.
ASKING = (
    ("hub-id",),
    ("hub", "status"),
    ("hub", "key"),
    ("hub", "health"),
    ("hub", "metrics"),
    ("hub", "profile"),
    ("hub", "kex-policy"),
    ("hub", "admission"),
    ("hub", "admission-log"),
    ("hub", "role"),
    ("hub", "checkpoint"),
)


def run(*args: str | Path) -> Result:
    """Run a command in this process; mistakes in arguments have another exit code in the real one."""
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="veen")


def answer(*args: str | Path) -> dict[str, Any]:
    done = run(*args, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def lines(*args: str | Path) -> dict[str, str]:
    done = run(*args)
    assert done.exit_code == 0, done.output
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub with a few messages, one of them refused."""
    place = tmp_path_factory.mktemp("hub") / "data"
    with HubProcess(place, config="rotation_window_sec = 77\nmax_client_id_lifetime_sec = 3600\n") as made:
        with made.api() as api:
            Client(LABEL).send_many(api, 5)
            assert api.ask("POST", "/v1/submit", b"garbage")[0] == 400
        yield made
        made.stop()


@pytest.fixture(params=["url", "path", "uri"])
def place(hub: HubProcess, request: pytest.FixtureRequest) -> str:
    """The hub as a user may name it."""
    return {"url": hub.url + "/", "path": str(hub.place), "uri": f"file://{hub.place}"}[request.param]


def test_status(hub: HubProcess, place: str) -> None:
    found = answer("hub", "status", "--hub", place)
    assert found["role"] == "standalone"
    assert (found["last_stream_seq"], found["peaks_count"], found["label"]) == (5, 2, LABEL.hex())
    assert found["listen"] == [hub.url]
    assert found["uptime_sec"] >= 0
    assert found.get("data_dir") == (None if place.startswith("http") else str(hub.place))
    shown = lines("hub", "status", "--hub", place)
    assert shown["last_stream_seq"] == "5"
    assert shown["last_mmr_root"] == found["last_mmr_root"]
    assert shown["require_cap"] == "no"


@pytest.mark.parametrize("command", ASKING, ids=" ".join)
def test_a_hub_under_a_name_that_it_does_not_have(hub: HubProcess, command: tuple[str, ...]) -> None:
    """127.1 leads to 127.0.0.1 on every machine, but is not how an address is written: it is a name."""
    done = run(*command, "--hub", hub.url.replace("127.0.0.1", "127.1"))
    assert (done.exit_code, done.stdout) == (4, "")
    assert done.stderr == (
        "veen: E.FORBIDDEN: 127.1 is not one of the names that are served here: add the name to hosts in the"
        " hub's configuration\n"
    )


def test_status_of_a_label(hub: HubProcess) -> None:
    assert (
        answer("hub", "status", "--hub", hub.url, "--label", some_label("none").hex())["last_stream_seq"] == 0
    )
    done = run("hub", "status", "--hub", hub.url, "--label", "not hex &?")
    assert (done.exit_code, done.stdout) == (4, "")
    assert "E.BAD_REQUEST" in done.stderr


def test_key_and_id(hub: HubProcess, place: str) -> None:
    found = answer("hub", "key", "--hub", place)
    assert found["hub_id"] == hub.banner["hub_id"] == labels.hub_id(_key(found)).hex()
    both = bytes.fromhex(found["hub_pk"]) + bytes.fromhex(found["profile_id"])
    assert found["fingerprint"] == sha256(both).hex()
    assert lines("hub", "key", "--hub", place) == found
    assert run("hub-id", "--hub", place).stdout == f"{found['hub_id']}\n"
    assert answer("hub-id", "--hub", place) == {"hub_id": found["hub_id"]}


def _key(found: dict[str, Any]) -> Any:
    return bytes.fromhex(found["hub_pk"])


def test_health(hub: HubProcess, place: str) -> None:
    del hub
    for flags in ((), ("--json",)):
        done = run("hub", "health", "--hub", place, *flags)
        found = json.loads(done.stdout)
        assert (done.exit_code, found["ok"]) == (0, True)
        assert set(found) == {"ok", "profile_id", "peaks_count", "last_stream_seq", "last_mmr_root"}


def test_metrics(hub: HubProcess, place: str) -> None:
    del hub
    found = answer("hub", "metrics", "--hub", place)
    assert found["submit_ok_total"] == 5
    assert found["submit_err_total"] == {"E.FORMAT": 1}
    assert found["commit_latency_ms"] > 0
    raw = run("hub", "metrics", "--hub", place, "--raw").stdout
    assert "# TYPE veen_submit_ok_total counter" in raw
    assert re.search(r"^veen_fsync_latency_ms_count [1-9]", raw, re.MULTILINE), (
        "also of the journal's first segment"
    )
    for name in (
        "veen_submit_err_total",
        "veen_verify_latency_ms_bucket",
        "veen_end_to_end_latency_ms_bucket",
        "veen_queue_depth",
        "veen_rate_limited_total",
        "veen_checkpoint_interval",
        "veen_anchor_fail_total",
        "veen_clock_behind_seconds",
    ):
        assert f"\n{name}" in raw
    assert lines("hub", "metrics", "--hub", place)["submit_err_total"] == "E.FORMAT=1"


def test_profile_and_policy(hub: HubProcess, place: str) -> None:
    found = answer("hub", "profile", "--hub", place)
    assert found["version"] == "veen-0.0.1+"
    assert found["hub_id"] == hub.banner["hub_id"]
    features = ("core", "fed1", "auth1", "kex1_plus", "sh1_plus", "lclass0", "meta0_plus")
    assert set(found["features"]) == set(features)
    assert found["features"]["core"] is found["features"]["kex1_plus"] is True
    assert "core=yes" in lines("hub", "profile", "--hub", place)["features"]
    policy = answer("hub", "kex-policy", "--hub", place)
    assert (policy["rotation_window_sec"], policy["max_client_id_lifetime_sec"]) == (77, 3600)
    assert policy["max_cap_ttl_sec"] is None
    assert lines("hub", "kex-policy", "--hub", place)["max_cap_ttl_sec"] == "unspecified"


def test_admission_and_its_log(hub: HubProcess, place: str) -> None:
    del hub
    found = answer("hub", "admission", "--hub", place)
    assert [stage["name"] for stage in found["stages"]] == ["prefilter", "structural", "auth", "commit"]
    assert set(found["recent_err_rates"]) == {"E.SIZE", "E.SIG", "E.AUTH", "E.CAP", "E.RATE"}
    assert "prefilter: " in run("hub", "admission", "--hub", place).stdout
    log = answer("hub", "admission-log", "--hub", place)["failures"]
    assert [item["code"] for item in log] == ["E.FORMAT"]
    assert set(log[0]) == {"ts", "code", "detail", "label_prefix", "client_id_prefix"}
    assert "E.FORMAT" in run("hub", "admission-log", "--hub", place).stdout
    assert answer("hub", "admission-log", "--hub", place, "--codes", "E.SIG,E.CAP")["failures"] == []
    assert answer("hub", "admission-log", "--hub", place, "--codes", "E SIG&limit=5")["failures"] == []
    assert answer("hub", "admission-log", "--hub", place, "--limit", "0")["failures"] == []


def test_role(hub: HubProcess, place: str) -> None:
    assert answer("hub", "role", "--hub", place) == {"hub_id": hub.banner["hub_id"], "role": "standalone"}
    done = run("hub", "role", "--hub", place, "--stream", "s", "--json")
    assert done.exit_code == 4
    assert json.loads(done.stdout)["code"] == "E.PROFILE"


def test_checkpoint(hub: HubProcess, place: str) -> None:
    found = answer("hub", "checkpoint", "--hub", place, "--label", LABEL.hex())
    made = Checkpoint.decode(bytes.fromhex(found["checkpoint"]))
    assert (made.label_curr, made.upto_seq) == (LABEL, 5)
    made.verify_signature(_key(answer("hub", "key", "--hub", place)))
    assert answer("hub", "checkpoint", "--hub", place) == found, "of the label used last, and always the same"
    assert lines("hub", "checkpoint", "--hub", place)["checkpoint"] == found["checkpoint"]
    done = run("hub", "checkpoint", "--hub", place, "--stream", "unused", "--json")
    assert (done.exit_code, json.loads(done.stdout)["code"]) == (4, "E.NOT_FOUND")
    del hub


def test_checkpoint_of_a_stream(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data") as hub:
        routing = RoutingKey(bytes.fromhex(hub.get("/tooling/status")["routing_key"]))
        with hub.api() as api:
            Client(labels.label(routing, stream(), 0)).send(api)
            Client(some_label()).send(api)
        found = answer("hub", "checkpoint", "--hub", hub.url, "--stream", "stream")
        assert Checkpoint.decode(bytes.fromhex(found["checkpoint"])).label_curr == labels.label(
            routing, stream(), 0
        )


# --- other answers ------------------------------------------------------------------------------------------


@contextmanager
def fake(status: int, body: bytes, content_type: str = "application/json") -> Iterator[str]:
    """A server that answers the same to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the library's name

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"\xff\xfe\x00",
        b"[]",
        b"7",
        b"{}",
        b'{"hub_pk": 5, "hub_id": [], "stages": 3, "failures": 3, "last_stream_seq": "x", "ok": "yes"}',
        b'{"hub_pk": "zz", "profile_id": "", "hub_id": "g", "stages": [1], "failures": [1]}',
        b"[" * 5000,
    ],
)
def test_a_malformed_answer(body: bytes) -> None:
    """Never a traceback; what is not taken apart at all may be shown as it is."""
    with fake(200, body) as url:
        for command in ASKING:
            done = run(*command, "--hub", url)
            assert isinstance(done.exception, SystemExit | None), (command, done.exception)
            shown_as_it_is = command[-1] in {"status", "profile", "kex-policy"} and body.startswith(b"{")
            if not shown_as_it_is:
                assert done.exit_code == 3, (command, done.output)
                assert done.stderr.startswith(f"veen: {url} ")
                assert done.stderr.count("\n") == 1


def test_a_malformed_error() -> None:
    with fake(500, b"oh", "text/html") as url:
        for command in ASKING:
            done = run(*command, "--hub", url)
            assert done.exit_code == 3, (command, done.output)
    envelope = ErrorEnvelope(code="E.UNAVAILABLE", message="not now", retry_after=1)
    with fake(503, envelope.encode(), "application/cbor") as url:
        done = run("hub", "status", "--hub", url, "--json")
        assert done.exit_code == 4
        assert json.loads(done.stdout) == {
            "ok": False,
            "code": "E.UNAVAILABLE",
            "detail": "E.UNAVAILABLE: not now",
        }


def test_a_hub_without_a_description_of_its_features() -> None:
    envelope = ErrorEnvelope(code="E.NOT_FOUND", message="there is nothing at this path")
    with fake(404, envelope.encode(), "application/cbor") as url:
        done = run("hub", "profile", "--hub", url)
    assert (done.exit_code, done.stderr[:16]) == (4, "veen: E.PROFILE:")


def test_a_hub_that_is_not_well() -> None:
    with fake(503, b'{"ok": false, "profile_id": "00"}') as url:
        done = run("hub", "health", "--hub", url)
    assert done.exit_code == 4
    assert json.loads(done.stdout)["ok"] is False


def test_a_hub_that_can_not_be_reached(tmp_path: Path) -> None:
    with fake(200, b"") as url:
        pass
    (tmp_path / "state").mkdir()
    for place in (url, "http://host.invalid:1", str(tmp_path)):
        for command in (*ASKING, ("hub", "tls-info")):
            if command[-1] == "tls-info" and place != str(tmp_path):
                continue
            done = run(*command, "--hub", place)
            assert done.exit_code == 2, (command, place, done.output)
            assert done.stderr.count("\n") == 1
    done = run("hub", "status", "--hub", tmp_path)
    assert f"veen hub start --data-dir {tmp_path}" in done.stderr


def test_a_hub_that_does_not_answer() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent:
        url = f"http://127.0.0.1:{silent.server_address[1]}"
        done = run("hub", "status", "--hub", url, "--timeout-ms", "50")
    assert (done.exit_code, url in done.stderr, "0.05 s" in done.stderr) == (2, True, True)


@pytest.mark.parametrize(
    "place", ["ftp://host/", "/nowhere/at/all", "http://", "http://h:99999/", "http://[::1/"]
)
def test_no_name_of_a_hub(place: str) -> None:
    for command in (*ASKING, ("hub", "tls-info")):
        done = run(*command, "--hub", place)
        assert done.exit_code == 1, (command, done.output, done.exception)
        assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_mistake_in_the_arguments_is_not_taken_for_the_network() -> None:
    for words in (
        ("hub", "nonsense"),
        ("hub", "status"),
        ("hub", "status", "--hub", "x", "--timeout-ms", "0"),
    ):
        assert veen(*words).returncode == 1
    assert veen("hub", "health", "--hub", "http://127.0.0.1:1", VEEN_HUB="x").returncode == 2


# --- keys and help ------------------------------------------------------------------------------------------


def test_keys_as_people_write_them(tmp_path: Path) -> None:
    key = verify_key("issuer")
    (tmp_path / "raw").write_bytes(key)
    (tmp_path / "hex").write_text(key.hex().upper() + "\n")
    (tmp_path / "bad").write_bytes(os.urandom(31))
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(b"nonsense")
    for name in ("raw", "hex"):
        done = run(*_verify(checkpoint, tmp_path / name, key.hex()))
        assert done.exit_code == 3, "the keys are fine, the checkpoint is none"
    assert run(*_verify(tmp_path / "none", key.hex(), key.hex())).exit_code == 1
    for bad in (tmp_path / "bad", tmp_path / "none", digest("x").hex()[1:]):
        done = run("hub", "trust", "add", bad, "--data-dir", tmp_path)
        assert done.exit_code == 1
        assert done.stderr.count("\n") == 1


def _verify(checkpoint: Path, old: Path | str, new: Path | str) -> tuple[Path | str, ...]:
    return ("hub", "verify-rotation", "--checkpoint", checkpoint, "--old-key", old, "--new-key", new)


@pytest.mark.parametrize(
    "words",
    [
        *ASKING,
        ("hub",),
        ("hub", "start"),
        ("hub", "stop"),
        ("hub", "tls-info"),
        ("hub", "verify-rotation"),
        ("hub", "rotate-key"),
        ("hub", "trust"),
        ("hub", "trust", "add"),
        ("hub", "trust", "remove"),
        ("hub", "trust", "list"),
    ],
)
def test_help_is_one_screen(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = run(*words, "--help")
    assert done.exit_code == 0
    assert f"Usage: veen {' '.join(words)}" in done.stdout
    assert len(done.stdout.splitlines()) <= 45
