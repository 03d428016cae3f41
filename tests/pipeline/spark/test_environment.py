"""What Spark's programs go by: our own installation on this machine, whatever the environment says."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from veen.pipeline.errors import SparkSessionError
from veen.pipeline.spark.directories import quoted
from veen.pipeline.spark.environment import (
    DEFAULT_MASTER,
    check_loopback,
    check_python,
    environment_of,
    having,
)

CLUSTER = "spark://127.0.0.1:7077"


def test_here_it_is_our_own_python_and_our_own_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME"):
        monkeypatch.setenv(name, "/nonexistent")
    found = environment_of(DEFAULT_MASTER, {})
    assert found["PYSPARK_PYTHON"] == found["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert (Path(found["SPARK_HOME"]) / "bin" / "spark-submit").is_file()
    assert environment_of(DEFAULT_MASTER, {"spark.pyspark.python": "/mine"})["PYSPARK_PYTHON"] == "/mine"


def test_workers_of_a_cluster_have_the_python_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python3")
    found = environment_of(CLUSTER, {})
    assert (found["PYSPARK_PYTHON"], found["PYSPARK_DRIVER_PYTHON"]) == ("/opt/python3", sys.executable)


def test_a_home_without_spark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/nonexistent")
    with pytest.raises(SparkSessionError, match=r"SPARK_HOME is /nonexistent, which is not a Spark home"):
        environment_of(CLUSTER, {})


def test_what_leads_to_the_java_of_others_is_unset_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    before = dict(os.environ)
    with having({"PYSPARK_PYTHON": "/mine"}):
        assert {"PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"}.isdisjoint(os.environ)
        assert os.environ["PYSPARK_PYTHON"] == "/mine"
    assert dict(os.environ) == before


def test_a_python_that_can_not_run_this_is_refused(tmp_path: Path) -> None:
    check_python(sys.executable)
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    other.chmod(0o755)
    for python, said in (
        ("/bin/false", "it is not a Python"),
        (str(tmp_path / "nothing"), "No such file"),
        (str(other), "No module named 'pyspark'"),
    ):
        with pytest.raises(SparkSessionError) as caught:
            check_python(python)
        told = str(caught.value)
        assert told.startswith(f"spark.pyspark.python is {python}, which cannot run this: ")
        assert said in told
        assert sys.executable in told
        assert "\n" not in told


def test_a_machine_without_loopback_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    check_loopback()

    def unreachable(*_arguments: object) -> socket.socket:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", unreachable)
    with pytest.raises(SparkSessionError, match=r"127\.0\.0\.1, .*Network is unreachable"):
        check_loopback()


def test_a_place_with_any_letters_stays_one_option_of_java() -> None:
    """As Spark's own launcher takes options apart, which prints the command that it would run."""
    places = ["/plain", "/with blank", "/with\"quote'", "/back\\slash"]
    options = " ".join(f"-Dveen.{number}={quoted(place)}" for number, place in enumerate(places))
    environment = environment_of(DEFAULT_MASTER, {})
    done = subprocess.run(
        [
            f"{environment['JAVA_HOME']}/bin/java",
            "-XX:TieredStopAtLevel=1",
            *("-cp", f"{environment['SPARK_HOME']}/jars/*", "org.apache.spark.launcher.Main"),
            *("org.apache.spark.deploy.SparkSubmit", "--conf", f"spark.driver.extraJavaOptions={options}"),
            "pyspark-shell",
        ],
        env={**os.environ, **environment, "SPARK_SCALA_VERSION": "2.13"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = [word for word in done.stdout.split("\0") if word.startswith("-Dveen.")]
    assert found == [f"-Dveen.{number}={place}" for number, place in enumerate(places)]
