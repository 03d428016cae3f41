"""One Spark session for all tests that need one, and one cluster (shared: see tests/process_groups.py)."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.spark.cluster import Cluster, running_cluster
from veen.pipeline.spark import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session.running(
        app="veen tests", master="local[2,3]", conf={"spark.sql.shuffle.partitions": "4"}, oneshot=True
    ) as found:
        yield found


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found
