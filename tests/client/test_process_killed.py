"""Clients that are killed, or can not write: no number is used twice, and nothing that was sent is lost."""

import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.client.participants import make_home
from tests.hub.hub_process import HubProcess, environment
from veen.client.client import Client

#: Sends for ever, and says the number of each message that it was given a receipt for.
_WRITER = """
import sys
from veen.client.client import Client
with Client.open(sys.argv[1], sys.argv[2]) as client:
    print("ready", flush=True)
    for number in range(10_000):
        sent = client.send(sys.argv[3], {"run": int(sys.argv[4]), "n": number})
        print(number, sent.position, flush=True)
"""


def _write_until_killed(place: Path, url: str, stream: str, run: int, count: int) -> list[tuple[int, int]]:
    """Let a process send until it has said so many numbers; then kill it, wherever it is."""
    command = [sys.executable, "-c", _WRITER, str(place), url, stream, str(run)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout is not None
    said = []
    try:
        assert process.stdout.readline() == "ready\n"
        for _ in range(count):
            number, seq = process.stdout.readline().split()
            said.append((int(number), int(seq)))
        # Not at a moment that it chooses: somewhere in the next messages.
        select.select([], [], [], random.random() * 0.02)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().splitlines()
        process.wait()
        process.stdout.close()
    return said + [(int(line.split()[0]), int(line.split()[1])) for line in rest if line.count(" ") == 1]


@pytest.mark.slow
def test_a_client_that_is_killed_while_it_sends(tmp_path: Path, hub: HubProcess, stream: str) -> None:
    make_home(tmp_path / "alice")
    acknowledged: dict[tuple[int, int], int] = {}
    for run in range(6):
        said = _write_until_killed(tmp_path / "alice", hub.url, stream, run, 3 + run)
        acknowledged |= {(run, number): seq for number, seq in said}
    with Client.open(tmp_path / "alice", hub.url, rotation=None) as alice:
        alice.send(stream, "the end")
        found = list(alice.read(stream))
        assert alice.verify_state(stream)[0].consistent
    bodies: list[Any] = [item.body for item in found[:-1]]
    places = {(body["run"], body["n"]): item.position for body, item in zip(bodies, found, strict=False)}
    assert len(places) == len(found) - 1, "no message is there twice"
    assert acknowledged.items() <= places.items(), "every receipt that was seen is true"
    numbers = [item.msg.client_seq for item in found]
    assert numbers == list(range(1, len(found) + 1)), "no number was left out or used twice"
    for run in range(6):
        sent = sorted(number for other, number in places if other == run)
        assert sent == list(range(len(sent))), "what was sent later is not there without what was before"


#: Sends, is refused every write, sends, and reads.
_NO_SPACE = """
import resource, sys
from veen.client.client import Client
with Client.open(sys.argv[1], sys.argv[2], rotation=None) as client:
    client.send(sys.argv[3], 1)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, most[1]))
    try:
        client.send(sys.argv[3], 2)
    except OSError as error:
        print(type(error).__name__)
    resource.setrlimit(resource.RLIMIT_FSIZE, most)
    client.send(sys.argv[3], 3)
    print([message.body for message in client.read(sys.argv[3])])
    print(client.verify_state(sys.argv[3])[0].consistent)
"""


def test_a_client_that_can_not_write_sends_nothing(tmp_path: Path, hub: HubProcess, stream: str) -> None:
    make_home(tmp_path / "alice")
    command = [sys.executable, "-c", _NO_SPACE, str(tmp_path / "alice"), hub.url, stream]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert done.stdout.splitlines() == ["OSError", "[1, 3]", "True"], done.stderr
