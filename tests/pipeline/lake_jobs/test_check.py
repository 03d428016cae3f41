"""A lake that is not what it was is found out, whoever has changed it and however carefully.

Whoever can write a lake and compute hashes can not change what it says: it follows from signatures.
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.cli.command_runner import User
from tests.pipeline.lake.lake_builder import client, keyring, more, some_of_everything, take
from tests.pipeline.log_builder import Hub
from veen.core.data_dir import hub_settings
from veen.core.objects.finding import Level
from veen.pipeline.errors import DamagedLakeError
from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import canonical
from veen.pipeline.lake.lake import load
from veen.pipeline.lake.table_files import options
from veen.pipeline.lake_jobs.check import CheckedLake, check_lake
from veen.pipeline.log.open import open_log
from veen.pipeline.open.decrypt import SEALED
from veen.pipeline.shared_keys import sharing

LWW = "silver/crdt.lww.v1"


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a lake of a commit with entries and one with states."""
    place = tmp_path_factory.mktemp("made")
    hub = some_of_everything(place / "hub", 20)
    hub.close()
    take(spark, place / "lake", hub.root)
    return place / "lake"


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "lake")
    return tmp_path / "lake"


def rewrite_commits(lake: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Write all commits anew, each with the hash of the one before, as somebody would who can compute."""
    before = None
    for path in sorted((lake / layout.COMMITS).iterdir()):
        document = json.loads(path.read_bytes())
        change(document)
        document["before"] = before
        path.write_bytes(canonical(document))
        before = hashlib.sha256(path.read_bytes()).hexdigest()


def put_instead(lake: Path, path: str, data: bytes, rows: int | None = None) -> None:
    """Change a file, and all hashes with it; and how many rows it has, if that is another number."""
    (lake / path).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()

    def corrected(document: dict[str, Any]) -> None:
        for item in document["added"]:
            if item["path"] == path:
                item["sha256"], item["bytes"] = digest, len(data)
                item["rows"] = item["rows"] if rows is None else rows
        for item in document["gold"]:
            if path in item["files"]:
                item["files"][path] = digest

    rewrite_commits(lake, corrected)


def rewrite_rows(lake: Path, path: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the rows of a file of Parquet."""
    found = change(pq.read_table(lake / path, partitioning=None))
    out = pa.BufferOutputStream()
    pq.write_table(found, out, **options(found.schema))
    put_instead(lake, path, out.getvalue().to_pybytes(), len(found))


def forge(lake: Path, path: str, name: str, value: Callable[[Any], Any], row: int = 0) -> None:
    """Change one value of a file of Parquet."""

    def change(table: pa.Table) -> pa.Table:
        values = table.column(name).to_pylist()
        values[row] = value(values[row])
        field = table.schema.field(name)
        return table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))

    rewrite_rows(lake, path, change)


def first_file(lake: Path, table: str) -> str:
    return load(lake).of_table(table)[0].path


def gold_file(lake: Path, ending: str) -> str:
    (known,) = load(lake).gold.values()
    (found,) = (path for path in known["files"] if path.endswith(ending))
    return str(found)


def flipped(value: bytes) -> bytes:
    return bytes([value[0] ^ 1]) + value[1:]


def next_to(value: int) -> int:
    return value + 1


def zeroed(value: bytes) -> bytes:
    return bytes(len(value))


def nothing(_: object) -> None:
    return None


def checked(spark: SparkSession, lake: Path, **options: Any) -> CheckedLake:
    """Check with a reader's keys."""
    with sharing(spark, keyring()) as shared:
        return check_lake(spark, lake, shared=shared, **options)


# --- files that are not what they were ----------------------------------------------------------------------


def test_a_lake_that_is_as_it_was_is_good(spark: SparkSession, lake: Path) -> None:
    verdict = check_lake(spark, lake)
    assert (verdict.commits, verdict.entries, verdict.files) == (2, 27, len(load(lake).files))


