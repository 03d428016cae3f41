"""A hub that anchors: when, what it keeps, who may ask for it, and what happens if it can not."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests import builders
from tests.anchoring.authority import Authority, needs_openssl, served
from tests.hub.process import Client, HubProcess, check_sound
from tests.hub.serving import CBOR, Sender, Service, eventually, serving
from veen.cli.asking import HubClient
from veen.core import layout
from veen.core.anchor import AnchorRecord, LedgerEntry
from veen.core.checkpoint import Checkpoint
from veen.core.tooling import AnchorRequest, AnchorResponse
from veen.core.types import Label
from veen.core.wire import decode_sequence
from veen.hub.config import ConfigError, load
from veen.storage import clone
from veen.storage.anchoring import FileLedger
from veen.storage.anchoring.rfc3161 import Rfc3161, load_roots
from veen.storage.fs import RealFilesystem

NONCE = builders.digest("nonce")[:20]


def records(place: Path) -> dict[tuple[Label, int], AnchorRecord]:
    """Return the anchors of a data directory, each checked against its name."""
    found = {}
    for path in sorted((place / "anchors").glob("anchor-*.cbor")):
        record = AnchorRecord.decode(path.read_bytes())
        assert layout.parse_anchor(path.name) == (record.label, record.upto_seq)
        found[record.label, record.upto_seq] = record
    return found


def sizes(place: Path, label: Label) -> list[int]:
    return [upto for of, upto in records(place) if of == label]


def ledger_of(place: Path) -> FileLedger:
    return FileLedger(RealFilesystem(place / "anchors"), layout.LEDGER)


def check_bound(place: Path) -> None:
    """Check that every anchor is in the ledger."""
    for record in records(place).values():
        verdict = ledger_of(place).verify(record.mmr_root, record.anchor_ref)
        assert verdict, verdict


def entries(place: Path) -> list[LedgerEntry]:
    return decode_sequence((place / "anchors" / layout.LEDGER).read_bytes(), LedgerEntry)


def local(service: Service, asked: AnchorRequest) -> AnchorResponse:
    """Ask through the operator's socket."""
    client = HubClient.operator(service.data_dir)
    assert client is not None
    return client.post("/tooling/anchor", asked, AnchorResponse)


def metric(service: Service, name: str) -> float:
    for line in service.get("/metrics").body.decode().splitlines():
        if line.startswith(name + " "):
            return float(line.split()[1])
    raise AssertionError(f"there is no metric {name}")


# --- when ---------------------------------------------------------------------------------------------------


