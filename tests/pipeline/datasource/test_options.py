"""What the source can be asked for: every option, and a refusal by name for anything else."""

from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from tests import builders
from tests.paths import ROOT
from tests.pipeline.datasource.spark_calls import source
from veen.pipeline.datasource.columns import COLUMNS
from veen.pipeline.datasource.options import (
    EARLIEST,
    LATEST,
    NAMES,
    Bounds,
    Mode,
    Times,
    Verify,
    for_batch,
    for_stream,
    parse,
)
from veen.pipeline.errors import OptionError

A, B = builders.some_label("a"), builders.some_label("b")
TOP = (1 << 63) - 1


def test_a_place_is_enough() -> None:
    options = parse({"path": "/data"})
    assert (options.place, options.verify, options.mode) == ("/data", Verify.FRAMES, Mode.FAILFAST)
    assert options.fail_on_data_loss
    assert options.starting is None


def test_all_options_are_understood_in_any_case() -> None:
    options = parse(
        {
            "PATH": "http://hub",
            "hubid": "ab" * 32,
            "Columns": "label, stream_seq",
            "stream": "orders,payments",
            "label": f"{A.hex()},{B.hex()}",
            "startingoffsets": f'{{"{A.hex()}": 7, "{B.hex()}": -2}}',
            "endingtimestamp": "1001",
            "Epoch": " 3 - 5 ",
            "maxOffsetsPerTrigger": "100",
            "minPartitions": "8",
            "failOnDataLoss": "False",
            "verify": "ROOTS",
            "mode": "permissive",
        }
    )
    assert options.hub_id == bytes.fromhex("ab" * 32)
    assert options.columns == ("label", "stream_seq")
    assert options.streams == ("orders", "payments")
    assert options.labels == frozenset({A, B})
    assert options.starting == Bounds(EARLIEST, {A: 7, B: EARLIEST})
    assert options.times == Times(None, 2)
    assert options.epochs == range(3, 6)
    assert (options.max_offsets, options.min_partitions) == (100, 8)
    assert not options.fail_on_data_loss
    assert (options.verify, options.mode) == (Verify.ROOTS, Mode.PERMISSIVE)


