"""A log taken into a lake: what is in the tables, in whatever portions it came; and what is refused."""

import copy
import shutil
import threading
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.cli.command_runner import User
from tests.pipeline.lake.lake_builder import keyring, more, put, some_of_everything, tables_of, take
from tests.pipeline.log_builder import Hub
from veen.overlays.builtin.crdt import LwwMap
from veen.overlays.engine import Fold, fold
from veen.pipeline.errors import ForkedLogError, LakeError, RejectedEntryError
from veen.pipeline.lake import layout
from veen.pipeline.lake.lake import load, lock_lake
from veen.pipeline.lake_jobs import gold, ingest_plan
from veen.pipeline.lake_jobs.check import CheckedLake, check_lake
from veen.pipeline.lake_jobs.compact import compact
from veen.pipeline.lake_jobs.ingest import Ingest, IngestStats, follow
from veen.pipeline.lake_jobs.restore import framed, replay
from veen.pipeline.log.entry_columns import parse
from veen.pipeline.log.open import open_log
from veen.pipeline.open.decrypt import SEALED, open_entries
from veen.pipeline.shared_keys import sharing
from veen.storage import RealFilesystem, fsck


def rows(lake: Path, table: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for fact in load(lake).of_table(table):
        found += pq.read_table(lake / fact.path, partitioning=None).to_pylist()
    return found


def checked(spark: SparkSession, lake: Path, log: Path) -> CheckedLake:
    opened = open_log(str(log))
    try:
        return check_lake(spark, lake, opened)
    finally:
        opened.close()


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return some_of_everything(tmp_path / "hub")


def test_each_entry_is_in_bronze_byte_by_byte_and_in_silver_opened_or_with_a_reason(
    spark: SparkSession, tmp_path: Path, hub: Hub
) -> None:
    hub.leave()
    lake = tmp_path / "lake"
    taken = take(spark, lake, hub.root)
    assert (taken.entries, taken.commits, len(taken.labels), taken.states) == (67, 1, 3, 1)
    log = open_log(str(hub.root))
    keys = keyring().reader_keys()
    heads = log.heads()
    expected: list[dict[str, object]] = []
    stored = []
    for part in log.plan():
        entries = parse(part.read())
        head = heads[part.label]
        batch = open_entries(entries, keys, log.profiles, head.stream_id, head.epoch)
        expected += batch.to_pylist()
        stored += [entries.frame(nth) for nth in range(len(entries))]
    log.close()
    assert rows(lake, layout.RECORDS) == expected
    made: list[bytes] = []
    for fact in load(lake).of_table(layout.ENTRIES):
        for batch in pq.ParquetFile(lake / fact.path).iter_batches():
            made += framed(batch)
    assert made == stored
    reasons = Counter(row["reason"] for row in rows(lake, layout.RECORDS))
    assert reasons == {None: 66, SEALED: 1}
    typed = rows(lake, "silver/crdt.lww.v1")
    assert [row["ts"] for row in typed] == [1, 2, 3, 4, 5]
    assert [row["code"] for row in rows(lake, layout.REJECTED)] == ["BODY.TYPE"]
    verdict = check_lake(spark, lake)
    assert (verdict.entries, verdict.labels, verdict.states) == (67, 3, 1)
    assert not verdict.against_log


def test_portions_do_not_matter_once_their_files_are_joined(
    spark: SparkSession, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "SLICE", 16)
    whole, portions = tmp_path / "whole", tmp_path / "portions"
    hub.close()
    for first in (6, 30, 50):
        take(spark, portions, hub.root)
        hub.reopen()
        hub.tick()
        more(hub, first, count=first // 2)
        hub.send("gamma", [put("a key", first)])
        hub.close()
    take(spark, portions, hub.root)
    assert take(spark, portions, hub.root) == IngestStats()
    take(spark, whole, hub.root)
    assert tables_of(portions) != tables_of(whole)
    assert check_lake(spark, portions).entries == check_lake(spark, whole).entries
    with lock_lake(portions) as lake:
        done = compact(spark, lake)
        assert done.before > done.after > 0
        assert compact(spark, lake) == (0, 0, 0)
    assert tables_of(portions) == tables_of(whole)
    assert load(portions).files == load(whole).files
    assert load(portions).gold == load(whole).gold
    assert checked(spark, portions, hub.root).against_log


def test_following_a_log_gives_the_tables_of_one_run(spark: SparkSession, tmp_path: Path, hub: Hub) -> None:
    hub.close()
    log, keys, stopped = open_log(str(hub.root)), keyring(), threading.Event()
    seen: list[int] = []

    def told(taken: IngestStats) -> None:
        seen.append(taken.entries)
        stopped.set()

    with lock_lake(tmp_path / "followed", create=True) as lake, sharing(spark, keys) as shared:
        ingest = Ingest(spark, lake, log, keyring=keys, shared=shared)
        follow(ingest, log, stopped, interval_sec=0.01, on_run=told)
    log.close()
    take(spark, tmp_path / "whole", hub.root)
    assert seen == [67]
    assert tables_of(tmp_path / "followed") == tables_of(tmp_path / "whole")


def test_a_state_is_that_of_the_fold_in_one_process_here_and_on_spark(
    spark: SparkSession, tmp_path: Path, hub: Hub
) -> None:
    hub.close()
    lake = tmp_path / "lake"
    take(spark, lake, hub.root)
    state = load(lake)
    (known,) = (
        item for (name, _), item in state.gold.items() if name == "crdt.lww" and item["counts"]["events"]
    )
    labels = tuple(state.labels[item[1]] for item in known["reached"])
    wanted = gold.StaleState("crdt.lww", known["stream_id"], labels)
    files = [fact for fact in state.of_table(layout.RECORDS) if fact.label == labels[0].label]
    expected = fold(LwwMap(), gold.records_in(lake, files), wanted.stream)
    assert known["state_hash"] == Fold(LwwMap()).state_hash(expected).hex()
    here, there = (gold.fold(spark, lake, state, wanted, None, small=size) for size in (1_000, 0))
    assert here.state is not None
    assert there.state is not None
    assert here.state.encode() == there.state.encode()
    assert (here.counts, here.reports) == (there.counts, there.reports)


def test_wrong_keys_open_nothing_and_the_entries_are_there_all_the_same(
    spark: SparkSession, tmp_path: Path, hub: Hub
) -> None:
    hub.close()
    take(spark, tmp_path / "lake", hub.root, keyring(reader="nobody"))
    found = rows(tmp_path / "lake", layout.RECORDS)
    assert len(found) == 67
    assert {row["reason"] for row in found} == {SEALED}
    assert load(tmp_path / "lake").tables() == [layout.ENTRIES, layout.RECORDS]
    assert load(tmp_path / "lake").sealed == 67
    check_lake(spark, tmp_path / "lake")


def test_the_right_keys_open_later_what_others_did_not_and_states_are_made_of_it(
    spark: SparkSession, tmp_path: Path, hub: Hub
) -> None:
    hub.close()
    lake, whole = tmp_path / "lake", tmp_path / "whole"
    take(spark, lake, hub.root, keyring(reader="nobody"), ("crdt.lww",))
    hub.reopen()
    more(hub, 6)
    hub.close()
    taken = take(spark, lake, hub.root)
    assert (taken.opened, taken.entries, taken.states) == (66, 5, 3)
    assert load(lake).sealed == 1
    assert take(spark, lake, hub.root) == IngestStats()
    take(spark, whole, hub.root, overlays=("crdt.lww",))
    assert load(lake).gold == load(whole).gold
    for table in load(whole).tables():
        assert rows(lake, table) == rows(whole, table)
    check_lake(spark, lake)


def test_epochs_are_labels_of_their_own_and_one_state(spark: SparkSession, tmp_path: Path) -> None:
    hub = Hub(tmp_path / "hub", epoch_sec=60)
    for nth in range(4):
        hub.send("alpha", [put("key", nth)])
        hub.tick(60)
    hub.close()
    take(spark, tmp_path / "lake", hub.root)
    state = load(tmp_path / "lake")
    assert len(state.labels) == 4
    (known,) = state.gold.values()
    assert [item[0] for item in known["reached"]] == sorted(fact.epoch for fact in state.labels.values())
    assert known["counts"]["events"] == 4
    check_lake(spark, tmp_path / "lake")


# --- logs that are not as they should be --------------------------------------------------------------------


def chunks(hub: Hub) -> list[Path]:
    return sorted((hub.root / "log").glob("chunk-*-0*.log"))


def test_a_bad_entry_is_named_and_only_what_stands_before_it_in_its_label_is_taken_in(
    spark: SparkSession, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "SLICE", 8)
    hub.close()
    path = chunks(hub)[-1]
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(bytes(data))
    label, last = path.stem.split("-")[1], int(path.stem.split("-")[3])
    with pytest.raises(RejectedEntryError) as caught:
        take(spark, tmp_path / "lake", hub.root)
    where = caught.value.finding.where
    assert ((where.label or b"").hex(), where.seq, where.file) == (label, last, f"log/{path.name}")
    assert where.offset is not None
    state = load(tmp_path / "lake")
    assert state.labels[label].upto_seq == (last - 1) // 8 * 8
    check_lake(spark, tmp_path / "lake")
    data[-20] ^= 1
    path.write_bytes(bytes(data))
    take(spark, tmp_path / "lake", hub.root)
    take(spark, tmp_path / "whole", hub.root)
    assert tables_of(tmp_path / "lake") == tables_of(tmp_path / "whole")


def test_a_log_that_does_not_continue_the_lake_is_refused(
    spark: SparkSession, tmp_path: Path, hub: Hub
) -> None:
    hub.close()
    shutil.copytree(hub.root, tmp_path / "other")
    other = copy.copy(hub)
    other.root = tmp_path / "other"
    for one, body in ((hub, b"one history"), (other, b"another")):
        one.reopen()
        one.write("alpha", body)
        one.close()
    take(spark, tmp_path / "lake", hub.root)
    before = tables_of(tmp_path / "lake")
    for extra in (0, 1):
        if extra:
            other.reopen()
            other.write("alpha", b"more")
            other.close()
        with pytest.raises(ForkedLogError, match=r"forked: .* the log has root"):
            take(spark, tmp_path / "lake", other.root)
        with pytest.raises(ForkedLogError, match="the log has root"):
            checked(spark, tmp_path / "lake", other.root)
    assert tables_of(tmp_path / "lake") == before


def test_a_log_of_another_hub_and_one_that_was_set_back_are_refused(
    spark: SparkSession, tmp_path: Path, hub: Hub
) -> None:
    hub.close()
    shutil.copytree(hub.root, tmp_path / "before")
    hub.reopen()
    hub.write("alpha", b"more")
    hub.close()
    take(spark, tmp_path / "lake", hub.root)
    with pytest.raises(ForkedLogError, match="the log ends with entry"):
        take(spark, tmp_path / "lake", tmp_path / "before")
    with Hub(tmp_path / "stranger", name="stranger") as stranger:
        stranger.write("alpha", b"hello")
    with pytest.raises(LakeError, match=r"the lake .* is of hub"):
        take(spark, tmp_path / "lake", tmp_path / "stranger")


def test_what_was_pruned_stays_in_the_lake_and_what_it_never_had_is_said_to_be_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    hub = Hub(tmp_path / "hub")
    hub.write("alpha", *(str(number).encode() for number in range(50)))
    hub.close()
    take(spark, tmp_path / "early", hub.root)
    before = tables_of(tmp_path / "early")
    hub.reopen()
    hub.writer.prune(hub.label("alpha"), 40)
    hub.send("alpha", [put("key", 1)])
    hub.close()
    assert take(spark, tmp_path / "early", hub.root).missing == 0
    assert before.items() <= tables_of(tmp_path / "early").items()
    assert take(spark, tmp_path / "late", hub.root).missing == 40
    (fact,) = load(tmp_path / "late").labels.values()
    assert [(item.first, item.last) for item in fact.missing] == [(1, 40)]
    assert (fact.from_seq, fact.upto_seq) == (1, 51)
    for lake in ("early", "late"):
        checked(spark, tmp_path / lake, hub.root)
    with pytest.raises(LakeError, match=r"entries 1 to 40 of .* were pruned"):
        replay(tmp_path / "late", tmp_path / "again")


def test_a_state_survives_the_loss_of_its_files_and_ends_with_a_gap(
    spark: SparkSession, tmp_path: Path
) -> None:
    hub = Hub(tmp_path / "hub")
    hub.send("alpha", [put("key", 1)])
    hub.close()
    lake = tmp_path / "lake"
    assert take(spark, lake, hub.root).states == 1
    for path in (lake / layout.GOLD).rglob("_*.state"):
        path.unlink()
    hub.reopen()
    hub.send("alpha", [put(f"key {number}", number) for number in range(50)])
    hub.close()
    assert take(spark, lake, hub.root).states == 1
    (known,) = load(lake).gold.values()
    assert known["counts"]["events"] == 51
    hub.reopen()
    hub.send("alpha", [put(f"key {number}", number) for number in range(50)])
    hub.close()
    hub.reopen()
    hub.writer.prune(hub.label("alpha"), 80)
    hub.close()
    taken = take(spark, lake, hub.root)
    assert (taken.missing > 0, taken.states) == (True, 0)
    assert load(lake).gold == {}
    assert not [path for path in tables_of(lake) if path.startswith(layout.GOLD)]
    check_lake(spark, lake)


# --- back to a directory ------------------------------------------------------------------------------------


def test_a_directory_written_again_is_the_hubs_log_byte_by_byte(
    spark: SparkSession, tmp_path: Path, hub: Hub
) -> None:
    hub.close()
    take(spark, tmp_path / "lake", hub.root)
    done = replay(tmp_path / "lake", tmp_path / "again")
    assert (done.labels, done.entries) == (3, 67)
    for domain in ("log", "authorize", "control"):
        names = {path.name for path in (hub.root / domain).iterdir()}
        assert names == {path.name for path in (tmp_path / "again" / domain).iterdir()}
        for name in names:
            assert (tmp_path / "again" / domain / name).read_bytes() == (
                hub.root / domain / name
            ).read_bytes()
    assert not (tmp_path / "again" / "hub-secrets.cbor").exists()
    assert not fsck.check(RealFilesystem(tmp_path / "again")).findings
    with pytest.raises(LakeError, match="is not empty"):
        replay(tmp_path / "lake", tmp_path / "again")


# --- other ways in ------------------------------------------------------------------------------------------


def test_an_exported_set_gives_the_tables_of_its_directory(
    spark: SparkSession, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "SLICE", 8)
    hub.close()
    User(tmp_path).ok("export", "--hub", hub.root, "--all", "--out", tmp_path / "set")
    take(spark, tmp_path / "one", hub.root, overlays=None)
    take(spark, tmp_path / "other", tmp_path / "set", overlays=None)
    assert tables_of(tmp_path / "one") == tables_of(tmp_path / "other")
    assert load(tmp_path / "one").labels == load(tmp_path / "other").labels
    checked(spark, tmp_path / "other", tmp_path / "set")
    with pytest.raises(LakeError, match="was not taken from a hub's data directory"):
        replay(tmp_path / "other", tmp_path / "again")


def test_a_long_run_commits_on_its_way(
    spark: SparkSession, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "SLICE", 4)
    monkeypatch.setattr(ingest_plan, "STEP_ENTRIES", 10)
    hub.close()
    taken = take(spark, tmp_path / "steps", hub.root, overlays=None)
    assert taken.commits > 5
    assert taken.entries == 67
    check_lake(spark, tmp_path / "steps")


def test_damaged_nodes_of_a_directory_do_not_keep_its_entries_out(
    spark: SparkSession, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "SLICE", 8)
    hub.close()
    take(spark, tmp_path / "good", hub.root, overlays=None)
    for path in (hub.root / "log").glob("nodes-*"):
        path.write_bytes(bytes(path.stat().st_size))
    take(spark, tmp_path / "lake", hub.root, overlays=None)
    assert tables_of(tmp_path / "lake") == tables_of(tmp_path / "good")