def test_a_label_is_anchored_when_it_has_grown_enough(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with serving(place, anchor_backend="file", anchor_every_receipts=5) as hub:
        log, other = Sender(hub), Sender(hub, stream="other")
        log.send(4)
        other.send(3)
        log.send(1)
        eventually(lambda: sizes(place, log.label) == [5])
        log.send(12)
        eventually(lambda: 17 in sizes(place, log.label))
        assert sizes(place, other.label) == []
        said = hub.status()["anchoring"]
        assert (said["backend"], said["overdue"], said["failures"]) == ("file", 0, 0)
        assert said["last_anchor_ts"] > 1_700_000_000
        assert metric(hub, "veen_anchor_ok_total") == said["anchors"] >= 2
        assert metric(hub, "veen_anchor_fail_total") == metric(hub, "veen_anchor_overdue") == 0
    check_bound(place)
    for (label, upto), record in records(place).items():
        path = place / layout.checkpoint(layout.Domain.DATA, label, upto)
        assert Checkpoint.decode(path.read_bytes()).mmr_root == record.mmr_root
    check_sound(place)


def test_a_label_is_anchored_when_its_oldest_entry_is_old(tmp_path: Path) -> None:
    """The clock is the hub's: it is set forward, and what was not due is."""
    place = tmp_path / "data"
    with serving(place, anchor_backend="file", anchor_every_minutes=10) as hub:
        log = Sender(hub)
        at = log.send(2)[0].hub_ts
        hub.hub.anchoring._clock = lambda: at + 599  # type: ignore[union-attr] # it is on
        log.send(1)
        assert local(hub, AnchorRequest(label=log.label, upto_seq=1)).record.upto_seq == 1
        assert sizes(place, log.label) == [1]
        hub.hub.anchoring._clock = lambda: at + 602  # type: ignore[union-attr] # it is on
        eventually(lambda: sizes(place, log.label) == [1, 3])
    check_bound(place)


def test_what_is_due_is_found_again_at_a_start(tmp_path: Path) -> None:
    """Nobody anchors at first; then the hub makes up for it, once, and for what has grown only."""
    place = tmp_path / "data"
    with serving(place) as hub:
        log, other = Sender(hub), Sender(hub, stream="other")
        log.send(7)
        other.send(2)
        assert hub.status()["anchoring"] == {"backend": "none"}
    assert records(place) == {}
    for _ in range(2):
        with serving(place, anchor_backend="file", anchor_every_receipts=5) as hub:
            eventually(lambda: sizes(place, log.label) == [7])
            assert hub.status()["anchoring"]["overdue"] == 0
        assert list(records(place)) == [(log.label, 7)]
    assert len(entries(place)) == 1


def test_a_stop_anchors_what_is_due(tmp_path: Path) -> None:
    """What is sent just before a stop is due by then: the thread has had no time to notice."""
    place = tmp_path / "data"
    with serving(place, anchor_backend="file", anchor_every_receipts=3) as hub:
        senders = [Sender(hub, stream=f"stream {number}") for number in range(8)]
        for sender in senders:
            sender.send(3)
        hub.server.stop()
    assert sorted(records(place)) == sorted((sender.label, 3) for sender in senders)
    check_bound(place)
    check_sound(place)


def test_the_hubs_own_logs_are_anchored_too(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with serving(place, anchor_backend="file", anchor_every_receipts=1) as hub:
        HubClient.operator(place).order(  # type: ignore[union-attr] # it runs
            "/admin/trust", {"issuer_pk": builders.verify_key("issuer").hex(), "trusted": True}
        )
        control = hub.hub.anchoring._reserved[1]  # type: ignore[union-attr] # it is on
        eventually(lambda: sizes(place, control) == [1])
    check_bound(place)


def test_a_copy_of_a_hub_at_work_has_its_anchors(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with serving(place, anchor_backend="file", anchor_every_receipts=1) as hub:
        log = Sender(hub)
        for _ in range(5):
            log.send(1)
            target = RealFilesystem(tmp_path / f"copy {log.client_seq}")
            clone(hub.hub.reader, target)
            check_bound(target.root)
            target.close()
        eventually(lambda: 5 in sizes(place, log.label))
    copy = tmp_path / "copy 5"
    ledger = ledger_of(copy)
    ref = ledger.publish(builders.checkpoint().mmr_root, 0, 0, NONCE)
    assert ledger.verify(builders.checkpoint().mmr_root, ref), "it goes on there too"
    ledger.close()
    check_bound(copy)


def test_a_ledger_may_be_elsewhere(tmp_path: Path) -> None:
    place, ledger = tmp_path / "data", tmp_path / "mounted" / "roots.cborseq"
    ledger.parent.mkdir()
    with serving(place, anchor_backend="file", anchor_ledger=ledger, anchor_every_receipts=1) as hub:
        Sender(hub).send(1)
        eventually(lambda: bool(records(place)))
    (record,) = records(place).values()
    assert FileLedger(RealFilesystem(ledger.parent), ledger.name).verify(record.mmr_root, record.anchor_ref)
    assert [path.name for path in (place / "anchors").iterdir()] == [
        layout.anchor_name(record.label, record.upto_seq)
    ]


# --- on request ---------------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Service]:
    """A hub that anchors when it is asked."""
    with serving(tmp_path / "data", anchor_backend="file") as service:
        yield service


def test_the_operator_has_a_label_anchored(hub: Service) -> None:
    log = Sender(hub)
    receipts = log.send(3)
    asked = AnchorRequest(label=log.label, upto_seq=2, epoch=9, ts=77, nonce=NONCE)
    made = local(hub, asked)
    assert (made.record.upto_seq, made.record.mmr_root) == (2, receipts[1].mmr_root)
    hub.identity.verify_checkpoint(made.checkpoint, epoch_sec=0, max_skew_sec=60)
    ref = made.record.ref
    assert (ref.epoch, ref.ts, ref.nonce) == (9, 77, NONCE)
    assert local(hub, asked) == made, "asking again makes no other"
    newest = local(hub, AnchorRequest(label=log.label))
    assert newest.record.upto_seq == 3
    assert newest.record.ref.ts == pytest.approx(receipts[2].hub_ts, abs=60)
    assert len(newest.record.ref.nonce) == 16
    assert local(hub, AnchorRequest(label=log.label)) == newest
    assert len(entries(hub.data_dir)) == 2
    check_bound(hub.data_dir)


def test_an_anchor_that_is_there_is_not_replaced(hub: Service) -> None:
    log = Sender(hub)
    log.send(1)
    made = local(hub, AnchorRequest(label=log.label, ts=5, nonce=NONCE))
    for other in (
        AnchorRequest(label=log.label, ts=6),
        AnchorRequest(label=log.label, epoch=1),
        AnchorRequest(label=log.label, nonce=NONCE + b"\0"),
    ):
        assert hub.post("/tooling/anchor", other).error().code == "E.CONFLICT"
    assert records(hub.data_dir) == {(log.label, 1): made.record}


def test_what_is_not_there_can_not_be_anchored(hub: Service) -> None:
    log = Sender(hub)
    log.send(2)
    for asked in (
        AnchorRequest(label=log.label, upto_seq=3),
        AnchorRequest(label=log.label, upto_seq=0),
        AnchorRequest(label=builders.some_label("nowhere")),
    ):
        assert hub.post("/tooling/anchor", asked).error().code == "E.NOT_FOUND"


def test_others_may_ask_now_and_then(hub: Service) -> None:
    """They get what is there, and one new anchor every few seconds, for all of them together."""
    logs = [Sender(hub, stream=f"stream {number}") for number in range(3)]
    for log in logs:
        log.send(2)
    first = hub.post("/tooling/anchor", AnchorRequest(label=logs[0].label)).decode(AnchorResponse)
    assert first.record.upto_seq == 2
    again = hub.post("/tooling/anchor", AnchorRequest(label=logs[0].label)).decode(AnchorResponse)
    assert again == first
    refused = hub.post("/tooling/anchor", AnchorRequest(label=logs[1].label)).error()
    assert (refused.code, "less than 10 s ago" in refused.message) == ("E.UNAVAILABLE", True)
    assert local(hub, AnchorRequest(label=logs[1].label)).record.upto_seq == 2
    for choice in (
        AnchorRequest(label=logs[2].label, nonce=NONCE),
        AnchorRequest(label=logs[2].label, ts=1),
        AnchorRequest(label=logs[2].label, epoch=1),
    ):
        assert hub.post("/tooling/anchor", choice).error().code == "E.FORBIDDEN"
    assert len(entries(hub.data_dir)) == 2


def test_others_can_be_kept_from_asking(tmp_path: Path) -> None:
    with serving(tmp_path / "data", anchor_backend="file", anchor_ask_sec=0) as hub:
        log = Sender(hub)
        log.send(1)
        asked = AnchorRequest(label=log.label)
        assert hub.post("/tooling/anchor", asked).error().code == "E.FORBIDDEN"
        made = local(hub, asked)
        assert hub.post("/tooling/anchor", asked).decode(AnchorResponse) == made


def test_both_forms_and_the_older_path_are_served(hub: Service) -> None:
    log = Sender(hub)
    log.send(1)
    asked = AnchorRequest(label=log.label)
    made = hub.post("/tooling/anchor", asked).decode(AnchorResponse)
    assert hub.post("/anchor", asked).decode(AnchorResponse) == made
    assert hub.call("POST", "/tooling/anchor", asked.to_json()).from_json(AnchorResponse) == made
    assert hub.post("/tooling/anchor", b"\xff", CBOR).error().code == "E.BAD_REQUEST"


def test_a_hub_without_a_backend_says_which_setting_is_missing(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as hub:
        Sender(hub).send(1)
        refused = hub.post("/tooling/anchor", AnchorRequest(label=Sender(hub).label)).error()
        assert (refused.code, "anchor_backend" in refused.message) == ("E.FORBIDDEN", True)
        assert not (hub.data_dir / "anchors" / layout.LEDGER).exists()


# --- if it can not ------------------------------------------------------------------------------------------


def alarms(service: Service) -> list[dict[str, Any]]:
    return [line for line in service.log if line["event"] == "anchor-failed"]


def test_a_damaged_ledger_is_counted_alarmed_and_tried_again(tmp_path: Path) -> None:
    """The hub works on; when the ledger is whole again, what is overdue is made up for."""
    place = tmp_path / "data"
    with serving(place, anchor_backend="file", anchor_every_receipts=2) as hub:
        log = Sender(hub)
        log.send(2)
        eventually(lambda: sizes(place, log.label) == [2])
    ledger = place / "anchors" / layout.LEDGER
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[:-1])
    with serving(place, anchor_backend="file", anchor_every_receipts=2) as hub:
        log.service = hub
        log.send(2)
        eventually(lambda: metric(hub, "veen_anchor_fail_total") >= 2)
        hub.check_healthy()
        said = hub.status()["anchoring"]
        assert (said["overdue"], said["last_anchor_ts"]) == (1, None)
        assert metric(hub, "veen_anchor_overdue") == 1
        first = alarms(hub)[0]
        assert (first["level"], first["label"], first["retry_in_sec"]) == ("error", log.label.hex(), 1)
        assert layout.LEDGER in first["error"]
        assert "try later" in hub.post("/tooling/anchor", AnchorRequest(label=log.label)).error().message
        log.send(1)
        ledger.write_bytes(whole)
        eventually(lambda: sizes(place, log.label) == [2, 5])
        assert metric(hub, "veen_anchor_overdue") == 0
    check_bound(place)


def test_a_record_that_could_not_be_kept_is_kept_later_and_not_published_again(tmp_path: Path) -> None:
    place, ledger = tmp_path / "data", tmp_path / "ledger.cborseq"
    with serving(place, anchor_backend="file", anchor_ledger=ledger, anchor_every_receipts=2) as hub:
        log = Sender(hub)
        (place / "anchors").rmdir()
        log.send(2)
        eventually(lambda: bool(alarms(hub)))
        assert "could not be kept" in alarms(hub)[0]["error"]
        (place / "anchors").mkdir()
        eventually(lambda: sizes(place, log.label) == [2])
    assert len(decode_sequence(ledger.read_bytes(), LedgerEntry)) == 1


def test_what_could_not_be_anchored_before_a_stop_is_anchored_after_the_next_start(tmp_path: Path) -> None:
    place = tmp_path / "data"
    blocker = FileLedger(RealFilesystem(tmp_path), "ledger.cborseq", "somebody else")
    blocker.publish(builders.checkpoint().mmr_root, 0, 0, NONCE)
    chosen: dict[str, Any] = {"anchor_backend": "file", "anchor_ledger": tmp_path / "ledger.cborseq"}
    with serving(place, anchor_every_receipts=2, **chosen) as hub:
        log = Sender(hub)
        log.send(3)
        eventually(lambda: bool(alarms(hub)))
        assert "somebody else" in alarms(hub)[0]["error"]
    assert records(place) == {}
    blocker.close()
    with serving(place, anchor_every_receipts=2, **chosen):
        eventually(lambda: sizes(place, log.label) == [3])


def test_a_stop_tries_once_more_whatever_has_failed_before(tmp_path: Path) -> None:
    place, ledger = tmp_path / "data", tmp_path / "ledger.cborseq"
    blocker = FileLedger(RealFilesystem(tmp_path), ledger.name)
    blocker.publish(builders.checkpoint().mmr_root, 0, 0, NONCE)
    with serving(place, anchor_backend="file", anchor_ledger=ledger, anchor_every_receipts=2) as hub:
        log = Sender(hub)
        log.send(2)
        # The next attempt of its own is seconds away.
        eventually(lambda: bool(alarms(hub)) and alarms(hub)[-1]["retry_in_sec"] >= 4)
        blocker.close()
        hub.server.stop()
    assert sizes(place, log.label) == [2]


def test_a_label_that_is_damaged_does_not_keep_others_from_being_anchored(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with serving(place) as hub:
        # The bad one comes first, when the hub looks at all of them.
        bad, good = sorted((Sender(hub), Sender(hub, stream="other")), key=lambda log: log.label)
        bad.send(2)
        good.send(2)
    (chunk,) = (place / "log").glob(f"chunk-{bad.label.hex()}-*")
    chunk.write_bytes(bytes(len(chunk.read_bytes())))
    with serving(place, anchor_backend="file", anchor_every_receipts=2) as hub:
        eventually(lambda: sizes(place, good.label) == [2])
        eventually(lambda: len(alarms(hub)) >= 2)
        assert {line["label"] for line in alarms(hub)} == {bad.label.hex()}
    assert sizes(place, bad.label) == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"anchor_backend": "file", "anchor_ledger": Path("/nowhere/at/all")}, "no directory /nowhere/at"),
        (
            {"anchor_backend": "rfc3161", "anchor_url": "http://x/", "anchor_tsa_cert": Path("/nowhere")},
            "/nowhere can not be read",
        ),
    ],
)
def test_a_hub_does_not_start_with_what_can_never_work(
    tmp_path: Path, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(Exception, match=says), serving(tmp_path / "data", **settings):
        pass


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"anchor_backend": "rfc3161"}, "needs anchor_url"),
        ({"anchor_backend": "rfc3161", "anchor_url": "ftp://x/"}, "not an http or https URL"),
        ({"anchor_backend": "rfc3161", "anchor_url": "http://"}, "not an http or https URL"),
        ({"anchor_backend": "rfc3161", "anchor_url": "http://x:99999/"}, "not an http or https URL"),
        ({"anchor_backend": "paper"}, "anchor_backend"),
        ({"anchor_every_receipts": 0}, "anchor_every_receipts"),
        ({"anchor_every_minutes": 0}, "anchor_every_minutes"),
    ],
)
def test_mistakes_in_the_settings_are_named(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load(settings, {})


# --- a real process, a real authority -----------------------------------------------------------------------


def status(hub: HubProcess) -> dict[str, Any]:
    found: dict[str, Any] = hub.get("/tooling/status")["anchoring"]
    return found


@pytest.mark.slow
def test_a_hub_that_is_killed_again_and_again_loses_no_anchor(tmp_path: Path) -> None:
    """Whatever it was doing: what is recorded is in the ledger, and in the end all is anchored."""
    place, log = tmp_path / "data", Client(builders.some_label("killed"))
    config = 'anchor_backend = "file"\nanchor_every_receipts = 1\n'
    for number in range(8):
        with HubProcess(place, config=config) as hub:
            with hub.api() as api:
                for _ in range(3 * number):
                    log.send(api)
            hub.kill()
        check_bound(place)
    with HubProcess(place, config=config) as hub:
        newest = len(log.receipts)
        eventually(lambda: newest in sizes(place, log.label))
        assert status(hub)["failures"] == 0
        hub.stop()
    check_bound(place)
    check_sound(place)


@needs_openssl
def test_time_stamps_are_made_missed_counted_and_made_up_for(tmp_path: Path) -> None:
    """The authority is away at first; a killed hub knows what is due as well as a stopped one."""
    authority = Authority.create(tmp_path / "authority")
    place, log = tmp_path / "data", Client(builders.some_label("stamped"))
    with served(authority.stamp) as service:
        service.status = 503
        config = (
            'anchor_backend = "rfc3161"\nanchor_every_receipts = 3\n'
            f'anchor_url = "{service.url}"\nanchor_tsa_cert = "{authority.root}"\n'
        )
        with HubProcess(place, config=config) as hub:
            with hub.api() as api:
                log.send_many(api, 3)
                eventually(lambda: status(hub)["failures"] >= 2)
                log.send_many(api, 1)
            assert status(hub)["overdue"] == 1
            hub.kill()
        said = [json.loads(line) for line in hub.log.read_text().splitlines()]
        assert any(line["event"] == "anchor-failed" and "503" in line["error"] for line in said)
        assert records(place) == {}
        service.status = 200
        with HubProcess(place, config=config) as hub:
            eventually(lambda: status(hub)["anchors"] == 1)
            with hub.api() as api:
                log.send_many(api, 3)
            assert hub.terminate(signal.SIGTERM) == 0
    assert sizes(place, log.label) == [4, 7]
    verifier = Rfc3161("http://localhost/", load_roots(authority.root.read_bytes()))
    for record in records(place).values():
        assert verifier.verify(record.mmr_root, record.anchor_ref)
    check_sound(place)


def test_an_authority_that_hangs_keeps_neither_clients_nor_a_stop_waiting(tmp_path: Path) -> None:
    place, log = tmp_path / "data", Client(builders.some_label("hanging"))

    def wait(_: bytes) -> bytes:
        asked.append(True)
        until.wait(60)
        return b""

    asked: list[bool] = []
    until = Event()
    with served(wait) as service:
        config = (
            'anchor_backend = "rfc3161"\nanchor_every_receipts = 1\ndrain_sec = 1\n'
            f'anchor_url = "{service.url}"\n'
        )
        with HubProcess(place, config=config) as hub:
            with hub.api() as api:
                log.send(api)
                eventually(lambda: bool(asked))
                for _ in range(20):
                    log.send(api)
            assert hub.terminate(signal.SIGTERM) == 0
        until.set()
    assert records(place) == {}
    check_sound(place)
