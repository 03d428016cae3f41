"""goals_interpretation: from its log alone a network is cloned, forked, replayed and read anew (E2E-017)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.goals.participants import World
from tests.hub.hub_process import HubProcess

pytestmark = pytest.mark.slow

#: An overlay that nobody had thought of when the log was written.
NEW_OVERLAY = '''
from veen.overlays import B32, BYTES, COUNT, UINT, Field, KeyedOverlay, Schema

LWW = Schema("crdt.lww.v1", Field("key", BYTES), Field("ts", UINT), Field("value", BYTES))
COUNTER = Schema("crdt.gcnt.v1", Field("shard", B32), Field("delta", UINT))


class Writers(KeyedOverlay):
    """How often each key has written."""

    name, schemas, monoid = "writers", (LWW, COUNTER), COUNT

    def cell(self, event):
        return event.record.client_id, (1, event.position, event.position)

    def format_summary(self, summary):
        return summary[0]
'''


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def hub(world: World) -> Iterator[HubProcess]:
    with HubProcess(world.place / "hub") as running:
        world.run("keygen", "--out", "alice")
        who = ("--hub", running.url, "--client", "alice", "--stream", "state")
        for ts, value in ((1, "A"), (3, "C"), (2, "B")):
            world.run("crdt", "lww", "set", *who, "--key", "k", "--value", value, "--ts", ts)
        world.run("crdt", "counter", "add", *who, "--delta", "7")
        world.run("send", *who, "--body", '"something else"')
        yield running


def _state(world: World, hub: Path | str, overlay: str = "crdt.lww", *more: object) -> Any:
    found = world.ask(
        "interpret",
        overlay,
        "--hub",
        hub,
        "--client",
        "alice",
        "--stream",
        "state",
        "--trust-first-use",
        *more,
    )
    return {name: found[name] for name in ("state", "state_hash", "counts", "reached")}


def test_a_clone_and_a_replay_have_the_state_of_the_original(world: World, hub: HubProcess) -> None:
    live = _state(world, hub.url)
    assert live["state"] == {"k": "C"}
    assert live["counts"] == {"events": 3, "unknown": 2}
    world.run("clone", "hub", "copy")
    hub.stop()
    world.run("replay", "hub", "--into", "again")
    for place in ("hub", "copy", "again"):
        assert _state(world, world.place / place, "crdt.lww", "--no-cache") == live
        assert _state(world, world.place / place) == live
    for upto, value in ((1, "A"), (2, "C"), (3, "C")):
        assert _state(world, world.place / "copy", "crdt.lww", "--upto", upto)["state"] == {"k": value}


def test_two_forks_of_a_prefix_both_verify_and_go_their_own_ways(world: World, hub: HubProcess) -> None:
    world.run("hub", "checkpoint", "--hub", hub.url, "--stream", "state")
    hub.stop()
    ids = {world.ask("fork", "hub", name)["hub_id"] for name in ("one", "other")}
    assert len(ids) == 2
    values = {"one": "1", "other": "2"}
    for name, value in values.items():
        world.run("fsck", name)
        with HubProcess(world.place / name) as running:
            who = ("--hub", running.url, "--client", "alice", "--stream", "state", "--trust-first-use")
            world.run("crdt", "lww", "set", *who, "--key", "k", "--value", value, "--ts", "9")
            assert _state(world, running.url)["state"] == {"k": value}
        world.run("fsck", name)


def test_a_new_overlay_folds_an_old_log(world: World, hub: HubProcess) -> None:
    hub.stop()
    module = world.place / "mine.py"
    module.write_text(NEW_OVERLAY)
    found = _state(world, world.place / "hub", "writers", "--overlay-module", module)
    assert sorted(found["state"].values()) == [4]
    assert found["counts"] == {"events": 4, "unknown": 1}
    assert _state(world, world.place / "hub", "writers", "--overlay-module", module) == found


def test_a_certificate_says_what_a_log_amounts_to_and_no_other(world: World, hub: HubProcess) -> None:
    who = ("--client", "alice", "--stream", "state")
    world.run(
        "state", "certify", "crdt.lww", "--hub", hub.url, *who, "--upto", "2", "--out", "now.veen-state"
    )
    hub.stop()
    world.run("keygen", "--out", "auditor")
    check = ("state", "verify", "now.veen-state", "--hub", "hub", "--trust-first-use", "--client")
    assert world.ask(*check, "alice")["ok"]
    world.run(*check, "auditor", code=4)  # who can not open the log can not say that it amounts to this
    data = bytearray((world.place / "now.veen-state").read_bytes())
    data[-1] ^= 1
    (world.place / "now.veen-state").write_bytes(data)
    world.run(*check, "alice", code=4)
