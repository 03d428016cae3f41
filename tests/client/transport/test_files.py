"""Files in place of a hub: a data directory or an exported set answers what the hub would."""

import asyncio
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import User
from tests.client.conftest import Opens
from tests.client.participants import make_home, person
from tests.hub.hub_process import HubProcess, veen
from veen.client.client import Client
from veen.client.effects import Describe, GetAttachment, Query
from veen.client.errors import ClientStateError, ReadOnlyError, RejectedError
from veen.client.home.directory import ClientHome
from veen.client.models import Draft
from veen.client.read import ReadOptions
from veen.client.transport.data_directory import DataDirectory
from veen.client.transport.http import HttpHub
from veen.client.transport.portable_set import PAYLOADS, RECEIPTS, PortableSet
from veen.core.api import data_plane, tooling
from veen.core.objects import labels
from veen.core.types import Label

STREAM = "files"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HubProcess, Path, Path, Label]]:
    """Return a hub with a log, a copy of its directory, an exported set, and the label."""
    place = tmp_path_factory.mktemp("files")
    make_home(place / "alice")
    with HubProcess(place / "data") as hub:
        with Client.open(place / "alice", hub.url) as alice:
            alice.send(STREAM, {"text": "first"}, attachments=[b"attached"])
            list(alice.send_many(STREAM, [Draft(number) for number in range(20)]))
            label = next(iter(alice.session.home.load().labels))
        words = ("--stream", STREAM, "--out", place / "set", "--attachments", place / "alice")
        assert veen("export", "--hub", hub.url, *words).returncode == 0
        assert veen("clone", hub.place, place / "copy").returncode == 0
        yield hub, place / "copy", place / "set", label


def test_files_answer_as_the_hub_does(places: tuple[HubProcess, Path, Path, Label]) -> None:
    hub, copy, exported, label = places
    live, directory, files = HttpHub(hub.url), DataDirectory(copy), PortableSet(exported)
    questions: list[Query[Any]] = [
        Query(
            data_plane.StreamRequest(label=label, from_seq=0, with_receipts=True), data_plane.StreamResponse
        ),
        Query(
            data_plane.StreamRequest(
                label=label, from_seq=5, to_seq=7, with_receipts=True, with_mmr_proof=True
            ),
            data_plane.StreamResponse,
        ),
        Query(
            data_plane.StreamRequest(label=label, from_seq=3, max_items=2, with_receipts=True),
            data_plane.StreamResponse,
        ),
        Query(
            data_plane.StreamRequest(label=label, from_seq=99, with_receipts=True), data_plane.StreamResponse
        ),
        Query(data_plane.ReceiptRequest(label=label, stream_seq=9), data_plane.ReceiptResponse),
        Query(data_plane.ProofRequest(label=label, stream_seq=12), data_plane.ProofResponse),
        Query(tooling.ConsistencyRequest(label=label, old_size=3, new_size=20), tooling.ConsistencyResponse),
        Query(tooling.StreamEpochsRequest(stream_id=labels.stream_id(STREAM)), tooling.StreamEpochsResponse),
    ]
    for question in questions:
        wanted = live.answer(question)
        for other in (directory, files):
            found = other.answer(question)
            names = [
                name for name in type(wanted).__dataclass_fields__ if name not in ("server_version", "to_seq")
            ]
            for name in names:
                if not name.startswith("_"):
                    assert getattr(found, name) == getattr(wanted, name), (other.name, question, name)
    for other in (directory, files):
        facts = other.answer(Describe("/tooling/status"))
        assert facts["profiles"] == hub.get("/tooling/status")["profiles"]
        with pytest.raises(RejectedError, match=r"E\.NOT_FOUND"):
            other.answer(
                Query(data_plane.ReceiptRequest(label=label, stream_seq=999), data_plane.ReceiptResponse)
            )
        with pytest.raises(RejectedError, match=r"E\.NOT_FOUND"):
            other.answer(GetAttachment(bytes(32)))
        other.close()
    live.close()


@pytest.mark.parametrize("which", [1, 2])
def test_a_client_reads_files_and_can_not_write_them(
    places: tuple[HubProcess, Path, Path, Label], tmp_path: Path, kind: str, which: int
) -> None:
    place = places[which]
    assert isinstance(place, Path)
    shutil.copytree(places[0].place.parent / "alice", tmp_path / "alice")
    alice = person(kind, tmp_path / "alice", str(place))
    assert [item.body for item in alice.read(STREAM)][1:] == list(range(20))
    assert len(alice.read(STREAM, ReadOptions(start=11, prove=True))) == 11
    assert alice.verify_state(STREAM)[0].consistent
    assert alice.attachment(alice.read(STREAM)[0], 0) == b"attached"
    with pytest.raises(ReadOnlyError):
        alice.send(STREAM, "no")
    alice.close()


def test_what_is_no_data_directory_and_no_set(tmp_path: Path) -> None:
    for bad in (tmp_path, tmp_path / "none"):
        with pytest.raises(ClientStateError):
            DataDirectory(bad)
        with pytest.raises(ClientStateError):
            PortableSet(bad)


