"""What a log does not have: promises that are not kept, beginnings that nobody explains, bytes too many."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.hub.process import HubProcess, veen
from tests.pipeline import damaging
from tests.pipeline.making import Hub, prune, varied
from tests.pipeline.test_verifying import checked, verified
from veen.client.errors import NetworkError
from veen.core.msg import msg_end
from veen.core.receipt import Receipt
from veen.core.wire import decode_sequence, encode_sequence
from veen.pipeline.kernel import Level
from veen.pipeline.logs import PlaceError, open_log
from veen.pipeline.verdicts import DAMAGED, LOST, OK
from veen.pipeline.verifying import Verification


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    made = varied(tmp_path / "hub", 240)
    made.close()
    return made


# --- directories --------------------------------------------------------------------------------------------


def _without_its_end(hub: Hub) -> None:
    for chunk in damaging.chunks(hub, hub.label("beta"))[-2:]:
        chunk.unlink()
    for chunk in (hub.root / "log").glob(f"chunk-{hub.label('beta').hex()}-*-open.log"):
        chunk.unlink()


def _without_a_label(hub: Hub) -> None:
    for chunk in (hub.root / "log").glob(f"chunk-{hub.label('beta').hex()}-*.log"):
        chunk.unlink()


@pytest.mark.parametrize("cut", [_without_its_end, _without_a_label])
def test_a_log_that_was_cut_and_repaired_breaks_the_hubs_promise(
    spark: SparkSession, hub: Hub, cut: Callable[[Hub], None]
) -> None:
    """The index agrees with what is left; the hub's own checkpoints do not."""
    cut(hub)
    assert veen("repair", hub.root).returncode == 0
    report = verified(spark, hub.root)
    assert not checked(hub.root).ok
    assert report.integrity == DAMAGED
    assert report.first is not None
    assert "there was an entry" in report.first.text


def test_bytes_behind_the_last_entry_are_noticed(spark: SparkSession, hub: Hub) -> None:
    chunk = damaging.chunks(hub, hub.label("beta"))[1]
    chunk.write_bytes(chunk.read_bytes() + b"garbage")
    report = verified(spark, hub.root)
    assert report.first is not None
    assert "7 bytes behind the last entry" in report.first.text


def test_a_beginning_that_nobody_has_pruned_is_missing(spark: SparkSession, hub: Hub) -> None:
    """Somebody drops the first chunk, with a tombstone that he takes away again."""
    label = hub.label("beta")
    hub.reopen()
    hub.writer.prune(label, 20)
    hub.close()
    tombstone = next((hub.root / "log").glob(f"pruned-{label.hex()}-*"))
    tombstone.unlink()
    for level in (Level.FRAMES, Level.FULL):
        report = verified(spark, hub.root, level)
        assert report.integrity == DAMAGED, level
    first = verified(spark, hub.root, receipts=hub.receipts)
    assert first.agreement == LOST


def test_a_damaged_file_is_no_evidence_against_the_hub(spark: SparkSession, hub: Hub) -> None:
    chunk = damaging.chunks(hub, hub.label("beta"))[0]
    chunk.write_bytes(chunk.read_bytes()[: chunk.stat().st_size // 2])
    report = verified(spark, hub.root, receipts=hub.receipts)
    assert report.integrity == DAMAGED
    assert (report.held.forked, report.held.lost) == ([], [])
    assert report.held.unchecked > 0


def test_entries_that_are_pruned_while_they_are_read_are_pruned(spark: SparkSession, hub: Hub) -> None:
    label = hub.label("beta")
    log = open_log(str(hub.root))
    planned = log.plan
    done = list[bool]()

    def plan(*args: object, **options: object) -> object:
        found = planned(*args, **options)  # type: ignore[arg-type]
        if not done:
            prune(hub.root, label, 40)
            done.append(True)
        return found

    log.plan = plan  # type: ignore[method-assign,assignment]
    try:
        report = Verification(spark.sparkContext, log).run()
    finally:
        log.close()
    assert report.ok, report.first
    assert next(item for item in report.labels if item.head.label == label).pruned_upto == 40


def test_without_its_index_a_log_is_not_called_damaged(hub: Hub) -> None:
    shutil.rmtree(hub.root / "state" / "index")
    with pytest.raises(PlaceError, match="veen repair"):
        open_log(str(hub.root))


# --- sets ---------------------------------------------------------------------------------------------------


def _exported(hub: Hub) -> Path:
    place = hub.root.parent / "set"
    assert veen("export", "--hub", hub.root, "--all", "--out", place).returncode == 0
    return place


def test_a_set_that_was_cut_does_not_keep_its_promise(spark: SparkSession, hub: Hub) -> None:
    place = _exported(hub)
    receipts = decode_sequence((place / "receipts.cborseq").read_bytes(), Receipt)
    assert verified(spark, place, receipts=hub.receipts).agreement == OK
    msgs = (place / "payloads.cborseq").read_bytes()
    ends = [0]
    while ends[-1] < len(msgs):
        ends.append(msg_end(msgs, ends[-1]))
    (place / "receipts.cborseq").write_bytes(encode_sequence(receipts[:-10]))
    (place / "payloads.cborseq").write_bytes(msgs[: ends[-11]])
    report = verified(spark, place)
    assert report.integrity == DAMAGED
    assert report.first is not None
    assert report.first.detail == "PROOF_SEQ"


# --- what says nothing about a log --------------------------------------------------------------------------


def test_a_hub_that_goes_away_is_not_a_damaged_log(spark: SparkSession, hub: Hub) -> None:
    with HubProcess(hub.root) as running:
        log = open_log(running.url, streams=["beta"])
        planned = log.plan
        log.plan = lambda *args, **options: (planned(*args, **options), running.process.kill())[0]  # type: ignore[func-returns-value,method-assign]
        with pytest.raises(NetworkError):
            Verification(spark.sparkContext, log).run()
        log.close()


def test_receipts_of_streams_that_were_not_read_are_not_lost(spark: SparkSession, hub: Hub) -> None:
    log = open_log(str(hub.root))
    try:
        report = Verification(spark.sparkContext, log).run([hub.label("beta")], hub.receipts)
    finally:
        log.close()
    assert (report.agreement, report.held.lost) == (OK, [])
    assert report.held.unchecked == 120
