"""What was pruned, before or while times are asked for: a loss if it may be of them, and else none."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.hub.hub_process import HubProcess
from tests.pipeline.datasource.spark_calls import Row, Stream, asked, keys_of, plain, read, seqs, those
from tests.pipeline.log_builder import START, Hub, prune
from veen.core.data_dir.store_records import Tombstone
from veen.core.types import Label
from veen.pipeline.errors import DataLossError, LossVerdict
from veen.pipeline.log.data_directory import DirectoryLog


@pytest.fixture
def pruned(tmp_path: Path) -> tuple[Path, int]:
    """A log of one entry a second whose first ones were pruned, and the first that is left."""
    with Hub(tmp_path / "data") as hub:
        for _ in range(100):
            hub.write("alpha", b"x")
            hub.tick()
        hub.writer.flush()
        hub.tick(10**6)
        first = hub.writer.prune(hub.label("alpha"), 50)[-1].end_seq + 1
    return hub.root, first


def test_pruned_entries_of_the_time_asked_for_are_a_loss_and_others_are_not(pruned: tuple[Path, int]) -> None:
    root, first = pruned
    begins = (START + first - 1) * 1000  # the second of the first that is left
    for since, until in [
        (START * 1000, None),
        (begins - 1000, None),
        ((START + 3) * 1000, (START + 9) * 1000),
    ]:
        with pytest.raises(DataLossError) as caught:
            read(root, **asked(since, until))
        (loss,) = caught.value.losses
        assert loss.verdict is LossVerdict.PRUNED
        assert loss.last_seq < first
        with Stream(root, **asked(since, until)) as stream, pytest.raises(DataLossError, match="pruned"):
            stream.take()
    assert keys_of(read(root, startingTimestamp=0, failOnDataLoss=False)) == keys_of(plain(root))
    with Stream(root, startingTimestamp=0, failOnDataLoss=False) as stream:
        assert keys_of(stream.take()) == keys_of(plain(root))
    for bounds in [(begins, None), (0, START * 1000), (None, begins + 1000)]:
        assert keys_of(read(root, **asked(*bounds))) == those(plain(root), *bounds)
    with Stream(root, startingTimestamp=begins) as stream:
        assert keys_of(stream.take()) == keys_of(plain(root))


def test_what_was_pruned_is_no_loss_if_older_entries_than_the_time_are_left(pruned: tuple[Path, int]) -> None:
    """A hub does not tell of which times they were; that they were older is known by what is left."""
    root, first = pruned
    label = plain(root)[0]["label"].hex()
    since = (START + first) * 1000
    with HubProcess(root) as running:
        for place in (running.url, root):
            for verify in ("frames", "full"):
                with Stream(place, stream="alpha", startingTimestamp=since, verify=verify) as stream:
                    stream.offsets = [{label: 5}]
                    assert seqs(stream.take()) == [*range(first + 1, 101)]
                    stream.restart()
                    assert seqs(stream.replay()) == [*range(first + 1, 101)]
        with Stream(running.url, stream="alpha", startingTimestamp=since - 1000) as stream:
            stream.offsets = [{label: 5}]
            with pytest.raises(DataLossError, match=f"pruned: entries 6 to {first - 1} of"):
                stream.take()


@pytest.mark.parametrize("millis", [(0, 0), (1, 500)])
def test_no_time_at_all_misses_nothing_that_was_pruned(
    pruned: tuple[Path, int], millis: tuple[int, int]
) -> None:
    root, _ = pruned
    since, until = ((START + 9) * 1000 + part for part in millis)
    with HubProcess(root) as running:
        for place in (running.url, root):
            for verify in ("frames", "full"):
                options = {"stream": "alpha", "verify": verify, **asked(since, until)}
                assert read(place, **options) == []
                with Stream(place, **options) as stream:
                    assert stream.take() == []


def test_with_signatures_tombstones_are_not_believed_when_they_tell_times(pruned: tuple[Path, int]) -> None:
    """Nobody has signed them, and what was asked for would be missing in silence."""
    root, first = pruned
    label = plain(root)[0]["label"].hex()
    since = (START + first - 1) * 1000
    assert len(read(root, startingTimestamp=since)) == 101 - first
    for path in root.rglob("pruned-*"):
        path.chmod(0o600)
        path.write_bytes(replace(Tombstone.decode(path.read_bytes()), first_ts=1, last_ts=2).encode())
    # Of the second of the first entry that is left there may have been more.
    for asked_for in (START * 1000, since):
        with pytest.raises(DataLossError, match=f"pruned: entries 1 to {first - 1} of"):
            read(root, startingTimestamp=asked_for, verify="full")
        with Stream(root, startingTimestamp=asked_for, verify="full") as stream:
            with pytest.raises(DataLossError, match="pruned"):
                stream.take()
            stream.offsets = [{label: 5}]
            with pytest.raises(DataLossError, match=f"pruned: entries 6 to {first - 1} of"):
                stream.take()
    assert len(read(root, startingTimestamp=since + 1, verify="full")) == 100 - first


def test_offsets_of_other_times_than_those_asked_for_miss_nothing(pruned: tuple[Path, int]) -> None:
    root, first = pruned
    offsets = f'{{"{plain(root)[0]["label"].hex()}": {first - 1}}}'
    options = {"startingOffsets": offsets, "endingTimestamp": START * 1000}
    assert read(root, **options) == []
    with Stream(root, **options) as stream:
        assert stream.take() == []
    with pytest.raises(DataLossError, match="pruned"):
        read(root, startingOffsets=offsets)


def test_of_what_was_pruned_behind_the_end_of_a_stream_some_is_a_loss(tmp_path: Path) -> None:
    hub = Hub(tmp_path / "data")
    for _ in range(100):
        hub.write("alpha", b"x")
        hub.tick()
    hub.writer.flush()
    hub.leave()
    with Stream(hub.root, startingOffsets="earliest", endingTimestamp=START * 1000 + 2500) as stream:
        assert [row["stream_seq"] for row in stream.take()] == [1, 2, 3]
        stream.restart()
        hub.reopen()
        hub.tick(10**6)
        ends = [row.end_seq for row in hub.writer.prune(hub.label("alpha"), 50)]
        hub.leave()
        assert len(ends) > 1  # the first of them has entries that were read, and others of no interest
        with pytest.raises(DataLossError, match=f"pruned: entries 4 to {ends[0]} of"):
            stream.take()
        stream.restart(failOnDataLoss=False)
        assert stream.take() == []


def test_a_batch_that_only_passes_pruned_entries_by_is_not_refused(tmp_path: Path) -> None:
    """Its end may be behind the time: nothing of it is left to be read."""
    hub = Hub(tmp_path / "data")
    for _ in range(100):
        hub.write("alpha", b"x")
        hub.tick()
    hub.leave()
    until = START * 1000 + 2500
    options = {"startingOffsets": "earliest", "endingTimestamp": until, "failOnDataLoss": False}
    with Stream(hub.root, stream="alpha", **options) as stream:
        assert seqs(stream.take()) == [1, 2, 3]
        hub.reopen()
        hub.writer.flush()
        hub.tick(10**6)
        hub.writer.prune(hub.label("alpha"), 50)
        hub.leave()
        for _ in range(2):
            assert stream.take() == []
            assert stream.replay() == []
            stream.restart()


@contextmanager
def pruned_at(call: str, root: Path, label: Label) -> Iterator[None]:
    """Have a hub prune at the worst moment: behind the first look at how far a log goes, or before a plan."""
    real = getattr(DirectoryLog, call)
    left = [label]

    def called(log: DirectoryLog, *args: Any, **options: Any) -> Any:
        found = real(log, *args, **options) if call == "heads" else None
        if left:
            prune(root, left.pop(), 60)
        return found if call == "heads" else real(log, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DirectoryLog, call, called)
        yield


def take(place: Path, **options: object) -> list[Row]:
    with Stream(place, **options) as stream:
        return stream.take()


@pytest.mark.parametrize("call", ["heads", "plan"])
@pytest.mark.parametrize("verify", ["frames", "full"])
@pytest.mark.parametrize("reads", [read, take], ids=["batch", "stream"])
def test_what_is_pruned_while_a_query_is_planned_is_a_loss(
    tmp_path: Path, reads: Callable[..., list[Row]], call: str, verify: str
) -> None:
    with Hub(tmp_path / "data") as hub:
        for _ in range(100):
            hub.write("alpha", b"x")
            hub.tick()
        hub.writer.flush()
    label = hub.label("alpha")
    for name, value in [
        ("startingTimestamp", f"{(START + 10) * 1000}"),
        ("startingOffsets", json.dumps({label.hex(): 11})),
    ]:
        place = tmp_path / name
        shutil.copytree(hub.root, place)
        with pruned_at(call, place, label), pytest.raises(DataLossError, match="pruned"):
            reads(place, verify=verify, **{name: value})
    place = tmp_path / "earliest"
    shutil.copytree(hub.root, place)
    with pruned_at(call, place, label):
        rows = read(place, verify=verify)
    assert keys_of(rows) == keys_of(plain(place))
    assert len(rows) < 100
