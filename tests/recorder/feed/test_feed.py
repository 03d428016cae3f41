"""Feeds: what an application records is recorded, in order, whatever the hub and the disk do meanwhile."""

import datetime as dt
import json
import os
import resource
import threading
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.client.participants import NOW
from tests.client.proxy import Answer, LostError, Passing, Proxy
from tests.hub.hub_process import HubProcess
from tests.recorder.feed.feed_reader import STREAM, eventually, recorded
from tests.recorder.recorder_parties import Company
from veen.client.client import Client
from veen.client.home.directory import CARD
from veen.client.keys.identity_card import IdentityCard
from veen.core.objects import labels
from veen.core.objects.capability import CapToken
from veen.recorder.errors import SpoolFullError
from veen.recorder.event import Captured, capture
from veen.recorder.feed.feed import Feed
from veen.recorder.feed.losses import LOST_TYPE
from veen.recorder.feed.shipper import REFUSED


def _numbers(place: Path, hub: str, stream: str) -> list[int]:
    return [event["payload"]["n"] for event in recorded(place, hub, stream)]


class _Changing(dict[str, int]):
    def items(self) -> NoReturn:
        raise RuntimeError("dictionary changed size during iteration")


class _Silent:
    def __str__(self) -> str:
        raise RuntimeError("I say nothing")


def test_values_are_those_of_the_call(hub: HubProcess, place: Path, stream: str) -> None:
    changed: dict[str, Any] = {"list": [1, {"deep": "before"}]}
    odd = {"half": -0.5, "when": dt.date(2026, 1, 2), "who": _Silent(), 7: {3, 1}, "cut": "\ud800", "n": None}
    odd["other"] = _Changing(a=1)
    with Feed.open(place, hub.url, stream=stream, origin="shop", subject="nobody") as feed:
        feed.record("a", changed, event_time=1_700_000_000.9)
        changed["list"][1]["deep"] = "after"
        feed.record(
            "b", odd, subject_id="s", origin="o", metadata={"m": -1}, event_time=dt.datetime.now(dt.UTC)
        )
        assert feed.flush(20)
        assert feed.stats().delivered == 2
    first, second = recorded(place, hub.url, stream)
    assert first["payload"] == {"list": [1, {"deep": "before"}]}
    assert (first["event_time"], first["subject_id"], first["origin"]) == (1_700_000_000, "nobody", "shop")
    assert second["payload"] == {
        "half": "-0.5",
        "when": "2026-01-02",
        "who": "<_Silent>",
        "7": [1, 3],
        "cut": "\\ud800",
        "n": None,
        "other": "<_Changing>",
    }
    assert (second["subject_id"], second["origin"], second["metadata"]) == ("s", "o", {"m": "-1"})


def test_many_threads_and_a_queue_that_is_full(hub: HubProcess, place: Path, stream: str) -> None:
    with Feed.open(place, hub.url, stream=stream, queue_events=20) as feed:

        def work(who: int) -> None:
            for number in range(100):
                feed.record("test.many", {"who": who, "n": number})

        threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert feed.flush(60)
        assert feed.stats().lost == 0
    events = [event["payload"] for event in recorded(place, hub.url, stream)]
    for who in range(4):
        assert [event["n"] for event in events if event["who"] == who] == list(range(100))


def test_a_hub_that_is_not_there_yet(tmp_path: Path, place: Path) -> None:
    data = tmp_path / "late"
    with Feed.open(place, str(data), stream=STREAM) as feed:
        for number in range(10):
            feed.record("test.early", {"n": number})
        assert not feed.flush(0.3)
        eventually(lambda: feed.stats().trouble)
        assert not feed.close(timeout=30), "a hub that is not there is not waited for"
    with HubProcess(data):
        with Feed.open(place, str(data), stream=STREAM) as feed:
            feed.record("test.late", {"n": 10})
            assert feed.flush(20)
            assert not feed.stats().trouble
        assert _numbers(place, str(data), STREAM) == list(range(11))
    left = [path for path in (place / "recorder").rglob("*.events") if path.stat().st_size]
    assert not left, "what the hub has is not kept"


def test_answers_that_are_lost_on_their_way(hub: HubProcess, place: Path, stream: str) -> None:
    asked = count()

    def after(passing: Passing, answer: Answer) -> Answer:
        if passing.path == "/v1/submit" and next(asked) % 2 == 0:
            raise LostError
        return answer

    with Proxy(hub.url) as between, Feed.open(place, between.url, stream=stream) as feed:
        between.after = after
        for number in range(30):
            feed.record("test.lost", {"n": number})
            if number % 10 == 9:
                assert feed.flush(30)
    assert next(asked) > 4
    assert _numbers(place, hub.url, stream) == list(range(30))


