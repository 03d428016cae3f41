"""The recorder at a hub: events, checkpoints, replay, and what is told of a record that was changed."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.hub.hub_process import HubProcess
from tests.recorder.recorder_parties import LOGINS, NOT_COPIED, ORDERS, T0, Company, emit, told
from veen.client.client import Client
from veen.client.effects import Hub, Query, Request
from veen.client.send import send_draft
from veen.client.transport.portable_set import PAYLOADS, RECEIPTS
from veen.core.api.data_plane import ReceiptRequest, StreamRequest
from veen.core.crypto.ed25519 import SigningKey
from veen.core.encoding import cbor
from veen.core.errors import Code, ProtocolError
from veen.core.objects.entry import Frame
from veen.core.objects.msg import msg_end
from veen.core.objects.receipt import Receipt
from veen.core.types import JsonValue, NodeHash
from veen.hub.home import SECRETS, HubSecrets
from veen.overlays.errors import InvalidBodyError
from veen.overlays.recorder.schemas import CHANGES_STREAM, CHECKPOINTS_STREAM
from veen.recorder.cadence import Cadence, CadenceWatch
from veen.recorder.checkpoint import (
    CoveredLog,
    Manifest,
    last_seq,
    make_manifest,
    manifests,
    newest_manifest,
    send_manifest,
)
from veen.recorder.configuration import class_stream, read_configuration, stream_labels
from veen.recorder.errors import ManifestError, RangeError
from veen.recorder.event import RECORDING, draft_of
from veen.recorder.replay import proven, replay_range, replay_time
from veen.recorder.verify.judge import VERDICTS, judge

#: So many of each; the last ones behind the first checkpoint.
EVENTS, LATER = 30, 5


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("recorder") / "data", config='require_cap = "false"\n') as made:
        yield made


@pytest.fixture(scope="module")
def company(hub: HubProcess, tmp_path_factory: pytest.TempPathFactory) -> Company:
    """A recorder with two producers and two checkpoints."""
    made = Company(tmp_path_factory.mktemp("people"), hub.url)
    made.found()
    with made.client("door") as door, made.client("shop") as shop, made.client("admin") as admin:
        emit(door, LOGINS, "login", EVENTS)
        emit(shop, ORDERS, "order", EVENTS)
        send_manifest(admin, make_manifest(admin))
        emit(shop, LOGINS, "login", LATER)
        send_manifest(admin, make_manifest(admin))
    return made


@pytest.fixture
def auditor(company: Company) -> Iterator[Client]:
    with company.client("auditor") as made:
        yield made


class Counted:
    """A hub, and what it was asked."""

    def __init__(self, hub: Hub) -> None:
        self.name = hub.name
        self.close = hub.close
        self.requests: list[object] = []
        self._hub = hub

    def answer(self, request: Request) -> object:
        """Answer as the hub does."""
        self.requests.append(request.request if isinstance(request, Query) else request)
        return self._hub.answer(request)


class TestEvents:
    def test_the_principal_is_the_key_that_signs(self, company: Company, auditor: Client) -> None:
        found = next(replay_range(auditor, LOGINS, 1, 1))
        with company.client("door") as door:
            key = door.session.secrets.client.signing_key.public_key.hex()
        assert found.body is not None
        assert (found.body["principal_id"], found.message.sender.hex()) == (key, key)
        shown = found.to_json()
        assert (shown["hub_commit_seq"], shown["hub_commit_time"]) == (1, found.message.receipt.hub_ts)
        assert shown["receipt"] == found.message.receipt.encode().hex()
        assert "hub_commit_seq" not in found.body

    def test_a_payload_that_is_too_large_is_refused_before_it_is_stored(self, company: Company) -> None:
        with company.client("door") as door:
            before = len(list(door.session.home.root.rglob("*")))
            with pytest.raises(ProtocolError) as refused:
                emit(door, LOGINS, "login", max_bytes=3)
            assert refused.value.code is Code.SIZE
            assert len(list(door.session.home.root.rglob("*"))) == before

    def test_fractions_and_negative_numbers_are_text(self, company: Company) -> None:
        said: dict[str, JsonValue] = {"event_type": "t", "subject_id": "s", "origin": "o"}
        with company.client("door") as door:
            draft = draft_of({**said, "payload": json.loads('{"a": -1, "b": 0.5, "c": 1}')}, T0)
            sent = send_draft(door, "record/app/numbers", draft, RECORDING)
            found = next(replay_range(door, "record/app/numbers", sent.position, sent.position))
        assert found.body is not None
        assert found.body["payload"] == {"a": "-1", "b": "0.5", "c": 1}
        assert found.body["event_time"] == T0

    @pytest.mark.parametrize(
        ("said", "code"),
        [
            ([], "BODY.TYPE"),
            ({"event_type": "t", "subject_id": "s"}, "BODY.MISSING_KEY"),
            ({"event_type": "t", "subject_id": "s", "origin": "o", "principal_id": "x"}, "BODY.UNKNOWN_KEY"),
            ({"event_type": 1, "subject_id": "s", "origin": "o"}, "BODY.TYPE"),
            ({"event_type": "t", "subject_id": "s", "origin": "o", "event_time": -1}, "BODY.TYPE"),
            ({"event_type": "t", "subject_id": "s", "origin": "o", "metadata": 1}, "BODY.TYPE"),
        ],
    )
    def test_what_is_no_event(self, said: object, code: str) -> None:
        with pytest.raises(InvalidBodyError) as refused:
            draft_of(said, T0)  # type: ignore[arg-type]
        assert refused.value.code == code


class TestCheckpoints:
    def test_it_vouches_for_every_stream(self, auditor: Client) -> None:
        found = newest_manifest(auditor)
        assert found is not None
        assert found.place == (0, 2)
        upto = {entry.stream: entry.upto_seq for entry in found.streams}
        assert upto == {
            ORDERS: EVENTS,
            LOGINS: EVENTS + LATER,
            CHANGES_STREAM: 2,
            CHECKPOINTS_STREAM: 1,
        }
        assert found.profile_id == read_configuration(auditor).profile_id
        assert [entry.stream for entry in found.streams] == sorted(upto, key=str.encode)

    def test_a_body_with_another_root_or_order_is_refused(self, auditor: Client) -> None:
        found = newest_manifest(auditor)
        assert found is not None
        turned = replace(found, streams=found.streams[::-1])
        with pytest.raises(InvalidBodyError) as refused:
            turned.encode()
        assert refused.value.code == "SDR.CHECKPOINT_ORDER"
        data = found.encode()
        at = data.index(found.log_root)
        with pytest.raises(InvalidBodyError) as refused:
            Manifest.decode(data[:at] + bytes(32) + data[at + 32 :])
        assert refused.value.code == "SDR.LOG_ROOT"

    def test_how_many_entries_there_are_is_found_in_a_few_questions(self, auditor: Client) -> None:
        auditor.connect()
        found = newest_manifest(auditor)
        assert found is not None
        assert [last_seq(auditor, entry.label) for entry in found.streams if entry.stream == LOGINS] == [
            EVENTS + LATER
        ]

    def test_what_is_known_of_a_label_need_not_be_true(self, auditor: Client) -> None:
        """It may be too much or too little; how far the label goes is found all the same."""
        label = next(iter(stream_labels(auditor, LOGINS)))[1]
        last = EVENTS + LATER
        for known in (0, 1, last - 1, last, last + 1, 2 * last, 2**64 - 1):
            assert last_seq(auditor, label, known) == last
        nothing = next(iter(stream_labels(auditor, "record/of/nobody")))[1]
        assert [last_seq(auditor, nothing, known) for known in (0, 7)] == [0, 0]

    def test_who_looks_again_and_again_asks_little(self, company: Company) -> None:
        """Two questions for each label; what is declared is read anew when something new is declared."""
        streams = {LOGINS, ORDERS, CHANGES_STREAM}
        with company.client("watcher") as client:
            watch = CadenceWatch(client, [], CoveredLog(client))
            assert watch.waiting().count == 0
            assert streams <= watch.names
            asked = client.hub = Counted(client.hub)
            changes = next(iter(stream_labels(client, CHANGES_STREAM)))[1]
            assert watch.waiting().count == 0
            receipts = [item for item in asked.requests if isinstance(item, ReceiptRequest)]
            pages = [item for item in asked.requests if isinstance(item, StreamRequest)]
            assert len(receipts) <= 2 * len(streams)
            assert changes not in {item.label for item in pages}
            assert len(asked.requests) <= 2 * len(streams) + 2, "and what is new among checkpoints"


class TestReplay:
    def test_a_range_is_what_it_says(self, auditor: Client) -> None:
        found = list(replay_range(auditor, LOGINS, 3, 7))
        assert [item.message.position for item in found] == [3, 4, 5, 6, 7]

    @pytest.mark.parametrize(
        ("first", "last", "epoch"), [(0, 1, None), (5, 4, None), (1, 10_000, None), (-3, -1, None), (1, 1, 7)]
    )
    def test_bad_ranges(self, auditor: Client, first: int, last: int, epoch: int | None) -> None:
        with pytest.raises(RangeError):
            list(replay_range(auditor, LOGINS, first, last, epoch))

    def test_a_time_of_several_streams_is_in_one_order(self, auditor: Client) -> None:
        found = list(replay_time(auditor, [ORDERS, LOGINS, LOGINS], 0, 2**63))
        assert len(found) == 2 * EVENTS + LATER
        assert [item.order for item in found] == sorted(item.order for item in found)
        first, last = (found[place].message.receipt.hub_ts for place in (0, -1))
        assert len(list(replay_time(auditor, [ORDERS, LOGINS], first, last))) == len(found), "ends included"
        assert not list(replay_time(auditor, [ORDERS, LOGINS], last + 1, last + 1))
        with pytest.raises(RangeError):
            replay_time(auditor, [ORDERS], 2, 1)

    def test_every_entry_is_proven(self, auditor: Client) -> None:
        found = newest_manifest(auditor)
        assert found is not None
        assert len(list(proven(auditor, found, [ORDERS], replay_range(auditor, ORDERS, 1, EVENTS)))) == EVENTS

    def test_what_a_checkpoint_does_not_vouch_for_ends_the_replay(self, auditor: Client) -> None:
        found = newest_manifest(auditor)
        assert found is not None
        first = next(manifests(auditor))
        with pytest.raises(ManifestError, match=f"entry {EVENTS + 1}"):
            list(proven(auditor, first, [LOGINS], replay_range(auditor, LOGINS, EVENTS, EVENTS + 1)))
        other = tuple(replace(entry, mmr_root=NodeHash(bytes(32))) for entry in found.streams)
        with pytest.raises(ManifestError, match="not proven"):
            list(
                proven(auditor, replace(found, streams=other), [ORDERS], replay_range(auditor, ORDERS, 1, 2))
            )
        for strange in (replace(found, hub_id=bytes(32)), replace(found, hub_public=bytes(32))):
            with pytest.raises(ManifestError, match="another hub"):
                list(proven(auditor, strange, [ORDERS], replay_range(auditor, ORDERS, 1, 2)))
        renamed = tuple(replace(entry, checkpoint_hash=bytes(32)) for entry in found.streams)
        with pytest.raises(ManifestError, match="another checkpoint"):
            list(proven(auditor, replace(found, streams=renamed), [ORDERS], ()))

    def test_what_is_vouched_for_and_not_there_is_not_passed_over(self, auditor: Client) -> None:
        """Though a time in which it was is empty now (SDR-022)."""
        found = newest_manifest(auditor)
        assert found is not None
        more = tuple(
            replace(entry, upto_seq=EVENTS + 50) if entry.stream == ORDERS else entry
            for entry in found.streams
        )
        nothing = replay_time(auditor, [ORDERS], 2**40, 2**41)
        with pytest.raises(ManifestError, match="lacks the last one"):
            list(proven(auditor, replace(found, streams=more), [ORDERS], nothing))
        assert not list(proven(auditor, found, [ORDERS], replay_time(auditor, [ORDERS], 2**40, 2**41)))


# --- verdicts -----------------------------------------------------------------------------------------------


def test_a_good_record_is_good(auditor: Client) -> None:
    found = judge(auditor)
    assert told(found) == []
    assert all(found.ok(name) for name in VERDICTS)
    assert (found.events, found.checkpoints, found.unreadable) == (2 * EVENTS + LATER, 2, 0)


@pytest.fixture(scope="module")
def kept(company: Company) -> Manifest:
    """The newest checkpoint, as an auditor has kept it."""
    with company.client("auditor") as client:
        found = newest_manifest(client)
    assert found is not None
    return found


def _log_of(place: Path, manifest: Manifest, stream: str) -> Path:
    (label,) = (entry.label for entry in manifest.streams if entry.stream == stream)
    (found,) = place.glob(f"log/chunk-{label.hex()}-*")
    return found


def _frames(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        _, end = Frame.read(data, at)
        found.append(data[at:end])
        at = end
    return found


def _edited(frames: list[bytes], nth: int) -> list[bytes]:
    frame = bytearray(frames[nth])
    frame[len(frame) // 2] ^= 1
    return [*frames[:nth], bytes(frame), *frames[nth + 1 :]]


def _removed(frames: list[bytes], nth: int) -> list[bytes]:
    return [*frames[:nth], *frames[nth + 1 :]]


def _reordered(frames: list[bytes], nth: int) -> list[bytes]:
    return [*frames[:nth], frames[nth + 1], frames[nth], *frames[nth + 2 :]]


CHANGED: dict[str, Callable[[list[bytes], int], list[bytes]]] = {
    "edited": _edited,
    "removed": _removed,
    "reordered": _reordered,
}


@pytest.fixture(scope="module")
def files(hub: HubProcess, kept: Manifest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the hub's files, by a hub that has ended in order: all entries are in their chunks."""
    del kept  # after which everything is there
    place = tmp_path_factory.mktemp("files") / "data"
    shutil.copytree(hub.place, place, ignore=NOT_COPIED)
    with HubProcess(place, config='require_cap = "false"\n') as made:
        made.process.terminate()
        assert made.process.wait(60) == 0
    return place


