"""One Spark session for all tests that need one; they share a process (``xdist_group``)."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from veen.pipeline import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    found = session.start(app="veen tests", master="local[2,3]", conf={"spark.sql.shuffle.partitions": "4"})
    found.sparkContext.setLogLevel("ERROR")
    yield found
    found.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
