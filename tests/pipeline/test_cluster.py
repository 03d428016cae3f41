"""The same job on a cluster: shipped code, lost executors and tasks that run twice change nothing."""

import json
import platform
from typing import Any

import pytest

import veen
from tests.pipeline.cluster import SETTINGS, Cluster

JOBS = f"""
import json, os, signal, sys, threading, time
from pyspark import TaskContext
from veen.core.hashing import ht
from veen.pipeline import session, shipping

CONF = {dict(SETTINGS)!r} | {{
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
}}

HANG_SEC = 200

def work(number, disturb):
    import veen
    from veen.core.hashing import ht

    first = TaskContext.get().attemptNumber() == 0
    if disturb == "kill" and number == 3 and first:
        daemon = os.getppid()
        with open(f"/proc/{{daemon}}/stat") as file:
            executor = int(file.read().rpartition(")")[2].split()[1])
        os.kill(executor, signal.SIGKILL)
        threading.Event().wait(60)
    if disturb == "hang" and number == 3 and first:
        threading.Event().wait(HANG_SEC)
    return number, ht("veen/test", number.to_bytes(8, "big")).hex(), veen.__file__

def run(context, disturb):
    began = time.monotonic()
    found = context.parallelize(range(8), 8).map(lambda number: work(number, disturb)).collect()
    assert time.monotonic() - began < HANG_SEC, "it waited for the task that hangs"
    return found

with session.running(app="jobs", master=sys.argv[1], conf=CONF, oneshot=True) as spark:
    context = spark.sparkContext
    workers = [[worker.python, worker.version, worker.missing] for worker in shipping.check_workers(spark)]
    # The one that hangs comes last: its core stays taken.
    found = {{disturb: run(context, disturb) for disturb in ("", "kill", "hang")}}
expected = [ht("veen/test", number.to_bytes(8, "big")).hex() for number in range(8)]
print(json.dumps({{"workers": workers, "found": found, "expected": expected}}))
"""

UNDISTURBED = ""


@pytest.fixture(scope="module")
def told(cluster: Cluster) -> dict[str, Any]:
    """What the jobs say, all in one session."""
    done = cluster.script(JOBS)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.slow
@pytest.mark.parametrize("disturb", [UNDISTURBED, "kill", "hang"])
def test_the_result_is_the_same_whatever_happens_to_executors(told: dict[str, Any], disturb: str) -> None:
    """A task that hangs runs elsewhere too (speculation); one whose executor is killed runs again."""
    assert [digest for _, digest, _ in told["found"][disturb]] == told["expected"]


@pytest.mark.slow
def test_workers_run_the_code_that_was_shipped(told: dict[str, Any]) -> None:
    places = {place for found in told["found"].values() for _, _, place in found}
    assert all(f"veen-{veen.__version__}.zip/veen/" in place for place in places), places
    assert told["workers"] == [[platform.python_version(), veen.__version__, []]]
