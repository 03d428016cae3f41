"""What the pipeline writes is plaintext: it is for its owner alone, whatever the umask is."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.cli.command_runner import User
from tests.pipeline.lake import lake_builder
from veen.cli.commands.query.ask import rows_out
from veen.pipeline.lake.table_files import TableFile, make_directory, write_durably
from veen.query_service.store import Store

UMASKS = pytest.mark.parametrize("umask", [0o022, 0o000])
SCHEMA = pa.schema([("stream_seq", pa.uint64())])
NOBODY = 65534
READING = """
import os, sys
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
for path in sys.argv[1:]:
    try:
        (os.listdir if path.endswith("/") else open)(path)
    except PermissionError:
        continue
    sys.stdout.write(path + "\\n")
"""


@contextmanager
def masking(umask: int) -> Iterator[None]:
    before = os.umask(umask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def others(root: Path) -> dict[str, str]:
    """Return what others than its owner may do with a directory or anything in it."""
    found = [root, *root.rglob("*")]
    return {str(path): oct(mode(path)) for path in found if mode(path) & 0o077}


def write_some(root: Path) -> None:
    file = TableFile(root, "bronze/entries/label=00/1.parquet", SCHEMA)
    file.add(pa.RecordBatch.from_pydict({"stream_seq": [1, 2]}, schema=SCHEMA))
    file.finish()
    write_durably(root / "_veen" / "commits" / "1.json", b"{}")


@UMASKS
def test_tables_and_small_files_are_for_their_owner(tmp_path: Path, umask: int) -> None:
    """In tasks too, whose umask is that of whoever runs the workers of a cluster."""
    with masking(umask):
        write_some(tmp_path / "lake")
    assert others(tmp_path / "lake") == {}


def test_a_directory_that_its_owner_shares_stays_shared(tmp_path: Path) -> None:
    """As readers of a group need it, and workers of a cluster that run as somebody else."""
    tmp_path.chmod(0o2770)
    with masking(0o077):
        make_directory(tmp_path / "lake")
        (tmp_path / "lake").chmod(0o2750)
        write_some(tmp_path / "lake")
    found = {oct(mode(path)) for path in (tmp_path / "lake").rglob("*") if path.is_dir()}
    assert found == {oct(0o2750)}
    found = {oct(mode(path)) for path in (tmp_path / "lake").rglob("*") if path.is_file()}
    assert found == {oct(0o640)}


@UMASKS
def test_what_a_query_service_remembers_is_for_its_owner(tmp_path: Path, umask: int) -> None:
    with masking(umask):
        store = Store(tmp_path / "queries.db")
    assert {path.name: oct(mode(path)) for path in tmp_path.iterdir()} == {
        f"queries.db{suffix}": oct(0o600) for suffix in ("", "-shm", "-wal")
    }
    store.close()


@UMASKS
def test_rows_of_an_answer_are_for_their_owner_unless_the_file_was_there(tmp_path: Path, umask: int) -> None:
    there = tmp_path / "there"
    there.touch()
    there.chmod(0o640)
    with masking(umask):
        for path in (there, tmp_path / "new"):
            with rows_out(path) as file:
                assert file is not None
                file.write(b"{}\n")
    assert (oct(mode(there)), oct(mode(tmp_path / "new"))) == (oct(0o640), oct(0o600))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("log")
    with lake_builder.some_of_everything(root / "hub", 12):
        lake_builder.client(root / "me")
    return root


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@UMASKS
def test_lakes_and_answers_are_for_their_owner(log: Path, tmp_path: Path, umask: int) -> None:
    user, place = User(tmp_path), tmp_path / "made"
    place.mkdir()
    tmp_path.chmod(0o755)
    place.chmod(0o755)
    lake = place / "lake"
    with masking(umask):
        user.ok("pipeline", "ingest", log / "hub", "--lake", lake, "--keyring", log / "me")
        sql = ("pipeline", "sql", "--lake", lake, "select * from silver_records")
        user.ok(*sql, "--format", "parquet", "--out", place / "parquet")
        user.ok(*sql, "--format", "jsonl", "--out", place / "rows.jsonl")
        user.ok("pipeline", "replay", "--lake", lake, "--into", place / "again")
    made = sorted(path.name for path in place.iterdir())
    assert made == ["again", "lake", "parquet", "rows.jsonl"]
    assert {name: found for path in place.iterdir() for name, found in others(path).items()} == {}
    assert list((place / "parquet").glob("*.parquet"))


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_reads_nothing(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    with masking(0o000):
        lake_builder.take(spark, tmp_path / "lake", log / "hub")
        (tmp_path / "open").mkdir()
    tmp_path.chmod(0o755)
    found = [tmp_path / "open", *(tmp_path / "lake", *(tmp_path / "lake").rglob("*"))]
    names = [f"{path.relative_to(tmp_path)}{'/' * path.is_dir()}" for path in found]
    done = subprocess.run(
        [sys.executable, "-c", READING.format(nobody=NOBODY), *names],
        cwd=tmp_path,  # whatever is above it keeps nobody out
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["open/"]


@pytest.mark.slow
def test_what_spark_and_its_workers_make_is_for_their_owner(spark: SparkSession) -> None:
    """Their sockets, above all, which may lie where everybody finds them."""

    def umask(pid: int | str) -> str:
        status = Path(f"/proc/{pid}/status").read_text()
        return status.partition("Umask:")[2].split()[0]

    context = spark.sparkContext
    assert umask(context._gateway.proc.pid) == "0077"  # type: ignore[union-attr]
    assert context.parallelize([1], 1).map(lambda _: umask("self")).collect() == ["0077"]
    assert mode(Path(spark.conf.get("spark.local.dir") or "")) == 0o700
