"""The commands on a lake, as people and scripts use them; the Spark of the tests is used."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.command_runner import User
from tests.pipeline.lake.lake_builder import client, some_of_everything, tables_of
from tests.pipeline.log_builder import Hub
from veen.pipeline.lake.lake import lock_lake

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    made = some_of_everything(tmp_path / "hub", 20)
    made.close()
    return made


@pytest.fixture
def user(tmp_path: Path) -> User:
    client(tmp_path / "me")
    return User(tmp_path)


def ingest(user: User, *words: str | Path) -> dict[str, object]:
    found: dict[str, object] = user.ok(
        "pipeline", "ingest", user.home / "hub", "--lake", user.home / "lake", *words
    )
    return found


def test_a_log_is_taken_in_once_and_asked_in_sql(user: User, hub: Hub) -> None:
    keys = ("--keyring", user.home / "me" / "keystore.enc")
    assert hub.root == user.home / "hub"
    first, second = ingest(user, *keys), ingest(user, *keys)
    assert (first["entries"], first["labels"], first["states"], first["missing"]) == (27, 3, 1, 0)
    assert (first["sealed"], second["sealed"]) == (1, 1)
    assert (second["entries"], second["files"], second["commit"]) == (0, 0, first["commit"])
    sql = ("pipeline", "sql", "--lake", user.home / "lake")
    query = "select count(*) as n, count_if(reason is null) as good from silver_records"
    assert user.ok(*sql, query) == {"n": 27, "good": 26}
    assert user.ok(*sql, "select count(*) as n from silver_rpc_v1") == {"n": 0}
    told = user.run(*sql, "select ts, value from silver_crdt_lww_v1 order by ts limit 2")
    assert told.stdout.splitlines() == ["ts  value", "1   31", "2   32"]
    told = user.run(*sql, "--format", "jsonl", "select `table`, value from gold_crdt_lww order by key")
    assert [json.loads(line)["table"] for line in told.stdout.splitlines()] == ["registers"] * 3
    told = user.run(
        *sql, stdin="select 1 as one;\nnonsense;\ndrop view silver_records;\nselect 2 as two;\nquit\n"
    )
    assert told.stdout.splitlines() == ["one", "1", "two", "2"]
    told = user.run(*sql, stdin="select 'a;\nb;' as -- not; here\n`c;d` /* nor; \n */;select 3 as three;\n")
    assert told.stdout.splitlines() == ["c;d", "a;\\x0ab;", "three", "3"]
    out = user.home / "answer"
    assert (
        user.run(*sql, "--format", "parquet", "--out", out, "select stream_seq from bronze_entries").exit_code
        == 0
    )
    assert len(pq.read_table(out)) == 27


def test_only_some_streams_are_taken_in_if_they_are_named(user: User, hub: Hub) -> None:
    told = user.fails(1, "pipeline", "ingest", hub.root, "--lake", user.home / "lake", "--stream", "nosuch")
    assert (told["code"], "nosuch" in told["detail"]) == ("E.USAGE", True)
    assert ingest(user, "--stream", "alpha", "--stream", "nosuch")["labels"] == 1
    assert ingest(user, "--stream", "alpha")["entries"] == 0
    assert ingest(user)["labels"] == 2
    checked = user.ok("pipeline", "check", hub.root, "--lake", user.home / "lake")
    assert checked["entries"] == 27


def test_sql_does_not_change_a_lake(user: User, hub: Hub) -> None:
    ingest(user)
    before = tables_of(user.home / "lake")
    sql = ("pipeline", "sql", "--lake", user.home / "lake")
    for query in (
        "drop view silver_records",
        "insert into silver_records select * from silver_records",
        "create table t as select 1",
        "with a as (select 1) insert into silver_rejected select * from a",
        "set spark.sql.ansi.enabled=false",
    ):
        assert user.fails(1, *sql, query)["code"] == "E.LAKE"
    user.fails(1, *sql, "select nothing from nowhere")
    assert tables_of(user.home / "lake") == before
    assert hub.root.exists()


def test_a_lake_is_checked_compacted_and_written_back(user: User, hub: Hub) -> None:
    ingest(user)
    hub.reopen()
    hub.write("alpha", b"more")
    hub.close()
    ingest(user)
    lake = ("--lake", user.home / "lake")
    checked = user.ok("pipeline", "check", user.home / "hub", *lake)
    assert (checked["entries"], checked["against_log"]) == (28, True)
    assert user.ok("pipeline", "compact", *lake)["slices"] == 1
    assert user.ok("pipeline", "replay", *lake, "--into", user.home / "again")["entries"] == 28
    assert user.run("fsck", user.home / "again").exit_code == 0
    again = user.fails(1, "pipeline", "replay", *lake, "--into", user.home / "again")
    assert (again["code"], str(user.home / "again") in again["detail"]) == ("E.LAKE", True)


def test_what_is_wrong_is_told_in_one_line_with_the_right_code(user: User, hub: Hub) -> None:
    lake = ("--lake", user.home / "lake")
    assert user.fails(1, "pipeline", "check", *lake)["code"] == "E.LAKE"
    wrong = ("pipeline", "ingest", user.home / "hub", *lake, "--keyring", user.home / "nobody")
    assert "nobody" in user.fails(1, *wrong)["detail"]
    assert "'x'" in user.fails(1, "pipeline", "ingest", user.home / "hub", *lake, "--overlay", "x")["detail"]
    both = ("--overlay", "crdt.lww", "--no-gold")
    assert "--no-gold" in user.fails(1, "pipeline", "ingest", user.home / "hub", *lake, *both)["detail"]
    path = min((user.home / "hub" / "log").glob("chunk-*.log"))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(bytes(data))
    told = user.fails(4, "pipeline", "ingest", user.home / "hub", *lake)
    assert told["first"]["file"] == f"log/{path.name}"
    assert {"label", "seq", "offset", "detail", "text"} <= told["first"].keys()
    with lock_lake(user.home / "lake"):
        busy = user.fails(1, "pipeline", "ingest", user.home / "hub", *lake)
    assert busy["code"] == "E.BUSY"
    ingest(user, "--stream", "alpha", "--no-gold")
    with Hub(user.home / "stranger", name="stranger") as stranger:
        stranger.write("alpha", b"hello")
    other = user.fails(4, "pipeline", "ingest", stranger.root, *lake)
    assert other["code"] == "E.PROOF"
    assert hub.root.exists()
