"""Progress is told while a job runs, never goes back, and ends at its end."""

import pytest
from pyspark.sql import SparkSession

from veen.pipeline.progress import following

pytestmark = pytest.mark.slow


def test_progress_goes_forward_and_ends_at_the_end(spark: SparkSession) -> None:
    told: list[tuple[int, int]] = []
    context = spark.sparkContext
    with following(context, lambda done, total: told.append((done, total))):
        context.parallelize(range(6), 6).map(lambda number: sum(range(number * 300_000))).collect()
        spark.range(100).repartition(3).count()
    assert told == sorted(told)
    done, total = told[-1]
    assert done == total
    assert total >= 6 + 3


def test_a_job_from_before_does_not_count(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.parallelize(range(5), 5).count()
    told: list[tuple[int, int]] = []
    with following(context, lambda done, total: told.append((done, total))):
        context.parallelize(range(2), 2).count()
    assert told[-1] == (2, 2)


def test_jobs_of_a_group_count_where_the_group_is_set(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setJobGroup("mine", "jobs that the caller may cancel together")
    told: list[tuple[int, int]] = []
    try:
        with following(context, lambda done, total: told.append((done, total))):
            context.parallelize(range(3), 3).count()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type] # which removes it
    assert told[-1] == (3, 3)


def test_what_fails_inside_comes_out(spark: SparkSession) -> None:
    with (
        pytest.raises(ValueError, match="mine"),
        following(spark.sparkContext, lambda _done, _total: None),
    ):
        raise ValueError("mine")
