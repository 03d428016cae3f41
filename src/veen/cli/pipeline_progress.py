"""A bar for the jobs of a command on Spark, if a person looks on: it is told in tasks."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from veen.cli.printing import growing

if TYPE_CHECKING:
    from veen.pipeline.session import SparkSession


@contextmanager
def following(spark: "SparkSession", what: str) -> Iterator[None]:
    """Show how many tasks of the jobs that are begun inside have ended."""
    from veen.pipeline import progress  # noqa: PLC0415 - an extra, and slow to import

    with growing(f"{what}, tasks") as tell, progress.following(spark.sparkContext, tell):
        yield
