"""Imports: lines of JSON and requests of OTLP, from files and over HTTP, each recorded once."""

import json
import os
import shutil
import socket
import tracemalloc
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import User
from tests.hub.hub_process import HubProcess
from tests.recorder.feed.feed_reader import recorded
from tests.recorder.recorder_parties import Company
from veen.recorder.errors import BadLineError
from veen.recorder.event import Captured, Defaults, described
from veen.recorder.feed.losses import LOST_TYPE
from veen.recorder.feed.settings import FeedSettings
from veen.recorder.feed.spool import SpoolReader
from veen.recorder.inputs.file_import import LINE_BYTES, BadLine, Import, Imports
from veen.recorder.inputs.json_lines import Fields, read_event

SETTINGS = FeedSettings(stream="record/test", subject="s", origin="o", spool_bytes=1 << 20)


def _event(captured: Captured) -> dict[str, Any]:
    return described(captured.pack(Defaults(subject="s", origin="o"))[1])


# --- lines --------------------------------------------------------------------------------------------------


def test_fields_of_a_line() -> None:
    fields = Fields(time="ts", unit="ms", type="log.kind", subject="user", origin="svc", default_type="d")
    line = b'{"ts": 1700000000999, "log": {"kind": "k", "x": 1.50}, "user": 7, "svc": "api", "neg": -1}'
    assert _event(read_event(line, fields)) == {
        "subject_id": "7",
        "event_type": "k",
        "event_time": 1_700_000_000,
        "origin": "api",
        "payload": {"log": {"x": "1.50"}, "neg": "-1"},
    }
    plain = _event(read_event(b'{"event_time": "2026-01-02T03:04:05Z", "payload": [1]}', Fields()))
    assert (plain["event_time"], plain["payload"], plain["subject_id"]) == (1_767_323_045, [1], "s")
    null = _event(read_event(b'{"event_time": 5, "payload": {"n": 1}, "metadata": null}', Fields()))
    assert (null["payload"], "metadata" in null) == ({"n": 1}, False)
    other = _event(read_event(b'{"event_time": 5, "payload": {"n": 1}, "metadata": 7}', Fields()))
    assert other["payload"] == {"payload": {"n": 1}, "metadata": 7}


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]", b"7", b"\xff", b'{"event_time": "yesterday"}', b'{"event_time": []}', b"[" * 100_000],
)
def test_lines_that_are_no_events(line: bytes) -> None:
    with pytest.raises(BadLineError):
        read_event(line, Fields())


# --- files --------------------------------------------------------------------------------------------------


def _lines(line: bytes) -> Iterator[Captured | BadLineError]:
    yield read_event(line, Fields())


def _numbers(imports: Imports) -> list[int]:
    events: list[Any] = [described(event.data) for event in SpoolReader(imports.spool.place).peek(0, 10_000)]
    return [event["payload"]["n"] for event in events]


class _EndError(Exception):
    """The process ends here."""


def _run(
    root: Path, file: Path, *, end_after: int = 1_000_000, again: bool = False
) -> tuple[Import, list[int]]:
    """Import a file, and end before or after a portion was written to the spool."""
    imports = Imports(root, SETTINGS)
    portions = count(1)

    def wait(_full: bool) -> None:  # noqa: FBT001 - as Import calls it
        if next(portions) >= end_after:
            raise _EndError

    run = Import(imports, _lines, wait=wait)
    try:
        with file.open("rb") as opened:
            bad = [item.line for item in run.run(opened, again=again)]
        assert bad == []
    except _EndError:
        pass
    finally:
        numbers = _numbers(imports)
        imports.spool.abandon()
    return run, numbers


def _write(file: Path, numbers: range) -> None:
    with file.open("ab") as opened:
        opened.writelines(b'{"n": %d}\n' % number for number in numbers)


def test_an_import_that_is_begun_again(tmp_path: Path) -> None:
    root, file, other = tmp_path / "root", tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    root.mkdir()
    _write(file, range(1200))
    for end_after in (1, 2):
        _run(root, file, end_after=end_after)
    _write(other, range(5000, 5003))
    assert _run(root, other)[1][-3:] == [5000, 5001, 5002], "another file does not disturb it"
    _, numbers = _run(root, file)
    mine = [number for number in numbers if number < 5000]
    assert mine == list(range(1200))
    run, numbers = _run(root, file)
    assert (run.events, run.known) == (0, 1200)
    file = file.rename(tmp_path / "renamed.jsonl")
    _write(file, range(1200, 1210))
    with file.open("ab") as opened:
        opened.write(b'{"n": 12')
    run, _ = _run(root, file)
    assert (run.events, run.lines, run.incomplete) == (10, 10, True)
    with file.open("ab") as opened:
        opened.write(b"10}\n")
    _, numbers = _run(root, file)
    assert [number for number in numbers if number < 5000] == list(range(1211))


