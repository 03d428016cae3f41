"""What the source reads of real logs, by the calls that Spark makes: all columns, ranges, checks, faults."""

import bz2
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition

from tests.hub.hub_process import veen
from tests.pipeline.datasource.spark_calls import Row, keys_of, plain, read, reader_of, rows_of
from tests.pipeline.log_builder import Hub, varied
from veen.client.errors import PinError
from veen.core.data_dir import paths
from veen.core.objects import labels
from veen.core.types import HubId
from veen.pipeline.errors import DataLossError, InvalidEntryError, LossVerdict


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three streams, three writers, two keys of the hub, chunks and a journal."""
    root = tmp_path_factory.mktemp("log") / "data"
    varied(root, 200).leave()
    return root


@pytest.fixture(scope="module")
def portable(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, exported."""
    out = tmp_path_factory.mktemp("set") / "set"
    done = veen("export", "--hub", log, "--all", "--out", out)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def expected(log: Path) -> list[Row]:
    return plain(log)


def same(row: Row, other: Row) -> bool:
    return all(row[name] == value for name, value in other.items())


@pytest.mark.parametrize("partitions", [1, 2, 7, 64])
@pytest.mark.parametrize("verify", ["none", "frames", "roots", "full"])
def test_every_column_is_what_the_plain_reader_says(
    log: Path, expected: list[Row], partitions: int, verify: str
) -> None:
    rows = read(log, minPartitions=partitions, verify=verify)
    assert len(rows) == len(expected) == 200
    assert all(map(same, rows, expected))
    assert {(row["checked"], row["fault"]) for row in rows} == {(verify, None)}
    assert {row["hub_time"].timestamp() - row["hub_ts"] for row in rows} == {0}
    assert {row["file"] for row in rows if row["offset"] is None} == {"state"}
    assert all((log / row["file"]).exists() for row in rows)


@pytest.mark.parametrize("verify", ["none", "frames", "roots", "full"])
@pytest.mark.parametrize("partitions", [1, 7])
def test_an_exported_set_has_the_same_entries(
    portable: Path, expected: list[Row], verify: str, partitions: int
) -> None:
    rows = read(portable, minPartitions=partitions, verify=verify)
    assert all(same(row, {**other, "offset": None}) for row, other in zip(rows, expected, strict=True))


@pytest.mark.parametrize("partitions", [1, 2, 7, 64])
def test_there_are_about_as_many_partitions_as_asked_for(log: Path, partitions: int) -> None:
    """Of 64 there are a few less: a part has whole entries, and here they are large for it."""
    reader = reader_of(log, minPartitions=partitions)
    assert min(partitions, 50) <= len(reader.partitions()) <= partitions + 10


def test_a_small_log_is_one_task_if_nobody_asks_for_more(log: Path) -> None:
    assert len(reader_of(log).partitions()) == 1


def test_readers_and_partitions_travel(log: Path) -> None:
    reader = reader_of(log, minPartitions=3, verify="full")
    parts = pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301 - made here
    other = pickle.loads(pickle.dumps(reader))  # noqa: S301
    assert sum(len(list(rows_of(other.read(part)))) for part in parts) == 200


def test_only_the_columns_asked_for_are_made(log: Path) -> None:
    rows = read(log, columns="stream_seq,label")
    assert list(rows[0]) == ["stream_seq", "label"]


@pytest.mark.parametrize("verify", ["frames", "full"])
def test_nothing_to_read_is_no_partition_and_the_one_that_spark_makes_up_is_empty(
    log: Path, verify: str
) -> None:
    reader = reader_of(log, label=bytes(32).hex(), verify=verify)
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


# --- which entries ------------------------------------------------------------------------------------------


def those(rows: list[Row], condition: Callable[[Row], bool]) -> list[tuple[bytes, int]]:
    return keys_of([row for row in rows if condition(row)])


def from_entry(seq: int, rows: list[Row]) -> str:
    """Return offsets that begin with an entry in every label."""
    return json.dumps({row["label"].hex(): seq for row in rows})


def test_options_choose_streams_and_labels(log: Path, expected: list[Row]) -> None:
    names = {name: labels.stream_id(name) for name in ("alpha", "gamma")}
    rows = read(log, stream="alpha, gamma")
    assert keys_of(rows) == those(expected, lambda row: row["stream_id"] in names.values())
    label = rows[0]["label"]
    assert keys_of(read(log, label=label.hex())) == those(expected, lambda row: row["label"] == label)
    assert read(log, stream="unheard of") == []


