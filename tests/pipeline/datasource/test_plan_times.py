"""Times and epochs as options, by the calls that Spark makes: at every bound, by chance, in damaged logs."""

import random
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.hub.hub_process import veen
from tests.pipeline.datasource.spark_calls import (
    Row,
    Stream,
    asked,
    everywhere,
    keys_of,
    plain,
    read,
    reader_of,
    seqs,
    source,
    those,
)
from tests.pipeline.log_builder import START, Hub, varied
from veen.client.errors import DamagedLogError
from veen.client.transport.portable_set import RECEIPTS, SYNC_STATE, PortableFacts
from veen.core.encoding.wire_object import encode_sequence
from veen.core.objects import labels
from veen.pipeline.datasource.plan import MOST_EPOCHS, Group
from veen.pipeline.datasource.stream_reader import VeenStreamReader
from veen.pipeline.errors import InvalidEntryError, OptionError

ENTRIES = 150
EPOCH_SEC = 60
KINDS = ["directory", "set", "hub"]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """One log of three streams in three epochs, in every place that a log can be in."""
    root = tmp_path_factory.mktemp("log") / "hub"
    varied(root, ENTRIES, epoch_sec=EPOCH_SEC).close()
    with everywhere(root) as found:
        yield found


@pytest.fixture(scope="module")
def everything(places: Mapping[str, str]) -> list[Row]:
    return plain(Path(places["directory"]))


@pytest.fixture
def streams(kind: str) -> str:
    """Return what is read: of a hub only one stream, as each label costs many questions."""
    return "beta" if kind == "hub" else "alpha,beta,gamma"


@pytest.fixture
def expected(everything: list[Row], streams: str) -> list[Row]:
    ids = {labels.stream_id(name) for name in streams.split(",")}
    return [row for row in everything if row["stream_id"] in ids]


@pytest.mark.parametrize("kind", KINDS)
def test_times_are_exact_at_their_bounds(
    kind: str, places: Mapping[str, str], streams: str, expected: list[Row]
) -> None:
    """From the millisecond on, and before the other one; a second is that of the receipt."""
    times = sorted({row["hub_ts"] for row in expected})
    middle, later = times[len(times) // 3] * 1000, times[len(times) // 2] * 1000
    for since, until in [
        (middle, None),
        (middle + 1, None),
        (None, later),
        (None, later + 1),
        (middle, middle),
        (middle - 1, middle + 1),
        (0, times[0] * 1000),
        (times[-1] * 1000, None),
        (times[-1] * 1000 + 1, None),
        ((1 << 63) - 1, (1 << 63) - 1),
        (0, (1 << 63) - 1),
    ]:
        rows = read(places[kind], stream=streams, **asked(since, until))
        assert keys_of(rows) == those(expected, since, until), (since, until)


@pytest.mark.parametrize(("kind", "tries"), [("directory", 40), ("set", 20), ("hub", 4)])
def test_any_times_leave_what_a_comparison_of_each_row_leaves(
    kind: str, tries: int, places: Mapping[str, str], streams: str, expected: list[Row]
) -> None:
    chance = random.Random(7)
    for _ in range(tries):
        ends = sorted(chance.randrange((START - 9) * 1000, (START + 130) * 1000) for _ in range(2))
        since, until = (end if chance.random() < 0.8 else None for end in ends)
        verify = chance.choice(["none", "frames", "roots", "full"])
        rows = read(
            places[kind],
            stream=streams,
            verify=verify,
            minPartitions=chance.randint(1, 9),
            **asked(since, until),
        )
        assert keys_of(rows) == those(expected, since, until), (since, until, verify)
        assert {(row["checked"], row["fault"]) for row in rows} <= {(verify, None)}


@pytest.mark.parametrize("kind", KINDS)
def test_other_entries_are_not_read(
    kind: str, places: Mapping[str, str], streams: str, expected: list[Row]
) -> None:
    since, until = (START + 21) * 1000, (START + 43) * 1000
    reader = reader_of(places[kind], stream=streams, verify="full", **asked(since, until))
    groups = [group for group in reader.partitions() if isinstance(group, Group)]
    planned = sum(piece.part.count for group in groups for piece in group.pieces)
    assert planned == len(those(expected, since, until)) < len(expected) / 2


def test_times_and_offsets_go_together_where_each_says_one_end(
    places: Mapping[str, str], everything: list[Row]
) -> None:
    label = everything[0]["label"]
    offsets = f'{{"{label.hex()}": 3}}'
    until = (START + 21) * 1000
    rows = read(places["directory"], label=label.hex(), startingOffsets=offsets, endingTimestamp=until)
    left = [(one, seq) for one, seq in those(everything, None, until) if one == label and seq >= 3]
    assert keys_of(rows) == left
    rows = read(places["directory"], label=label.hex(), endingOffsets=offsets, startingTimestamp=0)
    assert keys_of(rows) == [(label, 1), (label, 2)]


# --- epochs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_epochs_are_chosen_with_both_ends(
    kind: str, places: Mapping[str, str], streams: str, expected: list[Row]
) -> None:
    epochs = sorted({row["epoch"] for row in expected})
    assert len(epochs) == 3
    for first, last in [
        (0, epochs[0] - 1),
        (epochs[0], epochs[0]),
        (epochs[1], epochs[2]),
        (0, (1 << 63) - 1),
    ]:
        text = f"{first}" if first == last else f"{first}-{last}"
        rows = read(places[kind], stream=streams, epoch=text, verify="full")
        assert keys_of(rows) == keys_of([row for row in expected if first <= row["epoch"] <= last])