def test_files_that_begin_alike(tmp_path: Path) -> None:
    """What all of one file is may be how another one begins: no line of either is left out."""
    root, header, other = tmp_path / "root", tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    root.mkdir()
    _write(header, range(1))
    assert _run(root, header)[1] == [0]
    _write(other, range(3))
    assert _run(root, other)[1] == [0, 0, 1, 2]
    assert _run(root, header)[0].events == 0
    shutil.copy(other, tmp_path / "same.jsonl")
    assert _run(root, tmp_path / "same.jsonl")[0].events == 0, "it has the same content"


def test_a_copy_that_has_grown(tmp_path: Path) -> None:
    root, file, copy = tmp_path / "root", tmp_path / "a.jsonl", tmp_path / "a.jsonl.1"
    root.mkdir()
    _write(file, range(600))
    _run(root, file)
    shutil.copy(file, copy)
    _write(copy, range(600, 605))
    assert _run(root, copy)[1] == list(range(605))
    assert _run(root, file)[0].events == 0, "what the copy has does not replace what the file has"


def test_a_file_that_is_read_again(tmp_path: Path) -> None:
    root, file = tmp_path / "root", tmp_path / "a.jsonl"
    root.mkdir()
    _write(file, range(1200))
    _run(root, file)
    run, numbers = _run(root, file, again=True)
    assert (run.events, run.known) == (1200, 0)
    assert numbers == [*range(1200), *range(1200)]
    _run(root, file, again=True, end_after=1)
    _, numbers = _run(root, file)
    assert numbers[2400:] == list(range(1200)), "a run that was interrupted goes on"
    assert _run(root, file)[0].events == 0


def _of_line(root: Path, file: Path, line_bytes: int) -> tuple[Import, list[BadLine], list[int]]:
    imports = Imports(root, SETTINGS)
    run = Import(imports, _lines, wait=lambda _: None, line_bytes=line_bytes)
    with file.open("rb") as opened:
        bad = list(run.run(opened))
    numbers = _numbers(imports)
    imports.spool.abandon()
    return run, bad, numbers


def test_lines_that_are_too_long(tmp_path: Path) -> None:
    root, file = tmp_path / "root", tmp_path / "a.jsonl"
    root.mkdir()
    exact = b'{"n": 1, "pad": ""}'
    lines = [exact, b'{"n": 2}', b"x" * 3_000_000, b'{"n": 3}', exact[:-2] + b'1"}', b'{"n": 4}']
    file.write_bytes(b"\n".join(lines) + b"\n")
    run, bad, numbers = _of_line(root, file, len(exact))
    assert [item.line for item in bad] == [3, 5]
    assert "3000001 bytes" in bad[0].reason
    assert (numbers, run.lines) == ([1, 2, 3, 4], 6)
    assert _of_line(root, file, len(exact))[0].known == 6
    with file.open("ab") as opened:
        opened.write(b'{"n": 5}\n' + b"y" * 100)
    for _ in range(2):
        run, bad, numbers = _of_line(root, file, len(exact))
        assert ([item.line for item in bad], run.incomplete) == ([8], True)
        assert numbers == [1, 2, 3, 4, 5]
    with file.open("ab") as opened:
        opened.write(b'\n{"n": 6}\n')
    assert _of_line(root, file, len(exact))[2] == [1, 2, 3, 4, 5, 6]


def test_a_line_without_end_takes_no_memory(tmp_path: Path) -> None:
    root, file = tmp_path / "root", tmp_path / "a.jsonl"
    root.mkdir()
    file.touch()
    os.truncate(file, 64 << 20)
    tracemalloc.start()
    try:
        _, bad, _ = _of_line(root, file, LINE_BYTES)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [item.line for item in bad] == [1]
    assert peak < 4 * LINE_BYTES


def test_a_file_of_which_nothing_can_be_read(
    tmp_path: Path, hub: HubProcess, place: Path, stream: str
) -> None:
    """The options may have been wrong: the next run reads it again."""
    file, somebody = tmp_path / "app.log", User(tmp_path)
    file.write_text('{"ts": "17:00", "n": 1}\n{"ts": "17:01", "n": 2}\n')
    said: list[str | Path] = ["recorder", "import", file, "--stream", stream, "--hub", hub.url]
    said += ["--client", place, "--to", place]
    for _ in range(2):
        done = somebody.run(*said, "--time-field", "ts", "--json")
        found = json.loads(done.stdout)
        assert (done.exit_code, found["ok"], found["code"]) == (3, False, "E.MALFORMED")
        assert (found["lines_before"], found["bad_lines"], found["recorded"]) == (0, 2, 0)
        assert found["reasons"] == ["line 1: '17:00' is not a time", "line 2: '17:01' is not a time"]
    told = somebody.run(*said, "--time-field", "ts")
    assert (told.exit_code, "ok: no" in told.stdout) == (3, True)
    assert told.stderr.splitlines()[-1].startswith("veen: no line is an event")
    assert somebody.ok(*said)["recorded"] == 2
    with file.open("a") as opened:
        opened.write('not json\n{"n": 3}\n')
    found = somebody.ok(*said)
    assert (found["recorded"], found["bad_lines"], len(found["reasons"])) == (1, 1, 1)
    again = somebody.ok(*said, "--again")
    assert (again["recorded"], again["lines_before"], again["bad_lines"]) == (3, 0, 1)
    assert [event["payload"]["n"] for event in recorded(place, hub.url, stream)] == [1, 2, 3, 1, 2, 3]


