"""Pipelines on Spark: the only package that imports pyspark, and it does so late.

with veen.pipeline.session() as spark:
    veen.pipeline.register(spark)
    spark.read.format("veen").option("stream", "orders").load("hub").show()
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

__all__ = ["register", "session"]


def register(spark: "SparkSession") -> None:
    """Make the format ``veen`` known to a session of Spark.

    Example:
        veen.pipeline.register(spark)
        spark.read.format("veen").option("stream", "orders").load("hub")
    """
    from veen.pipeline.datasource.datasource import register as register_source

    register_source(spark)


def session(
    *,
    app: str = "veen",
    master: str = "",
    conf: Mapping[str, str] | None = None,
    driver_memory: str = "",
    oneshot: bool = False,
) -> "AbstractContextManager[SparkSession]":
    """Start Spark with the settings that suit VEEN; it stops at the end of the ``with`` block.

    Example:
        with veen.pipeline.session(oneshot=True) as spark:
            ...

    Args:
        app: Name of the application.
        master: URL of the cluster. Default: the cores of this machine.
        conf: Further settings of Spark.
        driver_memory: Memory of the driver, as ``4g``.
        oneshot: Start faster, for work of less than some minutes.

    Raises:
        SparkSessionError: Spark cannot be started with these settings.
        JavaNotFoundError: There is no Java that Spark can run on.
    """
    from veen.pipeline.spark.session import DEFAULT_MASTER, running

    return running(
        app=app, master=master or DEFAULT_MASTER, conf=conf, driver_memory=driver_memory, oneshot=oneshot
    )
