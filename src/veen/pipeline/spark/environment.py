"""What Spark's programs go by: variables of the environment, and whether this machine has what they need.

On this machine it is our own installation that must run, so what the environment says of another one is not
heeded: a setting (``spark.pyspark.python``) counts, a variable that was meant for other programs does not.
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

#: ``,3``: a task may fail twice; with plain local[*] one lost Python worker ends the job.
DEFAULT_MASTER: Final = "local[*,3]"
#: For a job that ends before a better compiler has paid off, and whose garbage does not matter.
ONESHOT: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
PYTHON: Final = "spark.pyspark.python"
#: They lead to the JVM or the server of somebody else.
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
    """Tell whether a master is this process, and not a cluster."""
    return master == "local" or master.startswith("local[")


def environment_of(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that Spark's programs go by."""
    shim_dir = default_shim_dir(os.environ, prefix=Path(sys.prefix), base_prefix=Path(sys.base_prefix))
    try:
        java = find_java(os.environ, shim_dir=shim_dir, wheel_home=wheel_java_home())
    except JavaNotFoundError as error:
        raise SparkSessionError(str(error).replace("\n  ", " ").replace("\n", "; ")) from None
    found = {"JAVA_HOME": str(java.home), "SPARK_LAUNCHER_OPTS": " ".join(ONESHOT)}
    local = is_local(master)
    # Workers of a cluster have a Python of their own, of which the variable may tell.
    theirs = None if local else os.environ.get("PYSPARK_PYTHON")
    found["PYSPARK_PYTHON"] = settings.get(PYTHON) or theirs or sys.executable
    found["PYSPARK_DRIVER_PYTHON"] = settings.get("spark.pyspark.driver.python") or sys.executable
    if local:
        found["OPENBLAS_NUM_THREADS"] = "1"  # workers share the cores already, and must fork without threads
    home = None if local else os.environ.get("SPARK_HOME")
    if home is not None and not (Path(home) / "bin" / "spark-submit").is_file():
        raise SparkSessionError(f"SPARK_HOME is {home}, which is not a Spark home; correct it, or unset it")
    # YARN and Kubernetes take parts of the home to the workers, and want all of it.
    if home is None and (local or master.startswith("spark://")):
        found["SPARK_HOME"] = str(spark_home(kept_dir()))
    return found


@contextmanager
def having(environment: Mapping[str, str]) -> Iterator[None]:
    """Have variables for as long as Spark looks at them, and lack those that would lead it elsewhere."""
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
    """Refuse a Python for the workers on this machine that can not run this code."""
    if python == sys.executable:
        return
    try:
        done = subprocess.run(  # noqa: S603 - running the Python that the user configured is the purpose
            [python, "-c", "import pyspark, veen.pipeline; print('it has veen')"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PYTHON_SEC,
            check=False,
        )
        said = (done.stderr.strip() or "it is not a Python").splitlines()[-1]
        if done.stdout.strip() == "it has veen":
            return
    except OSError as error:
        said = str(error.strerror)
    except subprocess.TimeoutExpired:
        said = "it does not answer"
    raise SparkSessionError(
        f"{PYTHON} is {python}, which cannot run this: {said}; Spark needs the Python that veen is "
        f"installed in, as {sys.executable}"
    )


def check_loopback() -> None:
    """Refuse a machine on which processes can not talk to each other, as Spark's do."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), _CONNECT_SEC).close()
    except OSError as error:
        raise SparkSessionError(
            f"Spark's processes talk to each other over 127.0.0.1, which does not work here: {error.strerror}"
        ) from None
