"""The log as a stream, by the calls that Spark's engine makes: offsets, limits, restarts, and losses."""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from tests.pipeline.datasource.spark_calls import Stream, keys_of, runs_without_gaps, source
from tests.pipeline.log_builder import Hub
from veen.core.types import Label
from veen.pipeline.datasource.stream_reader import VeenStreamReader
from veen.pipeline.errors import DataLossError, LossVerdict

DAY = 86_400


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    """A log with three entries of one stream and one of another; nobody has it open."""
    made = Hub(tmp_path / "data")
    made.write("alpha", b"1", b"2", b"3")
    made.write("beta", b"1")
    made.leave()
    return made


def write(hub: Hub, stream: str, count: int = 1) -> None:
    """Write and let go: a process that writes a directory can not read it by another way."""
    hub.reopen()
    hub.write(stream, *[b"more"] * count)
    hub.leave()


def of(hub: Hub, stream: str, *seqs: int) -> set[tuple[Label, int]]:
    return {(hub.label(stream), seq) for seq in seqs}


def test_a_stream_begins_with_what_comes_unless_it_is_told_otherwise(hub: Hub) -> None:
    with Stream(hub.root) as late, Stream(hub.root, startingOffsets="earliest") as early:
        assert late.take() == []
        assert set(keys_of(early.take())) == of(hub, "alpha", 1, 2, 3) | of(hub, "beta", 1)
        write(hub, "alpha")
        for stream in (late, early):
            assert set(keys_of(stream.take())) == of(hub, "alpha", 4)
            assert stream.take() == []


def test_offsets_are_the_last_entry_of_each_label(hub: Hub) -> None:
    with Stream(hub.root, startingOffsets="earliest") as stream:
        stream.take()
        offset = dict(stream.offsets[-1])
        assert offset.pop("began") == {hub.label("alpha").hex(): 0, hub.label("beta").hex(): 0}
        roots = offset.pop("roots")
        assert offset == {hub.label("alpha").hex(): 3, hub.label("beta").hex(): 1}
        assert roots == {
            receipt.label.hex(): receipt.mmr_root.hex() for receipt in (hub.receipts[2], hub.receipts[3])
        }
        assert list(offset) == sorted(offset)


def test_a_stream_begins_where_it_is_told(hub: Hub) -> None:
    starting = json.dumps({hub.label("alpha").hex(): 3, hub.label("beta").hex(): -1})
    with Stream(hub.root, startingOffsets=starting) as stream:
        assert set(keys_of(stream.take())) == of(hub, "alpha", 3)


def test_new_labels_and_epochs_are_picked_up(tmp_path: Path) -> None:
    hub = Hub(tmp_path / "data", epoch_sec=DAY)
    hub.write("alpha", b"1")
    hub.leave()
    with Stream(hub.root, startingOffsets="earliest", stream="alpha,gamma") as stream:
        first = stream.take()
        hub.tick(DAY)
        write(hub, "alpha", 2)
        write(hub, "beta", 2)
        write(hub, "gamma")
        rows = stream.take()
        assert set(keys_of(rows)) == of(hub, "alpha", 1, 2) | of(hub, "gamma", 1)
        assert {row["epoch"] for row in rows} == {first[0]["epoch"] + 1}


def test_a_limit_is_kept_and_shared(hub: Hub) -> None:
    write(hub, "alpha", 30)
    write(hub, "beta", 8)
    with Stream(hub.root, startingOffsets="earliest", maxOffsetsPerTrigger=6) as stream:
        batches = list(iter(stream.take, []))
        assert [len(rows) for rows in batches] == [6] * 7
        assert {row["label"] for row in batches[0]} == {hub.label("alpha"), hub.label("beta")}
        everything = [row for rows in batches for row in rows]
        assert len(set(keys_of(everything))) == 42
        assert runs_without_gaps(everything)


