"""Processes that record are killed at every step, and hubs too: each event is recorded once, and in order."""

import os
import random
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.client.people import make_home
from tests.hub.process import HubProcess, environment
from tests.recorder.feeds import STREAM, recorded
from veen.recorder.feeding import Feed


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data") as made:
        yield made


#: What touches the disk or the network: a process can end before and after each of them.
_STEPS: tuple[tuple[Any, str], ...] = (
    (os, "fsync"),
    (os, "fdatasync"),
    (os, "replace"),
    (os, "unlink"),
    (os, "write"),
    (os, "pwrite"),
    (os, "ftruncate"),
    (socket.socket, "sendall"),
    (socket.socket, "recv_into"),
)


def _end_at(step: int) -> None:
    """Have this process end before the step of that number, with nothing tidied up."""
    count = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            nonlocal count
            count += 1
            if count >= step:
                os._exit(9)
            return real(*args, **more)

        return call

    for place, name in _STEPS:
        setattr(place, name, counted(getattr(place, name)))


def _record_and_end(place: Path, url: str, run: int, step: int, said: int) -> None:
    """Record an event durably, say so, and have it sent, with what runs before have left; end at a step."""
    real_write = os.write
    _end_at(step)
    with Feed.open(place, url, stream=STREAM, durable=True) as feed:
        feed.record("test.step", {"run": run})
        real_write(said, f"{run}\n".encode())
        feed.flush(20)


def test_a_process_that_ends_at_any_step(tmp_path: Path, hub: HubProcess) -> None:
    place = tmp_path / "app"
    make_home(place)
    read, write = os.pipe()
    codes = []
    for step in range(1, 70):  # those of opening, of settling what was before, and of some requests
        pid = os.fork()
        if pid == 0:
            try:
                _record_and_end(place, hub.url, step, step, write)
            except BaseException:  # noqa: BLE001 - a child of the tests never returns
                os._exit(3)
            os._exit(0)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os.close(write)
    with os.fdopen(read) as pipe:
        durable = [int(line) for line in pipe]
    assert set(codes) <= {0, 9}, "they end at a step, or at their own end"
    assert codes.count(9) > 40, "there are many steps"
    with Feed.open(place, hub.url, stream=STREAM) as feed:
        assert feed.flush(20)
    events = [event["payload"]["run"] for event in recorded(place, hub.url)]
    assert len(set(events)) == len(events), "nothing is recorded twice"
    assert events == sorted(events), "all is in order"
    assert set(durable) <= set(events), "what was durable is recorded"


#: Records for ever, and says how many events are in the spool.
_WRITER = """
import sys, time
from veen.recorder import Feed
feed = Feed.open(sys.argv[1], sys.argv[2], stream=sys.argv[3], durable=sys.argv[5] == "durable")
for number in range(100_000):
    feed.record("test.load", {"run": int(sys.argv[4]), "n": number})
    print(feed.stats().spooled, flush=True)
    time.sleep(0.002)
"""


def _record_until_killed(place: Path, hub: Path, run: int, how: str) -> int:
    """Let a process record until it has said some numbers, and kill it; returns the last of them."""
    command = [sys.executable, "-c", _WRITER, str(place), str(hub), STREAM, str(run), how]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout is not None
    last = 0
    try:
        for _ in range(60):
            last = int(process.stdout.readline())
        select.select([], [], [], random.random() * 0.1)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().splitlines(keepends=True)
        process.wait()
        process.stdout.close()
    return max([last, *(int(line) for line in rest if line.endswith("\n"))])


def test_processes_and_hubs_that_are_killed_under_load(tmp_path: Path) -> None:
    place, data = tmp_path / "app", tmp_path / "data"
    make_home(place)
    durable = {}
    with ExitStack() as stack:
        hub = stack.enter_context(HubProcess(data))
        for run in range(4):
            if run == 1:  # the hub is killed, and is back for the next but one
                hub.kill()
            if run == 2:
                hub = stack.enter_context(HubProcess(data))
            how = "durable" if run % 2 == 0 else "queued"
            durable[run] = _record_until_killed(place, data, run, how)
        with Feed.open(place, str(data), stream=STREAM) as feed:
            assert feed.flush(60)
            assert feed.stats().lost == 0
        events = [(event["payload"]["run"], event["payload"]["n"]) for event in recorded(place, str(data))]
    assert len(set(events)) == len(events), "nothing is recorded twice"
    assert events == sorted(events), "all is in order"
    for run, last in durable.items():
        numbers = [number for other, number in events if other == run]
        assert numbers == list(range(len(numbers))), "none is left out"
        assert len(numbers) >= last, "what was durable is recorded"
