"""A hub that can not anchor for a while: it says so, it works on, and it makes up for it."""

import json
import signal
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests import builders
from tests.hub.anchors.anchored_hub import NONCE, alarms, check_bound, metric, records, sizes, status
from tests.hub.hub_process import Client, HubProcess, check_sound
from tests.hub.hub_thread import Sender, eventually, serving
from tests.storage.anchors.timestamp_authority import Authority, needs_openssl, served
from veen.core.api.tooling import AnchorRequest
from veen.core.data_dir import paths
from veen.core.encoding.wire_object import decode_sequence
from veen.core.objects.anchor import LedgerEntry
from veen.hub.config import load
from veen.hub.errors import ConfigError
from veen.storage.anchors import FileLedger
from veen.storage.anchors.rfc3161 import Rfc3161, load_roots
from veen.storage.fs import RealFilesystem

# --- if it can not ------------------------------------------------------------------------------------------


def test_a_damaged_ledger_is_counted_alarmed_and_tried_again(tmp_path: Path) -> None:
    """The hub works on; when the ledger is whole again, what is overdue is made up for."""
    place = tmp_path / "data"
    with serving(place, anchor_backend="file", anchor_every_receipts=2) as hub:
        log = Sender(hub)
        log.send(2)
        eventually(lambda: sizes(place, log.label) == [2])
    ledger = place / "anchors" / paths.LEDGER
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
        assert paths.LEDGER in first["error"]
        assert "try later" in hub.post("/tooling/anchor", AnchorRequest(label=log.label)).error().message
        log.send(1)
        ledger.write_bytes(whole)
        eventually(lambda: sizes(place, log.label) == [2, 5])
        eventually(lambda: metric(hub, "veen_anchor_overdue") == 0)
    check_bound(place)


def test_a_record_that_could_not_be_kept_is_kept_later_and_not_published_again(tmp_path: Path) -> None:
    place, ledger = tmp_path / "data", tmp_path / "ledger.cborseq"
    with serving(place, anchor_backend="file", anchor_ledger=ledger, anchor_every_receipts=2) as hub:
        log = Sender(hub)
        (place / "anchors").rmdir()
        log.send(2)
        eventually(lambda: bool(alarms(hub)))
        assert "could not be stored" in alarms(hub)[0]["error"]
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
        (
            {"anchor_backend": "file", "anchor_ledger": Path("/nowhere/at/all")},
            "directory /nowhere/at does not",
        ),
        (
            {"anchor_backend": "rfc3161", "anchor_url": "http://x/", "anchor_tsa_cert": Path("/nowhere")},
            "/nowhere cannot be read",
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
        ({"anchor_backend": "rfc3161"}, "requires anchor_url"),
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
