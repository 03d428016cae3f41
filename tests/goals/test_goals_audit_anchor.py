"""goals_audit_anchor: somebody who trusts nobody checks a log from files, knowing the id of its hub alone."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.goals.participants import World
from tests.hub.hub_process import HubProcess

pytestmark = pytest.mark.slow

CONFIG = 'anchor_backend = "file"\nanchor_every_receipts = 1000\n'


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def hub(world: World) -> Iterator[HubProcess]:
    with HubProcess(world.place / "hub", config=CONFIG) as running:
        world.run("keygen", "--out", "alice")
        for number in range(3):
            world.run(
                "send", "--hub", running.url, "--client", "alice", "--stream", "books", "--body", number
            )
        yield running


def _flip(path: Path, at: int = -20) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_an_exported_log_is_checked_with_nothing_but_the_hubs_id(world: World, hub: HubProcess) -> None:
    hub_id = hub.banner["hub_id"]
    world.run("export", "--hub", hub.url, "--stream", "books", "--out", "set", "--client", "alice")
    hub.stop()
    shutil.rmtree(hub.place)
    said = world.ask("import", "set", "--hub-id", hub_id)
    assert said["ok"]
    world.run("import", "set", "--hub-id", "ab" * 32, code=4)
    # The client comes back from the set, and reads what it wrote.
    world.run("import", "set", "--hub-id", hub_id, "--out", "again")
    found = world.ask("stream", "--hub", "set", "--client", "again", "--stream", "books")
    assert [item["body"] for item in found] == [0, 1, 2]
    # Whatever of it is changed, it shows.
    exported = [path for path in (world.place / "set").rglob("*.cborseq") if path.stat().st_size > 100]
    assert exported
    for number, path in enumerate(exported):
        copy = world.place / f"tampered-{number}"
        shutil.copytree(world.place / "set", copy)
        _flip(copy / path.relative_to(world.place / "set"))
        world.run("import", copy, "--hub-id", hub_id, code=4)


def test_an_anchor_binds_what_the_log_was(world: World, hub: HubProcess) -> None:
    publish = ("anchor", "publish", "--hub", hub.place, "--stream", "books", "--out", "c.cbor")
    said = world.ask(*publish)
    assert said["upto_seq"] == 3
    hub.stop()
    verify = ("anchor", "verify", "--checkpoint", "c.cbor", "--data-dir", hub.place)
    assert world.ask(*verify)["ok"]
    # Another root, and a ledger that was written over.
    shutil.copy(world.place / "c.cbor", world.place / "other.cbor")
    raw = (world.place / "c.cbor").read_bytes()
    root = bytes.fromhex(said["mmr_root"])
    (world.place / "other.cbor").write_bytes(raw.replace(root, bytes(32)))
    found = world.ask(
        *("anchor", "verify", "--checkpoint", "other.cbor", "--data-dir", hub.place),
        *("--anchor-ref", said["anchor_ref"]),
        code=4,
    )
    assert not found["ok"]
    ledger = hub.place / "anchors/ledger.cborseq"
    ledger.write_bytes(ledger.read_bytes().replace(root, bytes(32)))
    world.run(*verify, code=4)


def test_tampering_with_the_log_is_found(world: World, hub: HubProcess) -> None:
    hub_id = hub.banner["hub_id"]
    hub.stop()
    world.run("fsck", hub.place, "--hub-id", hub_id)
    world.run("fsck", hub.place, "--hub-id", "ab" * 32, code=4)
    (chunk,) = hub.place.glob("log/chunk-*.log")
    _flip(chunk, 300)
    damaged = world.ask("fsck", hub.place, code=4)
    assert not damaged["ok"]
    read = ("stream", "--hub", hub.place, "--client", "alice", "--stream", "books")
    assert world.ask(*read, code=4)["code"] == "E.DAMAGED"