def test_epochs_and_streams_and_times_leave_what_is_in_all(
    places: Mapping[str, str], everything: list[Row]
) -> None:
    epoch = sorted({row["epoch"] for row in everything})[1]
    stream = labels.stream_id("beta")
    since, until = (epoch * EPOCH_SEC + 10) * 1000, (epoch * EPOCH_SEC + 30) * 1000
    for place in places.values():
        rows = read(place, stream="beta", epoch=epoch, **asked(since, until))
        left = [row for row in everything if row["stream_id"] == stream and row["epoch"] == epoch]
        assert keys_of(rows) == those(left, since, until) != []


@pytest.fixture
def unnamed(tmp_path: Path) -> Hub:
    """A log of which nobody has said which stream a label is of."""
    hub = Hub(tmp_path / "data", binds=False)
    hub.write("alpha", b"1", b"2")
    hub.leave()
    return hub


def test_a_label_of_an_unknown_epoch_is_refused_and_not_left_out(unnamed: Hub) -> None:
    label = unnamed.label("alpha").hex()
    assert [row["epoch"] for row in read(unnamed.root)] == [None, None]
    for options in ({"epoch": 0}, {"epoch": 5}, {"epoch": 0, "label": label}):
        with pytest.raises(OptionError) as caught:
            read(unnamed.root, **options)
        assert f"the log does not record the epoch of {label}" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert [row["epoch"] for row in read(unnamed.root, epoch=0, stream="alpha")] == [0, 0]
    unnamed_too = Stream(unnamed.root, startingOffsets="earliest", epoch=0)
    with unnamed_too as stream, pytest.raises(OptionError, match="does not record the epoch"):
        stream.take()


def test_labels_of_streams_and_epochs_are_worked_out_if_the_log_does_not_tell_of_them(tmp_path: Path) -> None:
    hub = Hub(tmp_path / "data", epoch_sec=EPOCH_SEC, binds=False)
    epoch = labels.epoch_at(START, EPOCH_SEC)
    for _ in range(3):
        hub.write("alpha", b"1", b"2")
        hub.write("beta", b"3")
        hub.tick(EPOCH_SEC)
    hub.leave()
    for asked_for, count in (
        (f"{epoch}", 2),
        (f"{epoch + 1}-{epoch + MOST_EPOCHS}", 4),
        (f"{epoch - 9}-{epoch - 1}", 0),
    ):
        rows = read(hub.root, stream="alpha", epoch=asked_for, verify="full")
        assert len(rows) == count
        assert all(row["stream_id"] == labels.stream_id("alpha") for row in rows)
        with Stream(hub.root, stream="alpha", epoch=asked_for, startingOffsets="earliest") as stream:
            assert keys_of(stream.take()) == keys_of(rows)
    for options in ({"epoch": epoch}, {"epoch": f"{epoch}-{epoch + MOST_EPOCHS}", "stream": "alpha"}):
        with pytest.raises(
            OptionError, match=r"does not record the epoch of .* and of 5 more; name the streams"
        ):
            read(hub.root, **options)


