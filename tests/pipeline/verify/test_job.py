"""Whole logs on Spark: the verdicts of the plain checker, however a log is divided; all damage is named."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.hub.hub_process import HubProcess, veen
from tests.pipeline import damage as damaging
from tests.pipeline.log_builder import Hub, prune, varied
from veen.client.errors import NetworkError
from veen.core.encoding.wire_object import decode_sequence, encode_sequence
from veen.core.objects.finding import Level
from veen.core.objects.msg import msg_end
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.receipt import Receipt
from veen.core.types import Label
from veen.hub.keyring import signing
from veen.pipeline.errors import LogSourceError
from veen.pipeline.log.open import open_log
from veen.pipeline.verify.job import Verification
from veen.pipeline.verify.report import BROKEN, DAMAGED, FORKED, LOST, OK, Report
from veen.storage import RealFilesystem, fsck

#: How often each kind of damage is tried; ``make streams`` tries more.
DAMAGES = int(os.environ.get("VEEN_PIPELINE_DAMAGES", "1"))


def verified(
    spark: SparkSession, root: Path, level: Level = Level.FULL, partitions: int | None = None, **more: object
) -> Report:
    log = open_log(str(root))
    try:
        return Verification(spark.sparkContext, log, level, partitions=partitions).run(**more)  # type: ignore[arg-type]
    finally:
        log.close()


def checked(root: Path) -> fsck.Report:
    fs = RealFilesystem(root)
    try:
        return fsck.check(fs)
    finally:
        fs.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Hub:
    hub = varied(tmp_path_factory.mktemp("whole"), 240)
    hub.close()
    return hub


@pytest.fixture
def copy(whole: Hub, tmp_path: Path) -> Hub:
    """The same log, to be damaged."""
    root = tmp_path / "copy"
    shutil.copytree(whole.root, root)
    moved = object.__new__(Hub)
    moved.__dict__.update({**whole.__dict__, "root": root, "receipts": list(whole.receipts)})
    return moved


def _label(hub: Hub) -> Label:
    return hub.label("beta")


# --- good logs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitions", "level"),
    [(7, Level.FRAMES), (7, Level.ROOTS), *((count, Level.FULL) for count in (1, 2, 7, 64))],
)
def test_a_sound_log_is_sound_however_it_is_divided(
    spark: SparkSession, whole: Hub, partitions: int, level: Level
) -> None:
    report = verified(spark, whole.root, level, partitions)
    assert report.ok
    assert (report.integrity, report.first, report.others) == (OK, None, [])
    plain = {item.label: item for item in checked(whole.root).labels}
    for item in report.labels:
        known = plain[item.head.label]
        assert (item.entries, item.head.mmr_root) == (known.head_seq, known.head_root)
        if level == Level.FULL:
            assert (item.clients, item.newest_ts) == (known.clients, known.newest_ts)
            assert item.newest_checkpoint == (known.newest_checkpoint or 0)


@pytest.mark.parametrize("epoch_sec", [0, 60])
def test_entries_that_are_only_in_the_journal_count(
    spark: SparkSession, tmp_path: Path, epoch_sec: int
) -> None:
    hub = varied(tmp_path, 90, epoch_sec=epoch_sec)
    hub.leave()
    report = verified(spark, tmp_path, receipts=hub.receipts)
    assert report.ok
    assert (report.entries, report.agreement) == (90, OK)


def test_a_pruned_label_goes_on_from_its_tombstones(spark: SparkSession, copy: Hub) -> None:
    label = _label(copy)
    copy.reopen()
    copy.writer.prune(label, 45)
    copy.write("beta", b"one more", client="ann")
    copy.close()
    report = verified(spark, copy.root, receipts=copy.receipts)
    found = next(item for item in report.labels if item.head.label == label)
    assert report.ok, report.first
    assert (found.pruned_upto, found.entries) == (40, 120 - 40 + 1)


def test_nodes_that_lie_do_not_change_the_verdict_of_a_sound_log(spark: SparkSession, copy: Hub) -> None:
    """Stated peaks are a hint: wrong ones cost a second look, and nothing else."""
    nodes = next((copy.root / "log").glob(f"nodes-{_label(copy).hex()}.mmr"))
    nodes.write_bytes(bytes(len(nodes.read_bytes())))
    assert verified(spark, copy.root).ok


# --- damage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(DAMAGES))
@pytest.mark.parametrize("do", damaging.ALL, ids=lambda do: do.__name__)
def test_damage_is_found_and_the_first_bad_entry_named(
    spark: SparkSession, copy: Hub, do: damaging.Do, number: int
) -> None:
    damage = do(copy, _label(copy), random.Random(f"{do.__name__} {number}"))
    report = verified(spark, copy.root, partitions=(1, 7, 64)[(number + damaging.ALL.index(do)) % 3])
    assert not report.ok
    assert report.integrity == DAMAGED or report.completeness == BROKEN
    first = report.first
    assert first is not None
    assert first.where.label == damage.label
    assert first.where.seq in damage.seqs
    assert damage.reason in first.text
    assert not checked(copy.root).ok


def test_a_message_that_a_client_never_missed_is_missed(spark: SparkSession, tmp_path: Path) -> None:
    """A hub that leaves a message out, and signs all others: nothing is damaged, and one client is broken."""
    with Hub(tmp_path) as hub:
        hub.write("beta", b"one", b"two", client="ann")
        hub._acks.clear()
        label = hub.label("beta")
    chunk = next((tmp_path / "log").glob("chunk-*"))
    first, second = damaging.entries_of(chunk)
    other = tmp_path / "other"
    with Hub(other) as cheating:
        batch = cheating.writer.batch()
        record = NewEntry.of_msg(second.msg())
        batch.append(record, signing(cheating.home.ring.active(cheating.clock), record, cheating.clock))
        cheating.writer.commit(batch)
    assert first.receipt.label == label
    report = verified(spark, other)
    assert (report.integrity, report.completeness) == (OK, BROKEN)
    assert report.first is not None
    assert "client_seq 2 where 1 should be" in report.first.text


# --- receipts that somebody holds ---------------------------------------------------------------------------


def test_a_log_that_was_cut_has_lost_what_receipts_prove(spark: SparkSession, tmp_path: Path) -> None:
    hub = Hub(tmp_path / "hub")
    hub.write("beta", b"one", b"two")
    hub.close()
    shutil.copytree(tmp_path / "hub", tmp_path / "old")
    hub.reopen()
    hub.write("beta", b"three")
    hub.close()
    report = verified(spark, tmp_path / "old", receipts=hub.receipts)
    assert (report.integrity, report.agreement, report.ok) == (OK, LOST, False)
    assert [item.where.seq for item in report.held.lost] == [3]


def test_a_hub_that_shows_another_log_has_forked(spark: SparkSession, tmp_path: Path) -> None:
    hub = Hub(tmp_path / "hub")
    hub.write("beta", b"one")
    hub.close()
    shutil.copytree(tmp_path / "hub", tmp_path / "twin")
    hub.reopen()
    hub.write("beta", b"two")
    hub.close()
    twin = object.__new__(Hub)
    twin.__dict__.update({**hub.__dict__, "root": tmp_path / "twin", "receipts": []})
    twin.reopen()
    twin.write("beta", b"TWO")
    twin.close()
    report = verified(spark, tmp_path / "twin", receipts=hub.receipts)
    assert (report.integrity, report.agreement, report.ok) == (OK, FORKED, False)
    assert [item.where.seq for item in report.held.forked] == [2]


# --- logs of any shape --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(2 * DAMAGES))
def test_random_logs_get_the_verdict_of_the_plain_checker(
    spark: SparkSession, tmp_path: Path, number: int
) -> None:
    """Labels, epochs, writers, new keys and prunings by chance; then one bit by chance."""
    chance = random.Random(f"log {number}")
    hub = Hub(tmp_path, epoch_sec=chance.choice([0, 30]))
    for _ in range(chance.randrange(60, 120)):
        stream, client = (
            chance.choice(["beta", "other", "third"]),
            chance.choice(["ann", "bob", "cid", "dan"]),
        )
        hub.write(stream, *[b"x" * chance.randrange(300)] * chance.randrange(1, 4), client=client)
        hub.tick(chance.randrange(3))
        if chance.random() < 0.03:
            hub.tick()
            hub.rotate()
            hub.tick()
    labels = sorted({receipt.label for receipt in hub.receipts})
    hub.writer.flush()
    for label in chance.sample(labels, len(labels) // 2):
        hub.writer.prune(label, chance.randrange(1, 60))
    hub.close()
    report = verified(spark, tmp_path, partitions=chance.choice([1, 2, 7, 64]), receipts=hub.receipts)
    plain = checked(tmp_path)
    assert report.ok
    assert plain.ok
    assert {item.head.label: (item.head.last_seq, item.pruned_upto) for item in report.labels} == {
        item.label: (item.head_seq, item.pruned_to) for item in plain.labels if item.label in labels
    }
    with_chunks = [label for label in labels if damaging.chunks(hub, label)]
    damage = damaging.flipped_bit(hub, chance.choice(with_chunks), chance)
    first = verified(spark, tmp_path, partitions=chance.choice([1, 2, 7, 64])).first
    assert first is not None
    assert (first.where.label, first.where.seq in damage.seqs) == (damage.label, True)
    assert not checked(tmp_path).ok


# --- what a directory does not have -------------------------------------------------------------------------


def _without_its_end(copy: Hub) -> None:
    for chunk in damaging.chunks(copy, copy.label("beta"))[-2:]:
        chunk.unlink()
    for chunk in (copy.root / "log").glob(f"chunk-{copy.label('beta').hex()}-*-open.log"):
        chunk.unlink()


def _without_a_label(copy: Hub) -> None:
    for chunk in (copy.root / "log").glob(f"chunk-{copy.label('beta').hex()}-*.log"):
        chunk.unlink()


@pytest.mark.parametrize("cut", [_without_its_end, _without_a_label])
def test_a_log_that_was_cut_and_repaired_breaks_the_hubs_promise(
    spark: SparkSession, copy: Hub, cut: Callable[[Hub], None]
) -> None:
    """The index agrees with what is left; the hub's own checkpoints do not."""
    cut(copy)
    assert veen("repair", copy.root).returncode == 0
    report = verified(spark, copy.root)
    assert not checked(copy.root).ok
    assert report.integrity == DAMAGED
    assert report.first is not None
    assert "there was an entry" in report.first.text


