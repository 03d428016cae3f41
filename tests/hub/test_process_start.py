"""A hub from its start to its end, as a process: banner, files, signals, and what a second one is told."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import some_label
from tests.hub.hub_process import (
    TIMEOUT,
    VEEN,
    Client,
    HubProcess,
    check_no_secrets,
    check_sound,
    ending,
    environment,
    veen,
)

_LOOPBACK = ("--listen", "127.0.0.1:0")


@contextlib.contextmanager
def detached(place: Path, *flags: str, **env: str) -> Iterator[subprocess.CompletedProcess[str]]:
    """Start a hub in the background; it does not outlive the test."""
    with ending(place):
        yield veen("hub", "start", "--data-dir", place, *_LOOPBACK, *flags, **env)


def tree(place: Path) -> dict[str, tuple[int, bytes]]:
    """Return every file but the log: its age and content."""
    return {
        str(path.relative_to(place)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(place.rglob("*"))
        if path.is_file() and path.name != "hub.log"
    }


# --- in the background --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_start_returns_when_the_hub_serves_and_a_stop_when_it_has_ended(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with detached(place) as done:
        assert (done.returncode, done.stderr) == (0, "")
        banner = dict(line.split(": ", 1) for line in done.stdout.splitlines())
        running = json.loads((place / "state/hub.json").read_text())
        assert banner["listen"] == running["urls"][0]
        assert banner["log"] == str(place / "hub.log")
        assert len(banner["profile_id"]) == len(banner["hub_id"]) == 64
        assert (banner["require_cap"], banner["new"]) == ("no", "yes")
        assert (place / "hub.pid").read_text().strip() == str(running["pid"]) == banner["pid"]
        assert os.getsid(running["pid"]) == running["pid"], "it has left our terminal"
        assert veen("hub", "health", "--hub", place).returncode == 0

        stopped = veen("hub", "stop", "--data-dir", place, "--json")
        assert json.loads(stopped.stdout) == {"ok": True, "stopped": True, "pid": running["pid"]}
        assert not (place / "hub.pid").exists()
        assert not (place / "state/hub.json").exists()
        assert not (place / "state/admin.sock").exists()
    log = [json.loads(line) for line in (place / "hub.log").read_text().splitlines()]
    assert [line["event"] for line in log] == ["started", "stopped"]
    assert log[-1]["clean"] is True
    check_sound(place)
    check_no_secrets(place, done.stdout, stopped.stdout)


@pytest.mark.slow
def test_a_stop_of_no_hub_is_no_error_and_tidies_up(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with HubProcess(place) as hub:
        hub.kill()
    assert (place / "hub.pid").exists()
    for _ in range(2):
        done = veen("hub", "stop", "--data-dir", f"file://{place}")
        assert (done.returncode, done.stderr) == (0, "")
        assert "no hub is running" in done.stdout
    assert not (place / "hub.pid").exists()
    assert not (place / "state/hub.json").exists()


def test_a_stop_of_nothing_is_a_mistake(tmp_path: Path) -> None:
    done = veen("hub", "stop", "--data-dir", tmp_path / "none", "--json")
    assert done.returncode == 1
    assert "no directory" in json.loads(done.stdout)["detail"]


def test_a_stop_waits_for_another_that_holds_the_directory(tmp_path: Path) -> None:
    """Somebody holds the directory and has not said that he serves: nothing is tidied away under him."""
    place = tmp_path / "data"
    with HubProcess(place) as hub:
        (place / "state/hub.json").rename(tmp_path / "away")
        done = veen("hub", "stop", "--data-dir", place)
        assert done.returncode == 2
        assert f"process {hub.pid} " in done.stderr
        assert (place / "hub.pid").exists()


def test_a_number_that_is_of_another_process_by_now_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with HubProcess(place) as hub:
        hub.kill()
    (place / "state/hub.json").write_text(json.dumps({"pid": os.getpid(), "urls": []}))
    assert veen("hub", "stop", "--data-dir", place).returncode == 0  # and we live


# --- a second one -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_hub_on_a_directory_touches_nothing(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with HubProcess(place) as hub:
        with hub.api() as api:
            Client(some_label()).send(api)
        hub_files = {name: tree(place)[name] for name in tree(place) if not name.startswith("state/index")}
        done = veen("hub", "start", "--data-dir", place, *_LOOPBACK, "--require-cap", "true")
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert f"process {hub.pid} " in done.stderr
        after = tree(place)
        for name in ("hub-settings.cbor", "hub-identity.cbor", "hub.pid", "state/hub.json", "store.cbor"):
            assert after[name] == hub_files[name]
        assert hub.get("/tooling/status")["require_cap"] is False
        with hub.api() as api:
            Client(some_label("another")).send(api)
        hub.stop()
    check_sound(place)


@pytest.mark.slow
def test_of_two_first_starts_at_once_one_is_the_hub(tmp_path: Path) -> None:
    place = tmp_path / "data"
    command = [*VEEN, "hub", "start", "--data-dir", str(place), *_LOOPBACK, "--json"]
    with ending(place), contextlib.ExitStack() as stack:
        starts = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment())
            )
            for _ in range(3)
        ]
        said = [json.loads(process.communicate(timeout=TIMEOUT)[0]) for process in starts]
        won = [item for item in said if item["ok"]]
        assert len(won) == 1, said
        # By "another process", if it was met between taking the lock and writing its name into it.
        for item in said:
            assert item["ok"] or re.search(
                r"in use by (the hub \(process \d+|another process)", item["detail"]
            )
        assert veen("hub-id", "--hub", place).stdout.strip() == won[0]["hub_id"]
        assert veen("hub", "stop", "--data-dir", place).returncode == 0
    with HubProcess(place) as hub:
        assert hub.banner["hub_id"] == won[0]["hub_id"]
        hub.stop()
    check_sound(place)


def test_a_taken_port_is_said_and_nothing_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = veen("hub", "start", "--data-dir", tmp_path / "data", "--listen", address, "--json")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert answer["ok"] is False
    assert address in answer["detail"]
    assert tree(tmp_path / "data") == {}


@pytest.mark.slow
def test_a_restart_takes_the_same_port_at_once(tmp_path: Path) -> None:
    address = "127.0.0.1:0"
    client = Client(some_label())
    for nth in range(3):
        with HubProcess(tmp_path / "data", "--listen", address) as hub:
            address = hub.url.removeprefix("http://")
            with hub.api() as api:  # a connection that the hub closes leaves the port in TIME_WAIT
                client.send(api)
                if nth % 2:
                    hub.kill()
                else:
                    hub.stop()
    assert [receipt.stream_seq for receipt in client.receipts] == [1, 2, 3]


# --- signals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(tmp_path: Path, number: int) -> None:
    client = Client(some_label())
    with HubProcess(tmp_path / "data") as hub, hub.api() as api:
        client.send_many(api, 20)
        hub.connect().close()
        assert hub.terminate(number) == 0
    assert '"clean": true' in hub.log.read_text()
    check_sound(tmp_path / "data")


def test_a_signal_lets_requests_be_answered_first(tmp_path: Path) -> None:
    """One request is half sent when the signal comes: the hub closes it, and does not wait for ever."""
    with HubProcess(tmp_path / "data") as hub, hub.connect() as half, hub.connect() as waits:
        label = some_label().hex()
        body = json.dumps({"ver": 1, "label": label, "from_seq": 1}).encode()
        waits.sendall(
            b"POST /v1/stream?wait=30 HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )
        half.sendall(b"POST /v1/submit HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nhalf")
        hub.get("/healthz")  # both are there by now
        assert hub.terminate() == 0
        assert waits.recv(100).startswith(b"HTTP/1.1 404 "), "woken, and told that there is no such label"
        with contextlib.suppress(ConnectionResetError):
            assert half.recv(100) == b""


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data") as hub, hub.connect_deaf() as greedy:
        # Answers that nobody takes keep the hub from ending by itself, until its patience is over.
        with contextlib.suppress(BlockingIOError):
            for _ in range(4000):
                greedy.send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n" * 10)
        hub.get("/healthz")
        os.kill(hub.pid, signal.SIGTERM)
        wait_for_refusal(hub)
        assert hub.terminate() == 1
    with HubProcess(tmp_path / "data") as hub:
        hub.stop()


def wait_for_refusal(hub: HubProcess) -> None:
    """Wait until nobody can connect any more: that is how a stop begins."""
    with contextlib.suppress(ConnectionError):
        while True:
            hub.connect().close()


# --- services -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("abstract", [True, False])
def test_a_service_is_told_when_the_hub_serves(tmp_path: Path, *, abstract: bool) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        name = f"@veen-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
        told.bind("\0" + name[1:] if abstract else name)
        told.settimeout(TIMEOUT)
        command = [*VEEN, "hub", "start", "--data-dir", str(tmp_path / "data"), *_LOOPBACK]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(NOTIFY_SOCKET=name, INVOCATION_ID="0" * 32),
        ) as process:
            try:
                assert told.recv(100) == b"READY=1"
                assert (tmp_path / "data/hub.pid").read_text().strip() == str(process.pid)
                process.terminate()
                out, log = process.communicate(timeout=TIMEOUT)
            finally:
                process.kill()
    assert process.returncode == 0
    assert b"listen: http://127.0.0.1:" in out
    assert [json.loads(line)["event"] for line in log.splitlines()] == ["started", "stopped"]
    assert not (tmp_path / "data/hub.log").exists()


def test_a_service_manager_that_does_not_listen_is_no_reason_not_to_serve(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data", env={"NOTIFY_SOCKET": str(tmp_path / "nobody")}) as hub:
        hub.stop()


# --- the directory ------------------------------------------------------------------------------------------


def test_nobody_else_may_look_into_the_directory(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with HubProcess(place, env={"VEEN_LOG_LEVEL": "debug"}) as hub:
        with hub.api() as api:
            Client(some_label()).send(api)
        hub.stop()
    for path in (place, *place.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_directory_may_be_a_uri_with_any_characters(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data", "--data-dir", f"file://{tmp_path}/a%20b%C3%A4") as hub:
        assert hub.banner["data_dir"] == str(tmp_path / "a bä")
        assert veen("hub", "trust", "list", "--data-dir", tmp_path / "a bä").returncode == 0
        hub.stop()


@pytest.mark.slow
def test_a_very_long_path(tmp_path: Path) -> None:
    """Names of sockets have 108 bytes at most; the operator's socket is in the directory all the same."""
    place = tmp_path / ("d" * 120) / ("e" * 200)
    place.parent.mkdir()
    with detached(place) as done:
        assert done.returncode == 0, done.stderr
        assert veen("hub", "rotate-key", "--data-dir", place).returncode == 0
        assert veen("hub", "stop", "--data-dir", place).returncode == 0
    assert len(json.loads((place / "hub-identity.json").read_text())["hub_keys"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--foreground",)])
def test_a_directory_that_can_not_be_written(tmp_path: Path, flags: tuple[str, ...]) -> None:
    (tmp_path / "theirs").mkdir(mode=0o500)
    # In a user namespace of its own also root may do only what the mode of a file says.
    wrapper = [] if os.getuid() else ["unshare", "--user"]
    if wrapper and subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode:
        pytest.skip("user namespaces are not allowed here")
    for place in (tmp_path / "theirs", tmp_path / "theirs/below"):
        done = subprocess.run(
            [*wrapper, *VEEN, "hub", "start", "--data-dir", str(place), *_LOOPBACK, *flags],
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
            timeout=TIMEOUT,
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.count("\n") == 1, done.stderr
        assert "Permission denied" in done.stderr
    assert list((tmp_path / "theirs").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--foreground",)])
def test_a_file_where_the_directory_should_be(tmp_path: Path, flags: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file/below"):
        done = veen("hub", "start", "--data-dir", place, *_LOOPBACK, *flags)
        assert done.returncode == 1
        assert done.stderr.startswith("veen: ")
        assert done.stderr.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"


def test_a_read_only_file_system(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare is not installed")
    place = tmp_path / "disk"
    place.mkdir()
    script = 'mount -t tmpfs -o ro none "$0" && exec "$@"'
    command = [*VEEN, "hub", "start", "--foreground", "--data-dir", str(place), *_LOOPBACK]
    done = subprocess.run(
        [unshare, "--map-root-user", "--mount", "sh", "-c", script, str(place), *command],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        timeout=TIMEOUT,
    )
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("mounting in a namespace is not allowed here")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "Read-only file system" in done.stderr


# --- older names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["run"], ["start"]])
def test_the_older_name_of_the_program(tmp_path: Path, words: list[str]) -> None:
    program = [sys.executable, "-c", "from veen.cli.main import hub_main; hub_main()"]
    flags = ["--data-dir", str(tmp_path / "data"), *_LOOPBACK, "--foreground", "--json"]
    with subprocess.Popen(
        [*program, *words, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=environment(),
    ) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["pid"] == process.pid
            process.terminate()
            process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
    assert process.returncode == 0


def test_a_killed_hub_is_not_called_unreachable_but_not_running(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data") as hub:
        hub.kill()
        asked = veen("hub", "health", "--hub", tmp_path / "data")
    assert asked.returncode == 2
    assert "no hub is running in" in asked.stderr
    assert "veen hub start --data-dir" in asked.stderr