def test_what_a_log_says_of_the_epoch_of_a_label_is_not_believed(
    places: Mapping[str, str], tmp_path: Path, everything: list[Row]
) -> None:
    place = tmp_path / "set"
    shutil.copytree(places["set"], place)
    states = PortableFacts.read(place).states
    (place / SYNC_STATE).chmod(0o600)
    epoch = everything[0]["epoch"]
    (place / SYNC_STATE).write_bytes(encode_sequence([replace(one, epoch=epoch + 9) for one in states]))
    with pytest.raises(OptionError, match="and of 8 more"):
        read(place, epoch=epoch)
    rows = [row for row in everything if row["epoch"] == epoch]
    assert keys_of(read(place, epoch=epoch, stream="alpha,beta,gamma")) == keys_of(rows)


# --- what no task reads -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ticking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of one label, with one second between entries, exported beside."""
    root = tmp_path_factory.mktemp("ticking") / "data"
    with Hub(root) as hub:
        for _ in range(40):
            hub.write("alpha", b"x")
            hub.tick()
    done = veen("export", "--hub", root, "--all", "--out", root.parent / "set")
    assert done.returncode == 0, done.stderr
    return root


def alter_time(place: Path, row: Row, hub_ts: int) -> tuple[Path, bytes]:
    """Write another time into a receipt, before its signature; return the file, and what it was."""
    files = [*place.glob("log/chunk-*.log")] or [place / RECEIPTS]
    (path,) = [path for path in files if row["hub_sig"] in path.read_bytes()]
    data = path.read_bytes()
    at = data.index(b"\x58\x40" + row["hub_sig"])
    assert data[at - 4 : at] == row["hub_ts"].to_bytes(4)
    path.chmod(0o600)
    path.write_bytes(data[: at - 4] + hub_ts.to_bytes(4) + data[at:])
    return path, data


#: Of entries 12 to 31 of 40 the time is asked for. With signatures, the one next to each end is checked too.
FOUND_OUT = {
    ("data", "frames"): range(12, 32),
    ("data", "full"): range(11, 33),
    ("set", "frames"): range(0),
    ("set", "full"): range(11, 33),
}
#: A set states no hashes of entries: below full, an altered time moves its entry over an end unnoticed.
MOVED = {("set", "frames"): {11, 12, 31, 32}}


@pytest.mark.parametrize(("kind", "verify"), FOUND_OUT)
@pytest.mark.parametrize("bit", [0, 31], ids=["a second", "decades"])
def test_an_altered_time_hides_no_other_entry(
    ticking: Path, tmp_path: Path, kind: str, verify: str, bit: int
) -> None:
    """A search goes where times lead it: the entry that misleads it is found out, or does not matter.

    The ends are odd, so that a second, as one bit, leads over them.
    """
    rows = plain(ticking)
    since, until = (START + 11) * 1000, (START + 31) * 1000
    place = tmp_path / kind
    shutil.copytree(ticking.parent / kind, place)
    refused: set[int] = set()
    moved: set[int] = set()
    for row in rows:
        hub_ts = row["hub_ts"] ^ 1 << bit
        path, before = alter_time(place, row, hub_ts)
        try:
            got = keys_of(read(place, verify=verify, **asked(since, until)))
        except (InvalidEntryError, DamagedLogError) as error:
            # Where the log does not know its times by itself, the next entry shows that they go back.
            named = [f"entry {row['stream_seq']} of ", f"goes back at entry {row['stream_seq'] + 1} of "]
            refused |= {row["stream_seq"]} if any(name in str(error) for name in named) else {-1}
        else:
            if got != those(rows, since, until):
                altered = [{**one, "hub_ts": hub_ts} if one is row else one for one in rows]
                assert got == those(altered, since, until)  # the others are as they were
                moved.add(row["stream_seq"])
        path.write_bytes(before)
    assert -1 not in refused
    assert moved == (MOVED.get((kind, verify), set()) if bit == 0 else set())
    assert refused >= {*FOUND_OUT[kind, verify]}


