"""``veen recorder checkpoint`` and its file, which must be there when it matters; and documents that grow."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from tests.cli.command_runner import User
from tests.hub.hub_process import HubProcess
from veen.cli.commands.recorder.checkpoint import CheckpointMaker, keep_making
from veen.cli.commands.recorder.replay import print_all
from veen.cli.settings import common
from veen.client.client import Client
from veen.core.errors import Detail, ProtocolError
from veen.recorder.cadence import Cadence, Pace
from veen.recorder.checkpoint import Manifest, newest_manifest
from veen.recorder.replay import Recorded, replay_range

ORDERS = "record/app/orders"
CONFIG = 'require_cap = "false"\n'


class Office:
    """An admin, and a producer who seals to him."""

    def __init__(self, place: Path, hub: str) -> None:
        self.place = place
        self.admin, self.shop = (
            User(place, VEEN_HUB=hub, VEEN_CLIENT=str(place / name)) for name in ("admin", "shop")
        )
        if not (place / "admin").exists():
            for user, name in ((self.admin, "admin"), (self.shop, "shop")):
                user.ok("keygen", "--out", place / name)
            self.admin.ok("recorder", "init", "--stream", f"{ORDERS}=order")

    def emit(self) -> None:
        """Record an event."""
        self.shop.ok("recorder", "emit", "--stream", ORDERS, "--type", "order", "--to", self.place / "admin")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "data", config=CONFIG) as made:
        yield made


@pytest.fixture
def office(hub: HubProcess, tmp_path: Path) -> Office:
    return Office(tmp_path, hub.url)


def test_when_nothing_is_new_the_newest_one_is_written(office: Office) -> None:
    made = office.admin.ok("recorder", "checkpoint")
    file = office.place / "fresh"
    again = office.admin.ok("recorder", "checkpoint", "--out", file)
    assert (again["made"], again["file"]) == (False, str(file))
    assert Manifest.decode(file.read_bytes()).log_root.hex() == made["log_root"]
    done = office.admin.run("recorder", "checkpoint", "--out", office.place / "other", "--quiet")
    assert done.exit_code == 0
    assert (office.place / "other").read_bytes() == file.read_bytes()


def test_a_file_that_can_not_be_written_is_told_before_anything_is_recorded(office: Office) -> None:
    for bad in ("nowhere/file", "."):
        refused = office.admin.fails(1, "recorder", "checkpoint", "--out", office.place / bad)
        assert refused["code"] == "E.USAGE"
    assert office.admin.ok("recorder", "checkpoint")["stream_seq"] == 1, "it is the first one"


def test_a_recorder_without_entries_has_no_file_to_write(hub: HubProcess, tmp_path: Path) -> None:
    admin = User(tmp_path, VEEN_HUB=hub.url, VEEN_CLIENT=str(tmp_path / "admin"))
    admin.ok("keygen", "--out", tmp_path / "admin")
    admin.ok("reader", "new", "--stream", "record/infrastructure/checkpoints")
    admin.fails(1, "recorder", "checkpoint", "--out", tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_the_file_is_replaced_as_a_whole(office: Office) -> None:
    """What was kept is never written over: it has a second name here, and stays as it was under that."""
    file, link, other = (office.place / name for name in ("file", "link", "other"))
    office.admin.ok("recorder", "checkpoint", "--out", file)
    file.chmod(0o640)
    first = file.read_bytes()
    os.link(file, other)
    link.symlink_to(file)
    office.emit()
    office.admin.ok("recorder", "checkpoint", "--out", link)
    assert other.read_bytes() == first
    assert file.read_bytes() != first
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_file_is_not_given_up_for_an_older_copy(tmp_path: Path) -> None:
    """A hub and all clients have gone back: what it vouches for now must not replace what shows that."""
    place, older, file = tmp_path / "data", tmp_path / "older", tmp_path / "file"
    with HubProcess(place, config=CONFIG) as hub:
        office = Office(tmp_path, hub.url)
        office.admin.ok("recorder", "checkpoint")
    shutil.copytree(place, older, ignore=shutil.ignore_patterns("*.sock", "hub.json", "hub.pid"))
    shutil.copytree(tmp_path / "admin", tmp_path / "admin of then")
    with HubProcess(place, config=CONFIG) as hub:
        office = Office(tmp_path, hub.url)
        office.emit()
        office.admin.ok("recorder", "checkpoint", "--out", file)
    kept = file.read_bytes()
    shutil.rmtree(tmp_path / "admin")
    (tmp_path / "admin of then").rename(tmp_path / "admin")
    with HubProcess(older, config=CONFIG) as hub:
        office = Office(tmp_path, hub.url)
        for words in ((), ("--force",)):
            refused = office.admin.fails(4, "recorder", "checkpoint", "--out", file, *words)
            assert f"{file} covers 1 entry of {ORDERS}" in refused["detail"]
    assert file.read_bytes() == kept


def test_a_file_of_somebody_who_was_faster_stays(office: Office, tmp_path: Path) -> None:
    """It vouches for more than the newest one in the log, and all of that is there."""
    file = tmp_path / "file"
    office.admin.ok("recorder", "checkpoint", "--out", file)
    newer = tmp_path / "newer"
    office.emit()
    office.admin.ok("recorder", "checkpoint", "--out", newer)
    with Client.open(tmp_path / "admin", office.admin.hub) as client:
        work = CheckpointMaker(client, [], anchor=False, out=newer, lasting=False)
        kept = newer.read_bytes()
        older = Manifest.decode(file.read_bytes())
        assert not work.wants(older)
    assert newer.read_bytes() == kept


def test_a_disk_that_is_away_does_not_end_the_checkpoints(
    office: Office, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is told, and the file is written when the disk is there again."""
    disk = office.place / "disk"
    turns = list[bool]()

    def pause(_seconds: float) -> None:
        turns.append((disk / "file").exists())
        if len(turns) == 3:
            disk.mkdir()
        if len(turns) == 4:
            raise KeyboardInterrupt

    with Client.open(office.place / "admin", office.admin.hub) as client:
        work = CheckpointMaker(client, [], anchor=False, out=disk / "file", lasting=True)
        with pytest.raises(KeyboardInterrupt):
            keep_making(work, Pace(Cadence(3600, None)), pause)
        newest = newest_manifest(client)
    assert turns == [False, False, False, True]
    assert newest is not None
    assert (disk / "file").read_bytes() == newest.encode()
    told = capfd.readouterr().err
    assert told.count("cannot be written") == 1, told


