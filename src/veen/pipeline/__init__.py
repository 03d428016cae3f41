"""Pipelines on Spark: the only package that imports pyspark, and only when it is used.

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
    """Register the data source ``veen`` with a Spark session.

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
    """Start Spark with settings that suit VEEN; it stops at the end of the ``with`` block.

    Example:
        with veen.pipeline.session(oneshot=True) as spark:
            ...

    Args:
        app: Name of the application.
        master: Master URL of the cluster. Default: local mode on all cores of this machine.
        conf: Further Spark settings.
        driver_memory: Driver memory, such as ``4g``.
        oneshot: Start faster; for jobs of at most a few minutes.

    Raises:
        SparkSessionError: Spark cannot be started with these settings.
        JavaNotFoundError: There is no Java runtime that Spark can use.
    """
    from veen.pipeline.spark.session import DEFAULT_MASTER, running

    return running(
        app=app, master=master or DEFAULT_MASTER, conf=conf, driver_memory=driver_memory, oneshot=oneshot
    )
