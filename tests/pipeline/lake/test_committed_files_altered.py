"""Files of a lake that are not those of its commit: nothing is answered from them, or added to them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.cli.command_runner import User
from tests.pipeline.lake import lake_builder
from tests.pipeline.log_builder import Hub
from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import FileFact
from veen.pipeline.lake.lake import load

pytestmark = pytest.mark.slow

COUNT = "select count(*) as n from silver_records"
#: Whoever damages a lake says which files can be named for it.
Damage = Callable[[Path], list[str]]


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a log, a client and a lake: files of one row, two of them of one size, and one of two rows."""
    place = tmp_path_factory.mktemp("altered")
    with Hub(place / "hub") as hub:
        for name in lake_builder.STREAMS:
            hub.write(name, b"of one length")
        lake_builder.more(hub, count=1)
    lake_builder.client(place / "me")
    lake_builder.take(spark, place / "lake", place / "hub")
    return place


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made / "lake", tmp_path / "lake")


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def records(lake: Path) -> list[FileFact]:
    """Return the files of records, by their sizes."""
    return sorted(load(lake).of_table(layout.RECORDS), key=lambda fact: (fact.bytes, fact.path))


def swap(lake: Path, one: FileFact, other: FileFact) -> list[str]:
    (lake / one.path).rename(lake / "between")
    (lake / other.path).rename(lake / one.path)
    (lake / "between").rename(lake / other.path)
    return [one.path, other.path]


def deleted(lake: Path) -> list[str]:
    fact = records(lake)[0]
    (lake / fact.path).unlink()
    return [fact.path]


def with_more_rows(lake: Path) -> list[str]:
    fact = records(lake)[0]
    found = pq.read_table(lake / fact.path, partitioning=None)
    pq.write_table(pa.concat_tables([found] * 4), lake / fact.path)
    return [fact.path]


def cut(lake: Path) -> list[str]:
    fact = records(lake)[0]
    os.truncate(lake / fact.path, fact.bytes - 1)
    return [fact.path]


def replaced_by_a_pipe(lake: Path) -> list[str]:
    fact = records(lake)[0]
    (lake / fact.path).unlink()
    os.mkfifo(lake / fact.path)
    return [fact.path]


def swapped(lake: Path) -> list[str]:
    first, *_, last = records(lake)
    assert first.bytes != last.bytes
    return swap(lake, first, last)


def swapped_of_one_size(lake: Path) -> list[str]:
    first, second, *_ = records(lake)
    assert first.bytes == second.bytes
    return swap(lake, first, second)


def flipped(lake: Path) -> list[str]:
    """Flip a bit of a column that few ask for."""
    fact = records(lake)[0]
    group = pq.read_metadata(lake / fact.path).row_group(0)
    (column,) = (
        found
        for found in (group.column(nth) for nth in range(group.num_columns))
        if found.path_in_schema == "receipt_id"
    )
    data = bytearray((lake / fact.path).read_bytes())
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    (lake / fact.path).write_bytes(bytes(data))
    return [fact.path]


# --- what a look at files tells -----------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [deleted, with_more_rows, cut, swapped, replaced_by_a_pipe])
@pytest.mark.usefixtures("spark")
def test_files_that_are_gone_or_of_another_size_end_sql_and_ingest_with_4(
    made: Path, lake: Path, user: User, damage: Damage
) -> None:
    named, before = damage(lake), load(lake)
    sql = user.fails(4, "pipeline", "sql", "--lake", lake, COUNT)
    again = user.fails(4, "pipeline", "ingest", made / "hub", "--lake", lake, "--keyring", made / "me")
    for told in (sql, again):
        assert told["code"] == "E.PROOF"
        assert told["detail"].startswith(min(named))
        assert f"veen pipeline check --lake {lake}" in told["detail"]
    assert load(lake) == before
    # Who does not ask for the table is answered.
    other = "with r as (select * from `BRONZE_entries`) select count(*) as n from r -- not silver_records"
    assert user.ok("pipeline", "sql", "--lake", lake, other) == {"n": 4}


