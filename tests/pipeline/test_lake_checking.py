"""A lake that is not what it was is found out, whoever has changed it and however carefully."""

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

from tests.pipeline.laking import more, some_of_everything, take
from veen.pipeline.lake import layout
from veen.pipeline.lake.checking import check_lake
from veen.pipeline.lake.commits import canonical
from veen.pipeline.lake.errors import DamagedLakeError
from veen.pipeline.lake.holding import load
from veen.pipeline.lake.writing import options


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a lake of one commit."""
    place = tmp_path_factory.mktemp("made")
    hub = some_of_everything(place / "hub", 20)
    hub.close()
    take(spark, place / "lake", hub.root, overlays=None)
    return place / "lake"


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "lake")
    return tmp_path / "lake"


def first_file(lake: Path, table: str) -> Path:
    return lake / load(lake).of_table(table)[0].path


def rewrite_commit(lake: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Write the one commit anew, as somebody would who can compute hashes."""
    path = lake / layout.commit_file(1)
    document = json.loads(path.read_bytes())
    change(document)
    path.write_bytes(canonical(document))


def rewrite_rows(lake: Path, table: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change rows of a file, and the commit with it, so that hashes and sizes are right."""
    path = first_file(lake, table)
    found = change(pq.read_table(path, partitioning=None))
    pq.write_table(found, path, **options(found.schema))

    def corrected(document: dict[str, Any]) -> None:
        for item in document["added"]:
            if item["path"] == str(path.relative_to(lake)):
                item["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
                item["bytes"], item["rows"] = path.stat().st_size, len(found)

    rewrite_commit(lake, corrected)


def changed(name: str, value: Callable[[Any], Any]) -> Callable[[pa.Table], pa.Table]:
    """Return what changes the first value of a column."""

    def change(table: pa.Table) -> pa.Table:
        values = table.column(name).to_pylist()
        values[0] = value(values[0])
        place = table.schema.get_field_index(name)
        return table.set_column(
            place, table.schema.field(name), pa.array(values, table.schema.field(name).type)
        )

    return change


def flipped(value: bytes) -> bytes:
    return bytes([value[0] ^ 1]) + value[1:]


def test_a_lake_that_is_as_it_was_is_good(spark: SparkSession, lake: Path) -> None:
    verdict = check_lake(spark, lake)
    assert (verdict.commits, verdict.entries, verdict.files) == (1, 27, len(load(lake).files))


@pytest.mark.parametrize("table", [layout.ENTRIES, layout.RECORDS, "silver/crdt.lww.v1", layout.REJECTED])
def test_a_changed_byte_of_any_file_is_found(spark: SparkSession, lake: Path, table: str) -> None:
    path = first_file(lake, table)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(DamagedLakeError, match=r"is not the file that was committed") as caught:
        check_lake(spark, lake)
    assert str(path.relative_to(lake)) in str(caught.value)


def test_a_file_that_is_gone_is_found(spark: SparkSession, lake: Path) -> None:
    first_file(lake, layout.RECORDS).unlink()
    with pytest.raises(DamagedLakeError, match="No such file"):
        check_lake(spark, lake)


@pytest.mark.parametrize("name", ["client_seq", "ct_hash", "ciphertext", "leaf_hash", "mmr_root"])
def test_entries_that_were_changed_with_their_hashes_do_not_give_the_root(
    spark: SparkSession, lake: Path, name: str
) -> None:
    value = (lambda seq: seq + 1) if name == "client_seq" else flipped
    rewrite_rows(lake, layout.ENTRIES, changed(name, value))
    with pytest.raises(DamagedLakeError):
        check_lake(spark, lake)


def test_a_root_that_was_changed_in_the_commit_is_found(spark: SparkSession, lake: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        document["labels"][0]["mmr_root"] = "00" * 32

    rewrite_commit(lake, change)
    with pytest.raises(DamagedLakeError, match="do not give the root that was committed"):
        check_lake(spark, lake)


@pytest.mark.parametrize("table", [layout.RECORDS, "silver/crdt.lww.v1", layout.REJECTED])
def test_rows_that_are_of_no_entry_are_found(spark: SparkSession, lake: Path, table: str) -> None:
    rewrite_rows(lake, table, changed("msg_id", flipped))
    with pytest.raises(DamagedLakeError, match="follow from"):
        check_lake(spark, lake)


@pytest.mark.parametrize("table", [layout.ENTRIES, layout.RECORDS, "silver/crdt.lww.v1"])
def test_rows_that_are_missing_are_found(spark: SparkSession, lake: Path, table: str) -> None:
    rewrite_rows(lake, table, lambda rows: rows.slice(1))
    with pytest.raises(DamagedLakeError):
        check_lake(spark, lake)


def test_a_range_that_is_in_no_file_is_found(spark: SparkSession, lake: Path) -> None:
    label = load(lake).of_table(layout.ENTRIES)[0].label

    def change(document: dict[str, Any]) -> None:
        document["added"] = [item for item in document["added"] if item["label"] != label]

    rewrite_commit(lake, change)
    with pytest.raises(DamagedLakeError, match="are in no file"):
        check_lake(spark, lake)


def test_what_is_kept_of_the_hub_is_checked(spark: SparkSession, lake: Path) -> None:
    path = max((lake / layout.HUB).iterdir(), key=lambda path: path.stat().st_size)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedLakeError, match="of the hub"):
        check_lake(spark, lake)


def test_a_state_that_is_not_what_its_records_amount_to_is_found(spark: SparkSession, tmp_path: Path) -> None:
    hub = some_of_everything(tmp_path / "hub", 20)
    more(hub)
    hub.close()
    take(spark, tmp_path / "lake", hub.root)
    path = tmp_path / "lake" / layout.commit_file(2)
    document = json.loads(path.read_bytes())
    document["gold"][0]["state_hash"] = "00" * 32
    path.write_bytes(canonical(document))
    with pytest.raises(DamagedLakeError, match="is not what its records amount to"):
        check_lake(spark, tmp_path / "lake")