def test_available_now_ends_with_what_there_was(hub: Hub) -> None:
    made = source(hub.root, startingOffsets="earliest", maxOffsetsPerTrigger=3)
    reader = made.streamReader(made.schema())
    assert isinstance(reader, VeenStreamReader)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    reader.stop()  # lets go of the log, no more
    write(hub, "alpha", 5)
    write(hub, "gamma", 5)
    first = reader.latestOffset(start, ReadMaxRows(3))
    second = reader.latestOffset(first, ReadMaxRows(3))
    assert reader.latestOffset(second, ReadMaxRows(3)) == second
    assert {key: seq for key, seq in second.items() if key not in ("began", "roots")} == {
        hub.label("alpha").hex(): 3,
        hub.label("beta").hex(): 1,
    }
    assert reader.reportLatestOffset()[hub.label("alpha").hex()] == 8
    reader.stop()


@pytest.mark.parametrize("sealed", [False, True])
def test_a_restart_reads_the_batch_that_was_cut_off_again(hub: Hub, sealed: bool) -> None:  # noqa: FBT001
    write(hub, "alpha", 40)
    with Stream(hub.root, startingOffsets="earliest", maxOffsetsPerTrigger=20, verify="full") as stream:
        stream.take()
        before = stream.take()
        stream.restart()
        write(hub, "alpha", 10)
        if sealed:
            hub.reopen()
            hub.close()
        assert [row["leaf_hash"] for row in stream.replay()] == [row["leaf_hash"] for row in before]
        assert runs_without_gaps([*before, *stream.take()])


@pytest.mark.parametrize("starting", ["latest", "earliest"])
def test_a_first_batch_that_was_cut_off_begins_where_it_began(hub: Hub, starting: str) -> None:
    """Spark asks the source again where to begin; meanwhile the log has another end."""
    with Stream(hub.root, startingOffsets=starting) as stream:
        stream.take()
        write(hub, "alpha", 2)
        before = stream.take()
        stream.restart()
        write(hub, "alpha", 2)
        assert keys_of(stream.replay()) == keys_of(before)
        assert set(keys_of(stream.take())) == of(hub, "alpha", 6, 7)


def test_entries_are_checked_on_the_way(hub: Hub) -> None:
    write(hub, "alpha", 60)
    with Stream(hub.root, startingOffsets="earliest", maxOffsetsPerTrigger=7, verify="roots") as stream:
        rows = [row for rows in iter(stream.take, []) for row in rows]
    assert len(rows) == 64
    assert {(row["checked"], row["fault"]) for row in rows} == {("roots", None)}


# --- losses -------------------------------------------------------------------------------------------------


def verdicts(error: DataLossError) -> list[tuple[LossVerdict, int, int]]:
    return [(loss.verdict, loss.first_seq, loss.last_seq) for loss in error.losses]


@pytest.fixture
def stream(hub: Hub) -> Stream:
    """A query that has read three entries of alpha and one of beta, and was stopped."""
    made = Stream(hub.root, startingOffsets="earliest")
    made.take()
    made.restart()
    return made


def shorter(hub: Hub, alpha: int, *, other: bool = False) -> None:
    """Put a log in the place of the hub's that has less of alpha, or other entries."""
    shutil.rmtree(hub.root)
    made = Hub(hub.root, name="hub")
    made.write("alpha", *[b"other" if other else str(number + 1).encode() for number in range(alpha)])
    made.write("beta", b"1")
    made.leave()


def test_a_log_that_ends_before_what_was_read_has_lost_it(hub: Hub, stream: Stream) -> None:
    shorter(hub, 2)
    with stream, pytest.raises(DataLossError) as caught:
        stream.take()
    assert (LossVerdict.LOST, 3, 3) in verdicts(caught.value)


def test_a_log_that_is_gone_has_lost_everything(hub: Hub, stream: Stream) -> None:
    shutil.rmtree(hub.root)
    Hub(hub.root).leave()
    with stream, pytest.raises(DataLossError) as caught:
        stream.take()
    assert sorted(verdicts(caught.value)) == [(LossVerdict.LOST, 1, 1), (LossVerdict.LOST, 1, 3)]