# --- documents that grow ------------------------------------------------------------------------------------


@pytest.fixture
def as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "json", True)


@pytest.mark.usefixtures("as_json")
def test_events_are_printed_as_they_come(office: Office, capsys: pytest.CaptureFixture[str]) -> None:
    """And are not kept until the last of them: there may be more than the memory holds."""
    printed = list[str]()

    def watched(found: Iterator[Recorded]) -> Iterator[Recorded]:
        for item in found:
            printed.append(capsys.readouterr().out)
            yield item

    for _ in range(3):
        office.emit()
    with Client.open(office.place / "admin", office.admin.hub) as client:
        assert print_all(watched(replay_range(client, ORDERS, 1, 3))) == 3
    printed.append(capsys.readouterr().out)
    assert printed[0] == ""
    assert [part.count('"msg_id"') for part in printed[1:]] == [1, 1, 1]
    found = json.loads("".join(printed))
    assert found["ok"] is True
    assert [item["hub_commit_seq"] for item in found["events"]] == [1, 2, 3]


@pytest.mark.usefixtures("as_json")
def test_a_document_says_at_its_end_what_has_failed(
    office: Office, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(found: Iterator[Recorded]) -> Iterator[Recorded]:
        yield next(found)
        raise ProtocolError(Detail.PROOF_SEQ, "there is no entry 2", stream_seq=2)

    office.emit()
    office.emit()
    with Client.open(office.place / "admin", office.admin.hub) as client:
        with pytest.raises(typer.Exit) as ended:
            print_all(failing(replay_range(client, ORDERS, 1, 2)))
        printed = capsys.readouterr().out
    found = json.loads(printed)
    assert (ended.value.exit_code, found["ok"], len(found["events"])) == (4, False, 1)
    assert "entry 2" in found["detail"]
    assert office.admin.ok("recorder", "replay", "--start-time", "0", "--end-time", "1")["events"] == []
