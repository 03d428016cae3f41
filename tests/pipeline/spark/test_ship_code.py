"""What is sent to workers can be imported there; workers that lack something are named before any work."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import veen
from tests.pipeline.spark.cluster import SETTINGS, Cluster
from veen.pipeline.spark.ship_code import NEEDED, pack

BARE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from veen.pipeline.spark import ship_code
[worker] = ship_code.look_around([])
source = ship_code.__spec__.loader.get_source(ship_code.__name__)
print(json.dumps([ship_code.__file__, worker.version, worker.missing, "def look_around" in source]))
"""


def test_the_package_can_be_imported_from_the_zip(tmp_path: Path) -> None:
    """Compiled, so that a worker begins at once; with sources, for what tracebacks show."""
    packed = pack(tmp_path / "veen.zip")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", BARE, packed], capture_output=True, text=True, check=True
    )
    place, version, missing, has_source = json.loads(done.stdout)
    assert place == f"{packed}/veen/pipeline/spark/ship_code.pyc"
    assert version == veen.__version__
    assert missing == sorted(NEEDED.values())
    assert has_source


def test_nothing_but_modules_is_sent(tmp_path: Path) -> None:
    names = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", pack(tmp_path / "veen.zip")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()[1:]
    assert len(names) > 100
    assert all(name.split()[0].endswith((".py", ".pyc")) for name in names)
    assert not any("__pycache__" in name for name in names)


START = f"""
import json, sys
from veen.pipeline.errors import SparkSessionError
from veen.pipeline.spark import session

told = []
bare = {{"spark.pyspark.python": sys.argv[2], "spark.cores.max": "1"}}
for more in (bare, {{"spark.executor.memory": "100g", "veen.wait": "2"}}):
    try:
        session.start(master=sys.argv[1], conf={dict(SETTINGS)!r} | more, oneshot=True)
    except SparkSessionError as error:
        told.append(str(error))
print(json.dumps(told))
"""


@pytest.mark.slow
def test_a_worker_that_lacks_packages_is_named_and_a_cluster_without_room_refused(
    cluster: Cluster, tmp_path: Path
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    done = cluster.script(START, str(bare))
    assert done.returncode == 0, done.stderr
    lacking, full = json.loads(done.stdout)
    assert lacking.startswith("the cluster cannot run this: on ")
    assert all(name in lacking for name in NEEDED.values())
    assert "\n" not in lacking
    assert full.startswith("the cluster cannot run this: it gave no executor in 2 s")
