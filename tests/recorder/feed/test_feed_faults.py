"""Feeds when something fails that never does: values, threads, syncs, and the moment of closing."""

import errno
import json
import logging
import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.hub.hub_process import HubProcess
from tests.recorder.feed.feed_reader import STREAM, eventually, recorded
from veen.client.session_setup import open_session
from veen.recorder.event import described, pack
from veen.recorder.feed.feed import Feed
from veen.recorder.feed.losses import LOST_TYPE
from veen.recorder.feed.settings import FeedSettings
from veen.recorder.feed.shipper import REFUSED, Shipper, spool_depth
from veen.recorder.feed.spool import Spool, SpoolReader, find_spools
from veen.recorder.feed.spool_set import ASIDE_BYTES

NOWHERE = "http://127.0.0.1:1"


def _spooled(place: Path) -> list[Any]:
    """Return the events that are in the spools."""
    readers = [SpoolReader(found) for found in find_spools(place / "recorder")]
    return [described(event.data) for reader in readers for event in reader.peek(0, 10_000)]


def _spool(root: Path, stream: str = STREAM, bound: int = 1 << 20) -> Spool:
    root.mkdir(exist_ok=True)
    return Spool.open(root, stream, bound=bound, done=lambda _: 0)


def _packed(number: int) -> bytes:
    return pack(subject_id="s", event_type="test", event_time=number, origin="o", payload={"n": number})


# --- values -------------------------------------------------------------------------------------------------


def _shared(leaf: object) -> object:
    """Return a value that is small, and endless when it is written out."""
    for _ in range(60):
        leaf = [leaf] * 8
    return leaf


class _Opaque:
    """Nothing that is copied at the speed of C."""


def test_values_that_no_file_can_hold_take_nothing_with_them(place: Path) -> None:
    around: list[Any] = []
    around.append(around)
    odd: list[Any] = [{(1, 2): 3}, {b"key": 1}, around, {"deep": {frozenset({1}): around}}]
    with Feed.open(place, NOWHERE, stream=STREAM) as feed:
        for number, value in enumerate(odd):
            feed.record("test.good", {"n": number})
            feed.record("test.odd", value, event_time=-1)
        feed.record("test.odd", subject_id=around)  # type: ignore[arg-type] # what applications do
        feed.flush(0)
        stats = feed.stats()
    assert (stats.spooled, stats.refused, stats.lost) == (len(odd), len(odd) + 1, 0)
    assert [event["payload"]["n"] for event in _spooled(place)] == list(range(len(odd)))
    lines = [json.loads(line)["event"] for line in (place / "recorder" / REFUSED).read_text().splitlines()]
    assert [line["payload"] for line in lines[:2]] == [{"(1, 2)": 3}, {"b'key'": 1}]


@pytest.mark.parametrize("leaf", ["x", _Opaque(), frozenset({"x"})], ids=["plain", "opaque", "set"])
def test_small_values_that_are_endless_when_written_out(place: Path, leaf: object) -> None:
    with Feed.open(place, NOWHERE, stream=STREAM) as feed:
        feed.record("test.endless", _shared(leaf))
        feed.record("test.endless", None, metadata={"m": _shared(leaf)})
        feed.flush(0)
        assert (feed.stats().refused, feed.stats().spooled) == (2, 0)
    lines = [json.loads(line) for line in (place / "recorder" / REFUSED).read_text().splitlines()]
    assert "a payload of" in lines[0]["reason"]
    assert "a metadata of" in lines[1]["reason"]


def test_what_is_too_large_is_not_kept(place: Path) -> None:
    """SDR-007: it is never stored."""
    with Feed.open(place, NOWHERE, stream=STREAM, max_payload=1000) as feed:
        feed.record("test.large", {"text": "secret" * 1000}, subject_id="anna", event_time=5)
        feed.flush(0)
        assert feed.stats().refused == 1
        file = place / "recorder" / REFUSED
        (line,) = (json.loads(line) for line in file.read_text().splitlines())
        assert (line["event"]["event_type"], line["event"]["subject_id"]) == ("test.large", "anna")
        assert line["event"]["payload"].startswith("<left out")
        assert "secret" not in str(line)
        os.truncate(file, ASIDE_BYTES + 1)
        feed.record("test.large", event_time=-1)
        feed.flush(0)
        assert (feed.stats().refused, feed.stats().lost) == (1, 1)


