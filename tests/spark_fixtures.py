"""One Spark session for all tests that need one, and one cluster (shared: see tests/process_groups.py).

Spark is imported by the fixtures: tests that need none are collected and run without it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.spark.cluster import Cluster


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    from veen.pipeline.spark import session

    with session.running(
        app="veen tests", master="local[2,3]", conf={"spark.sql.shuffle.partitions": "4"}, oneshot=True
    ) as found:
        yield found


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Cluster"]:
    from tests.pipeline.spark.cluster import running_cluster

    with running_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found