@pytest.mark.parametrize("table", [layout.ENTRIES, layout.RECORDS, LWW, layout.REJECTED])
def test_a_changed_byte_of_any_file_is_found(spark: SparkSession, lake: Path, table: str) -> None:
    path = first_file(lake, table)
    data = bytearray((lake / path).read_bytes())
    data[len(data) // 2] ^= 1
    (lake / path).write_bytes(bytes(data))
    with pytest.raises(DamagedLakeError, match=r"is not the file that was committed") as caught:
        check_lake(spark, lake)
    assert path in str(caught.value)


def test_a_file_that_is_gone_is_found(spark: SparkSession, lake: Path) -> None:
    (lake / first_file(lake, layout.RECORDS)).unlink()
    with pytest.raises(DamagedLakeError, match="No such file"):
        check_lake(spark, lake)


@pytest.mark.parametrize("name", ["client_seq", "ct_hash", "ciphertext", "leaf_hash", "mmr_root"])
def test_entries_that_were_changed_with_their_hashes_do_not_give_the_root(
    spark: SparkSession, lake: Path, name: str
) -> None:
    value: Callable[[Any], Any] = next_to if name == "client_seq" else flipped
    forge(lake, first_file(lake, layout.ENTRIES), name, value)
    with pytest.raises(DamagedLakeError):
        check_lake(spark, lake)


def test_a_root_that_was_changed_in_the_commit_is_found(spark: SparkSession, lake: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        for item in document["labels"][:1]:
            item["mmr_root"] = "00" * 32

    rewrite_commits(lake, change)
    with pytest.raises(DamagedLakeError, match="do not lead to the committed root"):
        check_lake(spark, lake)


@pytest.mark.parametrize("table", [layout.RECORDS, LWW, layout.REJECTED])
def test_rows_that_are_of_no_entry_are_found(spark: SparkSession, lake: Path, table: str) -> None:
    forge(lake, first_file(lake, table), "msg_id", flipped)
    with pytest.raises(DamagedLakeError, match="follow from"):
        check_lake(spark, lake)


@pytest.mark.parametrize("table", [layout.ENTRIES, layout.RECORDS, LWW])
def test_rows_that_are_missing_are_found(spark: SparkSession, lake: Path, table: str) -> None:
    rewrite_rows(lake, first_file(lake, table), lambda rows: rows.slice(1))
    with pytest.raises(DamagedLakeError):
        check_lake(spark, lake)


def test_a_range_that_is_in_no_file_is_found(spark: SparkSession, lake: Path) -> None:
    label = load(lake).of_table(layout.ENTRIES)[0].label

    def change(document: dict[str, Any]) -> None:
        document["added"] = [item for item in document["added"] if item["label"] != label]

    rewrite_commits(lake, change)
    with pytest.raises(DamagedLakeError, match="are in no file"):
        check_lake(spark, lake)


def test_what_is_kept_of_the_hub_is_checked(spark: SparkSession, lake: Path) -> None:
    path = max((lake / layout.HUB).iterdir(), key=lambda path: path.stat().st_size)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedLakeError, match="of the hub"):
        check_lake(spark, lake)


def test_a_state_that_is_not_what_its_records_amount_to_is_found(spark: SparkSession, lake: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        for item in document["gold"]:
            item["state_hash"] = "00" * 32

    rewrite_commits(lake, change)
    with pytest.raises(DamagedLakeError, match="does not follow from its records"):
        check_lake(spark, lake)


# --- forgeries with all hashes right ------------------------------------------------------------------------


def test_it_is_told_what_was_checked_and_what_was_not(spark: SparkSession, lake: Path) -> None:
    verdict = check_lake(spark, lake)
    assert (verdict.signatures, verdict.bodies, verdict.states) == ("checked", "not checked", 1)
    assert checked(spark, lake).bodies == "checked, but 1 that this keyring does not open"
    assert check_lake(spark, lake, level=Level.ROOTS).signatures == "not checked"


@pytest.mark.parametrize(
    "forgery",
    [
        (layout.ENTRIES, "hub_sig", zeroed, 0),
        (layout.ENTRIES, "sig", zeroed, -1),
        (layout.ENTRIES, "hub_ts", next_to, -1),
        (layout.ENTRIES, "stream_id", nothing, 0),
        (layout.RECORDS, "client_id", flipped, 0),
        (layout.RECORDS, "client_seq", next_to, 0),
        (layout.RECORDS, "hub_ts", next_to, -1),
        (layout.RECORDS, "receipt_id", flipped, -1),
        (layout.RECORDS, "epoch", next_to, 0),
        (layout.RECORDS, "stream_id", nothing, 0),
        (layout.RECORDS, "auth_ref", lambda _: bytes(32), 0),
        (LWW, "value", flipped, 0),
        (LWW, "client_id", flipped, 0),
        (layout.REJECTED, "detail", lambda text: text + "!", 0),
    ],
)
def test_a_forged_value_with_all_hashes_right_is_found(
    spark: SparkSession, lake: Path, forgery: tuple[str, str, Callable[[Any], Any], int]
) -> None:
    table, name, value, row = forgery
    forge(lake, first_file(lake, table), name, value, row)
    with pytest.raises(DamagedLakeError) as caught:
        check_lake(spark, lake)
    assert first_file(lake, table) in str(caught.value)


def test_a_forged_body_is_found_by_whoever_can_open_the_message(spark: SparkSession, lake: Path) -> None:
    forge(lake, first_file(lake, layout.RECORDS), "body", flipped)
    assert check_lake(spark, lake).bodies == "not checked"
    with pytest.raises(DamagedLakeError, match="body does not follow from entry 1"):
        checked(spark, lake)


def test_a_message_that_the_lake_calls_sealed_and_that_opens_is_told(spark: SparkSession, lake: Path) -> None:
    path = first_file(lake, layout.RECORDS)
    forge(lake, path, "schema", nothing)
    forge(lake, path, "body", lambda _: b"")
    forge(lake, path, "reason", lambda _: SEALED)
    with pytest.raises(DamagedLakeError, match="entry 1 is sealed in the lake, but this keyring opens it"):
        checked(spark, lake)


def test_forged_states_are_found(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    def rows(at: Path) -> None:
        forge(at, gold_file(at, ".parquet"), "value", lambda _: '"forged"')

    def state(at: Path) -> None:
        path = gold_file(at, ".state")
        put_instead(at, path, (at / path).read_bytes() + b"\x00")

    def gone(at: Path) -> None:
        (at / gold_file(at, ".parquet")).unlink()

    def said(name: str, value: Any) -> Callable[[Path], None]:
        def change(document: dict[str, Any]) -> None:
            for item in document["gold"]:
                item[name] = value

        return lambda at: rewrite_commits(at, change)

    (known,) = load(lake).gold.values()
    (reached,) = known["reached"]
    early = [[*reached[:2], reached[2] - 1, *reached[3:]]]
    forgeries = {
        "has rows that do not follow": rows,
        "does not follow from the records": state,
        "cannot be read: No such file": gone,
        "does not follow from its records": said("counts", {"applied": 1}),
        "does not reach to where the lake was": said("reached", early),
        "did not have all of": said("stream_id", "00" * 32),
    }
    for nth, (text, change) in enumerate(forgeries.items()):
        place = tmp_path / str(nth)
        shutil.copytree(lake, place)
        change(place)
        with pytest.raises(DamagedLakeError, match=text):
            check_lake(spark, place)


def test_a_state_that_is_behind_its_lake_is_checked_for_where_it_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    hub = Hub(tmp_path / "hub")
    more(hub)
    hub.close()
    lake = tmp_path / "lake"
    take(spark, lake, hub.root)
    hub.reopen()
    more(hub, 10)
    hub.close()
    take(spark, lake, hub.root, overlays=None)
    assert check_lake(spark, lake).states == 1
    forge(lake, gold_file(lake, ".parquet"), "value", lambda _: '"forged"')
    with pytest.raises(DamagedLakeError, match="has rows that do not follow"):
        check_lake(spark, lake)


def test_keys_of_the_hub_are_believed_only_if_the_hub_has_signed_them(
    spark: SparkSession, lake: Path, tmp_path: Path
) -> None:
    other = Hub(tmp_path / "other", name="other")
    other.close()
    names = {f"file/{name}": name for name in (hub_settings.IDENTITY, hub_settings.IDENTITY_SIG)}

    def replaced(*wanted: str) -> Callable[[dict[str, Any]], None]:
        def change(document: dict[str, Any]) -> None:
            for item in document["hub"]:
                if names.get(item["name"]) in wanted:
                    data = (other.root / names[item["name"]]).read_bytes()
                    item["sha256"], item["bytes"] = hashlib.sha256(data).hexdigest(), len(data)
                    (lake / layout.HUB / item["sha256"]).write_bytes(data)

        return change

    for wanted in ([hub_settings.IDENTITY_SIG], [hub_settings.IDENTITY, hub_settings.IDENTITY_SIG]):
        rewrite_commits(lake, replaced(*wanted))
        with pytest.raises(DamagedLakeError, match="hub's keys in the lake cannot be trusted"):
            check_lake(spark, lake)


def test_a_lake_set_back_to_an_earlier_commit_is_one_of_an_earlier_time_and_the_log_tells(
    spark: SparkSession, tmp_path: Path
) -> None:
    hub = Hub(tmp_path / "hub")
    more(hub)
    hub.close()
    lake = tmp_path / "lake"
    take(spark, lake, hub.root, overlays=None)
    hub.reopen()
    more(hub, 10)
    hub.close()
    take(spark, lake, hub.root, overlays=None)
    max((lake / layout.COMMITS).iterdir()).unlink()
    assert check_lake(spark, lake).entries == 5
    log = open_log(str(hub.root))
    try:
        assert check_lake(spark, lake, log).behind == 5
    finally:
        log.close()
    (lake / layout.SNAPSHOTS).mkdir(exist_ok=True)
    (lake / layout.snapshot_file(32)).write_bytes(b"{}")
    with pytest.raises(DamagedLakeError, match=r"commits after .* are missing"):
        check_lake(spark, lake)


def test_many_small_labels_are_few_tasks(spark: SparkSession, tmp_path: Path) -> None:
    hub = Hub(tmp_path / "hub")
    for nth in range(30):
        hub.write(f"stream {nth}", b"one")
    hub.close()
    lake = tmp_path / "lake"
    take(spark, lake, hub.root, overlays=None)
    context = spark.sparkContext
    context.setJobGroup("small", "labels")
    try:
        assert check_lake(spark, lake).entries == 30
        jobs = [
            context.statusTracker().getJobInfo(job)
            for job in context.statusTracker().getJobIdsForGroup("small")
        ]
        stages = [
            context.statusTracker().getStageInfo(stage) for job in jobs if job for stage in job.stageIds
        ]
        assert 0 < sum(stage.numTasks for stage in stages if stage) <= 8
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type] # which removes it


def test_the_command_says_what_it_has_checked_and_ends_with_4_if_a_file_is_gone(
    spark: SparkSession, lake: Path, tmp_path: Path
) -> None:
    assert spark.version  # the commands use the session that there is
    user, keys = User(tmp_path), client(tmp_path / "me")
    check = ("pipeline", "check", "--lake", lake)
    assert user.ok(*check, "--keyring", keys)["bodies"].startswith("checked")
    assert user.ok(*check, "--level", "roots")["signatures"] == "not checked"
    assert "roots, full" in user.fails(1, *check, "--level", "none")["detail"]
    (lake / gold_file(lake, ".state")).unlink()
    assert "cannot be read: No such file" in user.fails(4, *check)["detail"]
