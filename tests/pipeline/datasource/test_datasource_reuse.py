"""One DataFrame or view of a log, asked more than once: no query may change what another one finds.

What is expected is worked out in Python from the rows of the plain reader: Spark filters nothing there.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.datasource.spark_calls import Row, keys_of, plain
from tests.pipeline.log_builder import START, Hub, varied
from veen.core.objects import labels
from veen.pipeline import register

ENTRIES = 120
BETA = labels.stream_id("beta")
#: Conditions in SQL, and the same of a row; what can be pushed down, in part, or not at all.
CONDITIONS: list[tuple[str, Callable[[Row], bool]]] = [
    ("stream_seq = 5", lambda row: row["stream_seq"] == 5),
    ("true", lambda _: True),
    ("stream_seq > 20 OR stream_seq < 3", lambda row: not 3 <= row["stream_seq"] <= 20),
    ("stream_seq IN (3, 7, 1000)", lambda row: row["stream_seq"] in (3, 7)),
    (f"stream_id = X'{BETA.hex()}' AND epoch = 0", lambda row: row["stream_id"] == BETA),
    ("stream_id <=> NULL", lambda _: False),
    (f"hub_ts >= {START + 21} AND hub_ts < {START + 43}", lambda row: 21 <= row["hub_ts"] - START < 43),
    (
        "hub_time > timestamp'2023-11-14 22:13:40.5Z' AND hub_time <= timestamp'2023-11-14 22:14:00Z'",
        lambda row: 20.5 < row["hub_ts"] - START <= 40,
    ),
    ("length(label) = 32 AND client_seq % 2 = 0", lambda row: row["client_seq"] % 2 == 0),
    ("label IS NULL", lambda _: False),
]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("log") / "data"
    varied(root, ENTRIES).leave()
    return root


@pytest.fixture(scope="module")
def expected(log: Path) -> list[Row]:
    return plain(log)


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


@pytest.fixture
def frame(spark: SparkSession, log: Path) -> DataFrame:
    """One relation, which nobody else asks."""
    columns = "label,stream_seq,stream_id,epoch,hub_ts,hub_time,client_seq,fault"
    return spark.read.format("veen").option("columns", columns).option("minPartitions", 2).load(str(log))


def keys(frame: DataFrame) -> list[tuple[bytes, int]]:
    return sorted((bytes(row.label), row.stream_seq) for row in frame.select("label", "stream_seq").collect())


def test_filters_of_one_frame_leave_what_each_of_them_says(frame: DataFrame, expected: list[Row]) -> None:
    """All, a filter, all again, and so on: the same frame all along."""
    for number, (text, holds) in enumerate(CONDITIONS):
        assert keys(frame.where(text)) == keys_of([row for row in expected if holds(row)]), text
        if number % 3 == 0:
            assert frame.count() == ENTRIES


def test_frames_of_one_log_with_other_filters_are_joined(frame: DataFrame, expected: list[Row]) -> None:
    one, two = frame.where("stream_seq = 1"), frame.where("stream_seq = 2")
    both = keys_of([row for row in expected if row["stream_seq"] <= 2])
    assert keys(one.union(two)) == both
    assert keys(two.union(one).union(frame)) == sorted([*both, *keys_of(expected)])
    some = frame.where("stream_seq <= 3")
    counts = Counter(row["label"] for row in expected)
    joined = frame.alias("a").join(some.alias("b"), "label").groupBy("label").count().collect()
    assert {bytes(row.label): row["count"] for row in joined} == {
        label: count * min(count, 3) for label, count in counts.items()
    }
    assert some.join(two, "label", "left_anti").count() == 0
    assert frame.subtract(some).count() == ENTRIES - some.count()


def test_views_are_asked_again_and_again(spark: SparkSession, log: Path, expected: list[Row]) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW all_of_it USING veen OPTIONS (path '{log}')")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW of_beta USING veen "
        f"OPTIONS (path '{log}', stream 'beta', startingTimestamp '{(START + 21) * 1000}')"
    )
    beta = [row for row in expected if row["stream_id"] == BETA and row["hub_ts"] >= START + 21]

    def number(text: str) -> int:
        return int(spark.sql(text).collect()[0][0])

    few = "SELECT count(*) FROM all_of_it WHERE stream_seq <= 3"
    assert number("SELECT count(*) FROM all_of_it") == ENTRIES
    assert number(few) == sum(row["stream_seq"] <= 3 for row in expected)
    assert number("SELECT count(*) FROM all_of_it") == ENTRIES
    assert number("SELECT count(*) FROM of_beta") == len(beta)
    assert number("SELECT count(*) FROM of_beta WHERE hub_ts % 2 = 0") == sum(
        row["hub_ts"] % 2 == 0 for row in beta
    )
    both = "SELECT count(*) FROM all_of_it JOIN of_beta USING (label, stream_seq) WHERE stream_seq > 30"
    assert number(both) == sum(row["stream_seq"] > 30 for row in beta)
    assert number("SELECT count(*) FROM of_beta") == len(beta)


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, Row]:
    """A log in which one bit of one ciphertext is another."""
    root = tmp_path / "data"
    with varied(root, 60) as hub:
        hub.writer.flush()
    row = next(row for row in plain(root) if row["stream_seq"] == 9)
    path = next(path for path in root.glob("log/chunk-*.log") if row["ciphertext"] in path.read_bytes())
    data = bytearray(path.read_bytes())
    data[data.index(row["ciphertext"]) + 60] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    return root, row


def test_a_query_with_a_filter_leaves_nothing_unchecked_in_the_next(
    spark: SparkSession, damaged: tuple[Path, Row]
) -> None:
    root, row = damaged
    reader = spark.read.format("veen").option("verify", "full")
    strict = reader.load(str(root))
    with pytest.raises(PySparkException, match="ENTRY_HASH"):
        strict.where("stream_seq <= 5").count()  # it is read, and checked, and only then left out
    with pytest.raises(PySparkException, match=f"entry 9 of {row['label'].hex()}"):
        strict.count()
    lenient = reader.option("mode", "PERMISSIVE").load(str(root))
    assert lenient.where("stream_seq <= 5").where("fault IS NULL").count() == 15
    faults = lenient.groupBy("fault").count().collect()
    assert sorted((one.fault is None, one["count"]) for one in faults) == [(False, 1), (True, 59)]


def test_a_frame_shows_the_log_as_it_was_when_it_was_asked_first(spark: SparkSession, tmp_path: Path) -> None:
    """Spark plans a relation once, and so a view; a new one sees what has come since."""
    hub = Hub(tmp_path / "data")
    hub.write("alpha", b"1", b"2")
    hub.leave()
    asked = spark.read.format("veen").load(str(hub.root))
    waiting = spark.read.format("veen").load(str(hub.root))
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW growing USING veen OPTIONS (path '{hub.root}')")
    growing = "SELECT count(*) FROM growing WHERE stream_seq > 0"
    assert (asked.count(), spark.sql(growing).collect()[0][0]) == (2, 2)
    hub.reopen()
    hub.write("alpha", b"3")
    hub.leave()
    assert (asked.count(), spark.sql(growing).collect()[0][0]) == (2, 2)
    assert waiting.count() == 3
    assert spark.read.format("veen").load(str(hub.root)).count() == 3
