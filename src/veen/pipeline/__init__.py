"""Pipelines on Spark: the only package that imports pyspark, and it does so late."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Make the format ``veen`` known to a session: ``spark.read.format("veen").load(PLACE)``."""
    from veen.pipeline.datasource.datasource import register as register_source

    register_source(spark)
