"""Writing a directory again leaves all of it or nothing, and says what a lake does not have."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.command_runner import User
from tests.pipeline.lake.lake_builder import more, take
from tests.pipeline.log_builder import Hub
from veen.core.objects import labels
from veen.pipeline.errors import DamagedLakeError, LakeError
from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import Changes
from veen.pipeline.lake.lake import load, lock_lake
from veen.pipeline.lake_jobs import ingest_plan
from veen.pipeline.lake_jobs.ingest import Ingest
from veen.pipeline.lake_jobs.ingest_plan import Binder, find_work
from veen.pipeline.lake_jobs.restore import replay
from veen.pipeline.log.open import open_log
from veen.storage import RealFilesystem, fsck


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a hub with two streams, a lake of it, and one of one stream only."""
    place = tmp_path_factory.mktemp("replaying")
    hub = Hub(place / "hub")
    more(hub)
    hub.write("beta", *(str(number).encode() for number in range(30)))
    hub.close()
    take(spark, place / "lake", hub.root, overlays=None)
    log = open_log(str(hub.root))
    with lock_lake(place / "some", create=True) as held:
        Ingest(spark, held, log, overlays=None, streams=[labels.stream_id("alpha")]).run()
    log.close()
    return place


def damaged(place: Path, tmp_path: Path, table: str = layout.ENTRIES) -> Path:
    shutil.copytree(place / "lake", tmp_path / "lake")
    path = tmp_path / "lake" / load(tmp_path / "lake").of_table(table)[-1].path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    return tmp_path / "lake"


def test_nothing_is_left_of_a_directory_that_could_not_be_written(place: Path, tmp_path: Path) -> None:
    lake = damaged(place, tmp_path)
    (tmp_path / "empty").mkdir()
    for into in ("again", "empty"):
        with pytest.raises(DamagedLakeError, match="is not the file that was committed"):
            replay(lake, tmp_path / into)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "lake"]
    assert not list((tmp_path / "empty").iterdir())
    assert replay(place / "lake", tmp_path / "empty").missing == []
    assert replay(place / "lake", tmp_path / "again").entries == 35
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "empty", "lake"]


def test_damage_is_told_in_one_line_and_ends_with_4(place: Path, tmp_path: Path) -> None:
    lake = damaged(place, tmp_path)
    told = User(tmp_path).fails(4, "pipeline", "replay", "--lake", lake, "--into", tmp_path / "again")
    assert "is not the file that was committed" in told["detail"]
    assert not (tmp_path / "again").exists()


def test_what_was_left_out_is_known_without_any_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    hub = Hub(tmp_path / "hub")
    more(hub)
    hub.write("beta", b"one")
    hub.close()
    lake, only = tmp_path / "lake", labels.stream_id("alpha")
    log = open_log(str(hub.root))
    with lock_lake(lake, create=True) as held:
        Ingest(spark, held, log, overlays=None, streams=[only]).run()
        works = find_work(held.state, log, Binder(log, [only]))
        held.commit(Changes(kind="hub", hub=ingest_plan.keep(lake, held.state, works)), log.keys.identity)
        assert not ingest_plan.keep(lake, held.state, works)
    log.close()
    with pytest.raises(LakeError, match=r"entries 1 to 1 of .* were not ingested"):
        replay(lake, tmp_path / "again")
    take(spark, lake, hub.root, overlays=None)
    assert replay(lake, tmp_path / "again").missing == []


def test_a_lake_of_some_streams_is_written_only_if_a_part_is_asked_for(place: Path, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"entries 1 to \d+ of .* were not ingested.*--partial"):
        replay(place / "some", tmp_path / "again")
    assert not (tmp_path / "again").exists()
    done = replay(place / "some", tmp_path / "again", partial=True)
    assert (done.labels, done.entries, len(done.missing)) == (1, 5, 1)
    assert not fsck.check(RealFilesystem(tmp_path / "again")).findings
