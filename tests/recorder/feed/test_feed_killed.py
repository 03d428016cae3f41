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
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.client.participants import make_home
from tests.hub.hub_process import HubProcess, environment
from tests.recorder.feed.feed_reader import STREAM, recorded
from veen.recorder.feed.feed import Feed


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


def _end_at(step: int) -> Iterator[int]:
    """Have this process end before the step of that number, with nothing tidied up; 0: never.

    Returns the numbers of the steps, of which it takes one for each.
    """
    numbers = count(1)

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if next(numbers) >= step > 0:
                os._exit(9)
            return real(*args, **more)

        return call

    for place, name in _STEPS:
        setattr(place, name, counted(getattr(place, name)))
    return numbers


def _record_and_end(place: Path, url: str, step: int, said: int) -> None:
    """Record an event durably, say so, and have it sent, with what runs before have left; end at a step."""
    real_write = os.write
    steps = _end_at(step)
    with Feed.open(place, url, stream=STREAM, durable=True) as feed:
        feed.record("test.step", {"run": step})
        real_write(said, f"{step}\n".encode())
        feed.flush(20)
    if step == 0:
        real_write(said, f"{next(steps) - 1}\n".encode())


def _run(place: Path, url: str, step: int, said: int) -> int:
    """Record in a process of its own, and return how it ended."""
    pid = os.fork()
    if pid == 0:
        try:
            _record_and_end(place, url, step, said)
        except BaseException:  # noqa: BLE001 - a child of the tests never returns
            os._exit(3)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_process_that_ends_at_any_step(tmp_path: Path, hub: HubProcess) -> None:
    """At each step that one has that nobody ends; and at as many more, of settling what was left before."""
    place = tmp_path / "app"
    make_home(place)
    read, write = os.pipe()
    assert _run(place, hub.url, 0, write) == 0
    _, steps = map(int, os.read(read, 100).split())
    assert steps > len(_STEPS)
    codes = [_run(place, hub.url, step, write) for step in range(1, 2 * steps + 1)]
    os.close(write)
    with os.fdopen(read) as pipe:
        durable = [int(line) for line in pipe]
    assert set(codes[:steps]) == {9}, "each step was met"
    assert set(codes) <= {0, 9}, "they end at a step, or at their own end"
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
