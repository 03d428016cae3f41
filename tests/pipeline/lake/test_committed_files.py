"""Files of a lake are those that were committed, by their hashes, whoever looks: this process, or tasks."""

import hashlib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from veen.pipeline.errors import DamagedLakeError
from veen.pipeline.lake.commits import FileFact
from veen.pipeline.lake_jobs.file_hashes import require_committed


def fact(root: Path, name: str, content: bytes) -> FileFact:
    (root / name).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    return FileFact(name, "silver/records", "00", 1, 2, 3, 4, 5, len(content), digest)


def test_files_are_those_of_the_commit(spark: SparkSession, tmp_path: Path) -> None:
    files = [fact(tmp_path, f"{nth}.parquet", bytes([nth]) * 9) for nth in range(3)]
    for small in (0, 1000):
        require_committed(spark.sparkContext, tmp_path, files, small=small)
        require_committed(spark.sparkContext, tmp_path, [], small=small)
    (tmp_path / "1.parquet").write_bytes(b"x" * 9)
    for small in (0, 1000):
        with pytest.raises(DamagedLakeError, match=r"1\.parquet is not the file that was committed"):
            require_committed(spark.sparkContext, tmp_path, files, small=small)
    (tmp_path / "0.parquet").unlink()
    for small in (0, 1000):
        with pytest.raises(DamagedLakeError, match=r"0\.parquet was committed, and is not there"):
            require_committed(spark.sparkContext, tmp_path, files, small=small)
