"""The format ``veen`` in Spark itself: batches, options, SQL, and streams over logs that grow meanwhile."""

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from tests.hub.hub_process import Client, HubProcess
from tests.pipeline.datasource.spark_calls import Row, everywhere, keys_of, plain
from tests.pipeline.log_builder import START, Hub, varied
from veen.core.objects import labels
from veen.core.types import HubId
from veen.pipeline import register
from veen.pipeline.spark import session
from veen.pipeline.spark.environment import ONESHOT

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


def test_a_schema_takes_some_columns(spark: SparkSession, log: Path) -> None:
    frame = spark.read.format("veen").schema("hub_time timestamp, stream_seq bigint").load(str(log))
    assert frame.columns == ["hub_time", "stream_seq"]
    assert frame.agg(fn.min(fn.unix_timestamp("hub_time"))).collect()[0][0] == START


def test_a_log_is_a_view_of_sql(spark: SparkSession, log: Path) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW entries USING veen OPTIONS (path '{log}', verify 'roots')")
    (row,) = spark.sql("SELECT count(*) AS n, count(DISTINCT label) AS labels FROM entries").collect()
    assert row.asDict() == {"n": ENTRIES, "labels": 3}


def test_a_table_of_the_catalog_is_refused_when_it_is_made(spark: SparkSession, log: Path) -> None:
    with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW name USING veen"):
        spark.sql(f"CREATE TABLE entries_kept USING veen OPTIONS (path '{log}', stream 'alpha')")


def test_a_relative_place_is_meant_from_where_spark_was_started(
    spark: SparkSession, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path.cwd()
    monkeypatch.chdir(tmp_path)
    assert spark.read.format("veen").load(os.path.relpath(log, here)).count() == ENTRIES
    with pytest.raises(PySparkException, match=re.escape(f"there is no directory {here}/nothing-here")):
        spark.read.format("veen").load("nothing-here").count()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"failOnDataLos": "false"}, "the source has no option failondatalos: did you mean failOnDataLoss?"),
        ({"epoch": "5-3"}, "epoch: '5-3' ends before it starts"),
        (
            {"startingTimestamp": "5", "startingOffsets": "earliest"},
            "startingTimestamp and startingOffsets exclude each other: give one of them",
        ),
    ],
)
def test_a_wrong_option_is_refused_in_one_line_when_the_log_is_named(
    spark: SparkSession, log: Path, options: dict[str, str], said: str
) -> None:
    """Spark puts a traceback in front of it; its last line tells, and commands show no more than that."""
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("veen").options(**options).load(str(log))
    told = [line for line in str(caught.value).splitlines() if line.strip() and "SQLSTATE" not in line]
    assert told[-1].endswith(f"OptionError: {said}")
    assert session.reason_of(caught.value) == said


#: A session of somebody else, who has heard of no setting.
PLAIN = """
import json, sys
from pyspark.sql import SparkSession
from veen.pipeline import register

spark = SparkSession.builder.master("local[2]").getOrCreate()
register(spark)
log = spark.read.format("veen").options(verify="full", endingTimestamp=sys.argv[2]).load(sys.argv[1])
setting = spark.conf.get("spark.sql.python.filterPushdown.enabled")
print(json.dumps([log.where("stream_seq <= 3").count(), log.count(), setting]))
spark.stop()
"""


@pytest.mark.slow
def test_a_plain_session_needs_no_setting(log: Path, expected: list[Row], tmp_path: Path) -> None:
    programs = Path(sys.executable).parent
    until = START + 21
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, str(log), str(until * 1000)],
        cwd=tmp_path,
        env={
            **os.environ,
            "JAVA_HOME": session.environment_of("local", {})["JAVA_HOME"],
            "PATH": f"{programs}:{os.environ['PATH']}",  # as in an environment that is activated
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JDK_JAVA_OPTIONS": " ".join(ONESHOT),  # begins sooner; of Spark it sets nothing
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    early = [row for row in expected if row["hub_ts"] < until]
    few = sum(row["stream_seq"] <= 3 for row in early)
    assert json.loads(done.stdout) == [few, len(early), "false"]


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


# --- times and epochs ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A log with epochs, wherever a log can be."""
    root = tmp_path_factory.mktemp("epochs") / "hub"
    varied(root, ENTRIES, epoch_sec=60).close()
    with everywhere(root) as found:
        yield found


@pytest.mark.parametrize("kind", ["directory", "set", "hub"])
def test_times_and_epochs_are_options_of_a_batch(
    spark: SparkSession, places: dict[str, str], kind: str
) -> None:
    rows = [row for row in plain(Path(places["directory"])) if row["stream_id"] == labels.stream_id("beta")]
    times = sorted({row["hub_ts"] for row in rows})
    epochs = sorted({row["epoch"] for row in rows})
    chance = random.Random(kind)
    cases = [
        (times[3] * 1000, times[5] * 1000, epochs),
        (times[3] * 1000 + 1, times[5] * 1000 + 1, epochs[1:]),
    ]
    for _ in range(3):
        low, high = sorted(chance.randrange((times[0] - 2) * 1000, (times[-1] + 2) * 1000) for _ in range(2))
        cases.append((low, high, chance.choice([epochs, epochs[:2]])))
    frames = [
        spark.read.format("veen")
        .options(stream="beta", verify="full", startingTimestamp=since, endingTimestamp=until)
        .option("epoch", f"{some[0]}-{some[-1]}")
        .load(places[kind])
        for since, until, some in cases
    ]
    for frame, (since, until, some) in zip(frames, cases, strict=True):
        assert keys_of(rows_of(frame)) == keys_of(
            [row for row in rows if since <= row["hub_ts"] * 1000 < until and row["epoch"] in some]
        )


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


def test_a_stream_of_times_goes_on_from_its_checkpoint(spark: SparkSession, hub: Hub, tmp_path: Path) -> None:
    """It begins before its first entry, ends for good, and has each entry between once."""
    sink = Sink()
    since, until = (START + 2) * 1000 + 1, (START + 9) * 1000
    reader = spark.readStream.format("veen").option("maxOffsetsPerTrigger", 3).option("verify", "full")
    frame = reader.options(startingTimestamp=since, endingTimestamp=until).load(str(hub.root))
    for number in range(3):
        for _ in range(4):
            hub.write("alpha", b"x", b"y")
            hub.write(f"new {number}", b"x")
            hub.tick()
        drained(frame, sink, tmp_path / "checkpoint")
        assert sink.keys() == sorted(
            (receipt.label, receipt.stream_seq)
            for receipt in hub.receipts
            if since <= receipt.hub_ts * 1000 < until
        )
    assert hub.receipts[-1].hub_ts == START + 11


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
        assert batch.count() == 60
