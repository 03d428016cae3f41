"""Asking a lake in SQL: only questions are answered, answers are whole, and the lake may change meanwhile."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.cli.command_runner import User
from tests.pipeline.lake.lake_builder import bytes_of, keyring, more, some_of_everything, take
from veen.pipeline.errors import DamagedLakeError, LakeError, LakeQueryError
from veen.pipeline.lake.lake import load, lock_lake
from veen.pipeline.lake_jobs import gold
from veen.pipeline.lake_jobs.compact import compact
from veen.pipeline.lake_sql.json_rows import own_names
from veen.pipeline.lake_sql.read_only import parse_question
from veen.pipeline.lake_sql.views import Views

#: Statements that write, run something else, or change the session; {} is a directory of the lake.
CHANGING = """
insert overwrite directory '{}' using parquet select 1 as x
insert overwrite local directory '{}' using parquet select 1 as x
with a as (select 1) from a insert overwrite directory '{}' using parquet select *
from silver_records insert overwrite directory '{}' using parquet select 1 insert into t select 2
from silver_records insert into silver_rejected select * insert into silver_rejected select *
execute immediate 'insert overwrite directory "{}" using parquet select 1'
execute immediate 'create or replace temp view silver_records as select 1'
execute immediate 'select 1'
begin insert overwrite directory '{}' using parquet select 1; end
begin select 1; end
explain insert overwrite directory '{}' using parquet select 1
explain execute immediate 'select 1'
explain drop view silver_records
insert into silver_records select * from silver_records
insert into identifier('silver_' || 'records') select 1
with a as (select 1) insert into silver_rejected select * from a
create table t as select 1
create or replace temp view silver_records as select 1
create temporary view v using parquet options (path '{}')
create temporary function f() returns int return 1
create view identifier('silver_' || 'records') as select 1
drop view silver_records
alter view silver_records as select 1
truncate table silver_records
delete from silver_records
update silver_records set epoch = 1
merge into silver_records a using silver_rejected b on a.epoch = b.epoch when matched then delete
load data inpath '{}' into table t
cache table silver_records
cache lazy table t as select 1
uncache table silver_records
clear cache
refresh table silver_records
analyze table silver_records compute statistics
msck repair table silver_records
add jar '{}/x.jar'
add file '{}/x'
set spark.sql.ansi.enabled=false
reset
use nowhere
declare variable x int
set variable x = 1
call system.x()
select transform(epoch) using 'touch {}/x' as (x) from silver_records
select * from (select transform(epoch) using 'cat' as (x) from silver_records)
select 1 where exists (select transform(1) using 'cat' as (x))
with a as (select transform(1) using 'cat' as (x)) select * from a
select reflect('java.lang.System', 'getProperty', 'user.home')
select 1 where concat(`java_method`('java.lang.System', 'getProperty', 'x'), 'y') = 'z'
select (select max(try_reflect('java.lang.System', 'getProperty', 'x')))
select first(1) over w from range(2) window w as (order by reflect('java.lang.System', 'getProperty', 'x'))
select first(1) over w from range(2) window w as (order by (select transform(1) using 'cat' as (x)))
""".strip().splitlines()

READING = """
select 'reflect' as java_method
with a as (select epoch as x from silver_records) select * from a join a b using (x) where x in (select 1)
with recursive r as (select 1 as x union all select x + 1 from r where x < 3) select * from r
with a(x) as (values (1), (2)) select x, count(*) as n from a group by x having n > 0 order by all limit 3
select distinct x, sum(x) over w from values (1), (2) as t(x) window w as (partition by x)
select * from range(3) as t lateral view explode(array(1, 2)) e as x
select * from range(3), lateral (select id + 1 as b) cluster by b
from range(3) |> where id > 1 |> aggregate sum(id) as s
select 1 union all (select 2 intersect select 3) except select 4
select * from (select id, id % 2 as y from range(9)) pivot (sum(id) for y in (0, 1))
select * from values (1, 2) as t(a, b) unpivot (x for y in (a, b))
select /*+ broadcast(t) */ * from silver_records tablesample (50 percent) as t limit all
select id from range(5) qualify row_number() over (order by id) = 1
select id, count(*) as n from range(5) group by cube(id) distribute by id sort by id
table silver_records
show tables
show columns in silver_records
describe silver_records
describe select 1 as x
explain select count(*) from silver_records
""".strip().splitlines()


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sql")
    hub = some_of_everything(place / "hub", 10)
    hub.close()
    take(spark, place / "lake", hub.root)
    return place / "lake"


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def test_whatever_is_no_question_is_refused(spark: SparkSession, lake: Path) -> None:
    before, views = bytes_of(lake), Views(spark, lake)
    for query in CHANGING:
        with pytest.raises(LakeQueryError, match="a lake is read with SQL"):
            views.query(query.replace("{}", f"{lake}/bronze"))
    for query in ("select 1; select 2", "select 1; drop view silver_records", "selec 1"):
        with pytest.raises(LakeQueryError, match="yntax error"):
            views.query(query)
    assert bytes_of(lake) == before


@pytest.mark.parametrize(
    "order",
    [
        "(select max(epoch) from Silver_Records)",
        "id in (select 1 from silver_records where id = 1)",
    ],
)
def test_tables_that_a_window_names_are_seen(spark: SparkSession, order: str) -> None:
    text = "select first(1) over w from range(2) window v as (order by 1), w as (order by ORDER)"
    assert parse_question(spark, text.replace("ORDER", order)).names == {"silver_records"}


def test_damage_is_told_however_often_others_commit(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    class Busy(Views):
        """Of a lake to which somebody commits whenever it is looked at."""

        def reload(self, *, always: bool = False) -> bool:
            super().reload(always=always)
            return True

    shutil.copytree(lake, tmp_path / "lake")
    views = Busy(spark, tmp_path / "lake")
    next((tmp_path / "lake").rglob("silver/records/**/*.parquet")).unlink()
    with pytest.raises(DamagedLakeError, match="was committed, and is not there"):
        views.query("select count(*) from silver_records")


def test_all_kinds_of_questions_are_answered(spark: SparkSession, lake: Path) -> None:
    views = Views(spark, lake)
    for query in READING:
        parse_question(spark, query)
        assert views.query(query).columns


def test_mistakes_end_with_1_and_one_line(user: User, lake: Path, spark: SparkSession) -> None:
    sql = ("pipeline", "sql", "--lake", lake)
    assert "yntax error" in user.fails(1, *sql, "selec 1")["detail"]
    assert "nowhere" in user.fails(1, *sql, "select nothing from nowhere")["detail"]
    assert "QUERY" in user.fails(1, *sql, "--format", "parquet", "--out", user.home / "out")["detail"]
    inside = lake / "_veen" / "commits" / "1.json"
    assert "inside the lake" in user.fails(1, *sql, "select 1", "--out", inside)["detail"]
    (user.home / "there").mkdir()
    told = user.fails(1, *sql, "select 1", "--format", "parquet", "--out", user.home / "there")
    assert "exists already" in told["detail"]
    assert spark.version


def test_an_answer_is_json_and_nothing_of_it_is_lost(user: User, lake: Path, spark: SparkSession) -> None:
    def rows(query: str) -> list[dict[str, Any]]:
        told = user.run("pipeline", "sql", "--lake", lake, "--format", "jsonl", query)
        assert told.exit_code == 0, told.output
        return [json.loads(line, parse_constant=pytest.fail) for line in told.stdout.splitlines()]

    assert rows("select 1 as a, 2 as a, 3 as A, 4 as a_2, named_struct('b', 1, 'b', 2) as s") == [
        {"a": 1, "a_3": 2, "A_4": 3, "a_2": 4, "s": {"b": 1, "b_2": 2}}
    ]
    floats = "double('nan') as n, double('infinity') as i, array(float('-infinity'), 1.5f) as l"
    assert rows(f"select {floats}") == [{"n": "NaN", "i": "Infinity", "l": ["-Infinity", 1.5]}]
    found = rows(
        "select d, e, cast(7 as decimal(20, 0)) as n, d * 1e0 as f"
        " from values (1.00, 0.00), (1.50, 0.01) as t(d, e) order by d offset 0"
    )
    assert [row["d"] for row in found] == ["1.00", "1.50"]
    assert [row["e"] for row in found] == ["0.00", "0.01"]
    assert [(row["n"], row["f"]) for row in found] == [(7, 1.0), (7, 1.5)]
    (one,) = rows(
        "select interval '1-2' year to month as y, interval '1 02:03:04' day to second as d,"
        " make_interval(1, 2, 3) as c, array(interval '3' month) as l, map(interval '1' day, 1) as m"
    )
    assert one["y"] == "INTERVAL '1-2' YEAR TO MONTH"
    assert one["d"] == "INTERVAL '1 02:03:04' DAY TO SECOND"
    assert one["c"] == "1 years 2 months 21 days"
    assert one["l"] == ["INTERVAL '3' MONTH"]
    assert one["m"] == {"INTERVAL '1' DAY": 1}
    told = user.run("pipeline", "sql", "--lake", lake, "select 1 as a, 2 as a")
    assert told.stdout.splitlines() == ["a  a_2", "1  2"]
    assert spark.version


def test_an_answer_that_is_written_says_where(user: User, lake: Path, spark: SparkSession) -> None:
    sql = ("pipeline", "sql", "--lake", lake, "select id as a, id as a from range(3)")
    out = user.home / "answer"
    told = user.ok(*sql, "--format", "parquet", "--out", out)
    assert told == {"ok": True, "out": str(out), "format": "parquet", "rows": 3}
    assert pq.read_table(out).column_names == ["a", "a_2"]
    told = user.ok(*sql, "--out", user.home / "lines")
    assert (told["format"], told["rows"]) == ("jsonl", 3)
    assert len((user.home / "lines").read_text().splitlines()) == 3
    assert spark.version


def test_names_of_columns_become_their_own() -> None:
    assert own_names(["a", "b"]) == ["a", "b"]
    assert own_names(["a", "a", "a_2", "A"]) == ["a", "a_3", "a_2", "A_4"]


def test_who_asks_goes_along_with_a_lake_that_others_write_to(spark: SparkSession, tmp_path: Path) -> None:
    hub, lake, keys = some_of_everything(tmp_path / "hub", 5), tmp_path / "lake", keyring()
    hub.close()
    take(spark, lake, hub.root, keys)
    views, query = Views(spark, lake), "select count(*) as n from silver_records"
    (first,) = views.rows(query)[1]
    hub.reopen()
    more(hub, 6)
    hub.close()
    take(spark, lake, hub.root, keys)
    assert list(views.rows(query)[1]) == [{"n": first["n"] + 5}]
    made: list[Any] = []

    def compacted_meanwhile(found: Any) -> int:
        if not made:
            with lock_lake(lake) as held:
                made.append(compact(spark, held))
        return int(found.first()["n"])

    assert views.ask(query, compacted_meanwhile) == first["n"] + 5
    assert made[0].slices
    for path in (lake / "gold").rglob("*.parquet"):
        path.unlink()
    others = Views(spark, lake)
    assert list(others.rows(query)[1]) == [{"n": first["n"] + 5}]
    with pytest.raises(DamagedLakeError, match=r"gold/crdt\.lww/.*was committed, and is not there"):
        others.rows("select * from gold_crdt_lww")


def answers(spark: SparkSession, lake: Path) -> tuple[object, object]:
    """Return what a lake answers, in SQL and by a fold of its records."""
    query = "select count(*) as n, sum(stream_seq) as total from silver_records"
    state = load(lake)
    (kept,) = state.gold.values()
    wanted = gold.StaleState("crdt.lww", kept["stream_id"], tuple(state.own_labels()[kept["stream_id"]]))
    return list(Views(spark, lake).rows(query)[1]), gold.fold(
        spark, lake, state, wanted, None, small=0
    ).tables


@pytest.fixture(scope="module")
def answered(spark: SparkSession, lake: Path) -> tuple[object, object]:
    return answers(spark, lake)


@pytest.mark.parametrize("name", ["l*", "l[1]", "l{1,2}", "l?\\1 %20#"])
def test_a_lake_may_have_any_name(
    spark: SparkSession, lake: Path, answered: tuple[object, object], tmp_path: Path, name: str
) -> None:
    for other in ("l1", "l2", "lx"):
        (tmp_path / other).symlink_to(lake)
    bytes_before = bytes_of(lake)
    for path, data in bytes_before.items():
        (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name / path).write_bytes(data)
    assert answers(spark, tmp_path / name) == answered


def test_no_lake_is_no_lake(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is not a lake"):
        Views(spark, tmp_path / "none")