def test_bytes_behind_the_last_entry_are_noticed(spark: SparkSession, copy: Hub) -> None:
    chunk = damaging.chunks(copy, copy.label("beta"))[1]
    chunk.write_bytes(chunk.read_bytes() + b"garbage")
    report = verified(spark, copy.root)
    assert report.first is not None
    assert "7 bytes after the last entry" in report.first.text


def test_a_beginning_that_nobody_has_pruned_is_missing(spark: SparkSession, copy: Hub) -> None:
    """Somebody drops the first chunk, with a tombstone that he takes away again."""
    label = copy.label("beta")
    copy.reopen()
    copy.writer.prune(label, 20)
    copy.close()
    tombstone = next((copy.root / "log").glob(f"pruned-{label.hex()}-*"))
    tombstone.unlink()
    for level in (Level.FRAMES, Level.FULL):
        report = verified(spark, copy.root, level)
        assert report.integrity == DAMAGED, level
    first = verified(spark, copy.root, receipts=copy.receipts)
    assert first.agreement == LOST


def test_a_damaged_file_is_no_evidence_against_the_hub(spark: SparkSession, copy: Hub) -> None:
    chunk = damaging.chunks(copy, copy.label("beta"))[0]
    chunk.write_bytes(chunk.read_bytes()[: chunk.stat().st_size // 2])
    report = verified(spark, copy.root, receipts=copy.receipts)
    assert report.integrity == DAMAGED
    assert (report.held.forked, report.held.lost) == ([], [])
    assert report.held.unchecked > 0


def test_entries_that_are_pruned_while_they_are_read_are_pruned(spark: SparkSession, copy: Hub) -> None:
    label = copy.label("beta")
    log = open_log(str(copy.root))
    planned = log.plan
    done = list[bool]()

    def plan(*args: object, **options: object) -> object:
        found = planned(*args, **options)  # type: ignore[arg-type]
        if not done:
            prune(copy.root, label, 40)
            done.append(True)
        return found

    log.plan = plan  # type: ignore[method-assign,assignment]
    try:
        report = Verification(spark.sparkContext, log).run()
    finally:
        log.close()
    assert report.ok, report.first
    assert next(item for item in report.labels if item.head.label == label).pruned_upto == 40


def test_without_its_index_a_log_is_not_called_damaged(copy: Hub) -> None:
    shutil.rmtree(copy.root / "state" / "index")
    with pytest.raises(LogSourceError, match="veen repair"):
        open_log(str(copy.root))


# --- sets ---------------------------------------------------------------------------------------------------


def _exported(copy: Hub) -> Path:
    place = copy.root.parent / "set"
    assert veen("export", "--hub", copy.root, "--all", "--out", place).returncode == 0
    return place


def test_a_set_that_was_cut_does_not_keep_its_promise(spark: SparkSession, copy: Hub) -> None:
    place = _exported(copy)
    receipts = decode_sequence((place / "receipts.cborseq").read_bytes(), Receipt)
    assert verified(spark, place, receipts=copy.receipts).agreement == OK
    msgs = (place / "payloads.cborseq").read_bytes()
    ends = [0]
    while ends[-1] < len(msgs):
        ends.append(msg_end(msgs, ends[-1]))
    (place / "receipts.cborseq").write_bytes(encode_sequence(receipts[:-10]))
    (place / "payloads.cborseq").write_bytes(msgs[: ends[-11]])
    report = verified(spark, place)
    assert report.integrity == DAMAGED
    assert report.first is not None
    assert report.first.code == "PROOF_SEQ"


# --- what says nothing about a log --------------------------------------------------------------------------


def test_a_hub_that_goes_away_is_not_a_damaged_log(spark: SparkSession, copy: Hub) -> None:
    with HubProcess(copy.root) as running:
        log = open_log(running.url, streams=["beta"])
        planned = log.plan
        log.plan = lambda *args, **options: (planned(*args, **options), running.process.kill())[0]  # type: ignore[func-returns-value,method-assign]
        with pytest.raises(NetworkError):
            Verification(spark.sparkContext, log).run()
        log.close()


def test_receipts_of_streams_that_were_not_read_are_not_lost(spark: SparkSession, copy: Hub) -> None:
    log = open_log(str(copy.root))
    try:
        report = Verification(spark.sparkContext, log).run([copy.label("beta")], copy.receipts)
    finally:
        log.close()
    assert (report.agreement, report.held.lost) == (OK, [])
    assert report.held.unchecked == 120
