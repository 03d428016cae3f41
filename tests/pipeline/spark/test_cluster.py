"""The same jobs on a cluster: shipped code, lost executors and tasks that run twice change nothing."""

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import veen
from tests import builders
from tests.cli.command_runner import User
from tests.pipeline.log_builder import START, Hub, Sent
from tests.pipeline.spark.cluster import SETTINGS, Cluster
from veen.client.home.directory import ClientHome
from veen.client.keys.keystore import Secrets, StreamKey
from veen.core.objects import labels
from veen.overlays.builtin.crdt import LWW
from veen.pipeline.lake import layout

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
}
UNDISTURBED = ""

JOBS = f"""
import json, os, signal, sys, threading, time
from contextlib import suppress
from pathlib import Path
from pyspark import TaskContext
from typer.testing import CliRunner
from veen.cli.main import app
from veen.core.crypto.hash import tagged_hash
from veen.pipeline.spark import session, ship_code

HANG_SEC = 200

def work(number, disturb):
    import veen
    from veen.core.crypto.hash import tagged_hash

    first = TaskContext.get().attemptNumber() == 0
    if disturb == "kill" and number == 3 and first:
        daemon = os.getppid()
        with open(f"/proc/{{daemon}}/stat") as file:
            executor = int(file.read().rpartition(")")[2].split()[1])
        os.kill(executor, signal.SIGKILL)
        threading.Event().wait(60)
    if disturb == "hang" and number == 3 and first:
        threading.Event().wait(HANG_SEC)
    return number, tagged_hash("veen/test", number.to_bytes(8, "big")).hex(), veen.__file__

def run(context, disturb):
    began = time.monotonic()
    found = context.parallelize(range(8), 8).map(lambda number: work(number, disturb)).collect()
    assert time.monotonic() - began < HANG_SEC, "it waited for the task that hangs"
    return found

def answer(words):
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)

def commands_with(secret):
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (place / "cmdline").read_bytes()
            found += [command.decode()] if secret.encode() in command else []
    return found

CONF = {dict(SETTINGS) | SPECULATION!r}
with session.running(app="jobs", master=sys.argv[1], conf=CONF, oneshot=True) as spark:
    context = spark.sparkContext
    workers = [[worker.python, worker.version, worker.missing] for worker in ship_code.check_workers(spark)]
    answers = [answer(words) for words in json.loads(sys.argv[2])]
    secret = context.getConf().get("spark.authenticate.secret")
    shown = commands_with(secret)
    # The one that hangs comes last: its core stays taken.
    found = {{disturb: run(context, disturb) for disturb in ("", "kill", "hang")}}
expected = [tagged_hash("veen/test", number.to_bytes(8, "big")).hex() for number in range(8)]
told = {{"workers": workers, "answers": answers, "found": found, "expected": expected}}
print(json.dumps({{**told, "secret": secret, "shown": shown}}))
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with registers in it, and a client who can read them."""
    root = tmp_path_factory.mktemp("world")
    with Hub(root / "hub") as hub:
        for number in range(150):
            body = LWW.encode(
                {"key": b"key %d" % (number % 7), "ts": number * 31 % 50, "value": b"%d" % number}
            )
            client = ("ann", "bob")[number % 2]
            hub.send("registers", [Sent(body, client=client, schema=LWW.schema_id)])
            hub.write("chat", b"words %d" % number, client=client)
            hub.tick()
    keys = tuple(
        StreamKey(stream_id=labels.stream_id(name), secret=builders.reader_secret(), created_at=START)
        for name in ("registers", "chat")
    )
    fresh = Secrets.generate(builders.counted_random("client"), START)
    secrets = Secrets(
        id_sign=fresh.id_sign, id_dh=fresh.id_dh, clients=fresh.clients, prekeys=fresh.prekeys, streams=keys
    )
    ClientHome.create(root / "client", secrets, now=START)
    return root


@pytest.fixture(scope="module")
def commands(world: Path) -> list[list[str]]:
    """What is asked on the cluster and here."""
    fold = ["fold", "crdt.lww", world / "hub", "--stream", "registers", "--keyring", world / "client"]
    return [
        ["pipeline", *map(str, words), "--json"]
        for words in (["verify", world / "hub", "--partitions", "16"], fold)
    ]


@pytest.fixture(scope="module")
def told(cluster: Cluster, commands: list[list[str]]) -> dict[str, Any]:
    """What the jobs and the commands say, all in one session."""
    done = cluster.script(JOBS, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.fixture
def here(spark: SparkSession, tmp_path: Path) -> User:
    """Somebody who uses the Spark of the tests."""
    assert spark.sparkContext.defaultParallelism == 2
    return User(tmp_path)


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


@pytest.mark.slow
def test_a_cluster_has_a_secret_that_is_on_no_command_line(told: dict[str, Any], cluster: Cluster) -> None:
    assert (told["secret"], told["shown"]) == (cluster.secret, [])


@pytest.mark.slow
def test_a_cluster_without_a_secret_is_told_what_it_needs(cluster: Cluster, world: Path) -> None:
    done = cluster.run("pipeline", "verify", world / "hub", environment={"SPARK_CONF_DIR": "/nonexistent"})
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("veen: Spark did not start: a standalone cluster needs a secret: put the lines")
    assert "spark-defaults.conf in SPARK_CONF_DIR" in line
    assert "--conf spark.authenticate=false" in line


@pytest.mark.slow
def test_a_cluster_gives_the_same_verdict(
    told: dict[str, Any], here: User, commands: list[list[str]]
) -> None:
    there = told["answers"][0]
    assert there == here.ok(*commands[0])
    assert (there["ok"], there["entries"]) == (True, 300)


@pytest.mark.slow
def test_a_cluster_folds_to_the_same_state(
    told: dict[str, Any], here: User, world: Path, commands: list[list[str]]
) -> None:
    there = told["answers"][1]
    assert there == here.ok(*commands[1])
    at = ("--hub", world / "hub", "--client", world / "client", "--stream", "registers")
    plain = here.ok("interpret", "crdt.lww", *at)
    assert (there["state"], there["state_hash"]) == (plain["state"], plain["state_hash"])


@pytest.mark.slow
def test_a_cluster_writes_the_same_tables(cluster: Cluster, here: User, world: Path) -> None:
    words = ("pipeline", "ingest", world / "hub", "--keyring", world / "client", "--lake")
    done = cluster.run(*words, world / "there", "--json", conf=SPECULATION)
    assert done.returncode == 0, done.stdout + done.stderr
    there, mine = json.loads(done.stdout), here.ok(*words, world / "here")
    assert (there["entries"], mine["entries"]) == (300, 300)
    assert _content(world / "there") == _content(world / "here")


def _content(lake: Path) -> dict[str, str]:
    """Return the hash of each file of a lake; not of those that a task has left whose twin was faster."""
    return {
        str(path.relative_to(lake)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(lake.rglob("*"))
        if path.is_file() and not path.name.startswith(layout.UNFINISHED)
    }