# --- threads ------------------------------------------------------------------------------------------------


def test_nothing_ends_the_thread_that_ships(place: Path) -> None:
    asked = []

    def random(size: int) -> bytes:
        asked.append(size)
        if len(asked) == 1:
            raise RuntimeError("no chance")
        return os.urandom(size)

    session = replace(open_session(place, NOWHERE), random=random)
    with Feed.of_session(session, FeedSettings(stream=STREAM)) as feed:
        feed.record("test.outage")
        eventually(lambda: asked)
        eventually(lambda: feed.flush(0.01) or len(asked) > 2)
        assert feed.stats().trouble


def test_threads_that_can_not_be_started(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_more(_self: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_more)
        feed = Feed.open(place, NOWHERE, stream=STREAM)
        feed.record("test.thread", {"n": 0})
        assert (feed.stats().queued, feed.stats().spooled) == (1, 0)
        assert "start new thread" in feed.stats().trouble
    assert sum(item.exc_info is not None for item in caplog.records) == 1, "it is said once"
    feed.record("test.thread", {"n": 1})
    eventually(lambda: feed.stats().spooled == 2)
    feed.close()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_more)
        feed = Feed.open(place, NOWHERE, stream=STREAM)
        feed.record("test.thread", {"n": 2})
        feed.close(timeout=0.01)
        assert (feed.stats().spooled, feed.stats().queued) == (1, 0)


class _Recording(logging.Handler):
    """A handler that records what the recorder says of itself."""

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self._feed = feed
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        self._feed.record("test.log", record.getMessage())


def test_a_handler_that_records_what_the_recorder_says(place: Path) -> None:
    log = logging.getLogger("veen.recorder")
    with Feed.open(place, NOWHERE, stream=STREAM, durable=True, spool_bytes=2000) as feed:
        handler = _Recording(feed)

        def work() -> None:
            for _ in range(20):
                feed.record("test.full", {"text": "x" * 200})
            feed.record("test.bad", event_time=-1)

        log.addHandler(handler)
        try:
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            thread.join(20)
            assert not thread.is_alive(), "it waits for itself"
        finally:
            log.removeHandler(handler)
        assert handler.count >= 2
        assert feed.stats().lost > 0


class _Closing:
    """A value that closes the feed while it is copied."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __str__(self) -> str:
        self._feed.close()
        return "closed"


@pytest.mark.parametrize("durable", [False, True])
def test_an_event_that_comes_while_the_feed_is_closed(place: Path, durable: bool) -> None:  # noqa: FBT001
    feed = Feed.open(place, NOWHERE, stream=STREAM, durable=durable)
    feed.record("test.late", {"value": _Closing(feed)})
    assert (feed.stats().queued, feed.stats().lost) == (0, 1)


# --- disks --------------------------------------------------------------------------------------------------


@contextmanager
def _failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let no sync succeed; yields how many were tried."""
    tried: list[int] = []

    def fail(fd: int) -> NoReturn:
        tried.append(fd)
        raise OSError(errno.EIO, "it is broken")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail)
        yield tried