def test_a_log_with_another_entry_in_the_place_of_one_that_was_read_is_forked(
    hub: Hub, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    shorter(hub, 5, other=True)
    with pytest.raises(DataLossError) as caught:
        stream.take()
    assert (LossVerdict.FORKED, 3, 3) in verdicts(caught.value)
    stream.restart(failOnDataLoss=False)
    with stream:
        assert set(keys_of(stream.take())) == of(hub, "alpha", 4, 5)
        assert "forked: entry 3" in caplog.text
        assert stream.take() == []


def test_a_fork_is_not_noticed_without_roots_and_offsets_without_them_are_understood(
    hub: Hub, stream: Stream
) -> None:
    shorter(hub, 5, other=True)
    stream.offsets = [{key: seq for key, seq in stream.offsets[-1].items() if isinstance(seq, int)}]
    with stream:
        assert set(keys_of(stream.take())) == of(hub, "alpha", 4, 5)


def prune(hub: Hub, upto: int) -> int:
    """Prune alpha; return the first entry that is left."""
    hub.reopen()
    hub.writer.flush()
    hub.tick(10**6)
    rows = hub.writer.prune(hub.label("alpha"), upto)
    hub.leave()
    return rows[-1].end_seq + 1


def test_entries_that_were_pruned_before_they_were_read(
    hub: Hub, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    write(hub, "alpha", 97)
    first = prune(hub, 50)
    with pytest.raises(DataLossError) as caught:
        stream.take()
    assert verdicts(caught.value) == [(LossVerdict.PRUNED, 4, first - 1)]
    stream.restart(failOnDataLoss=False)
    with stream:
        assert set(keys_of(stream.take())) == of(hub, "alpha", *range(first, 101))
        assert "pruned: entries 4 to" in caplog.text
        assert stream.take() == []


def test_what_was_read_may_be_pruned(hub: Hub, stream: Stream) -> None:
    write(hub, "alpha", 97)
    stream.take()
    stream.restart()
    prune(hub, 50)
    write(hub, "alpha")
    with stream:
        assert set(keys_of(stream.take())) == of(hub, "alpha", 101)


def test_a_batch_that_was_cut_off_and_pruned_since_is_a_loss(hub: Hub, stream: Stream) -> None:
    write(hub, "alpha", 97)
    stream.take()
    stream.restart()
    first = prune(hub, 50)
    with pytest.raises(DataLossError) as caught:
        stream.replay()
    assert verdicts(caught.value) == [(LossVerdict.PRUNED, 4, first - 1)]
    stream.restart(failOnDataLoss=False)
    with stream:
        assert set(keys_of(stream.replay())) == of(hub, "alpha", *range(first, 101))


def test_a_batch_that_was_cut_off_and_whose_log_was_replaced(hub: Hub, stream: Stream) -> None:
    write(hub, "alpha", 2)
    stream.take()
    stream.restart()
    shorter(hub, 4)
    with stream, pytest.raises(DataLossError) as caught:
        stream.replay()
    assert verdicts(caught.value) == [(LossVerdict.LOST, 5, 5)]


def test_lost_entries_that_come_again_are_read(hub: Hub, stream: Stream) -> None:
    shorter(hub, 2)
    stream.restart(failOnDataLoss=False)
    with stream:
        assert stream.take() == []
        write(hub, "alpha", 2)
        assert set(keys_of(stream.take())) == of(hub, "alpha", 3, 4)
        assert stream.take() == []


def test_a_beginning_that_the_log_has_not(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    starting = json.dumps({hub.label("alpha").hex(): 7})
    with Stream(hub.root, startingOffsets=starting) as stream, pytest.raises(DataLossError) as caught:
        stream.take()
    assert verdicts(caught.value) == [(LossVerdict.NEVER_WRITTEN, 4, 6)]
    with Stream(hub.root, startingOffsets=starting, failOnDataLoss=False) as stream:
        assert set(keys_of(stream.take())) == of(hub, "beta", 1)
        assert "never written: entries 4 to 6" in caplog.text
