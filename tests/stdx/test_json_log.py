"""The log of a process: its lines, and the bound of those that wait."""

import io
import json
from threading import Event

import pytest

from tests.hub.hub_thread import eventually
from veen.stdx import json_log
from veen.stdx.json_log import Log, LogWriter


class Blocking(io.BytesIO):
    """A sink whose reader takes nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.met = Event()
        self.free = Event()

    def write(self, data: bytes, /) -> int:  # type: ignore[override] # only bytes come here
        self.met.set()
        assert self.free.wait(30)
        return super().write(data)


@pytest.mark.parametrize("together", [1, 3])
def test_lines_that_nobody_takes_are_dropped_beyond_a_bound_in_bytes(
    monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(json_log, "_MAX_WAITING_BYTES", 3000)
    sink = Blocking()
    writer = LogWriter(sink)
    try:
        lines = [f"{number:099}" for number in range(60)]
        for at in range(0, 60, together):
            writer.write(lines[at : at + together])
            assert sink.met.wait(30)
        assert writer.dropped == 30, "a line is 100 bytes with its end"
    finally:
        sink.free.set()
        writer.close()
    assert sink.getvalue().decode().splitlines() == lines[:30]


def test_what_was_written_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_log, "_MAX_WAITING_BYTES", 3000)
    sink = Blocking()
    sink.free.set()
    for _ in range(10):
        writer = LogWriter(sink)
        writer.write(["x" * 2998])
        writer.close()
        assert writer.dropped == 0
    writer = LogWriter(sink)
    writer.write(["y" * 3000])
    writer.close()
    assert writer.dropped == 1, "one line alone can be too long"
    again = LogWriter(sink)

    def taken() -> bool:
        before = again.dropped
        again.write(["z" * 1499])
        return again.dropped == before

    for _ in range(20):  # each is half of the bound: the third fits only if the first was written
        eventually(taken)
    again.close()
    assert sink.getvalue().count(b"z\n") == 20


def test_a_line_is_one_json_object_and_lines_below_the_level_are_left_out() -> None:
    sink = io.BytesIO()
    writer = LogWriter(sink)
    log = Log(writer, "warn", lambda: "now")
    log.event("info", "quiet")
    log.event("error", "loud", count=2)
    writer.close()
    assert [json.loads(line) for line in sink.getvalue().splitlines()] == [
        {"ts": "now", "level": "error", "event": "loud", "count": 2}
    ]
    assert [level for level in json_log.LEVELS if log.is_on(level)] == ["warn", "error"]
