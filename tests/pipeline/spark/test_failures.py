"""What Spark says of a failure, as one line that helps; and whose failure it is."""

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from veen.core.errors import VeenError
from veen.pipeline.errors import InvalidEntryError, LogSourceError
from veen.pipeline.spark.failures import JVM_ENDED, cause_of, reason_of
from veen.storage.errors import DamagedStoreError

TRACE = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
    process()
ValueError: first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/frames.py", line 2, in parse
    raise
{}
"""
NO_MODULE = """org.apache.spark.SparkException:
Error from python worker:
  Traceback (most recent call last):
    File "<frozen runpy>", line 189, in _run_module_as_main
  ModuleNotFoundError: No module named 'veen'
PYTHONPATH was:
  /x/jars
org.apache.spark.SparkException: EOFException occurred while reading the port number from veen's stdout
\tat org.apache.spark.api.python.PythonWorkerFactory.startDaemon(PythonWorkerFactory.scala:1)
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("java.lang.ClassNotFoundException: no.Such", "there is no Java class no.Such"),
        ("java.lang.ExceptionInInitializerError\n\tat a.b(C.java:1)", "ExceptionInInitializerError"),
        ("java.net.UnknownHostException: elsewhere", "UnknownHostException: elsewhere"),
        ("java.io.IOException: No space left on device\n\tat a.b(C.java)", "No space left on device"),
        ("org.apache.spark.SparkException:\n\n  it is like this\n\tat a.b(C.scala:1)", "it is like this"),
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL ==\n1/0", "Division by zero."),
        (TRACE.format("KeyError: 'what'"), "KeyError: 'what'"),
        (TRACE.format("veen.pipeline.errors.InvalidEntryError: entry 3 is cut"), "entry 3 is cut"),
    ],
)
def test_the_line_that_says_something_is_told(text: str, line: str) -> None:
    assert reason_of(PySparkException(text)) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (NO_MODULE, "ModuleNotFoundError: No module named 'veen'"),
        (
            "java.io.EOFException: EOFException occurred while reading the port number from daemon's stdout",
            "EOFException occurred while reading the port number",
        ),
    ],
)
def test_a_python_that_is_not_ours_is_told_with_what_to_set(text: str, line: str) -> None:
    told = reason_of(PySparkException(text))
    assert told is not None
    assert line in told
    assert "spark.pyspark.python" in told
    assert "PYSPARK_PYTHON" in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("veen.pipeline.errors.InvalidEntryError: entry 3", InvalidEntryError),
        ("veen.storage.errors.DamagedStoreError: x", DamagedStoreError),
        ("veen.pipeline.errors.LogSourceError: there is no directory x", LogSourceError),
        ("veen.core.errors.VeenError", VeenError),
        ("veen.stdx.file_lock.FileLock: x", None),
        ("veen.overlays.errors.FoldOrderError: record 3 after 4", None),
        ("veen.no.such.ThingError: x", None),
        ("veen.core.errors.NoSuchError: x", None),
        ("KeyError: 'what'", None),
        ("MemoryError", None),
    ],
)
def test_errors_of_ours_are_known_by_their_class(line: str, kind: type[VeenError] | None) -> None:
    assert cause_of(PySparkException(TRACE.format(line))) is kind


def test_what_spark_itself_says_is_none_of_ours() -> None:
    assert cause_of(PySparkException(NO_MODULE)) is None
    assert cause_of(Py4JNetworkError("x")) is None
    assert cause_of(VeenError("raised here, not in a task")) is None
    assert reason_of(Py4JNetworkError("x")) == JVM_ENDED