def test_what_a_run_before_has_read(tmp_path: Path, hub: HubProcess, place: Path, stream: str) -> None:
    """It is recorded by this one, which says so; also how much of it the disk has damaged meanwhile."""
    file, somebody = tmp_path / "app.log", User(tmp_path)
    _write(file, range(10))
    said: list[str | Path] = ["recorder", "import", file, "--stream", stream, "--client", place]
    said += ["--to", place, "--hub"]
    assert "has not accepted 10 events yet" in somebody.fails(2, *said, "http://127.0.0.1:1")["detail"]
    _write(file, range(10, 12))
    found = somebody.ok(*said, hub.url)
    assert (found["recorded"], found["events"], found["lines"], found["lines_before"]) == (12, 2, 2, 10)
    _write(file, range(12, 17))
    somebody.fails(2, *said, "http://127.0.0.1:1")
    (segment,) = (place / "recorder").rglob("*.events")
    data = bytearray(segment.read_bytes())
    data[20] ^= 1
    segment.write_bytes(data)
    found = somebody.ok(*said, hub.url)
    assert (found["recorded"], found["events"], found["not_recorded"]) == (4, 0, 1)
    *events, lost = recorded(place, hub.url, stream)
    assert [event["payload"]["n"] for event in events] == [n for n in range(17) if n != 12]
    assert (lost["event_type"], lost["payload"]["count"]) == (LOST_TYPE, 1)


def test_the_command(tmp_path: Path, hub: HubProcess, place: Path, stream: str) -> None:
    file = tmp_path / "app.log"
    file.write_text('{"n": 1, "level": "info"}\nnot json\n\n{"n": 2, "event_time": -1}\n{"n": 3}\n')
    said: list[str | Path] = [
        "recorder",
        "import",
        file,
        "--stream",
        stream,
        "--hub",
        hub.url,
        "--client",
        place,
        "--to",
        place,
    ]
    said += ["--type-field", "level"]
    somebody = User(tmp_path)
    assert somebody.ok(*said) == {
        "ok": True,
        "stream": stream,
        "recorded": 2,
        "events": 2,
        "lines": 5,
        "lines_before": 0,
        "bad_lines": 2,
        "reasons": [
            "line 2: not JSON: Expecting value: line 1 column 1 (char 0)",
            "line 4: -1 is not an unsigned 64-bit integer [E.FORMAT structural/VALUE]",
        ],
    }
    again = somebody.ok(*said)
    assert (again["recorded"], again["lines_before"]) == (0, 5)
    with file.open("a") as opened:
        opened.write('{"n": 4}\n[]\n')
    assert "line 7" in somebody.fails(3, *said, "--strict")["detail"]
    assert somebody.ok(*said)["recorded"] == 1
    events = recorded(place, hub.url, stream)
    assert [event["payload"]["n"] for event in events] == [1, 3, 4]
    assert [event["event_type"] for event in events] == ["info", "log.line", "log.line"]


def test_what_is_not_done(tmp_path: Path, place: Path) -> None:
    somebody = User(tmp_path)
    said = ["recorder", "import", "--stream", "record/x", "--client", str(place), "--to", str(place), "--hub"]
    refused = somebody.fails(1, *said, "http://127.0.0.1:1", "--listen", "0.0.0.0:0")
    assert "--token-file" in refused["detail"]
    assert "--listen" in somebody.fails(1, *said, "http://127.0.0.1:1")["detail"]
    assert "--format" in somebody.fails(1, *said, "http://127.0.0.1:1", "-", "--format", "csv")["detail"]
    (tmp_path / "a").write_text("{}\n")
    kept = somebody.fails(2, *said, "http://127.0.0.1:1", tmp_path / "a")
    assert "has not accepted 1 event yet" in kept["detail"]
    bare = ["recorder", "import", "--client", str(place), "--hub", "http://127.0.0.1:1", str(tmp_path / "a")]
    assert "'record/'" in somebody.fails(1, *bare, "--stream", "record/")["detail"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = somebody.fails(1, *said, "http://127.0.0.1:1", "--listen", f"127.0.0.1:{port}")
    assert str(port) in refused["detail"]


def test_who_could_read_it(tmp_path: Path, hub: HubProcess, place: Path, stream: str) -> None:
    """A client without the key of the stream seals to itself only if it says so."""
    somebody, file = User(tmp_path), tmp_path / "a"
    _write(file, range(1))
    said: list[str | Path] = ["recorder", "import", "--stream", stream, "--hub", hub.url, "--client"]
    refused = somebody.fails(1, *said, place, file)["detail"]
    assert all(what in refused for what in ("veen recorder share", "veen reader accept", "--to"))
    assert "--to" in somebody.fails(1, *said, place, "--listen", "127.0.0.1:0")["detail"]
    company = Company(tmp_path, hub.url, [stream])
    assert somebody.ok(*said, company.home("shop"), file)["recorded"] == 1
    (event,) = recorded(company.home("auditor"), hub.url, stream)
    assert event["payload"] == {"n": 0}