def test_offsets_begin_with_the_entry_and_end_before_it(log: Path, expected: list[Row]) -> None:
    one, two, three = sorted({row["label"] for row in expected})
    rows = read(
        log,
        startingOffsets=json.dumps({one.hex(): 5, two.hex(): -2}),
        endingOffsets=json.dumps({one.hex(): 8, three.hex(): -1}),
    )
    assert [seq for label, seq in keys_of(rows) if label == one] == [5, 6, 7]
    assert len(rows) - 3 == len([row for row in expected if row["label"] != one])


@pytest.mark.parametrize("verify", ["roots", "full"])
def test_roots_are_checked_from_the_middle_of_a_label_too(
    log: Path, portable: Path, expected: list[Row], verify: str
) -> None:
    for place in (log, portable):
        rows = read(place, startingOffsets=from_entry(22, expected), verify=verify, minPartitions=5)
        assert keys_of(rows) == those(expected, lambda row: row["stream_seq"] > 21)
        assert {row["fault"] for row in rows} == {None}


def test_the_log_must_be_of_the_hub_that_was_named(log: Path) -> None:
    hub_id = HubId(bytes.fromhex("ab" * 32))
    with pytest.raises(PinError, match=f"not of {hub_id.hex()}"):
        read(log, hubId=hub_id.hex())


# --- faults -------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, Row]:
    """A log in which the ciphertext of one entry has changed; its frame can be read."""
    root = tmp_path / "data"
    with varied(root, 60) as hub:
        hub.writer.flush()
    row = next(row for row in plain(root) if row["stream_seq"] == 9)
    path = root / read(root, label=row["label"].hex())[8]["file"]
    data = bytearray(path.read_bytes())
    at = data.index(row["ciphertext"]) + 60
    data[at] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    return root, row


@pytest.mark.parametrize("verify", ["frames", "roots", "full"])
def test_the_first_fault_stops_the_query_and_is_named(damaged: tuple[Path, Row], verify: str) -> None:
    root, row = damaged
    with pytest.raises(InvalidEntryError) as caught:
        read(root, verify=verify)
    error, where = caught.value, caught.value.finding.where
    assert (where.label, where.seq, where.offset) == (row["label"], 9, row["offset"])
    assert (error.seq, error.finding.code) == (9, "ENTRY_HASH")
    assert where.file in str(error)


@pytest.mark.parametrize("verify", ["frames", "roots", "full"])
def test_permissive_keeps_the_row_and_says_what_is_wrong(damaged: tuple[Path, Row], verify: str) -> None:
    root, row = damaged
    rows = read(root, verify=verify, mode="PERMISSIVE")
    assert len(rows) == 60
    bad = [item for item in rows if item["fault"]]
    assert keys_of(bad) == [(row["label"], 9)]
    assert bad[0]["fault"].startswith("ENTRY_HASH: ")


def test_without_checks_it_is_read_as_it_is(damaged: tuple[Path, Row]) -> None:
    assert {row["fault"] for row in read(damaged[0], verify="none")} == {None}


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE"])
@pytest.mark.parametrize("verify", ["none", "full"])
def test_a_frame_that_can_not_be_read_always_fails(damaged: tuple[Path, Row], mode: str, verify: str) -> None:
    root, row = damaged
    path = root / read(root, label=row["label"].hex(), verify="none")[8]["file"]
    data = bytearray(path.read_bytes())
    data[row["offset"] + 1] = 1  # a flag
    path.write_bytes(data)
    with pytest.raises(InvalidEntryError, match="ENTRY_FLAGS"):
        read(root, verify=verify, mode=mode)


@pytest.mark.parametrize("partitions", [1, 9])
def test_peaks_that_the_directory_states_wrongly_are_found(tmp_path: Path, partitions: int) -> None:
    """Roots are worked out from what is stated before a part; a wrong statement is no way round the check."""
    root = tmp_path / "data"
    with Hub(root) as hub:
        hub.write("alpha", *[b"x"] * 100)
        label = hub.label("alpha")
    nodes = next(
        path
        for path in root.rglob("*")
        if path.is_file() and label.hex() in path.name and "node" in path.name
    )
    data = bytearray(nodes.read_bytes())
    for at in range(0, len(data), 32):
        data[at] ^= 1
    nodes.chmod(0o600)
    nodes.write_bytes(data)
    asked = {"startingOffsets": json.dumps({label.hex(): 31}), "verify": "roots", "minPartitions": partitions}
    rows = read(root, **asked, mode="PERMISSIVE")
    assert any("PROOF" in (row["fault"] or "") for row in rows)
    with pytest.raises(InvalidEntryError, match="PROOF"):
        read(root, **asked)


