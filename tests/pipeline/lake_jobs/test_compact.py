"""Compacting joins what was committed, and nothing else."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.lake.lake_builder import bytes_of, more, take
from tests.pipeline.log_builder import Hub
from veen.pipeline.errors import DamagedLakeError
from veen.pipeline.lake import layout
from veen.pipeline.lake.lake import load, lock_lake
from veen.pipeline.lake.table_files import options
from veen.pipeline.lake_jobs.compact import compact


def test_files_that_were_changed_are_refused_and_not_given_new_hashes(
    spark: SparkSession, tmp_path: Path
) -> None:
    hub = Hub(tmp_path / "hub")
    for first in (1, 10):
        more(hub, first)
        hub.close()
        take(spark, tmp_path / "lake", hub.root, overlays=None)
        hub.reopen()
    hub.close()

    def rewritten(path: Path) -> None:
        table = pq.read_table(path, partitioning=None)
        pq.write_table(table.take(list(range(len(table)))[::-1]), path, **options(table.schema))

    def cut(path: Path) -> None:
        path.write_bytes(b"PAR1")

    for change in (rewritten, cut):
        lake = tmp_path / change.__name__
        shutil.copytree(tmp_path / "lake", lake)
        path = load(lake).of_table(layout.RECORDS)[0].path
        change(lake / path)
        before = bytes_of(lake)
        with (
            pytest.raises(DamagedLakeError, match="is not the file that was committed") as caught,
            lock_lake(lake) as held,
        ):
            compact(spark, held)
        assert path in str(caught.value)
        with lock_lake(lake):
            pass  # cleans up
        assert bytes_of(lake) == before
    with lock_lake(tmp_path / "lake") as held:
        assert compact(spark, held).slices == 1