@pytest.mark.usefixtures("spark")
def test_several_files_are_counted_and_the_first_is_named(lake: Path, user: User) -> None:
    first, *_, last = sorted(fact.path for fact in records(lake))
    for path in (first, last):
        (lake / path).unlink()
    told = user.fails(4, "pipeline", "sql", "--lake", lake, COUNT)["detail"]
    assert told.startswith(f"{first} was committed, and is not there (1 more differs)")


@pytest.mark.usefixtures("spark")
def test_tables_are_listed_whatever_has_become_of_their_files(lake: Path, user: User) -> None:
    deleted(lake)
    told = user.run("pipeline", "sql", "--lake", lake, "show tables")
    assert told.exit_code == 0
    assert {"silver_records", "bronze_entries", "gold_crdt_lww"} <= set(told.stdout.split())
    # To be listed is not to be good.
    typed = "show tables;\nselect count(*) as n from silver_records;\n"
    told = user.run("pipeline", "sql", "--lake", lake, stdin=typed)
    assert "was committed, and is not there" in told.stderr
    assert user.fails(4, "pipeline", "sql", "--lake", lake, "describe silver_records")["code"] == "E.PROOF"


@pytest.mark.usefixtures("spark")
def test_files_of_others_are_left_alone(made: Path, lake: Path, user: User) -> None:
    place = (lake / records(lake)[0].path).parent
    (place / "notes.parquet").write_bytes(b"mine")
    assert user.ok("pipeline", "sql", "--lake", lake, COUNT) == {"n": 4}
    assert user.ok("pipeline", "ingest", made / "hub", "--lake", lake, "--checked")["entries"] == 0
    assert (place / "notes.parquet").read_bytes() == b"mine"


@pytest.mark.usefixtures("spark")
def test_what_is_kept_of_the_hub_is_compared_too(made: Path, lake: Path, user: User) -> None:
    blob = next(iter(load(lake).hub.values()))
    (lake / layout.HUB / blob.sha256).unlink()
    told = user.fails(4, "pipeline", "ingest", made / "hub", "--lake", lake)
    assert told["detail"].startswith(f"{layout.HUB}/{blob.sha256} was committed")


# --- what only hashes tell ----------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [swapped_of_one_size, flipped])
@pytest.mark.usefixtures("spark")
def test_files_of_the_right_size_are_told_by_their_hashes(
    made: Path, lake: Path, user: User, damage: Damage
) -> None:
    """Without --checked there is an answer, as the pages say; ``check`` finds it in any case."""
    named = damage(lake)
    sql = ("pipeline", "sql", "--lake", lake, COUNT)
    ingest = ("pipeline", "ingest", made / "hub", "--lake", lake)
    assert user.ok(*sql) == {"n": 4}
    assert user.ok(*ingest)["entries"] == 0
    for words in ((*sql, "--checked"), (*ingest, "--checked")):
        told = user.fails(4, *words)
        assert told["code"] == "E.PROOF"
        assert told["detail"].startswith(f"{min(named)} is not the file that was committed: its hash differs")
    assert any(path in user.fails(4, "pipeline", "check", "--lake", lake)["detail"] for path in named)
    other = "select count(*) as n from bronze_entries"
    assert user.ok("pipeline", "sql", "--lake", lake, other, "--checked") == {"n": 4}


@pytest.mark.usefixtures("spark")
def test_states_are_told_by_their_hashes_and_made_again_if_they_are_gone(
    made: Path, lake: Path, user: User
) -> None:
    (path,) = (lake / layout.GOLD).rglob("*.parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    sql = ("pipeline", "sql", "--lake", lake, "select count(*) as n from gold_crdt_lww")
    ingest = ("pipeline", "ingest", made / "hub", "--lake", lake)
    for words in (sql, (*ingest, "--checked")):
        assert user.fails(4, *words)["detail"].startswith(f"{path.relative_to(lake)} is not the file")
    path.unlink()
    assert user.ok(*ingest)["states"] == 1
    assert user.ok(*sql) == {"n": 1}