# --- entries that are not there -----------------------------------------------------------------------------


@pytest.fixture
def pruned(tmp_path: Path) -> tuple[Path, bytes, int]:
    """A log whose first entries were pruned; the label, and the first that is left."""
    root = tmp_path / "data"
    with Hub(root) as hub:
        hub.write("alpha", *[b"x"] * 100)
        hub.writer.flush()
        hub.tick(10**6)
        label = hub.label("alpha")
        rows = hub.writer.prune(label, 50)
        assert rows
    return root, label, rows[-1].end_seq + 1


@pytest.mark.parametrize("verify", ["frames", "roots", "full"])
def test_a_pruned_log_is_read_from_its_first_entry(pruned: tuple[Path, bytes, int], verify: str) -> None:
    root, _, first = pruned
    rows = read(root, verify=verify, minPartitions=3)
    assert [row["stream_seq"] for row in rows] == list(range(first, 101))


def losses_of(place: Path, **options: object) -> list[tuple[LossVerdict, int, int]]:
    with pytest.raises(DataLossError) as caught:
        read(place, **options)
    return [(loss.verdict, loss.first_seq, loss.last_seq) for loss in caught.value.losses]


def test_asking_for_what_was_pruned_or_never_written_is_a_verdict(pruned: tuple[Path, bytes, int]) -> None:
    root, label, first = pruned
    key = label.hex()
    assert losses_of(root, startingOffsets=json.dumps({key: 3})) == [(LossVerdict.PRUNED, 3, first - 1)]
    assert losses_of(root, endingOffsets=json.dumps({key: 104})) == [(LossVerdict.NEVER_WRITTEN, 101, 103)]
    assert losses_of(root, startingOffsets=json.dumps({key: 103})) == [(LossVerdict.NEVER_WRITTEN, 101, 102)]
    assert losses_of(root, startingOffsets=json.dumps({"ab" * 32: 5})) == [(LossVerdict.NEVER_WRITTEN, 1, 4)]


def test_a_query_that_may_go_on_reads_what_there_is(
    pruned: tuple[Path, bytes, int], caplog: pytest.LogCaptureFixture
) -> None:
    root, label, first = pruned
    rows = read(
        root,
        startingOffsets=json.dumps({label.hex(): 3}),
        endingOffsets=json.dumps({label.hex(): 104}),
        failOnDataLoss=False,
    )
    assert [row["stream_seq"] for row in rows] == list(range(first, 101))
    assert [record.message.split(":")[0] for record in caplog.records] == ["pruned", "never written"]


def test_files_get_other_names_between_planning_and_reading(tmp_path: Path) -> None:
    """The open chunk is sealed, and chunks are compressed; a task finds them again."""
    root = tmp_path / "data"
    with Hub(root) as hub:
        hub.write("alpha", *[b"x"] * 30)
    reader = reader_of(root, minPartitions=3, verify="full")
    plan = reader.partitions()
    before = {path.name for path in root.glob("log/chunk-*")}
    hub.reopen()
    hub.write("alpha", *[b"x"] * 30)
    hub.close()
    assert before - {path.name for path in root.glob("log/chunk-*")}
    assert [row["stream_seq"] for part in plan for row in rows_of(reader.read(part))] == [*range(1, 31)]
    for path in root.glob("log/chunk-*-*-*.log"):
        path.with_name(path.name + paths.COMPRESSED).write_bytes(bz2.compress(path.read_bytes()))
        path.unlink()
    rows = [row for part in plan for row in rows_of(reader.read(part))]
    assert [row["stream_seq"] for row in rows] == [*range(1, 31)]
    assert rows[0]["file"].endswith(paths.COMPRESSED)


def test_entries_that_are_pruned_between_planning_and_reading_are_a_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "data"
    with Hub(root) as hub:
        hub.write("alpha", *[b"x"] * 100)
    readers = [reader_of(root, minPartitions=2, failOnDataLoss=fail, verify="full") for fail in (True, False)]
    plans = [reader.partitions() for reader in readers]
    hub.reopen()
    hub.tick(10**6)
    first = hub.writer.prune(hub.label("alpha"), 45)[-1].end_seq + 1
    hub.close()
    with pytest.raises(DataLossError, match="pruned"):
        [row for part in plans[0] for row in rows_of(readers[0].read(part))]
    left = [row["stream_seq"] for part in plans[1] for row in rows_of(readers[1].read(part))]
    assert left == [*range(first, 101)]
    assert "pruned: entries 1 to" in caplog.text
