"""A service takes in its log before a query: how far that is, and its end when nobody wants it any more."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tests.pipeline.lake.lake_builder import keyring
from tests.pipeline.log_builder import Hub
from tests.pipeline.query.event_log import EPOCH_SEC, Recorded, asked, record_some
from tests.query import strategies
from tests.query_service.service_process import until
from veen.pipeline.lake.lake import load
from veen.pipeline.query.engine import Engine
from veen.query_service.errors import RunCancelledError
from veen.query_service.spark_runner import LakeRefresh, SparkRuns

STREAM = strategies.STREAMS[:1]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    found = Recorded(Hub(tmp_path_factory.mktemp("intake") / "hub", epoch_sec=EPOCH_SEC))
    record_some(found, STREAM, 8, seed=1)
    found.hub.close()
    return found


def open_intake(spark: Any, place: Path, made: Recorded) -> LakeRefresh:
    return LakeRefresh(spark, place / "lake", str(made.hub.root), None, keyring(STREAM) if spark else None)


def test_an_intake_tells_how_far_it_is_and_can_be_cancelled(
    spark: SparkSession, made: Recorded, tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []

    def run(result_id: str, *, cancel: bool) -> int:
        place = tmp_path / result_id
        with closing(open_intake(spark, place, made)) as intake:
            runs = SparkRuns(Engine(spark, place / "lake", keys=intake.keys), intake)

            def progress(done: int, total: int) -> None:
                told.append((done, total))
                if cancel:
                    runs.cancel(result_id)

            return runs.run(
                asked(STREAM), result_id=result_id, out=place / "rows", executed_at=1, progress=progress
            ).row_count

    assert run("r-whole", cancel=False) == len(made.events)
    assert told
    assert told == sorted(told), "it does not go back when the query itself begins"
    with pytest.raises((RunCancelledError, Py4JError)):
        run("r-cancelled", cancel=True)


def test_an_intake_that_is_cancelled_while_the_log_is_looked_at_begins_no_job(
    made: Recorded, tmp_path: Path
) -> None:
    no_spark: Any = None
    with closing(open_intake(no_spark, tmp_path, made)) as intake:
        intake.add(STREAM)
        asking = iter([True])
        with pytest.raises(RunCancelledError):
            intake.run(lambda: next(asking))
    assert not load(tmp_path / "lake").labels


def test_an_intake_that_goes_on_does_not_keep_the_service_from_ending(made: Recorded, tmp_path: Path) -> None:
    no_spark: Any = None
    intake = open_intake(no_spark, tmp_path, made)
    with intake._lock:  # as while the log is taken in
        intake.close(patience_sec=0.0)
    intake.close()


class Context:
    """A context of Spark that remembers what was cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    def cancelJobGroup(self, name: str) -> None:  # noqa: N802 - as Spark calls it
        self.cancelled.append(name)


class Session:
    """A session with that context."""

    def __init__(self) -> None:
        self.sparkContext = Context()


def test_jobs_that_are_begun_after_the_cancelling_end_too(tmp_path: Path) -> None:
    session: Any = Session()
    runs = SparkRuns(Engine(session, tmp_path), None)
    found = session.sparkContext.cancelled
    with runs._ending("r-1"), runs._ending("r-2"):
        runs.cancel("r-1")
        until(lambda: len(found) >= 3, "another try")
    assert set(found) == {"r-1"}
