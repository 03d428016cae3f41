"""The environment of Spark's processes, and checks of this machine.

In local mode our own installation must run, so environment variables that name another one are ignored: a
setting (``spark.pyspark.python``) counts, a variable meant for other programs does not.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from veen.pipeline.errors import JavaNotFoundError, SparkSessionError
from veen.pipeline.spark.directories import kept_dir, spark_home
from veen.pipeline.spark.java import default_shim_dir, find_java, wheel_java_home

__all__ = [
    "DEFAULT_MASTER",
    "ONESHOT",
    "check_loopback",
    "check_python",
    "environment_of",
    "having",
    "is_local",
]

# ``,3``: a task may fail twice; with plain local[*] one lost Python worker fails the job.
DEFAULT_MASTER: Final = "local[*,3]"
# For a job that ends before an optimizing compiler pays off, and whose garbage does not matter.
ONESHOT: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
PYTHON: Final = "spark.pyspark.python"
# These select an external JVM or server.
_FOREIGN: Final = (
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_GATEWAY_SECRET",
    "SPARK_API_MODE",
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_LOCAL_REMOTE",
    "SPARK_REMOTE",
)
_PYTHON_SEC: Final = 60.0
_CONNECT_SEC: Final = 5.0


def is_local(master: str) -> bool:
    """Return whether a master is this process, not a cluster."""
    return master == "local" or master.startswith("local[")


def environment_of(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of Spark's programs."""
    shim_dir = default_shim_dir(os.environ, prefix=Path(sys.prefix), base_prefix=Path(sys.base_prefix))
    try:
        java = find_java(os.environ, shim_dir=shim_dir, wheel_home=wheel_java_home())
    except JavaNotFoundError as error:
        raise SparkSessionError(str(error).replace("\n  ", " ").replace("\n", "; ")) from None
    variables = {"JAVA_HOME": str(java.home), "SPARK_LAUNCHER_OPTS": " ".join(ONESHOT)}
    local = is_local(master)
    # Workers of a cluster have their own Python, which the variable may name.
    theirs = None if local else os.environ.get("PYSPARK_PYTHON")
    variables["PYSPARK_PYTHON"] = settings.get(PYTHON) or theirs or sys.executable
    variables["PYSPARK_DRIVER_PYTHON"] = settings.get("spark.pyspark.driver.python") or sys.executable
    if local:
        # Workers use all cores already, and must fork without threads.
        variables["OPENBLAS_NUM_THREADS"] = "1"
    home = None if local else os.environ.get("SPARK_HOME")
    if home is not None and not (Path(home) / "bin" / "spark-submit").is_file():
        raise SparkSessionError(f"SPARK_HOME is {home}, which is not a Spark home; correct it, or unset it")
    # YARN and Kubernetes copy parts of the home to the workers, and need all of it.
    if home is None and (local or master.startswith("spark://")):
        variables["SPARK_HOME"] = str(spark_home(kept_dir()))
    return variables


@contextmanager
def having(environment: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while Spark reads them, and unset those that would select another Spark."""
    before = {name: os.environ.get(name) for name in (*environment, *_FOREIGN)}
    for name in _FOREIGN:
        os.environ.pop(name, None)
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def check_python(python: str) -> None:
    """Reject a Python for local workers that cannot run this code."""
    if python == sys.executable:
        return
    try:
        completed = subprocess.run(  # noqa: S603 - running the Python that the user configured is the purpose
            [python, "-c", "import pyspark, veen.pipeline; print('it has veen')"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PYTHON_SEC,
            check=False,
        )
        reason = (completed.stderr.strip() or "it is not a Python").splitlines()[-1]
        if completed.stdout.strip() == "it has veen":
            return
    except OSError as error:
        reason = str(error.strerror)
    except subprocess.TimeoutExpired:
        reason = "it does not answer"
    raise SparkSessionError(
        f"{PYTHON} is {python}, which cannot run this: {reason}; Spark needs the Python that veen is "
        f"installed in, as {sys.executable}"
    )


def check_loopback() -> None:
    """Reject a machine without a working loopback interface, which Spark's processes use."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), _CONNECT_SEC).close()
    except OSError as error:
        raise SparkSessionError(
            f"Spark's processes talk to each other over 127.0.0.1, which does not work here: {error.strerror}"
        ) from None
