"""A hub with few file descriptors: connections get what it can spare, and its own work goes on."""

import json
import select
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.builders import some_label
from tests.hub.hub_process import TIMEOUT, Api, Client, HubProcess, check_sound
from tests.hub.hub_thread import eventually

_HARD = 300
#: A soft limit that is lower still, as a system sets it.
_WRAPPER = ("bash", "-c", f'ulimit -n {_HARD} && ulimit -Sn 100 && exec "$@"', "bash")
_CONNECTIONS = 400
#: Nobody is cut off for being slow.
_CONFIG = "verify_workers = 0\nheader_timeout_sec = 600\nidle_timeout_sec = 600\n"


def metric(api: Api, name: str) -> float:
    """Return a number, asked for on a connection that is there already."""
    lines = api.ask("GET", "/metrics")[2].decode().splitlines()
    (found,) = [line.split()[1] for line in lines if line.startswith(f"{name} ")]
    return float(found)


@pytest.mark.slow
def test_connections_do_not_take_the_descriptors_that_the_log_needs(tmp_path: Path) -> None:
    place = tmp_path / "data"
    client = Client(some_label())
    with HubProcess(place, wrapper=_WRAPPER, config=_CONFIG) as hub, ExitStack() as stack:
        limits = Path(f"/proc/{hub.pid}/limits").read_text().splitlines()
        (files,) = [line.split() for line in limits if line.startswith("Max open files")]
        assert files[3:5] == [str(_HARD), str(_HARD)]
        eventually(lambda: len(warnings(hub)) == 1)  # it is written by a thread
        (warning,) = warnings(hub)
        most = warning["max_connections"]
        assert most < _HARD
        assert most < warning["wanted"] == 1024
        api = stack.enter_context(hub.api())
        client.send(api)
        idle: list[socket.socket] = []
        for _ in range(_CONNECTIONS):
            idle.append(stack.enter_context(hub.connect()))
            client.send(api)
            assert len(list(Path(f"/proc/{hub.pid}/fd").iterdir())) < _HARD - 80
        eventually(lambda: metric(api, "veen_connections") >= most)
        # All beyond the bound are told so, or cut.
        eventually(lambda: answered(idle) >= _CONNECTIONS - most)
        client.send_many(api, 5)
        eventually(lambda: metric(api, "veen_journal_bytes") == 0)
        assert (place / "receipts.cborseq").stat().st_size > 0
        client.send_many(api, 5)
        eventually(lambda: metric(api, "veen_journal_bytes") == 0)
        for receipt in client.receipts[::50]:
            api.check(receipt, client.receipts[-1])
        stack.close()
        hub.stop()
    check_sound(place)


def warnings(hub: HubProcess) -> list[dict[str, Any]]:
    lines = hub.log.read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines if "few-descriptors" in line]


def answered(socks: list[socket.socket]) -> int:
    return len(select.select(socks, [], [], TIMEOUT)[0])
