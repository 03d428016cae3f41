"""Build the archive of Java classes, once, in about 40 seconds.

Run as ``python -m veen.pipeline.spark.build_class_archive``.

A small job does what commands do, so that Java loads their classes and then writes them to the archive.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession, functions
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from veen.pipeline.errors import ClassArchiveError, SparkSessionError
from veen.pipeline.spark import session
from veen.pipeline.spark.class_archive import archive_for
from veen.pipeline.spark.directories import kept_dir, quoted
from veen.stdx.atomic_file import rename
from veen.stdx.file_lock import locked

_PROBE_SEC: Final = 60.0
# Java writes the file when it exits: 15 s, and more on a busy machine.
_DUMP_SEC: Final = 300.0
_SCHEMA: Final = "id bigint, name string, body binary"


class _Reader(DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield pa.RecordBatch.from_pydict(
            {"id": [partition.value], "name": ["n"], "body": [b"b"]},
            schema=pa.schema([("id", pa.int64()), ("name", pa.string()), ("body", pa.binary())]),
        )


class _Source(DataSource):
    @classmethod
    def name(cls) -> str:
        return "veen_training"

    def schema(self) -> str:
        return _SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - as Spark calls it
        return _Reader()


def train(spark: SparkSession, scratch: Path) -> None:
    """Run a small instance of every operation that commands use."""
    context = spark.sparkContext
    shared = context.broadcast({"one": 1})
    context.parallelize(range(8), 4).map(lambda number: number * shared.value["one"]).collect()
    spark.dataSource.register(_Source)
    rows = spark.read.format("veen_training").load().filter("id >= 0")
    rows.write.parquet(str(scratch / "rows"))
    rows.mapInArrow(lambda batches: batches, _SCHEMA).count()
    read = spark.read.parquet(str(scratch / "rows")).filter("name = 'n' and id in (0, 1)")
    read.createOrReplaceTempView("rows")
    spark.sql(
        "select name, max_by(body, id), count(*) from"
        " (select *, row_number() over (partition by name order by id desc) as nth from rows)"
        " where nth = 1 group by name order by name"
    ).collect()
    totals = read.groupBy("name").agg(functions.sum("id").alias("total"), functions.collect_list("id"))
    read.join(totals, "name").toArrow()


def make(kept: Path) -> Path:
    """Build the archive for the current Java and Spark, unless it exists."""
    environment = session.environment_of(session.DEFAULT_MASTER, {})
    archive = archive_for(environment, kept)
    kept.mkdir(parents=True, exist_ok=True)
    with locked(kept / "archive.lock"):
        if archive.is_file():
            return archive
        check_java(environment["JAVA_HOME"])
        with tempfile.TemporaryDirectory(prefix="making-", dir=kept) as directory:
            _make(archive, Path(directory))
        for old in set(kept.glob("classes-*.jsa")) - {archive}:
            old.unlink()
    return archive


def check_java(java_home: str) -> None:
    """Reject a Java without an archive of its own classes, which ours extends."""
    command = [f"{java_home}/bin/java", "-Xshare:on", "-version"]
    if subprocess.run(command, capture_output=True, timeout=_PROBE_SEC, check=False).returncode:  # noqa: S603
        raise ClassArchiveError(f"{java_home} cannot store classes; Spark starts without the archive, slower")


def _make(archive: Path, directory: Path) -> None:
    spark = session.start(
        app="veen set-up",
        master="local[2,3]",
        conf={
            "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={quoted(directory / 'classes')}",
            "spark.sql.shuffle.partitions": "2",
        },
        oneshot=True,
    )
    try:
        train(spark, directory)
    finally:
        session.stop(patience=_DUMP_SEC)
    # Java writes in place: rename the file only when it is complete. It contains no secret.
    (directory / "classes").chmod(0o444)
    rename(directory / "classes", archive)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the class archive with which Spark starts in half the time."""
    parser = argparse.ArgumentParser(
        prog="python -m veen.pipeline.spark.build_class_archive", description=main.__doc__
    )
    parser.add_argument("--dir", type=Path, help="where to store it (default: the environment, or a cache)")
    options = parser.parse_args(arguments)
    try:
        archive = make(options.dir or kept_dir(os.environ))
    except (OSError, ClassArchiveError, SparkSessionError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"no archive of classes: {error}\n")
        return 1
    sys.stdout.write(f"{archive}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
