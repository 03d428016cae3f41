"""A run that is killed, by whatever, leaves a lake that the next run completes: the same bytes as without."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.lake.lake_builder import STREAMS, bytes_of, client, put, tables_of, take
from tests.pipeline.log_builder import Hub
from veen.pipeline.lake import layout
from veen.pipeline.lake.lake import lock_lake
from veen.pipeline.lake_jobs.compact import compact
from veen.pipeline.spark.processes import Descendants

#: How often it is killed before it may come to its end.
KILLS = int(os.environ.get("VEEN_PIPELINE_KILLS", "1"))


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    """Make a log with some labels, so that there are some files to be killed between."""
    hub = Hub(tmp_path / "hub")
    for nth in range(24):
        hub.send((*STREAMS, f"stream {nth}")[nth % 4], [put(f"key {nth}", number) for number in range(10)])
    hub.close()
    return hub


def start(
    hub: Hub, lake: Path, first: Callable[[], None] | None = None, more: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    """Start the command in a process of its own."""
    words = ["pipeline", "ingest", hub.root, "--lake", lake, "--keyring", hub.root.parent / "me", "--json"]
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("veen")), *map(str, words), "--master", "local[2,3]", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=first,  # noqa: PLW1509 - there are no threads that hold what it needs
    )


def wait_until(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    """Look again and again, as long as the process runs."""
    while process.poll() is None and not condition():
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.002)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill it with all that it has started, at once."""
    everybody = Descendants(process.pid)
    process.kill()
    everybody.end(0.0)
    process.communicate()


def content(lake: Path) -> dict[str, bytes]:
    return {path: data for path, data in bytes_of(lake).items() if path != layout.LOCK}


def files_in(lake: Path) -> int:
    return sum(1 for _ in layout.tables_in(lake))


@pytest.mark.slow
def test_a_lake_after_kills_is_the_one_without(spark: SparkSession, tmp_path: Path, hub: Hub) -> None:
    keys = client(tmp_path / "me")
    assert keys.is_dir()
    take(spark, tmp_path / "whole", hub.root)
    expected = content(tmp_path / "whole")
    number = files_in(tmp_path / "whole")
    chance = random.Random(os.environ.get("VEEN_PIPELINE_SEED", "a seed"))
    lake = tmp_path / "lake"
    for _ in range(KILLS):
        enough = chance.randint(1, number)
        process = start(hub, lake)
        wait_until(process, lambda enough=enough: files_in(lake) >= enough)  # type: ignore[misc]
        kill(process)
    process = start(hub, lake)
    _, told = process.communicate()
    assert process.returncode == 0, told
    assert content(lake) == expected


@pytest.mark.slow
def test_a_full_disk_is_told_and_nothing_of_the_run_is_part_of_the_lake(
    spark: SparkSession, tmp_path: Path
) -> None:
    hub = Hub(tmp_path / "hub")
    for _ in range(40):
        hub.write("alpha", *(os.urandom(15_000) for _ in range(4)))
    hub.close()
    client(tmp_path / "me")

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    process = start(hub, tmp_path / "lake", small)
    out, told = process.communicate()
    assert process.returncode == 1, (out, told)
    assert "the lake cannot be written" in out
    assert "File too large" in out
    assert not list((tmp_path / "lake" / layout.META).glob("commits/*.json"))
    take(spark, tmp_path / "lake", hub.root)
    assert not [path for path in bytes_of(tmp_path / "lake") if layout.UNFINISHED in path]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM])
def test_following_ends_cleanly_when_it_is_told_to(
    spark: SparkSession, tmp_path: Path, hub: Hub, number: signal.Signals
) -> None:
    client(tmp_path / "me")
    hub.reopen()
    process = start(hub, tmp_path / "lake", more=("--follow", "--interval", "0.1"))
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["entries"] == 240
    hub.send("alpha", [put("a new key", 1)])
    hub.writer.flush()
    assert json.loads(process.stdout.readline())["entries"] == 1
    process.send_signal(number)
    out, told = process.communicate()
    assert process.returncode == 0, told
    assert json.loads(out)["entries"] == 241
    hub.close()
    with lock_lake(tmp_path / "lake") as lake:
        compact(spark, lake)
    take(spark, tmp_path / "whole", hub.root)
    assert tables_of(tmp_path / "lake") == tables_of(tmp_path / "whole")