@pytest.mark.parametrize("what", CHANGED)
def test_what_was_done_to_the_files_of_a_hub_is_named(
    files: Path, company: Company, kept: Manifest, tmp_path: Path, what: str
) -> None:
    place = tmp_path / "copy"
    shutil.copytree(files, place, ignore=NOT_COPIED)
    file = _log_of(place, kept, LOGINS)
    file.write_bytes(b"".join(CHANGED[what](_frames(file.read_bytes()), 12)))
    with company.client(f"auditor-{what}", place) as client:
        found = judge(client, checkpoint=kept)
    assert ("order", what, LOGINS, 13) in told(found)
    assert ("stability", what, LOGINS, 13) in told(found), "checkpoints vouch for it"
    assert {item.where.stream for item in found.findings} == {LOGINS}, "other streams are as they were"


def test_what_is_behind_a_checkpoint_does_not_touch_stability(
    files: Path, company: Company, kept: Manifest, tmp_path: Path
) -> None:
    """An entry that nobody has vouched for was edited: order is bad, and all that is vouched for is there."""
    place = tmp_path / "copy"
    shutil.copytree(files, place, ignore=NOT_COPIED)
    file = _log_of(place, kept, CHECKPOINTS_STREAM)
    file.write_bytes(b"".join(_edited(_frames(file.read_bytes()), 1)))
    with company.client("auditor-behind", place) as client:
        found = judge(client)
    assert told(found) == [("order", "edited", CHECKPOINTS_STREAM, 2)]