def test_a_spool_that_is_full_counts_what_it_loses(tmp_path: Path, place: Path) -> None:
    data = tmp_path / "data"
    with Feed.open(place, str(data), stream=STREAM, spool_bytes=8192) as feed:
        for number in range(200):
            feed.record("test.full", {"n": number, "text": "x" * 50}, event_time=1_000 + number)
        feed.flush(0.1)
        lost = feed.stats().lost
        assert 50 < lost < 200
        with HubProcess(data):
            eventually(lambda: feed.flush(1) and not feed.stats().trouble)
            eventually(
                lambda: feed.flush(20) and LOST_TYPE in {e["event_type"] for e in recorded(place, str(data))}
            )
            feed.record("test.full", {"n": 200})
            assert feed.flush(20)
            events = recorded(place, str(data))
    kept = [event["payload"]["n"] for event in events if event["event_type"] == "test.full"]
    told = [event["payload"] for event in events if event["event_type"] == LOST_TYPE]
    assert kept == [*range(200 - lost), 200]
    assert [item["count"] for item in told] == [lost]
    assert (told[0]["from"], told[0]["to"]) == (1_000 + 200 - lost, 1_199)
    assert "8192" in told[0]["reason"]


def test_what_is_stored_is_stored_as_a_whole_or_not_at_all(place: Path) -> None:
    """Whoever is told that there is no room sends all of it again."""
    events = [Captured(None, "test.room", None, n, None, capture({"n": n}), None) for n in range(100)]
    with Feed.open(place, "http://127.0.0.1:1", stream=STREAM, spool_bytes=8192) as feed:
        with pytest.raises(SpoolFullError):
            feed.store(events)
        assert feed.stats().spooled == 0
        assert not feed.store(events[:10])
        assert feed.stats().spooled == 10


