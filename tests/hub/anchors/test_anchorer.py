"""A hub that anchors: when, what it keeps, who may ask for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import builders
from tests.hub.anchors.anchored_hub import (
    NONCE,
    check_bound,
    entries,
    ledger_of,
    local,
    metric,
    records,
    sizes,
)
from tests.hub.hub_process import check_sound
from tests.hub.hub_thread import CBOR, Sender, Service, eventually, serving
from veen.cli.hub_connection import HubClient
from veen.core.api.tooling import AnchorRequest, AnchorResponse
from veen.core.data_dir import paths
from veen.core.objects.checkpoint import Checkpoint
from veen.storage import clone
from veen.storage.anchors import FileLedger
from veen.storage.fs import RealFilesystem

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
        eventually(lambda: max(sizes(place, log.label)) > 12)  # fewer than five are left
        assert sizes(place, other.label) == []
        made = len(sizes(place, log.label))
        eventually(lambda: hub.status()["anchoring"]["anchors"] == made)  # counted a moment after it is kept
        said = hub.status()["anchoring"]
        assert (said["backend"], said["overdue"], said["failures"]) == ("file", 0, 0)
        assert said["last_anchor_ts"] > 1_700_000_000
        assert metric(hub, "veen_anchor_ok_total") == made
        assert metric(hub, "veen_anchor_fail_total") == metric(hub, "veen_anchor_overdue") == 0
    check_bound(place)
    for (label, upto), record in records(place).items():
        path = place / paths.checkpoint(paths.Domain.DATA, label, upto)
        assert Checkpoint.decode(path.read_bytes()).mmr_root == record.mmr_root
    check_sound(place)


def test_a_label_is_anchored_when_its_oldest_entry_is_old(tmp_path: Path) -> None:
    """The clock is the hub's: it is set forward, and what was not due is."""
    place = tmp_path / "data"
    with serving(place, anchor_backend="file", anchor_every_minutes=10) as hub:
        log = Sender(hub)
        at = log.send(2)[0].hub_ts
        hub.hub.anchorer._clock = lambda: at + 599  # type: ignore[union-attr] # it is on
        log.send(1)
        assert local(hub, AnchorRequest(label=log.label, upto_seq=1)).record.upto_seq == 1
        assert sizes(place, log.label) == [1]
        hub.hub.anchorer._clock = lambda: at + 602  # type: ignore[union-attr] # it is on
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
            eventually(lambda: hub.status()["anchoring"]["overdue"] == 0)
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
        control = hub.hub.anchorer._reserved[1]  # type: ignore[union-attr] # it is on
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
        paths.anchor_name(record.label, record.upto_seq)
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
        assert not (hub.data_dir / "anchors" / paths.LEDGER).exists()
