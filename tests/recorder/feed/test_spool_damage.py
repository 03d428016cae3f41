"""Spools that the disk has damaged: what is whole is recorded, and what is missing is counted and told."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hub.hub_process import HubProcess
from tests.recorder.feed.feed_reader import STREAM, eventually, recorded
from veen.core.encoding import cbor
from veen.recorder.event import pack
from veen.recorder.feed.feed import Feed
from veen.recorder.feed.losses import LOST_TYPE
from veen.recorder.feed.ship_journal import Journal, read_progress
from veen.recorder.feed.spool import Spool, SpoolReader, frame, frames, whole_frames

NOWHERE = "http://127.0.0.1:1"
#: Of the head of a frame.
HEAD = 8


def _packed(number: int, text: str = "") -> bytes:
    payload = {"n": number, "text": text}
    return pack(subject_id="s", event_type="test", event_time=number, origin="o", payload=payload)


def _segment(first: int, count: int) -> bytes:
    return b"".join(frame(first + nth, _packed(first + nth)) for nth in range(count))


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


# --- frames -------------------------------------------------------------------------------------------------


def test_whatever_byte_has_changed_all_other_frames_are_found() -> None:
    count, first = 5, 7
    data = _segment(first, count)
    size = len(data) // count
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        hit = first + position // size
        found = [(item.number, item.content) for item in whole_frames(bytes(damaged), first)]
        assert found == [(n, _packed(n)) for n in range(first, first + count) if n != hit], position


@pytest.mark.parametrize("size", [1, 100, 1000, 2000])
def test_a_hole_is_passed_over(size: int) -> None:
    data = _segment(1, 20)
    each = len(data) // 20
    start = 3 * each + 5
    holed = data[:start] + bytes(size) + data[start + size :]
    gone = range(3 + 1, (start + size - 1) // each + 1 + 1)
    assert [item.number for item in whole_frames(holed, 1)] == [n for n in range(1, 21) if n not in gone]


@pytest.mark.parametrize("left", [0, 1, HEAD, HEAD + 1, 60])
def test_what_is_torn_has_nothing_whole_behind_it(left: int) -> None:
    data = _segment(1, 3)
    torn = data + frame(4, _packed(4))[:left]
    *_, last = whole_frames(torn, 1)
    assert (last.number, last.end) == (3, len(data))
    assert [end for _, end in frames(torn, 1)][-1] == len(data)


# --- spools -------------------------------------------------------------------------------------------------


def _spool(root: Path, bound: int = 1 << 20) -> Spool:
    root.mkdir(exist_ok=True)
    return Spool.open(root, STREAM, bound=bound, done=lambda _: 0)


def _files(place: Path) -> list[Path]:
    return sorted(place.rglob("*.events"))


def test_a_spool_is_cut_behind_the_last_event_that_is_whole(tmp_path: Path) -> None:
    spool = _spool(tmp_path / "root")
    spool.append([_packed(n) for n in range(1, 11)])
    spool.abandon()
    (file,) = _files(tmp_path)
    each = file.stat().st_size // 10
    _flip(file, 4 * each + HEAD + 3)
    with file.open("ab") as opened:
        opened.write(frame(11, _packed(11))[:20])
    spool = _spool(tmp_path / "root")
    assert (spool.next, spool.torn_bytes, file.stat().st_size) == (11, 20, 10 * each)
    spool.append([_packed(11)])
    reader = SpoolReader(spool.place)
    assert [event.number for event in reader.peek(0, 100)] == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    spool.abandon()


def test_a_frame_that_is_being_written_is_not_taken_for_damage(tmp_path: Path) -> None:
    spool = _spool(tmp_path / "root")
    spool.append([_packed(1)])
    (file,) = _files(tmp_path)
    reader = SpoolReader(spool.place)
    both = frame(2, _packed(2)) + frame(3, _packed(3))
    for size in range(0, len(both), 7):
        with file.open("r+b") as opened:
            opened.seek(0, os.SEEK_END)
            opened.truncate(len(frame(1, _packed(1))))
            opened.seek(0, os.SEEK_END)
            opened.write(both[:size])
        found = [event.number for event in reader.peek(0, 100)]
        assert found == ([1, 2] if size >= len(both) // 2 else [1])
        assert reader.passed == 0
    spool.abandon()


def test_a_frame_that_was_written_since_somebody_looked(tmp_path: Path) -> None:
    """It was not there when the next one was wanted; when damage is looked for, it is."""
    spool = _spool(tmp_path / "root")
    spool.append([_packed(1)])
    reader = SpoolReader(spool.place)
    assert [event.number for event in reader.peek(0, 100)] == [1]
    assert not reader._read_frames(1000)
    spool.append([_packed(2), _packed(3)])
    assert reader._pass_damage()
    assert [event.number for event in reader.peek(0, 100)] == [1, 2, 3]
    spool.abandon()


def test_a_length_that_has_changed_costs_no_memory(tmp_path: Path) -> None:
    spool = _spool(tmp_path / "root")
    spool.append([_packed(n) for n in range(1, 4)])
    (file,) = _files(tmp_path)
    data = bytearray(file.read_bytes())
    data[0] = 0xFF
    file.write_bytes(data)
    assert [event.number for event in SpoolReader(spool.place).peek(0, 100)] == [2, 3]
    spool.abandon()


def test_the_journal_goes_on_by_its_last_whole_record(tmp_path: Path) -> None:
    """Going back to one before would send events twice."""
    path = tmp_path / "journal"
    journal = Journal(path)
    for number in range(1, 6):
        journal.settle("spool", number)
        journal.write()
    journal.close()
    assert path.read_bytes().count(cbor.write_text("done")) == 5
    _flip(path, path.stat().st_size // 2)
    assert read_progress(path).done == {"spool": 5}
    journal = Journal(path)
    journal.settle("spool", 6)
    journal.close()
    assert read_progress(path).done == {"spool": 6}


# --- feeds --------------------------------------------------------------------------------------------------


def _fill(place: Path, stream: str, count: int, **more: Any) -> list[Path]:
    """Record while there is no hub; returns the segments."""
    with Feed.open(place, NOWHERE, stream=stream, **more) as feed:
        for number in range(count):
            feed.record("test.damage", {"n": number})
    return _files(place)


def _arrived(place: Path, hub: str, stream: str) -> tuple[list[int], list[int]]:
    """Return the numbers of events, and the counts of those that are told to be lost."""
    events = recorded(place, hub, stream)
    kept = [event["payload"]["n"] for event in events if event["event_type"] != LOST_TYPE]
    return kept, [event["payload"]["count"] for event in events if event["event_type"] == LOST_TYPE]


def _all_told(feed: Feed, arrived: Callable[[], tuple[list[int], list[int]]]) -> None:
    assert feed.flush(60)
    eventually(lambda: feed.flush(60) and arrived()[1])


@pytest.mark.parametrize("byte", [0, 3, 5, HEAD, HEAD + 40], ids=lambda byte: f"byte {byte}")
def test_a_byte_of_the_last_segment_that_has_changed(
    hub: HubProcess, place: Path, stream: str, byte: int
) -> None:
    (file,) = _fill(place, stream, 20)
    ends = [0, *(end for _, end in frames(file.read_bytes(), 1))]
    _flip(file, ends[5] + byte)
    with Feed.open(place, hub.url, stream=stream) as feed:
        feed.record("test.damage", {"n": 20})
        _all_told(feed, lambda: _arrived(place, hub.url, stream))
        assert (feed.stats().lost, feed.stats().delivered) == (1, 21)
    kept, told = _arrived(place, hub.url, stream)
    assert (kept, told) == ([n for n in range(21) if n != 5], [1])


def test_damage_is_told_once_however_often_a_feed_is_opened(
    hub: HubProcess, place: Path, stream: str
) -> None:
    (file,) = _fill(place, stream, 6)
    _flip(file, HEAD)
    for _ in range(3):
        _fill(place, stream, 0)
    with Feed.open(place, hub.url, stream=stream) as feed:
        _all_told(feed, lambda: _arrived(place, hub.url, stream))
    assert _arrived(place, hub.url, stream) == ([1, 2, 3, 4, 5], [1])


def test_damage_with_nothing_behind_it(hub: HubProcess, place: Path, stream: str) -> None:
    """At the end of a segment; and what was begun after that one is torn."""
    files = _fill(place, stream, 20, spool_bytes=8_000)
    assert len(files) > 2
    for file in files[2:]:
        file.unlink()
    _flip(files[0], -1)
    os.truncate(files[1], 20)
    first = int(files[1].stem)
    with Feed.open(place, hub.url, stream=stream) as feed:
        _all_told(feed, lambda: _arrived(place, hub.url, stream))
        assert feed.stats().lost == 1
    assert _arrived(place, hub.url, stream) == (list(range(first - 2)), [1])