def _export(company: Company, place: Path, names: Iterable[str]) -> Path:
    from tests.cli.command_runner import User  # noqa: PLC0415 - only here

    user = User(place, VEEN_HUB=company.hub, VEEN_CLIENT=str(company.home("exporter")))
    streams = [word for name in names for word in ("--stream", name)]
    user.ok("export", *streams, "--out", place / "whole")
    return place / "whole"


@pytest.fixture(scope="module")
def exported(company: Company, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All streams as a set of files."""
    names = [LOGINS, ORDERS, CHANGES_STREAM, CHECKPOINTS_STREAM, class_stream()]
    return _export(company, tmp_path_factory.mktemp("set"), names)


def _split(data: bytes, end_of: Callable[[bytes, int], int]) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        end = end_of(data, at)
        found.append(data[at:end])
        at = end
    return found


@pytest.mark.parametrize("what", ["removed", "reordered"])
def test_what_was_done_to_a_set_is_named(
    exported: Path, company: Company, kept: Manifest, tmp_path: Path, what: str
) -> None:
    place = tmp_path / "set"
    shutil.copytree(exported, place)
    for name, end_of in ((RECEIPTS, cbor.item_end), (PAYLOADS, msg_end)):
        items = _split((exported / name).read_bytes(), end_of)
        (place / name).write_bytes(b"".join(CHANGED[what](items, 12)))
    with company.client(f"auditor-set-{what}", place) as client:
        found = judge(client, streams=[LOGINS, ORDERS], checkpoint=kept)
    assert {("order", what, LOGINS, 13), ("stability", what, LOGINS, 13)} <= set(told(found))


def test_a_set_is_judged_without_a_hub(exported: Path, company: Company, kept: Manifest) -> None:
    with company.client("auditor-offline", exported) as client:
        found = judge(client, checkpoint=kept)
        replayed = list(proven(client, kept, [LOGINS], replay_range(client, LOGINS, 2, 9)))
    assert told(found) == []
    assert [item.message.position for item in replayed] == list(range(2, 10))


@pytest.fixture
def retimed(hub: HubProcess, exported: Path, tmp_path: Path) -> Callable[[Callable[[Receipt], int]], Path]:
    """Sets whose receipts have other times, all signed by the hub: what it does if its clock is wrong."""

    def make(time_of: Callable[[Receipt], int]) -> Path:
        shutil.copytree(exported, tmp_path / "set")
        _retime(hub, tmp_path / "set", time_of)
        return tmp_path / "set"

    return make


def _retime(hub: HubProcess, place: Path, time_of: Callable[[Receipt], int]) -> None:
    key = SigningKey.from_seed(HubSecrets.decode((hub.place / SECRETS).read_bytes()).seeds[0])
    signed = [
        Receipt.sign(
            key,
            label=receipt.label,
            stream_seq=receipt.stream_seq,
            leaf_hash=receipt.leaf_hash,
            mmr_root=receipt.mmr_root,
            hub_ts=time_of(receipt),
        )
        for receipt in map(Receipt.decode, _split((place / RECEIPTS).read_bytes(), cbor.item_end))
    ]
    (place / RECEIPTS).write_bytes(b"".join(receipt.encode() for receipt in signed))


def test_a_clock_of_the_hub_that_goes_back(
    retimed: Callable[[Callable[[Receipt], int]], Path], company: Company, kept: Manifest
) -> None:
    """All else is as it was: signatures, numbers and roots."""
    (label,) = (entry.label for entry in kept.streams if entry.stream == LOGINS)
    place = retimed(lambda item: item.hub_ts - 100 * ((item.label, item.stream_seq) == (label, 13)))
    with company.client("auditor-clock", place) as client:
        found = judge(client, streams=[LOGINS, ORDERS], checkpoint=kept)
    assert told(found) == [("order", "time", LOGINS, 13)]
    assert "goes back" in found.findings[0].text


@pytest.mark.parametrize("later", [0, 2000])
def test_a_checkpoint_vouches_for_what_was_declared_before_it(
    retimed: Callable[[Callable[[Receipt], int]], Path], company: Company, kept: Manifest, later: int
) -> None:
    (label,) = (entry.label for entry in kept.streams if entry.stream == CHANGES_STREAM)
    place = retimed(lambda item: item.hub_ts + later * (item.label == label))
    others = tuple(entry for entry in kept.streams if entry.stream != LOGINS)
    with company.client(f"auditor-declared-{later}", place) as client:
        short = replace(kept, streams=others, created_at=kept.created_at + 1000)
        found = judge(client, streams=[LOGINS, ORDERS], checkpoint=short)
    left_out = ("stability", "checkpoint", LOGINS, None)
    assert [item for item in told(found) if item[0] == "stability"] == ([] if later else [left_out])


@pytest.mark.parametrize(("later", "told_of"), [(30, []), (33, ["volume"])])
def test_what_waits_at_the_end_is_judged_in_a_copy_too(
    hub: HubProcess, company: Company, tmp_path: Path, later: int, told_of: list[str]
) -> None:
    """Too many entries wait, for so long when the last one comes; and there is no checkpoint."""
    place = _export(company, tmp_path, [LOGINS, CHANGES_STREAM, class_stream()])
    cadence = Cadence(2**50, 3)
    with company.client(f"auditor-waiting-{later}", place) as client:
        last = (next(iter(stream_labels(client, LOGINS)))[1], EVENTS + LATER)
        _retime(hub, place, lambda item: T0 + later * ((item.label, item.stream_seq) == last))
    with company.client(f"auditor-waiting-{later}", place) as client:
        copied = judge(client, streams=[LOGINS], cadence=cadence)
        served = judge(client, streams=[LOGINS], cadence=cadence, now=T0 + later)
    assert copied.findings == served.findings
    assert [item.code for item in copied.findings if item.verdict == "checkpoint_cadence"] == told_of
