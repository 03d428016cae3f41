"""Verdicts: records that are not as they should be, and what is told of them."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import time

import pytest

from tests.hub.hub_process import HubProcess
from tests.recorder.recorder_parties import LOGINS, NOT_COPIED, ORDERS, Company, emit, told
from veen.client.client import Client
from veen.client.fold.interpret import typed
from veen.client.models import Draft
from veen.client.send import send_draft
from veen.core.crypto.hpke import public_key
from veen.core.types import Label, NodeHash, ReaderSecretKey, SchemaId
from veen.overlays.recorder.schemas import CHANGES_STREAM, CHECKPOINTS_STREAM, EVENT, LONG_TERM_SEC
from veen.recorder.cadence import Cadence, CadenceWatch, Pace, UncoveredEntries
from veen.recorder.checkpoint import CoveredLog, Manifest, Vouched, find_heads, make_manifest, send_manifest
from veen.recorder.configuration import class_stream, keep_labels, read_configuration, send_change
from veen.recorder.errors import ManifestError, RangeError
from veen.recorder.event import RECORDING
from veen.recorder.feed.losses import LOST_TYPE
from veen.recorder.replay import Recorded, proven, replay_range, replay_time
from veen.recorder.verify.coverage import CadenceAudit, Coverage, LabelRead
from veen.recorder.verify.judge import judge, to_json
from veen.recorder.verify.owners import EventTypeOwners


@pytest.fixture
def spoilt(tmp_path: Path) -> Iterator[Company]:
    """A recorder at a hub of its own: streams are known by their names."""
    with HubProcess(tmp_path / "data", config='require_cap = "false"\n') as made:
        company = Company(tmp_path, made.url)
        company.found()
        yield company


def test_a_hub_that_went_back_to_an_older_copy(tmp_path: Path) -> None:
    """What was vouched for is gone, checkpoint and all: who has kept a checkpoint knows."""
    place, older = tmp_path / "data", tmp_path / "older"
    config = 'require_cap = "false"\n'
    with HubProcess(place, config=config) as made:
        company = Company(tmp_path, made.url)
        company.found()
        with company.client("door") as door:
            emit(door, LOGINS, "login", 4)
        with company.client("admin") as admin:
            send_manifest(admin, make_manifest(admin))
    shutil.copytree(place, older, ignore=NOT_COPIED)
    with HubProcess(place, config=config) as made:
        company.hub = made.url
        with company.client("door") as door:
            emit(door, LOGINS, "login", 3)
        with company.client("admin") as admin:
            kept = make_manifest(admin)
            send_manifest(admin, kept)
    with company.client("stranger", older) as client:
        assert told(judge(client)) == [], "an older copy is good by itself"
        found = judge(client, checkpoint=kept)
    assert ("stability", "removed", LOGINS, 5) in told(found)
    with HubProcess(older, config=config) as made:
        company.hub = made.url
        with company.client("second admin") as admin:
            send_manifest(admin, replace(kept, created_at=kept.created_at + 1))
            with pytest.raises(ManifestError, match="covers 7 entries, but the log has 4"):
                make_manifest(admin)


class TestVerdicts:
    def test_everything_that_can_be_wrong_is_named(self, spoilt: Company) -> None:
        with spoilt.client("door") as door:
            emit(door, LOGINS, "login", 2)
            emit(door, ORDERS, "login")  # a type in two streams
            emit(door, "record/app/undeclared", "other")  # no retention
            liar = EVENT.make(
                subject_id="s",
                principal_id="00" * 32,
                event_type="login",
                event_time=1,
                origin="o",
                payload=1,
            )
            send_draft(door, LOGINS, typed(EVENT, liar), RECORDING)
            send_draft(door, LOGINS, Draft(None, schema=EVENT.schema_id, encoded=b"\xa0"))
        with spoilt.client("admin") as admin:
            emit(admin, LOGINS, "login")  # who administers, produces
        with spoilt.client("auditor") as client:
            found = judge(client, streams=["record/app/undeclared"], now=2**40)
            good = judge(client, cadence=Cadence(2**50))
        assert set(told(found)) == {
            ("completeness", "principal", LOGINS, 3),
            ("completeness", "refused", LOGINS, 4),
            ("roles", "overlap", None, None),
            ("event_types", "shared", None, None),
            ("retention", "missing", "record/app/undeclared", None),
            ("checkpoint_cadence", "late", None, None),
        }
        assert good.ok("checkpoint_cadence"), "in a copy nothing is due after its last entry"
        assert found.ok("order")
        assert found.ok("stability")
        assert json.dumps([to_json(item) for item in found.findings])

    def test_checkpoints_that_are_not_true(self, spoilt: Company) -> None:
        with spoilt.client("door") as door, spoilt.client("admin") as admin:
            emit(door, LOGINS, "login", 6)
            made = make_manifest(admin)
            send_manifest(admin, made)
            emit(door, LOGINS, "login", 2)
            emit(door, ORDERS, "order", 2)
            # One that leaves a stream out and names another root.
            shorter = tuple(
                replace(entry, upto_seq=5, mmr_root=NodeHash(bytes(32))) if entry.stream == LOGINS else entry
                for entry in made.streams
            )
            send_manifest(admin, replace(made, streams=shorter, created_at=2**40))
        with spoilt.client("auditor") as client:
            found = judge(client, cadence=Cadence(2**50, 3))
        assert {
            ("stability", "edited", LOGINS, 5),
            ("stability", "checkpoint", LOGINS, 5),
            ("stability", "checkpoint", ORDERS, None),
        } <= set(told(found))

    def test_two_who_make_checkpoints_at_once(self, spoilt: Company) -> None:
        """One vouches for less than the one before it, and both are true."""
        with spoilt.client("door") as door, spoilt.client("admin") as admin:
            emit(door, LOGINS, "login", 2)
            slow = make_manifest(admin)
            emit(door, LOGINS, "login", 2)
            send_manifest(admin, make_manifest(admin))
            send_manifest(admin, slow)
            emit(door, LOGINS, "login")
            send_manifest(admin, make_manifest(admin))
        with spoilt.client("auditor") as client:
            assert told(judge(client)) == []

    def test_a_false_checkpoint_is_not_the_end(self, spoilt: Company) -> None:
        with spoilt.client("door") as door, spoilt.client("admin") as admin:
            emit(door, LOGINS, "login", 2)
            made = make_manifest(admin)
            false = tuple(
                replace(entry, upto_seq=9) if entry.stream == LOGINS else entry for entry in made.streams
            )
            send_manifest(admin, replace(made, streams=false))
            with pytest.raises(ManifestError, match="covers 9 entries, but the log has 2"):
                make_manifest(admin)
            standing = CoveredLog(admin)
            assert [entry.stream for entry in standing.forget_false()] == [LOGINS]
            send_manifest(admin, make_manifest(admin, standing=standing))
            assert UncoveredEntries(admin, [LOGINS], standing).count == 0
            make_manifest(admin)
        with spoilt.client("auditor") as client:
            assert told(judge(client)) == [("stability", "removed", LOGINS, 3)], "it stays false"

    def test_one_rule_for_how_often(self, spoilt: Company) -> None:
        """So many entries as are due, and those that come while a checkpoint is made; by each who asks."""
        cadence = Cadence(2**50, 3)
        pace = Pace(cadence)
        pace.made(0)
        with spoilt.client("door") as door, spoilt.client("admin") as admin:
            send_manifest(admin, make_manifest(admin))
            standing = CoveredLog(admin)
            emit(door, LOGINS, "login", 2)
            assert not pace.is_due(0, lambda: UncoveredEntries(admin, [LOGINS], standing).count)
            emit(door, "record/app/undeclared", "other", 5)
            waiting = UncoveredEntries(admin, [LOGINS, "record/app/undeclared"], standing)
            assert waiting.count == 7
            assert pace.is_due(0, lambda: waiting.count)
            now = admin.session.clock()
            assert waiting.is_met(cadence, now)
            assert not waiting.is_met(cadence, now + 60), "they have waited"
            assert not waiting.is_met(Cadence(5, 100), now + 60)
            made = make_manifest(admin, ["record/app/undeclared"])
            send_manifest(admin, made)
            standing.refresh()
            waiting = UncoveredEntries(admin, [], standing)
            assert waiting.count == 0, "of a stream that only a checkpoint names"
            assert waiting.is_met(cadence, now + 2**40)
            emit(door, "record/app/undeclared", "other", 3)
            assert UncoveredEntries(admin, [], standing).count == 3
        with spoilt.client("auditor") as client:
            judged = [judge(client, cadence=cadence, now=when) for when in (now, now + 90)]
        assert [item.ok("checkpoint_cadence") for item in judged] == [True, False]
        assert [item.code for item in judged[1].findings if item.verdict == "checkpoint_cadence"] == [
            "volume"
        ]
        assert judged[0].undeclared == ["record/app/undeclared"]

    def test_a_clock_that_is_ahead_leaves_nothing_out(self, spoilt: Company) -> None:
        with spoilt.client("door") as door, spoilt.client("admin") as admin:
            made = make_manifest(admin)
            send_manifest(admin, replace(made, created_at=made.created_at + 50))
            emit(door, ORDERS, "order")
        with spoilt.client("auditor") as client:
            assert judge(client).ok("stability")

    def test_a_renamed_stream_keeps_its_types(self, spoilt: Company) -> None:
        with spoilt.client("door") as door, spoilt.client("admin") as admin:
            emit(door, ORDERS, "order")
            emit(door, ORDERS, LOST_TYPE)
            emit(door, LOGINS, LOST_TYPE)  # in whichever stream something was lost
            send_change(admin, "rename", ORDERS, into=("record/app/sales",), event_types=("order",))
            emit(door, "record/app/sales", "order")
            assert read_configuration(admin).streams_of("order") == ["record/app/sales"]
        with spoilt.client("auditor") as client:
            found = judge(client, streams=["record/app/sales"])
        assert found.ok("event_types")

    def test_a_split_stream_was_right_before(self, spoilt: Company) -> None:
        parts = {"record/app/a": "order", "record/app/b": "refund"}
        with spoilt.client("door") as door, spoilt.client("admin") as admin:
            emit(door, ORDERS, "order")
            send_change(admin, "split", ORDERS, into=tuple(parts))
            for name, event_type in parts.items():
                send_change(admin, "declare", name, event_types=(event_type,))
                emit(door, name, event_type)
            send_change(admin, "retire", LOGINS)
            send_change(admin, "declare", "record/app/door", event_types=("login",))
            emit(door, "record/app/door", "login")
        with spoilt.client("auditor") as client:
            assert judge(client).ok("event_types")

    def test_records_of_others_are_not_of_the_recorder(self, spoilt: Company) -> None:
        """A query service writes to streams under record/ what is no event; a key is never sealed."""
        with spoilt.client("door") as door, spoilt.client("admin") as admin:
            send_draft(door, "record/query/audit/service", Draft({"said": 1}, schema=SchemaId(bytes(32))))
            stranger = ReaderSecretKey(bytes(31) + b"\x01")
            send_draft(admin, LOGINS, Draft({"sealed": 1}), replace(RECORDING, to=public_key(stranger)))
        with spoilt.client("auditor") as client:
            found = judge(client, streams=["record/query/audit/service"])
        assert found.ok("completeness")
        assert found.others + found.unreadable == 2
        assert not found.ok("roles"), "that an admin has written here is not sealed"


def test_owners_by_time() -> None:
    """A type belongs where it was declared when an event came, and a minute longer."""
    owners = EventTypeOwners()
    owners.change({"change": "declare", "stream": "a", "event_types": ["t"]}, 1000)
    owners.event("t", "a", 1100)
    owners.change({"change": "declare", "stream": "a", "event_types": ["u"]}, 2000)
    owners.change({"change": "declare", "stream": "b", "event_types": ["t"]}, 2000)
    owners.event("t", "a", 2060)
    owners.event("t", "b", 2000)
    assert owners.shared() == {}
    owners.event("t", "a", 2061)
    assert owners.shared() == {"t": ["a", "b"]}


def _proven_range(client: Client, manifest: Manifest, last: Vouched) -> list[Recorded]:
    found = replay_range(client, last.stream, 1, last.upto_seq, last.epoch)
    return list(proven(client, manifest, [last.stream], found))


def test_labels_that_change(tmp_path: Path) -> None:
    """Numbers begin anew in each epoch: a checkpoint has an entry for each, and ranges name theirs."""
    served = json.dumps([LOGINS, CHANGES_STREAM, CHECKPOINTS_STREAM, class_stream()])
    config = f'require_cap = "false"\nepoch_sec = 2\nstreams = {served}\n'
    with HubProcess(tmp_path / "data", config=config) as made:
        company = Company(tmp_path, made.url)
        with company.client("door") as door, company.client("admin") as admin:
            emit(door, LOGINS, "login", 2)
            epochs = {emit(door, LOGINS, "login")[0].epoch}
            while len(epochs) < 2:
                epochs.add(emit(door, LOGINS, "login")[0].epoch)
            manifest = make_manifest(admin, [LOGINS])
            send_manifest(admin, manifest)
            wanted = {entry.label: LONG_TERM_SEC for entry in manifest.streams if entry.stream == LOGINS}
            assert [keep_labels(admin, wanted) for _ in range(2)] == [len(wanted), 0]
            listed = [entry for entry in manifest.streams if entry.stream == LOGINS]
            assert {entry.epoch for entry in listed} >= epochs
            with pytest.raises(RangeError, match="epochs"):
                replay_range(admin, LOGINS, 1, 1)
        with company.client("auditor") as client:
            last = listed[-1]
            found = _proven_range(client, manifest, last)
            assert len(found) == last.upto_seq
            everything = list(replay_time(client, [LOGINS], 0, 2**40))
            assert len(everything) == sum(entry.upto_seq for entry in listed)
            judged = judge(client, streams=[LOGINS])
            assert judged.ok("order")
            assert judged.ok("stability")
            unkept = {
                item.where.epoch
                for item in judged.findings
                if (item.verdict, item.where.stream) == ("retention", LOGINS)
            }
            assert unkept.isdisjoint(entry.epoch for entry in listed)
        _check_what_is_over(company, listed)


def _check_what_is_over(company: Company, listed: list[Vouched]) -> None:
    """Long after, a checkpoint names epochs for the last time; the next one leaves them out (SDR-012)."""

    def later() -> int:
        return int(time()) + 10_000

    with company.client("late", clock=later) as client:
        standing = CoveredLog(client)
        first = make_manifest(client, [LOGINS], standing=standing)
        assert {entry.place for entry in listed} <= {entry.place for entry in first.streams}
        standing.take(replace(first, taken_at=later()))
        found = find_heads(client, [LOGINS], standing.floors)
        assert {head.place for head in found}.isdisjoint(entry.place for entry in listed)
        whole = standing.manifest
        assert whole is not None
        assert {entry.place for entry in listed} <= {entry.place for entry in whole.streams}


@pytest.mark.parametrize(
    "times", [[], [100], [70, 69, 100, 20], [100, 69, 70, 71], [1, 2, 40, 3, 80, 50, 49]]
)
def test_how_many_had_waited_when_the_last_one_came(times: list[int]) -> None:
    """In whichever order the streams were read."""
    last = max(times, default=0)
    volume = CadenceAudit(Cadence(grace_sec=30), [last])
    for when in times:
        volume.count(when)
    assert volume.before_last() == volume.before(last) == sum(when < last - 30 for when in times)


def test_new_declarations_are_noticed(spoilt: Company) -> None:
    with spoilt.client("admin") as admin, spoilt.client("door") as door:
        watch = CadenceWatch(admin, [], CoveredLog(admin))
        before = watch.waiting().count
        emit(door, "record/app/later", "late", 2)
        assert watch.waiting().count == before, "of which nobody knows"
        send_change(admin, "declare", "record/app/later", event_types=("late",))
        assert watch.waiting().count == before + 3, "two events and the declaration"
        assert watch.configuration == read_configuration(admin)


def test_what_may_be_left_out() -> None:
    """A label whose epoch was over, and of which all is vouched for; no other."""
    label = Label(bytes(32))
    read = LabelRead(label, entries=5, first_ts=3600, last_ts=3700)
    front = Coverage({("s", 1): read}, 3600)
    front.advance(3599)
    assert front.labels == {}
    front.advance(3600)
    assert front.waiting_since() == 3600
    for upto, done in ((4, False), (5, True)):
        entry = Vouched("s", 1, label, upto, NodeHash(bytes(32)), bytes(32))
        front.reach(Manifest(b"", b"", b"", 9000, (entry,)))
        assert [front.is_done(("s", 1), when) for when in (9000, 20_000)] == [False, done]
    assert front.recorded == 5
    assert front.waiting_since() is None
    front.reach(Manifest(b"", b"", b"", 20_000, ()))
    assert front.labels == {}
