"""``veen recorder`` by clients that lack a key: what they cannot do, and what they cannot judge."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_runner import User
from tests.hub.hub_process import HubProcess, environment
from veen.client.client import Client
from veen.overlays.recorder.schemas import CHANGES_STREAM, CHECKPOINTS_STREAM
from veen.recorder.checkpoint import make_manifest, send_manifest
from veen.recorder.verify.judge import VERDICTS

ORDERS, SALES = "record/app/orders", "record/shop/sales"
EVENT = ("--type", "order", "--subject", "bob", "--origin", "shop")


class Office:
    """A recorder at a hub of its own, and those who work with it."""

    def __init__(self, place: Path, hub: str) -> None:
        self.place = place
        self.hub = hub
        self._shared = 0

    def user(self, name: str) -> User:
        """Return somebody, with a directory of his own."""
        home = self.place / name
        made = User(self.place, VEEN_HUB=self.hub, VEEN_CLIENT=str(home))
        if not home.exists():
            made.ok("keygen", "--out", home)
        return made

    def share(self, name: str, *streams: str) -> None:
        """Give somebody the keys of streams, and of what the recorder writes itself."""
        self._shared += 1
        out = self.place / f"keys-{self._shared}"
        named = [word for stream in streams for word in ("--stream", stream)]
        files = self.user("admin").ok("recorder", "share", "--to", self.place / name, "--out", out, *named)
        for file in files["files"]:
            self.user(name).ok("reader", "accept", file)


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    """One with an admin, and a producer who has the keys."""
    with HubProcess(tmp_path / "data", config='require_cap = "false"\n') as hub:
        made = Office(tmp_path, hub.url)
        made.user("admin").ok("recorder", "init", "--stream", f"{ORDERS}=order,refund")
        made.user("shop")
        made.share("shop")
        yield made


def _emit(user: User, stream: str = ORDERS, *words: str | Path) -> int:
    return int(user.ok("recorder", "emit", "--stream", stream, *EVENT, *words)["stream_seq"])


def test_nobody_records_for_himself_by_mistake(office: Office) -> None:
    stranger = office.user("stranger")
    refused = stranger.fails(1, "recorder", "emit", "--stream", ORDERS, *EVENT)
    assert refused["code"] == "E.CLIENT"
    assert "veen recorder share" in refused["detail"]
    assert "--to CARD" in refused["detail"]
    assert _emit(stranger, ORDERS, "--to", office.place / "admin") == 1
    assert _emit(stranger, ORDERS, "--to", office.place / "stranger") == 2, "if that is meant"


def test_the_prefix_alone_is_no_stream(office: Office) -> None:
    words = ("recorder", "emit", "--stream", "record/", *EVENT, "--to", office.place / "admin")
    assert "record/" in office.user("shop").fails(1, *words)["detail"]


def test_a_renamed_stream_has_a_key_that_producers_need(office: Office) -> None:
    admin, shop = office.user("admin"), office.user("shop")
    _emit(shop)
    change = ("recorder", "change", "rename", "--stream", ORDERS, "--into", SALES)
    told = admin.run(*change)
    assert f"new_keys: {SALES}" in told.stdout
    assert "veen recorder share" in told.stderr
    assert shop.fails(1, "recorder", "emit", "--stream", SALES, *EVENT)["code"] == "E.CLIENT"
    office.share("shop", SALES)
    assert _emit(shop, SALES) == 1
    tail = admin.run("recorder", "tail", "--stream", SALES, "--all", "--for", "0")
    assert "bob  order  shop" in tail.stdout, "it is for the admin too"


def test_an_admin_stays_one_with_another_key(office: Office) -> None:
    admin = office.user("admin")
    admin.ok("id", "rotate")
    assert admin.fails(1, "recorder", "emit", "--stream", ORDERS, *EVENT)["code"] == "E.ROLE"


def test_what_can_not_be_read_is_not_judged(office: Office) -> None:
    _emit(office.user("shop"))
    office.user("admin").ok("recorder", "checkpoint")
    stranger = office.user("stranger")
    asked = ("recorder", "verify", "--only", "order", "--only", "stability", "--only", "completeness")
    for words in (asked, asked[:2]):
        done = stranger.run(*words, "--quiet")
        assert done.exit_code == 4, done.output
        assert "not judged: " in done.stderr
        assert CHANGES_STREAM in done.stderr
        assert "2 of 2 entries sealed to other readers" in done.stderr
    found = json.loads(stranger.run(*asked, "--json").stdout)
    assert (found["ok"], found["code"], found["unreadable"]) == (False, "E.RECORD", 2)
    assert found["verdicts"] == {**dict.fromkeys(VERDICTS), "order": True}
    assert found["not_judged"]["stability"] == [CHECKPOINTS_STREAM]
    assert found["hidden"][CHECKPOINTS_STREAM] == {"sealed": 1, "entries": 1}
    told = stranger.run(*asked)
    assert "stability: not judged\n" in told.stdout
    assert "order: good\n" in told.stdout
    assert stranger.ok("recorder", "verify", "--only", "order")["verdicts"]["order"]


def test_a_stream_of_which_nothing_can_be_read(office: Office) -> None:
    """Its numbers and signatures are checked; what its events say is not known."""
    admin, auditor = office.user("admin"), office.user("auditor")
    admin.ok("recorder", "init", "--stream", f"{SALES}=sale")
    office.share("auditor", ORDERS)
    _emit(office.user("shop"))
    seller = office.user("seller")
    seller.ok("recorder", "emit", "--stream", SALES, "--type", "sale", "--to", office.place / "admin")
    admin.ok("recorder", "checkpoint")
    found = json.loads(auditor.run("recorder", "verify", "--json").stdout)
    assert found["not_judged"] == {"completeness": [SALES], "event_types": [SALES]}
    others = [name for name in VERDICTS if name not in found["not_judged"]]
    assert all(found["verdicts"][name] for name in others)
    auditor.ok("recorder", "verify", *(word for name in others for word in ("--only", name)))
    assert all(admin.ok("recorder", "verify")["verdicts"].values())


def test_single_entries_for_others_are_counted(office: Office) -> None:
    admin, shop = office.user("admin"), office.user("shop")
    _emit(shop)
    _emit(shop, ORDERS, "--to", office.place / "shop")
    admin.ok("recorder", "checkpoint")
    found = admin.ok("recorder", "verify")
    assert all(found["verdicts"].values())
    assert found["unreadable"] == 1
    done = admin.run("recorder", "verify", "--quiet")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "1 of 4 entries sealed to other readers" in done.stderr


def test_a_checkpoint_that_nobody_can_read(office: Office) -> None:
    admin, stranger = office.user("admin"), office.user("stranger")
    assert stranger.fails(1, "recorder", "checkpoint")["code"] == "E.CLIENT"
    assert admin.ok("recorder", "checkpoint")["stream_seq"] == 1
    with Client.open(office.place / "stranger", office.hub) as client:
        send_manifest(client, make_manifest(client))  # as whoever writes a program can
    found = admin.ok("recorder", "verify")
    assert all(found["verdicts"].values())
    assert found["hidden"] == {CHECKPOINTS_STREAM: {"sealed": 1, "entries": 2}}
    told = admin.run("recorder", "verify")
    assert f"{CHECKPOINTS_STREAM}: 1 of 2 entries sealed to other readers" in told.stderr
    assert told.exit_code == 0


def test_who_follows_streams_ends_it_when_he_likes(office: Office) -> None:
    _emit(office.user("shop"))
    # A shell that starts tests in the background has them ignore interrupts.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import veen.cli.main as m"
    )
    words = ("recorder", "tail", "--stream", ORDERS, "--all")
    env = environment(VEEN_HUB=office.hub, VEEN_CLIENT=str(office.place / "shop"), HOME=str(office.place))
    process = subprocess.Popen(
        [sys.executable, "-c", f"{program}; m.main()", *words], stdout=subprocess.PIPE, text=True, env=env
    )
    assert process.stdout is not None
    with process.stdout:
        assert f"{ORDERS}/1" in process.stdout.readline()
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 0