def test_an_entry_of_another_time_between_is_a_fault_at_any_level(ticking: Path, tmp_path: Path) -> None:
    place = tmp_path / "data"
    shutil.copytree(ticking, place)
    row = plain(ticking)[20]
    alter_time(place, row, row["hub_ts"] ^ 1 << 31)
    options = asked((START + 10) * 1000, (START + 30) * 1000)
    with pytest.raises(InvalidEntryError, match="is not of the time asked for") as caught:
        read(place, verify="none", **options)
    assert caught.value.seq == 21
    rows = read(place, verify="none", mode="PERMISSIVE", **options)
    assert [row["stream_seq"] for row in rows if row["fault"]] == [21]
    assert len(rows) == 20


# --- streams ------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    """A log with four entries of one stream, a second apart; nobody has it open."""
    made = Hub(tmp_path / "data")
    for _ in range(4):
        made.write("alpha", b"x")
        made.tick()
    made.leave()
    return made


def write(hub: Hub, stream: str, count: int = 1) -> None:
    """Write entries, a second apart, and let go."""
    hub.reopen()
    for _ in range(count):
        hub.write(stream, b"x")
        hub.tick()
    hub.leave()


@pytest.mark.parametrize(("millis", "first"), [(0, 1), (1000, 2), (1001, 3), (2000, 3), (3000, 4), (3001, 5)])
def test_a_stream_begins_with_a_time(hub: Hub, millis: int, first: int) -> None:
    with Stream(hub.root, startingTimestamp=START * 1000 + millis, verify="full") as stream:
        assert seqs(stream.take()) == [*range(first, 5)]
        write(hub, "alpha", 2)
        assert seqs(stream.take()) == [5, 6]


@pytest.mark.parametrize(("millis", "last"), [(0, 0), (1, 1), (1000, 1), (1001, 2), (3000, 3), (5000, 5)])
def test_a_stream_ends_before_a_time_and_stays_there(hub: Hub, millis: int, last: int) -> None:
    until = START * 1000 + millis
    with Stream(hub.root, startingOffsets="earliest", endingTimestamp=until, verify="full") as stream:
        rows = stream.take()
        write(hub, "alpha", 4)
        rows += stream.take()
        write(hub, "alpha", 4)
        assert stream.take() == []
        assert seqs(rows) == [*range(1, last + 1)]
        offsets = list(stream.offsets)
        stream.restart()
        assert stream.take() == []
        assert stream.offsets == offsets


def test_entries_before_the_time_are_passed_by_also_if_they_come_later(hub: Hub) -> None:
    """A label that comes up, and one that goes on, before a time that is still to come."""
    since = (START + 10) * 1000
    with Stream(hub.root, startingTimestamp=since, maxOffsetsPerTrigger=2) as stream:
        assert stream.take() == []
        write(hub, "alpha", 3)
        write(hub, "beta", 3)  # up to START + 9
        assert stream.take() == []
        assert stream.offsets == []
        write(hub, "beta", 2)
        assert seqs(stream.take()) == [4, 5]
        stream.restart()
        assert seqs(stream.replay()) == [4, 5]
        write(hub, "alpha", 2)
        assert seqs(stream.take()) == [8, 9]


def test_a_checkpoint_counts_more_than_a_time_and_no_entry_outside_of_it_is_read(hub: Hub) -> None:
    write(hub, "alpha", 16)
    options = {"startingTimestamp": (START + 2) * 1000, "endingTimestamp": (START + 15) * 1000}
    with Stream(hub.root, **options, maxOffsetsPerTrigger=4) as stream:
        assert seqs(stream.take()) == [3, 4, 5, 6]
        stream.restart(startingTimestamp=0)
        assert seqs(stream.take()) == [7, 8, 9, 10]
        stream.restart(startingTimestamp=(START + 12) * 1000)
        assert seqs(stream.take()) == [13, 14, 15]
        stream.restart(startingTimestamp=(START + 13) * 1000, endingTimestamp=(START + 18) * 1000)
        assert seqs(stream.take()) == [16, 17, 18]