def test_syncs_that_fail_are_tried_again(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    feed = Feed.open(place, NOWHERE, stream=STREAM, durable=True)
    real = os.fdatasync
    with _failing(monkeypatch) as tried:
        feed.record("test.sync", {"n": 0})
        assert "it is broken" in feed.stats().trouble, "nobody is told that it is durable"
        eventually(lambda: len(tried) > 2)
        assert sum(item.exc_info is not None for item in caplog.records) == 1, "it is said once"
    synced: list[int] = []

    def sync(fd: int) -> None:
        synced.append(fd)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", sync)
    feed.record("test.sync", {"n": 1})
    assert synced
    eventually(lambda: "broken" not in feed.stats().trouble)
    feed.close()


def test_a_loss_that_can_not_be_synced(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread goes on, and the feed can be closed."""
    feed = Feed.open(place, NOWHERE, stream=STREAM)
    (place / "recorder" / REFUSED).mkdir()
    with _failing(monkeypatch):
        feed.record("test.bad", event_time=-1)
        eventually(lambda: "it is broken" in feed.stats().trouble)
        feed.record("test.good")
        eventually(lambda: feed.stats().spooled == 1)
        feed.close()
    assert [event["event_type"] for event in _spooled(place)] == [LOST_TYPE, "test.good"]
    Feed.open(place, NOWHERE, stream=STREAM).close()
    assert len(find_spools(place / "recorder")) == 1, "it was given back"


def test_an_application_never_waits_for_a_sync(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the queue is full, and segments are begun and ended."""
    by: set[threading.Thread] = set()

    def noted(real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            by.add(threading.current_thread())
            real(fd)

        return sync

    with Feed.open(place, NOWHERE, stream=STREAM, queue_events=1, spool_bytes=400_000) as feed:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", noted(os.fsync))
            patched.setattr(os, "fdatasync", noted(os.fdatasync))
            for number in range(200):
                feed.record("test.sync", {"n": number, "text": "x" * 1000})
            eventually(lambda: by)
        assert threading.current_thread() not in by
        feed.flush(0)
        assert feed.stats().spooled == 200
    (found,) = find_spools(place / "recorder")
    assert len(list(found.glob("*.events"))) > 2


def test_frames_that_are_whole_stay_when_the_disk_is_full(tmp_path: Path) -> None:
    """Whoever ships may have read them: their numbers are not used again."""
    spool = _spool(tmp_path / "root")
    size = len(_packed(1)) + 8
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * size + 5, limits[1]))
    try:
        written = spool.append([_packed(number) for number in (1, 2, 3, 4)])
        again = spool.append([_packed(5)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (written, again, spool.next) == (2, 0, 3)
    assert spool.append([_packed(6)]) == 1
    events: list[Any] = [described(event.data) for event in SpoolReader(spool.place).peek(0, 10)]
    assert [event["payload"]["n"] for event in events] == [1, 2, 6]
    spool.close(0)


def test_what_waits(place: Path) -> None:
    """Also while segments are removed."""
    root = place / "recorder"
    spool = _spool(root, bound=8 * 100)
    assert spool.append([_packed(number) for number in range(5)]) == 5
    assert len(list(spool.place.glob("*.events"))) > 1
    assert spool_depth(place) == {"events": 5, "bytes": 5 * (len(_packed(1)) + 8)}
    (spool.place / f"{99:020d}.events").symlink_to("gone")
    (root / "another").mkdir()
    depth = spool_depth(place)
    assert depth is not None
    assert depth["bytes"] == 5 * (len(_packed(1)) + 8)
    spool.close(0)


# --- shipping -----------------------------------------------------------------------------------------------


def test_new_spools_are_found_while_others_are_shipped(hub: HubProcess, place: Path, stream: str) -> None:
    lost: list[tuple[str, int]] = []
    shipper = Shipper(
        open_session(place, hub.url), FeedSettings(stream=stream), lambda *report: lost.append(report)
    )
    busy = _spool(shipper.root, stream)
    assert busy.append([_packed(number) for number in range(600)]) == 600
    assert shipper.turn() == 0.0
    new = _spool(shipper.root, f"{stream}/new")
    new.append([_packed(1)])
    assert shipper.turn() == 0.0
    assert shipper.done(new.name) == 1
    assert 0 < shipper.done(busy.name) < 600
    shipper._let_go()
    assert len(recorded(place, hub.url, f"{stream}/new")) == 1
    assert not lost