@pytest.mark.parametrize(
    "name", [RECEIPTS, PAYLOADS, "checkpoints.cborseq", "sync_state.cborseq", "hub-identity.cbor"]
)
def test_any_change_of_a_set_is_found(
    places: tuple[HubProcess, Path, Path, Label], tmp_path: Path, name: str
) -> None:
    hub, _, exported, _ = places
    user = User(tmp_path)
    hub_id = hub.banner["hub_id"]
    assert user.run("import", exported, "--hub-id", hub_id).exit_code == 0
    data = (exported / name).read_bytes()
    places_to_flip = {0, len(data) // 3, len(data) // 2, len(data) - 1}
    for at in sorted(places_to_flip):
        bad = tmp_path / f"{name}-{at}"
        shutil.copytree(exported, bad)
        changed = bytearray(data)
        changed[at] ^= 1
        (bad / name).write_bytes(changed)
        done = user.run("import", bad, "--hub-id", hub_id)
        assert done.exit_code in (1, 3, 4), (at, done.output)
        assert done.stderr.startswith("veen: ")
    short = tmp_path / "short"
    shutil.copytree(exported, short)
    (short / name).write_bytes(data[:-1])
    assert user.run("import", short, "--hub-id", hub_id).exit_code in (1, 3, 4)


def test_a_set_without_its_last_entries_is_not_whole(
    places: tuple[HubProcess, Path, Path, Label], tmp_path: Path
) -> None:
    exported = places[2]
    short = tmp_path / "short"
    shutil.copytree(exported, short)
    whole = PortableSet(exported)
    last = whole.answer(
        Query(data_plane.ReceiptRequest(label=places[3], stream_seq=21), data_plane.ReceiptResponse)
    ).receipt
    items = whole.answer(
        Query(
            data_plane.StreamRequest(label=places[3], from_seq=21, with_receipts=True),
            data_plane.StreamResponse,
        )
    ).items
    for name, tail in ((RECEIPTS, last.encode()), (PAYLOADS, items[0].msg.encode())):
        data = (short / name).read_bytes()
        assert data.endswith(tail)
        (short / name).write_bytes(data.removesuffix(tail))
    done = veen("import", short, "--hub-id", places[0].banner["hub_id"])
    assert done.returncode == 4
    assert veen("import", exported, "--hub-id", "ab" * 32).returncode == 4, "of another hub"


def test_a_client_moves_with_a_set(places: tuple[HubProcess, Path, Path, Label], tmp_path: Path) -> None:
    hub = places[0]
    alice = hub.place.parent / "alice"
    done = veen(
        "export", "--hub", hub.url, "--stream", STREAM, "--out", tmp_path / "moved", "--client", alice
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "moved/keystore.key").chmod(0o644)  # on a disk that knows no modes
    assert veen("import", tmp_path / "moved", "--out", tmp_path / "alice").returncode == 0
    assert (tmp_path / "alice/keystore.key").stat().st_mode & 0o777 == 0o600
    assert not ClientHome(tmp_path / "alice").load().pins, "a set does not vouch for its hub"
    with Client.open(tmp_path / "alice", hub.url) as moved:
        kept = moved.session.home.load()
        assert kept.labels[places[3]].last_seq == 21
        assert moved.resync(STREAM)[0].read == 0, "nothing has to be read again"
        assert [item.is_open for item in moved.read(STREAM)] == [True] * 21


def test_many_tasks_share_one_client(opens: Opens, stream: str, kind: str) -> None:
    """More of them than there are threads: none may keep the others from going on."""
    alice = opens("alice")
    alice.send_many(stream, [Draft(number) for number in range(30)])
    if kind == "blocking":
        assert len(alice.read(stream)) == 30
        return
    client = alice.client  # type: ignore[attr-defined]

    async def read() -> int:
        return len([message async for message in client.read(stream)])

    async def everybody() -> list[int]:
        writing = [client.send(stream, number) for number in range(20)]
        found = await asyncio.gather(*(read() for _ in range(40)), *writing)
        return [item for item in found if isinstance(item, int)]

    counts = alice.runner.run(everybody())  # type: ignore[attr-defined]
    assert all(30 <= count <= 50 for count in counts)
    assert len(alice.read(stream)) == 50


def test_files_are_followed_as_a_hub_is(tmp_path: Path, kind: str) -> None:
    make_home(tmp_path / "alice")
    with HubProcess(tmp_path / "data") as hub:
        with Client.open(tmp_path / "alice", hub.url, rotation=None) as alice:
            alice.send(STREAM, 1)
            directory = DataDirectory(hub.place)
            label = next(iter(alice.session.home.load().labels))
            asked = Query(
                data_plane.StreamRequest(label=label, from_seq=2, with_receipts=True),
                data_plane.StreamResponse,
                wait_sec=20,
            )
            writing = threading.Timer(0.3, lambda: alice.send(STREAM, 2))
            writing.start()
            try:
                assert [item.stream_seq for item in directory.answer(asked).items] == [2]
            finally:
                writing.join()
                directory.close()
        reader = person(kind, tmp_path / "alice", str(hub.place))
        assert reader.send(STREAM, 3).position == 3, "a directory whose hub runs is that hub"
        reader.close()
