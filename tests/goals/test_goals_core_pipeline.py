"""goals_core_pipeline: from nothing to messages that are sent, read, proved and allowed, by commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.goals.participants import World
from tests.hub.hub_process import HubProcess, check_no_secrets

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def hub(world: World) -> Iterator[HubProcess]:
    with HubProcess(world.place / "hub") as running:
        yield running


def test_a_message_from_end_to_end(world: World, hub: HubProcess) -> None:
    world.run("keygen", "--out", "alice")
    world.run("keygen", "--out", "bob")
    sent = world.ask(
        *(
            "send",
            "--hub",
            hub.url,
            "--client",
            "alice",
            "--stream",
            "orders",
            "--to",
            "bob/identity_card.pub",
        ),
        *("--body", '{"item": "lamp", "count": 2}', "--dump-raw", "m.cbor", "r.cbor"),
    )
    assert (sent["ok"], sent["stream_seq"]) == (True, 1)
    (message,) = world.ask(
        "stream", "--hub", hub.url, "--client", "bob", "--stream", "orders", "--with-proof"
    )
    assert message["body"] == {"item": "lamp", "count": 2}
    assert message["msg_id"] == sent["msg_id"]
    # Who can not open it still sees that it is there.
    (closed,) = world.ask("stream", "--hub", hub.url, "--client", "alice", "--stream", "orders")
    assert closed["msg_id"] == sent["msg_id"]
    assert closed.get("body") is None
    args = (
        "verify-receipt",
        "--receipt",
        "r.cbor",
        "--stream",
        "orders",
        "--msg",
        "m.cbor",
        "--hub",
        hub.url,
    )
    assert world.ask(*args)["ok"]
    # One bit of the receipt, and it is worth nothing.
    raw = bytearray((world.place / "r.cbor").read_bytes())
    raw[60] ^= 1
    (world.place / "r.cbor").write_bytes(raw)
    world.run(*args, code=4)
    hub.stop()
    check_no_secrets(hub.place, hub.log.read_bytes())
    assert b"lamp" not in b"".join(path.read_bytes() for path in hub.place.rglob("*") if path.is_file())


def test_files_travel_with_messages(world: World, hub: HubProcess) -> None:
    world.run("keygen", "--out", "alice")
    (world.place / "plan.bin").write_bytes(bytes(range(256)) * 40)
    world.run(
        *("send", "--hub", hub.url, "--client", "alice", "--stream", "files", "--body", "null"),
        *("--attach", "plan.bin", "--dump-raw", "m.cbor", "r.cbor"),
    )
    got = ("attachment", "get", "--hub", hub.url, "--client", "alice", "--stream", "files", "--seq", "1")
    world.run(*got, "--out", "copy.bin")
    assert (world.place / "copy.bin").read_bytes() == (world.place / "plan.bin").read_bytes()
    verify = ("attachment", "verify", "--msg", "m.cbor", "--client", "alice", "--file")
    world.run(*verify, "copy.bin")
    (world.place / "copy.bin").write_bytes(bytes(range(255, -1, -1)) * 40)
    world.run(*verify, "copy.bin", code=4)


def test_only_who_was_allowed_may_write(world: World) -> None:
    world.run("keygen", "--out", "owner")
    world.run("keygen", "--out", "writer")
    issuer = world.ask("id", "show", "--client", "owner")["id_sign_public"]
    with HubProcess(world.place / "hub", "--require-cap", "true", "--trust-issuer", issuer) as hub:
        send = ("send", "--hub", hub.url, "--client", "writer", "--stream", "ledger", "--body", "1")
        assert world.ask(*send, code=4)["code"] == "E.CAP"
        issue = (
            "cap",
            "issue",
            "--issuer",
            "owner",
            "--subject",
            "writer",
            "--stream",
            "ledger",
            "--out",
            "w.cap",
        )
        world.run(*issue, "--ttl", "3600", "--rate", "1,2")
        world.run("cap", "authorize", "--cap", "w.cap", "--hub", hub.url, "--client", "writer")
        world.run(*send)
        assert world.ask("cap", "status", "--cap", "w.cap", "--hub", hub.url, "--client", "writer")[
            "hub_known"
        ]
        other = ("send", "--hub", hub.url, "--client", "writer", "--stream", "elsewhere", "--body", "1")
        assert world.ask(*other, code=4)["code"] == "E.CAP"


def test_a_client_that_lost_its_state_goes_on(world: World, hub: HubProcess) -> None:
    world.run("keygen", "--out", "alice")
    send = ("send", "--hub", hub.url, "--client", "alice", "--stream", "notes", "--body")
    for number in range(3):
        world.run(*send, number)
    (world.place / "alice" / "state.json").unlink()
    world.run("resync", "--hub", hub.url, "--client", "alice", "--stream", "notes")
    world.run("verify-state", "--hub", hub.url, "--client", "alice", "--stream", "notes")
    assert world.ask(*send, 3)["stream_seq"] == 4
    hub.kill()
    # The hub is gone; its files are not.
    found = world.ask("stream", "--hub", hub.place, "--client", "alice", "--stream", "notes")
    assert [item["body"] for item in found] == [0, 1, 2, 3]
