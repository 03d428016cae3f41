"""A bar for a job of Spark, if a person looks on: it is told in tasks."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from veen.cli.printing import progress

if TYPE_CHECKING:
    from veen.pipeline.session import SparkSession


@contextmanager
def following(spark: "SparkSession", what: str) -> Iterator[None]:
    """Show how many tasks of the jobs that are begun inside have ended."""
    from veen.pipeline import progress as tasks  # noqa: PLC0415 - an extra, and slow to import

    with progress(f"{what}, tasks") as advance:
        shown = 0

        def tell(done: int, _: int) -> None:
            nonlocal shown
            advance(done - shown)
            shown = done

        with tasks.following(spark.sparkContext, tell):
            yield
