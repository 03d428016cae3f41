"""The format ``veen`` in Spark itself: batches, filters, SQL, and streams over logs that grow meanwhile."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from tests.hub.process import Client, HubProcess
from tests.pipeline.making import START, Hub, varied
from tests.pipeline.sources import Row, keys_of, plain
from veen.core import labels
from veen.core.types import HubId
from veen.pipeline import register

ENTRIES = 150


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


def rows_of(frame: DataFrame) -> list[Row]:
    rows = [row.asDict() for row in frame.collect()]
    return sorted(rows, key=lambda row: (row["label"], row["stream_seq"]))


@pytest.mark.parametrize("partitions", [1, 7, 64])
def test_spark_reads_what_the_plain_reader_reads(
    spark: SparkSession, log: Path, expected: list[Row], partitions: int
) -> None:
    frame = spark.read.format("veen").option("minPartitions", partitions).load(str(log))
    rows = rows_of(frame)
    assert len(rows) == ENTRIES
    assert [
        {name: row[name] for name in other} for row, other in zip(rows, expected, strict=True)
    ] == expected


def test_all_entries_are_checked_in_full(spark: SparkSession, log: Path) -> None:
    frame = spark.read.format("veen").option("verify", "full").option("minPartitions", 5).load(str(log))
    (row,) = frame.groupBy("checked", "fault").agg(fn.count("*").alias("n")).collect()
    assert row.asDict() == {"checked": "full", "fault": None, "n": ENTRIES}


@pytest.fixture(scope="module")
def everything(spark: SparkSession, log: Path) -> DataFrame:
    """All rows, where no filter can reach the source."""
    frame = spark.read.format("veen").load(str(log))
    return spark.createDataFrame(frame.collect(), frame.schema)


CONDITIONS = [
    "label = X'{label}'",
    "label IN (X'{label}', X'{other}') AND stream_seq BETWEEN 5 AND 9",
    "stream_seq > 60 OR stream_seq < 3",
    "stream_seq IN (3, 7, 1000)",
    f"hub_ts >= {START + 21} AND hub_ts < {START + 43}",
    "hub_time > timestamp'2023-11-14 22:13:40.5Z' AND hub_time <= timestamp'2023-11-14 22:14:00Z'",
    "stream_id = X'{stream}' AND epoch = 0",
    "stream_id <=> NULL",
    "NOT (label = X'{label}') AND hub_ts > 0 AND client_seq % 2 = 0",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_filters_leave_the_same_rows_whether_pushed_down_or_not(
    spark: SparkSession, log: Path, expected: list[Row], everything: DataFrame, condition: str
) -> None:
    one, two = sorted({row["label"] for row in expected})[:2]
    text = condition.format(label=one.hex(), other=two.hex(), stream=labels.stream_id("beta").hex())
    frame = spark.read.format("veen").option("minPartitions", 2).load(str(log))
    assert rows_of(frame.where(text)) == rows_of(everything.where(text))


def test_a_filter_on_labels_and_numbers_reads_only_those(
    spark: SparkSession, log: Path, expected: list[Row]
) -> None:
    """Nothing is left for Spark to do: there is no Filter in the plan, and the scan gives two rows."""
    label = expected[0]["label"]
    frame = spark.read.format("veen").option("columns", "label,stream_seq").load(str(log))
    chosen = frame.where(
        (fn.col("label") == fn.lit(label)) & (fn.col("stream_seq") > 3) & (fn.col("stream_seq") < 6)
    )
    assert not re.search(r"\bFilter\b", chosen._jdf.queryExecution().executedPlan().toString())
    assert [row.stream_seq for row in chosen.collect()] == [4, 5]


def test_a_schema_takes_some_columns(spark: SparkSession, log: Path) -> None:
    frame = spark.read.format("veen").schema("hub_time timestamp, stream_seq bigint").load(str(log))
    assert frame.columns == ["hub_time", "stream_seq"]
    assert frame.agg(fn.min(fn.unix_timestamp("hub_time"))).collect()[0][0] == START


def test_a_log_is_a_view_of_sql(spark: SparkSession, log: Path) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW entries USING veen OPTIONS (path '{log}', verify 'roots')")
    (row,) = spark.sql("SELECT count(*) AS n, count(DISTINCT label) AS labels FROM entries").collect()
    assert row.asDict() == {"n": ENTRIES, "labels": 3}


def test_a_table_of_the_catalog_is_refused_when_it_is_made(spark: SparkSession, log: Path) -> None:
    with pytest.raises(PySparkException, match="say CREATE TEMPORARY VIEW name USING veen"):
        spark.sql(f"CREATE TABLE entries_kept USING veen OPTIONS (path '{log}', stream 'alpha')")


def test_a_relative_place_is_meant_from_where_spark_was_started(
    spark: SparkSession, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path.cwd()
    monkeypatch.chdir(tmp_path)
    assert spark.read.format("veen").load(os.path.relpath(log, here)).count() == ENTRIES
    with pytest.raises(PySparkException, match=re.escape(f"there is no directory {here}/nothing-here")):
        spark.read.format("veen").load("nothing-here").count()


def test_a_wrong_option_is_refused_when_the_log_is_named(spark: SparkSession, log: Path) -> None:
    with pytest.raises(AnalysisException, match="did you mean failOnDataLoss"):
        spark.read.format("veen").option("failOnDataLos", "false").load(str(log))


def test_a_fault_stops_a_query_with_its_place(spark: SparkSession, tmp_path: Path) -> None:
    with Hub(tmp_path / "data") as hub:
        hub.write("alpha", *[b"x"] * 30)
    row = plain(hub.root)[4]
    path = next(path for path in sorted(hub.root.rglob("chunk-*.log")) if row["sig"] in path.read_bytes())
    data = bytearray(path.read_bytes())
    data[data.index(row["sig"])] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    frame = spark.read.format("veen").load(str(hub.root))
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    place = f"entry 5 of {row['label'].hex()} in log/{path.name} at byte {row['offset']}"
    assert place in str(caught.value)
    kept = spark.read.format("veen").option("mode", "PERMISSIVE").load(str(hub.root))
    assert [row.stream_seq for row in kept.where("fault IS NOT NULL").collect()] == [5]


# --- streams ------------------------------------------------------------------------------------------------


def stream(spark: SparkSession, place: object, **options: object) -> DataStreamReader:
    reader = spark.readStream.format("veen").option("path", str(place)).option("startingOffsets", "earliest")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader


class Sink:
    """Keeps what each batch had, by its number: what comes again replaces what came before."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = [row.asDict() for row in frame.select("label", "stream_seq").collect()]

    def keys(self) -> list[tuple[bytes, int]]:
        return sorted(keys_of([row for rows in self.batches.values() for row in rows]))