def test_a_batch_that_was_cut_off_is_not_read_with_fewer_entries(hub: Hub) -> None:
    """Spark would take it for done up to its end, and nobody would ever read the others."""
    write(hub, "alpha", 16)
    times = {"startingTimestamp": (START + 2) * 1000, "endingTimestamp": (START + 15) * 1000}
    with Stream(hub.root, **times, maxOffsetsPerTrigger=4) as stream:
        for batch in ([3, 4, 5, 6], [7, 8, 9, 10]):
            assert seqs(stream.take()) == batch
            for name, second in (("endingTimestamp", batch[-1] - 1), ("startingTimestamp", batch[0])):
                stream.restart(**{name: (START + second) * 1000})
                with pytest.raises(OptionError, match=f"decided on with an? .*{name}") as caught:
                    stream.replay()
                assert "\n" not in str(caught.value)
                stream.restart(**times)
            stream.restart(startingTimestamp=(START + batch[0] - 1) * 1000)
            stream.restart(endingTimestamp=(START + batch[-1]) * 1000)
            assert seqs(stream.replay()) == batch
            stream.restart(**times)


@pytest.mark.parametrize("since", [0, START + 5, None])
def test_a_batch_that_was_cut_off_is_not_read_with_more_entries(hub: Hub, since: int | None) -> None:
    """A label that came up before the time, and an earlier time when the batch is read again."""
    with Stream(hub.root, startingTimestamp=(START + 10) * 1000) as stream:
        assert stream.take() == []
        write(hub, "beta", 8)
        assert seqs(stream.take()) == [7, 8]
        stream.restart()
        assert seqs(stream.replay()) == [7, 8]
    options = {"startingOffsets": "latest"} if since is None else {"startingTimestamp": since * 1000}
    with Stream(hub.root, **options) as other:
        other.offsets = stream.offsets
        assert seqs(other.replay()) == [7, 8]
        write(hub, "beta")
        assert seqs(other.take()) == [9]


def test_progress_tells_how_far_there_is_something_to_read(hub: Hub) -> None:
    made = source(hub.root, endingTimestamp=(START + 2) * 1000)
    reader = made.streamReader(made.schema())
    assert isinstance(reader, VeenStreamReader)
    assert reader.reportLatestOffset() == {hub.label("alpha").hex(): 2}
    reader.stop()


def test_a_stream_of_epochs_takes_those_that_come_up(tmp_path: Path) -> None:
    hub = Hub(tmp_path / "data", epoch_sec=EPOCH_SEC)
    epoch = labels.epoch_at(START, EPOCH_SEC)
    hub.write("alpha", b"x")
    hub.leave()
    with Stream(hub.root, startingOffsets="earliest", epoch=f"{epoch + 1}-{epoch + 2}") as stream:
        found = []
        for _ in range(5):
            found += stream.take()
            stream.restart()
            hub.tick(EPOCH_SEC)
            write(hub, "alpha")
            write(hub, "beta", 2)
        assert sorted((row["epoch"] - epoch, row["stream_seq"]) for row in found) == [
            (number, seq) for number in (1, 2) for seq in (1, 1, 2)
        ]


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_of_any_times_has_each_entry_of_them_once(tmp_path: Path, seed: int) -> None:
    """Over a log that grows, with limits, restarts and batches that were cut off."""
    chance = random.Random(seed)
    hub = Hub(tmp_path / "data", epoch_sec=chance.choice([0, 20]))
    hub.leave()
    ends = sorted(chance.randrange(START * 1000, (START + 70) * 1000) for _ in range(2))
    since, until = ends[0], ends[1] if chance.random() < 0.7 else None
    with Stream(hub.root, **asked(since, until), maxOffsetsPerTrigger=chance.randint(2, 9)) as stream:
        found: list[Row] = []
        for number in range(40):
            for _ in range(chance.randint(0, 2)):
                write(hub, chance.choice(["alpha", "beta", "gamma"]), chance.randint(1, 3))
            rows = stream.take()
            if chance.random() < 0.3:
                stream.restart()
                if rows:
                    assert keys_of(stream.replay()) == keys_of(rows)
            found += rows
            if number == 20:
                hub.tick(5)
        found += [row for rows in iter(stream.take, []) for row in rows]
    assert sorted(keys_of(found)) == those(plain(hub.root), since, until)
