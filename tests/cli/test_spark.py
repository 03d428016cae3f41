"""Commands on Spark: its options, and its failures as one line and an exit code."""

import json
import subprocess
import sys

import pytest
import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.paths import ROOT
from veen.cli.errors import FAILED, NETWORK, USAGE, CommandError
from veen.cli.output import command, print_result
from veen.cli.settings import common
from veen.cli.spark import SparkOptions, show_job_progress
from veen.client.errors import DamagedLogError, NetworkError
from veen.core.errors import VeenError
from veen.pipeline.errors import DamagedLakeError, LogSourceError
from veen.pipeline.spark.failures import reason_of

app = typer.Typer()


@app.command()
@command
def count(engine: SparkOptions, sql: str = "", divisor: int = 1) -> None:
    """Count, in SQL or in Python."""
    with engine.running("count") as spark:
        if sql:
            found = spark.sql(sql).first()
            assert found is not None
            print_result({"found": found[0]}, common.json)
            return
        numbers = spark.sparkContext.parallelize(range(4), 2)
        with show_job_progress(spark, "counting"):
            print_result({"found": numbers.map(lambda number: number // divisor).sum()}, common.json)


def run(*arguments: str) -> tuple[int, str]:
    common.reset()  # what other commands of this process were told
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output.strip()


@pytest.mark.slow
def test_a_command_has_a_session(spark: SparkSession) -> None:
    assert spark.range(1).count() == 1
    assert run() == (0, "found: 6")
    assert run("--sql", "select 7") == (0, "found: 7")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--divisor", "0"], "veen: ZeroDivisionError: integer division or modulo by zero"),
        (["--sql", "select nope"], "`nope` cannot be resolved"),
        (["--sql", "select 1 +"], "Syntax error"),
        (["--sql", "select 1 / 0"], "Division by zero"),
        (["--sql", "select * from parquet.`/nowhere/at/all`"], "/nowhere/at/all"),
    ],
)
def test_a_failure_inside_spark_is_one_line(spark: SparkSession, arguments: list[str], line: str) -> None:
    assert spark.range(1).count() == 1
    code, output = run(*arguments)
    assert code == USAGE  # and not 4, which says that a log is bad
    assert line in output
    assert "\n" not in output
    assert len(output) < 700


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (DamagedLakeError, (FAILED, "E.DAMAGED")),
        (DamagedLogError, (FAILED, "E.DAMAGED")),
        (LogSourceError, (USAGE, "E.SPARK")),
        (NetworkError, (NETWORK, "E.NETWORK")),
    ],
)
def test_an_error_of_ours_in_a_task_ends_a_command_as_it_does_elsewhere(
    spark: SparkSession, kind: type[VeenError], expected: tuple[int, str]
) -> None:
    def fail(_number: int) -> None:
        raise kind("as it is")

    numbers = spark.sparkContext.parallelize([1], 1)
    with pytest.raises(CommandError) as caught, SparkOptions().running("x"):
        numbers.foreach(fail)
    assert (caught.value.exit_code, caught.value.code) == expected
    assert str(caught.value) == "as it is"


def test_what_did_not_come_out_of_spark_is_left_alone() -> None:
    assert reason_of(ValueError("mine")) is None
    assert reason_of(FileNotFoundError(2, "mine")) is None


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (
            ["--conf", "nonsense"],
            USAGE,
            "veen: 'nonsense' ",
        ),
        (["--master", "here"], USAGE, "veen: 'here' "),
        (["--master", "spark://127.0.0.1:1"], NETWORK, "Connection refused"),
    ],
)
def test_what_can_not_be_started_is_one_line(arguments: list[str], code: int, line: str) -> None:
    script = f"from tests.cli.test_spark import app; app({arguments!r})"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


MISSING = """
import json, sys
sys.modules["pyspark"] = None
from veen.cli.errors import CommandError
from veen.cli.spark import SparkOptions
try:
    with SparkOptions().running("x"):
        pass
except CommandError as error:
    print(json.dumps([str(error), error.exit_code]))
"""


def test_a_missing_extra_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=True)
    text, code = json.loads(done.stdout)
    assert "pip install 'PATH_OF_THE_CLONE[spark]'" in text
    assert code == USAGE
