"""What feeds have set aside, and how it is imported: as what it would have been, or not at all."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import User
from tests.hub.hub_process import HubProcess
from tests.recorder.feed.feed_reader import recorded
from tests.recorder.recorder_parties import aside_line
from veen.recorder.errors import BadLineError
from veen.recorder.event import Captured, Defaults, described
from veen.recorder.feed.feed import Feed
from veen.recorder.feed.shipper import REFUSED
from veen.recorder.inputs.json_lines import Fields, read_event


def _event(captured: Captured) -> dict[str, Any]:
    return described(captured.pack(Defaults(subject="s", origin="o"))[1])


def test_lines_that_were_set_aside() -> None:
    """They are our own: which fields other lines have does not matter."""
    fields = Fields(time="ts", unit="ms", type="payload.kind", subject="origin", origin="x")
    for payload in (None, {"kind": "k"}, [1], "text"):
        assert _event(read_event(aside_line(payload=payload), fields, "record/x")) == {
            "subject_id": "anna",
            "event_type": "again",
            "event_time": 5,
            "origin": "shop",
            "payload": payload,
        }
    with_metadata = _event(read_event(aside_line(payload=1, metadata={"m": 2}), fields))
    assert (with_metadata["payload"], with_metadata["metadata"]) == (1, {"m": 2})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (aside_line("record/y"), "record/y"),
        (aside_line(event_type=None), "event_type"),
        (aside_line(event_time=None), "event_time"),
        (aside_line(event_time="soon"), "not a time"),
        (aside_line(payload="<left out: a payload of 70000 bytes>"), "payload was left out"),
        (aside_line(metadata="<left out: a metadata of 70000 bytes>"), "metadata was left out"),
        (aside_line(metadata=5), "metadata"),
        (aside_line(paylaod=5), "paylaod"),
    ],
)
def test_lines_that_were_set_aside_and_are_no_events(line: bytes, reason: str) -> None:
    with pytest.raises(BadLineError, match=reason):
        read_event(line, Fields(), "record/x")


def test_what_was_set_aside_is_imported(tmp_path: Path, hub: HubProcess, place: Path, stream: str) -> None:
    """With the values that it would have been recorded with, on its stream, and not if it was left out."""
    with Feed.open(place, hub.url, stream=stream, origin="shop-1", subject="nobody") as feed:
        feed.record("a", {"x": 1}, subject_id=5)  # type: ignore[arg-type] # what applications do
        feed.record("b", {"x": 2}, subject_id=6, stream=f"{stream}/b")  # type: ignore[arg-type] # as above
        feed.record("c", {"x": 3}, event_time=-5)
        feed.record("d", "z" * 100_000)
        feed.record("e", 5, metadata=[1], event_time=dt.datetime(2026, 1, 2, 3, 4, 5))  # type: ignore[arg-type] # noqa: DTZ001 - as above
        feed.flush(20)
        assert feed.stats().refused == 5
    file = place / "recorder" / REFUSED
    said: list[str | Path] = ["recorder", "import", "--hub", hub.url, "--client", place]
    said += ["--to", place, "--stream"]
    found = User(tmp_path).ok(*said, stream, file)
    assert (found["recorded"], found["bad_lines"]) == (1, 4)
    assert [reason.partition(":")[0] for reason in found["reasons"]] == [f"line {n}" for n in (2, 3, 4, 5)]
    (event,) = recorded(place, hub.url, stream)
    assert (event["event_type"], event["subject_id"], event["origin"]) == ("a", "5", "shop-1")
    assert (event["payload"], "metadata" in event) == ({"x": 1}, False)
    assert User(tmp_path).ok(*said, f"{stream}/b", file)["recorded"] == 1
    (event,) = recorded(place, hub.url, f"{stream}/b")
    assert (event["event_type"], event["subject_id"], event["payload"]) == ("b", "6", {"x": 2})
    lines = [json.loads(line)["event"] for line in file.read_text().splitlines()]
    assert lines[4]["event_time"] == int(dt.datetime(2026, 1, 2, 3, 4, 5).timestamp())  # noqa: DTZ001 - as above
    assert [line["subject_id"] for line in lines[2:]] == ["nobody"] * 3
    for line in lines[2:]:
        line |= {"event_time": 7, "payload": "mended", "metadata": None}
    mended = tmp_path / "mended"
    mended.write_text(
        "".join(json.dumps({"stream": stream, "reason": "", "event": e}) + "\n" for e in lines[2:])
    )
    assert User(tmp_path).ok(*said, stream, mended)["recorded"] == 3
    events = recorded(place, hub.url, stream)[1:]
    assert [event["event_type"] for event in events] == ["c", "d", "e"]
    assert {(e["origin"], e["subject_id"], e["event_time"], e["payload"]) for e in events} == {
        ("shop-1", "nobody", 7, "mended")
    }
