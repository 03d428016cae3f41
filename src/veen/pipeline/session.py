"""Starting Spark: the one place that does, with the settings that were measured to matter."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from veen.pipeline.java import default_shim_dir, find_java, wheel_java_home

#: ``,3``: a task may fail twice; with plain local[*] one lost Python worker ends the job.
DEFAULT_MASTER: Final = "local[*,3]"

_SETTINGS: Final[Mapping[str, str]] = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
}


def start(
    *, app: str = "veen", master: str = DEFAULT_MASTER, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark, or return the session that runs."""
    shim_dir = default_shim_dir(os.environ, prefix=Path(sys.prefix), base_prefix=Path(sys.base_prefix))
    os.environ["JAVA_HOME"] = str(find_java(os.environ, shim_dir=shim_dir, wheel_home=wheel_java_home()).home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in {**_SETTINGS, **(conf or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
