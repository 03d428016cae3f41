"""Progress is told while a job runs, never goes back, and ends at its end."""

import select
from pathlib import Path

import pytest
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from tests.query_service.service_process import until
from veen.pipeline.spark.progress import in_group, track_progress

pytestmark = pytest.mark.slow


def test_progress_goes_forward_and_ends_at_the_end(spark: SparkSession) -> None:
    told: list[tuple[int, int]] = []
    context = spark.sparkContext
    with track_progress(context, lambda done, total: told.append((done, total))):
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
    with track_progress(context, lambda done, total: told.append((done, total))):
        context.parallelize(range(2), 2).count()
    assert told[-1] == (2, 2)


def test_jobs_of_a_group_count_where_the_group_is_set(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setJobGroup("mine", "jobs that the caller may cancel together")
    told: list[tuple[int, int]] = []
    try:
        with track_progress(context, lambda done, total: told.append((done, total))):
            context.parallelize(range(3), 3).count()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type] # which removes it
    assert told[-1] == (3, 3)


def test_jobs_of_others_do_not_count_in_a_group(spark: SparkSession, tmp_path: Path) -> None:
    context, go_on = spark.sparkContext, tmp_path / "go on"
    told: list[tuple[int, int]] = []

    def hold(_: int) -> None:
        while not go_on.exists():
            select.select([], [], [], 0.01)

    other = InheritableThread(target=lambda: context.parallelize([0], 1).foreach(hold))
    try:
        with (
            in_group(context, "mine", "a query"),
            track_progress(context, lambda done, total: told.append((done, total))),
        ):
            context.setJobGroup("theirs", "another one")
            other.start()
            until(context.statusTracker().getActiveJobsIds, "the job of the other")
    finally:
        go_on.touch()
        other.join()
    assert told == []
    assert context.getLocalProperty("spark.jobGroup.id") is None


def test_what_fails_inside_comes_out(spark: SparkSession) -> None:
    with (
        pytest.raises(ValueError, match="mine"),
        track_progress(spark.sparkContext, lambda _done, _total: None),
    ):
        raise ValueError("mine")
