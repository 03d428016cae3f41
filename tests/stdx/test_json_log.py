"""The log of a process: its lines, and the bound of those that wait."""

import io
import json
import logging
import os
from pathlib import Path
from threading import Event

import pytest

from tests.hub.hub_thread import eventually
from veen.stdx import json_log
from veen.stdx.json_log import LogEvent, LogWriter, json_lines, log_lines

log = logging.getLogger("veen.stdx.test")


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
            writer.write("".join(f"{line}\n" for line in lines[at : at + together]))
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
        writer.write("x" * 2998 + "\n")
        writer.close()
        assert writer.dropped == 0
    writer = LogWriter(sink)
    writer.write("y" * 3000 + "\n")
    writer.close()
    assert writer.dropped == 1, "one line alone can be too long"
    again = LogWriter(sink)

    def taken() -> bool:
        before = again.dropped
        again.write("z" * 1499 + "\n")
        return again.dropped == before

    for _ in range(20):  # each is half of the bound: the third fits only if the first was written
        eventually(taken)
    again.close()
    assert sink.getvalue().count(b"z\n") == 20


STARTED = LogEvent("started", urls=("http://127.0.0.1:1",), hosts=["a", "b"], hub_id="ab", pid=7)
FAULT = LogEvent("fault", error='RuntimeError: quoted "x" \n \u00e9 \u2603', where="/a/b.py:3")
ODD = LogEvent(
    "odd",
    path=Path("/x"),
    data=b"\0",
    none=None,
    flag=True,
    number=1.5,
    nested={"b": [1], "a": ()},
)
NOW = "2026-01-02T03:04:05.678+00:00"
#: As lines have been since they were first written: operators' tools read them.
GOLDEN = (
    f'{{"ts": "{NOW}", "level": "info", "urls": ["http://127.0.0.1:1"], "hosts": ["a", "b"],'
    ' "hub_id": "ab", "pid": 7, "event": "started"}\n'
    f'{{"ts": "{NOW}", "level": "error", "error": "RuntimeError: quoted \\"x\\" \\n \\u00e9 \\u2603",'
    ' "where": "/a/b.py:3", "event": "fault"}\n'
    f'{{"ts": "{NOW}", "level": "warn", "event": "verifier-lost"}}\n'
    f'{{"ts": "{NOW}", "level": "info", "path": "PosixPath(\'/x\')", "data": "b\'\\\\x00\'",'
    ' "none": null, "flag": true, "number": 1.5, "nested": {"b": [1], "a": []}, "event": "odd"}\n'
    '{"ts":1900000000,"level":"info","event":"submit"}\n'
    '{"ts":1900000001,"level":"info","event":"submit"}\n'
)


def test_lines_are_byte_for_byte_what_they_were() -> None:
    sink = io.BytesIO()
    with json_lines(sink, "info", lambda: NOW):
        log.info(STARTED)
        log.error(FAULT)
        log.warning(LogEvent("verifier-lost"))
        log.debug(LogEvent("quiet"))
        log.info(ODD)
        lines = [f'{{"ts":{ts},"level":"info","event":"submit"}}' for ts in (1900000000, 1900000001)]
        log_lines(log, lines)
    assert sink.getvalue().decode() == GOLDEN


def test_lines_below_the_level_are_left_out() -> None:
    sink = io.BytesIO()
    with json_lines(sink, "warn", lambda: "now"):
        log.info(LogEvent("quiet"))
        log.error(LogEvent("loud", count=2))
        levels = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
        assert [level for level in levels if log.isEnabledFor(level)] == [logging.WARNING, logging.ERROR]
    assert json.loads(sink.getvalue()) == {"ts": "now", "level": "error", "event": "loud", "count": 2}


def test_text_of_a_library_is_an_event_too() -> None:
    sink = io.BytesIO()
    with json_lines(sink, "info", lambda: "now"):
        logging.getLogger("veen.recorder").warning("%d events were lost", 3)
        try:
            int("x")
        except ValueError:
            log.exception("it broke")
    first, second = map(json.loads, sink.getvalue().splitlines())
    assert first == {"ts": "now", "level": "warn", "logger": "veen.recorder", "event": "3 events were lost"}
    assert (second["level"], second["event"]) == ("error", "it broke")
    assert "ValueError: invalid literal" in second["traceback"]


def test_a_program_that_embeds_us_sees_everything_where_it_looks(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        log.info(LogEvent("anchored", label="ab", upto_seq=3))
        log_lines(log, ["{}", "[]"])
    assert [record.getMessage() for record in caplog.records] == ["anchored label='ab' upto_seq=3", "{}\n[]"]


def test_a_process_writes_its_lines_only(caplog: pytest.LogCaptureFixture) -> None:
    """Also while there are two handlers, as in our tests; then all is as it was."""
    first, second = io.BytesIO(), io.BytesIO()
    root = logging.getLogger("veen")
    with json_lines(first, "error"):
        with json_lines(second, "info"):
            log.info(LogEvent("x"))
        log.info(LogEvent("y"))
        assert log.getEffectiveLevel() == logging.ERROR
    assert (first.getvalue(), second.getvalue().count(b"\n"), caplog.records) == (b"", 1, [])
    assert (root.level, root.propagate) == (logging.NOTSET, True)


def test_many_lines_go_where_records_go() -> None:
    """To every handler from its level on, past its filters, and to handlers of others."""
    quiet, loud, filtered, other = (io.BytesIO() for _ in range(4))
    with json_lines(quiet, "warn"), json_lines(loud, "debug"):
        log_lines(log, ["{}"])
        with json_lines(filtered, "info") as handler:
            handler.addFilter(lambda _: False)
            log_lines(log, ["[]"])
        foreign = logging.StreamHandler(io.TextIOWrapper(other, write_through=True))
        for logger in (logging.getLogger("veen"), log):
            logger.addHandler(foreign)
            log_lines(log, ["1", "2"])
            logger.removeHandler(foreign)
    assert (quiet.getvalue(), loud.getvalue(), filtered.getvalue()) == (b"", b"{}\n[]\n" + 2 * b"1\n2\n", b"")
    assert other.getvalue() == 2 * b"1\n2\n"


def test_a_reader_that_is_gone_stops_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb", buffering=0) as sink:
        with json_lines(sink, "info"):
            log.info(LogEvent("one"))
            log_lines(log, ["two", "three"])
            eventually(lambda: json_log.dropped() == 3)
        assert json_log.dropped() == 0, "of handlers that there are"


def test_a_full_disk_stops_nothing() -> None:
    with Path("/dev/full").open("wb", buffering=0) as sink, json_lines(sink, "info"):
        log.info(LogEvent("one"))
        eventually(lambda: json_log.dropped() == 1)


def test_what_logs_does_not_wait_for_the_reader() -> None:
    sink = Blocking()
    with json_lines(sink, "info"):
        for _ in range(3):
            log.info(LogEvent("x"))
        assert sink.met.wait(30)
        sink.free.set()
    assert sink.getvalue().count(b"\n") == 3