def drained(frame: DataFrame, sink: Sink, checkpoint: Path) -> StreamingQuery:
    """Run a query until it has read what there is."""
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.foreachBatch(sink).start()
    query.awaitTermination()
    return query


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A log that is being written, by this process; Spark reads it in others."""
    made = Hub(tmp_path / "data")
    yield made
    made.close()


def test_a_stream_goes_on_from_its_checkpoint(spark: SparkSession, hub: Hub, tmp_path: Path) -> None:
    sink = Sink()
    for number in range(3):
        hub.write("alpha", *[b"x"] * 9)
        hub.write(f"new {number}", b"x")
        if number == 1:
            hub.writer.flush()
        frame = stream(spark, hub.root, maxOffsetsPerTrigger=8, verify="full").load()
        drained(frame, sink, tmp_path / "checkpoint")
        assert sink.keys() == sorted((receipt.label, receipt.stream_seq) for receipt in hub.receipts)
    assert max(len(rows) for rows in sink.batches.values()) == 8


def test_a_first_batch_that_failed_begins_where_it_began(
    spark: SparkSession, hub: Hub, tmp_path: Path
) -> None:
    """Spark asks again where to begin; that the earliest entry is another one by then hides no loss."""

    def fail(_frame: DataFrame, _number: int) -> None:
        raise RuntimeError("no room")

    hub.write("alpha", *[b"x"] * 60)
    frame = stream(spark, hub.root).load()
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="no room"):
        writer.foreachBatch(fail).start().awaitTermination()
    hub.writer.flush()
    hub.tick(10**6)
    first = hub.writer.prune(hub.label("alpha"), 50)[-1].end_seq + 1
    with pytest.raises(StreamingQueryException, match=f"pruned: entries 1 to {first - 1} of"):
        drained(frame, Sink(), tmp_path / "checkpoint")
    sink = Sink()
    drained(stream(spark, hub.root, failOnDataLoss=False).load(), sink, tmp_path / "checkpoint")
    assert sink.keys() == [(hub.label("alpha"), seq) for seq in range(first, 61)]


def test_offsets_in_the_checkpoint_are_for_people_too(spark: SparkSession, hub: Hub, tmp_path: Path) -> None:
    hub.write("alpha", b"1", b"2")
    drained(stream(spark, hub.root).load(), Sink(), tmp_path / "checkpoint")
    written = (tmp_path / "checkpoint/offsets/0").read_text().splitlines()[-1]
    offset = json.loads(written)
    assert offset[hub.label("alpha").hex()] == 2
    assert set(offset) == {hub.label("alpha").hex(), "began", "roots"}


def test_a_replaced_log_stops_a_stream_with_the_verdict(
    spark: SparkSession, tmp_path: Path, hub: Hub
) -> None:
    hub.write("alpha", b"1", b"2", b"3")
    drained(stream(spark, hub.root).load(), Sink(), tmp_path / "checkpoint")
    other = Hub(tmp_path / "other", name="hub")
    other.write("alpha", b"1", b"2")
    other.close()
    with pytest.raises(StreamingQueryException, match="lost: entry 3 of"):
        drained(stream(spark, other.root).load(), Sink(), tmp_path / "checkpoint")


@pytest.mark.parametrize("by", ["directory", "address"])
def test_a_stream_follows_a_hub_that_runs(spark: SparkSession, tmp_path: Path, by: str) -> None:
    with HubProcess(tmp_path / "hub") as running, running.api() as api:
        hub_id = HubId(bytes.fromhex(running.get("/tooling/identity")["hub_id"]))
        label = labels.label(labels.routing_key(hub_id), labels.stream_id("orders"), 0)
        client, sink = Client(label), Sink()
        place = running.url if by == "address" else running.place
        frame = stream(spark, place, stream="orders", hubId=hub_id.hex(), verify="roots").load()
        query = (
            frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "cp")).start()
        )
        try:
            for _ in range(3):
                client.send_many(api, 20)
                query.processAllAvailable()
                assert sink.keys() == [(label, seq) for seq in range(1, len(client.receipts) + 1)]
        finally:
            query.stop()
        batch = spark.read.format("veen").option("stream", "orders").load(str(place))
        assert batch.where("stream_seq > 50").count() == 10