def test_an_end_is_given_by_offsets_or_by_a_time() -> None:
    assert parse({"path": "x", "ENDINGOFFSETS": "latest"}).ending == Bounds(LATEST, {})
    times = {"path": "x", "startingTimestamp": "0", "endingTimestamp": str(TOP)}
    assert parse(times).times == Times(0, TOP // 1000 + 1)
    assert parse({"path": "x", "epoch": "7"}).epochs == range(7, 8)


@pytest.mark.parametrize(("millis", "second"), [(0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2)])
def test_a_second_is_of_the_time_from_its_first_millisecond_on(millis: int, second: int) -> None:
    """A receipt with hub_ts 1 is of 1000 ms: it is from 1000 on and not before 1000."""
    found = parse({"path": "x", "startingTimestamp": str(millis), "endingTimestamp": str(millis)}).times
    assert found == Times(second, second)


def test_names_with_commas_are_given_as_json() -> None:
    assert parse({"path": "x", "stream": '["a,b", "c"]'}).streams == ("a,b", "c")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("verifi", "full", "did you mean verify?"),
        ("startingOffset", "earliest", "did you mean startingOffsets?"),
        ("kafka.bootstrap.servers", "x", "there are path, hubId"),
        ("paths", '["a","b"]', "no option paths"),
        ("verify", "half", "'half' is not one of none, frames, roots, full"),
        ("mode", "DROPMALFORMED", "not one of FAILFAST, PERMISSIVE"),
        ("failOnDataLoss", "maybe", "true or false"),
        ("minPartitions", "0", "a number from 1"),
        ("maxOffsetsPerTrigger", "1.5", "a number from 1"),
        ("maxOffsetsPerTrigger", "-3", "a number from 1"),
        ("hubId", "abc", "32 bytes in hexadecimal"),
        ("label", "xyz", "32 bytes in hexadecimal"),
        ("stream", "a,,b", "an empty name"),
        ("stream", "[1]", "a list of names"),
        ("stream", "[]", "an empty name"),
        ("columns", "", "an empty name"),
        ("startingOffsets", "newest", "is not JSON"),
        ("startingOffsets", "[1]", "earliest, latest or"),
        ("startingOffsets", '{"abc": 1}', "32 bytes in hexadecimal"),
        ("startingOffsets", f'{{"{"ab" * 32}": 0}}', "a number from 1"),
        ("startingOffsets", f'{{"{"ab" * 32}": true}}', "True is not the position"),
        ("endingOffsets", f'{{"{"ab" * 32}": "5"}}', "'5' is not the position"),
        ("startingOffsets", "[\n1\n]", "earliest, latest or"),
        ("stream", "[\n1\n]", "a list of names"),
        ("minPartitions", "9" * 5000, "a number from 1"),
        ("startingTimestamp", "-1", "milliseconds since 1970"),
        ("startingTimestamp", "1.5", "milliseconds since 1970"),
        ("startingTimestamp", "", "milliseconds since 1970"),
        ("startingTimestamp", "2026-01-01", "milliseconds since 1970"),
        ("endingTimestamp", "²", "milliseconds since 1970"),
        ("endingTimestamp", str(TOP + 1), "milliseconds since 1970"),
        ("epoch", "5-3", "ends before it starts"),
        ("epoch", "-3", "the first and the last like 3-5"),
        ("epoch", "3-", "the first and the last like 3-5"),
        ("epoch", "1,2", "the first and the last like 3-5"),
        ("epoch", "one", "the first and the last like 3-5"),
        ("epoch", "", "the first and the last like 3-5"),
        ("epoch", f"0-{TOP + 1}", "the first and the last like 3-5"),
    ],
)
def test_what_is_not_meant_is_refused_by_name(name: str, value: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse({"path": "/data", name: value})
    assert said in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"startingTimestamp": "5", "startingOffsets": "earliest"},
            "startingTimestamp and startingOffsets exclude each other: give one of them",
        ),
        (
            {"endingTimestamp": "5", "endingOffsets": "latest"},
            "endingTimestamp and endingOffsets exclude each other: give one of them",
        ),
        (
            {"startingTimestamp": "5", "endingTimestamp": "4"},
            "endingTimestamp 4 is before startingTimestamp 5",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse({"path": "/data", **options})
    assert str(caught.value) == said


def test_a_log_must_be_named() -> None:
    with pytest.raises(OptionError, match="no log is named"):
        parse({"verify": "full"})


def test_a_table_of_the_catalog_is_refused_with_what_to_say_instead() -> None:
    """Spark adds options of its own when such a table is made, and gives none at all when it is read."""
    made = {"owner": "me", "provider": "veen", "location": "file:/data", "path": "file:/data"}
    for options in (made, {}):
        with pytest.raises(OptionError, match=r"CREATE TEMPORARY VIEW name USING veen OPTIONS \(path"):
            parse(options)


def test_a_place_is_named_as_all_processes_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that plans is where Spark was started; those that read are anywhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/mine")
    places = {"hub": f"{tmp_path}/hub", "~/hub": "/mine/hub", "http://hub:1/x": "http://hub:1/x"}
    assert {given: parse({"path": given}).place for given in places} == places


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for streams"),
        ({"startingOffsets": "latest"}, "cannot start at the latest"),
        ({"startingOffsets": f'{{"{"ab" * 32}": -1}}'}, "cannot start at the latest"),
        ({"endingOffsets": "earliest"}, "cannot end at the earliest"),
    ],
)
def test_a_batch_refuses_what_is_for_streams(options: dict[str, str], said: str) -> None:
    parsed = parse({"path": "/data", **options})
    with pytest.raises(OptionError, match=said):
        for_batch(parsed)


def test_a_stream_refuses_an_end() -> None:
    with pytest.raises(OptionError, match="endingOffsets is for batches"):
        for_stream(parse({"path": "/data", "endingOffsets": "latest"}))


# --- columns ------------------------------------------------------------------------------------------------


def test_all_columns_come_if_none_are_named() -> None:
    assert source("/data").schema().names == list(COLUMNS)


def test_columns_come_in_the_order_of_the_option() -> None:
    schema = source("/data", columns="stream_seq,label,hub_time").schema()
    assert [field.simpleString() for field in schema] == [
        "stream_seq:bigint",
        "label:binary",
        "hub_time:timestamp",
    ]


@pytest.mark.parametrize(
    ("columns", "said"), [("labl", "no column labl"), ("label,label", "named twice"), ("Label", "no column")]
)
def test_a_column_that_is_not_there_is_refused(columns: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        source("/data", columns=columns).schema()


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (StructField("stream_seq", IntegerType()), "column stream_seq is bigint, not int"),
        (StructField("label", StringType()), "column label is binary, not string"),
        (StructField("nothing", BinaryType()), "no column nothing"),
        (StructField("auth_ref", BinaryType(), nullable=False), "auth_ref can be null"),
    ],
)
def test_a_schema_that_can_not_be_filled_is_refused(field: StructField, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        source("/data").reader(StructType([field]))


def test_a_schema_and_columns_must_agree() -> None:
    two = source("/data", columns="label,stream_seq")
    with pytest.raises(OptionError, match="columns is label, stream_seq, but the schema is label"):
        two.reader(source("/data", columns="label").schema())


def test_every_option_is_on_the_page() -> None:
    page = (ROOT / "docs/how-to/read-a-log-with-spark.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"`{name}`" not in page] == []
    assert [name for name in COLUMNS if f"`{name}`" not in page] == []