def test_a_disk_that_is_full(hub: HubProcess, place: Path, stream: str) -> None:
    """In a process of its own: no file may grow there for a while."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            feed = Feed.open(place, hub.url, stream=stream, durable=True)
            feed.record("test.disk", {"n": 0})
            assert feed.flush(20)
            _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, most))
            feed.record("test.disk", {"n": 1})
            assert feed.stats().lost == 1
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            feed.record("test.disk", {"n": 2})
            code = 0 if feed.flush(20) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    events = recorded(place, hub.url, stream)
    assert [event["event_type"] for event in events] == ["test.disk", LOST_TYPE, "test.disk"]
    assert events[1]["payload"]["count"] == 1


def test_what_can_never_be_sent_is_set_aside(
    hub: HubProcess, place: Path, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Feed.open(place, hub.url, stream=stream, max_payload=3_000_000) as feed:
        feed.record("test.size", {"n": 0})
        feed.record("test.size", {"n": 1, "text": "x" * 2_000_000})
        feed.record("test.size", {"n": 2})
        feed.record("test.size", {"n": 3}, event_time=-1)
        feed.record(17, {"n": 4})  # type: ignore[arg-type] # what applications do
        feed.record("test.size", {"n": 5}, stream="elsewhere")
        feed.record("test.size", {"n": 6}, event_time=float("nan"))
        feed.record("test.size", {"n": 8}, stream="record/\ud800")
        feed.record("test.size", {"n": 7})
        assert feed.flush(30)
        assert feed.stats().refused == 6
    assert _numbers(place, hub.url, stream) == [0, 2, 7]
    lines = [json.loads(line) for line in (place / "recorder" / REFUSED).read_text().splitlines()]
    assert sorted(line["event"]["payload"]["n"] for line in lines) == [1, 3, 4, 5, 6, 8]
    assert all(line["reason"] for line in lines)
    assert "veen recorder import" in caplog.text
    caplog.text.encode()  # every log takes it


def test_what_can_not_be_set_aside_takes_nothing_else_with_it(
    hub: HubProcess, place: Path, stream: str
) -> None:
    with Feed.open(place, hub.url, stream=stream) as feed:
        (place / "recorder" / REFUSED).mkdir()
        for number in range(5):
            feed.record("test.aside", {"n": number}, event_time=-1 if number == 2 else None)
        assert feed.flush(20)
        eventually(lambda: feed.flush(20) and len(recorded(place, hub.url, stream)) == 5)
        assert (feed.stats().refused, feed.stats().lost) == (0, 1)
    events = recorded(place, hub.url, stream)
    assert [event["payload"]["n"] for event in events if event["event_type"] != LOST_TYPE] == [0, 1, 3, 4]
    (told,) = (event["payload"] for event in events if event["event_type"] == LOST_TYPE)
    assert told["count"] == 1
    assert "set aside" in told["reason"]


def test_a_stream_without_the_right_to_write_holds_nobody_else_up(tmp_path: Path, place: Path) -> None:
    config = 'require_cap = "true"\ntrust_all_issuers = true\n'
    with HubProcess(tmp_path / "strict", config=config) as strict, Client.open(place, strict.url) as client:
        secrets = client.session.secrets

        def allow(stream: str) -> None:
            key = secrets.client.signing_key.public_key
            ids = [labels.stream_id(stream)]
            client.authorize(CapToken.mint(secrets.identity, key, stream_ids=ids, ttl=3600))

        allow("record/app/yes")
        with Feed.open(place, strict.url, stream="record/app/no") as feed:
            for number in range(5):
                feed.record("test.no", {"n": number})
                feed.record("test.yes", {"n": number}, stream="record/app/yes")
            eventually(lambda: feed.stats().delivered == 5)
            eventually(lambda: feed.stats().held.get("record/app/no", "").startswith("E.CAP"))
            assert _numbers(place, strict.url, "record/app/yes") == list(range(5))
            allow("record/app/no")
            assert feed.flush(20)
            assert not feed.stats().held
        assert _numbers(place, strict.url, "record/app/no") == list(range(5))


def test_a_process_that_forks(hub: HubProcess, place: Path, stream: str) -> None:
    feed = Feed.open(place, hub.url, stream=stream, origin="parent")
    for number in range(50):
        feed.record("test.fork", {"n": number})
    children = []
    for child in range(2):
        pid = os.fork()
        if pid == 0:
            for number in range(50):
                feed.record("test.fork", {"n": number}, origin=f"child {child}")
            os._exit(0 if feed.flush(30) and feed.stats().spooled == 50 else 1)
        children.append(pid)
    for number in range(50, 100):
        feed.record("test.fork", {"n": number})
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0, 0]
    assert feed.flush(30)
    feed.close()
    events = recorded(place, hub.url, stream)
    by: dict[str, list[int]] = {}
    for event in events:
        by.setdefault(event["origin"], []).append(event["payload"]["n"])
    halves = list(range(50))
    assert by == {"parent": list(range(100)), "child 0": halves, "child 1": halves}


def test_after_it_is_closed(hub: HubProcess, place: Path, stream: str) -> None:
    feed = Feed.open(place, hub.url, stream=stream)
    feed.record("test.closed", {"n": 0})
    assert feed.close()
    feed.record("test.closed", {"n": 1})
    assert feed.stats().lost == 1
    assert _numbers(place, hub.url, stream) == [0]


@pytest.mark.parametrize("name", ["app/log", "record", "record/"])
def test_a_stream_elsewhere_is_a_mistake(place: Path, name: str) -> None:
    with pytest.raises(ValueError, match="record/"):
        Feed.open(place, "http://127.0.0.1:1", stream=name)
    with Feed.open(place, "http://127.0.0.1:1", stream=STREAM) as feed:
        feed.record("test.elsewhere", stream=name)
        feed.flush(0)
        assert (feed.stats().refused, feed.stats().spooled) == (1, 0)
        elsewhere = Captured(name, "test.elsewhere", None, 1, None, capture(None), None)
        assert [nth for nth, _ in feed.store([elsewhere])] == [0]


def test_events_that_nobody_else_can_read(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A client without the key of a stream seals to itself: that is said, once."""
    nowhere, own = "http://127.0.0.1:1", IdentityCard.read((place / CARD).read_bytes())
    for _ in range(2):
        with Feed.open(place, nowhere, stream=STREAM) as feed:
            assert feed.stats().unshared == (STREAM,)
            feed.record("test.unshared")
            feed.record("test.unshared")
            feed.flush(0)
        assert caplog.text.count("only this client") == 1
        caplog.clear()
    with Feed.open(place, nowhere, stream=STREAM, to=own.seal_key(NOW)) as feed:
        assert feed.stats().unshared == ()
    company = Company(place.parent, nowhere, [STREAM])
    with Feed.open(company.home("shop"), nowhere, stream=STREAM) as feed:
        assert feed.stats().unshared == ()
    assert "only this client" not in caplog.text


def test_other_streams_that_nobody_else_can_read(hub: HubProcess, place: Path, stream: str) -> None:
    company = Company(place.parent, hub.url, [stream])
    with Feed.open(company.home("shop"), hub.url, stream=stream) as feed:
        feed.record("test.shared")
        feed.record("test.unshared", stream=f"{stream}/other")
        assert feed.flush(20)
        assert feed.stats().unshared == (f"{stream}/other",)
