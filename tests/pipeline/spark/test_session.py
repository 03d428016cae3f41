"""Spark as it is started here: its settings, its errors in one line, and that nothing of it is left."""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from veen.pipeline.errors import SparkSessionError
from veen.pipeline.spark import session
from veen.pipeline.spark.directories import Scratch, sweep
from veen.pipeline.spark.processes import Descendants
from veen.pipeline.spark.session import is_local, parse_conf

PATIENCE_SEC = 60.0

# --- what is asked ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([], {}),
        (["spark.a=1", "spark.b=x=y"], {"spark.a": "1", "spark.b": "x=y"}),
        (["spark.a=1", "spark.a="], {"spark.a": ""}),
        (["veen.ship=false"], {"veen.ship": "false"}),
    ],
)
def test_settings_are_read(given: list[str], found: dict[str, str]) -> None:
    assert parse_conf(given) == found


@pytest.mark.parametrize("text", ["", "spark.a", "=1", "driver.memory=1g", "spark.=1", "spark. a=1"])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(SparkSessionError, match=r"is not a Spark setting"):
        parse_conf([text])


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[2,3]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://h:7077", False),
        ("yarn", False),
    ],
)
def test_which_masters_are_here(master: str, *, local: bool) -> None:
    assert is_local(master) is local


# --- what is written ----------------------------------------------------------------------------------------


def test_what_a_killed_run_left_is_removed_and_what_is_used_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    used = Scratch()
    left = Scratch()
    (left.path / "blocks").mkdir()
    assert left._lock is not None
    os.close(left._lock)  # as the system does when a process is killed
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == [used.path]
    used.remove()
    assert list(tmp_path.iterdir()) == []


# --- ending processes ---------------------------------------------------------------------------------------

FAMILY = """
import os, signal, sys
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
    print("ready", flush=True)
signal.pause()
"""


def test_a_process_that_does_not_listen_is_killed_with_all_below() -> None:
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        below, watched = Descendants(parent.pid), Descendants(parent.pid)
        parent.terminate()
        left = below.wait(0.2)
        assert len(left) == 1
        assert left != (parent.pid,)
        below.end(0.0)
        assert watched.wait(0.0) == ()
        watched.end(0.0)


# --- what goes wrong: one line, before or after Java was started --------------------------------------------

REFUSALS = """
import json, os, sys
from veen.pipeline.errors import SparkSessionError
from veen.pipeline.spark import session
told = []
for arguments in json.loads(sys.argv[1]):
    try:
        session.start(**arguments)
    except SparkSessionError as error:
        told.append([type(error).__name__, str(error)])
print(json.dumps([told, os.listdir(os.environ["TMPDIR"])]))
"""


def python(text: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments],
        env={**os.environ, **environment},
        cwd=environment.get("TMPDIR"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_what_can_not_be_started_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    asked = [
        ({"master": "localhost:7077"}, "SparkSessionError", "'localhost:7077' is not a Spark master"),
        ({"master": f"spark://127.0.0.1:{closed}"}, "ClusterUnreachableError", "Connection refused"),
        ({"conf": {"veen.ship": "maybe"}}, "SparkSessionError", "veen.ship=maybe is not a setting"),
        (
            {"conf": {"spark.authenticate.secret": "x"}},
            "SparkSessionError",
            "spark.authenticate.secret is a secret",
        ),
        ({"driver_memory": "much"}, "SparkSessionError", "Invalid maximum heap size: -Xmxmuch"),
        (
            {"conf": {"spark.task.cpus": "many"}},
            "SparkSessionError",
            'in the config "spark.task.cpus" is invalid',
        ),
        ({"conf": {"spark.local.dir": "/proc/nope"}}, "SparkSessionError", "/proc/nope"),
        ({"conf": {"spark.plugins": "no.Such"}}, "SparkSessionError", "there is no Java class no.Such"),
    ]
    told, left = json.loads(
        python(REFUSALS, json.dumps([given for given, _, _ in asked]), TMPDIR=str(tmp_path))
    )
    for (_, kind, text), (found, line) in zip(asked, told, strict=True):
        assert found == kind
        assert text in line
        assert "\n" not in line
    assert left == []


# --- a whole life -------------------------------------------------------------------------------------------

LIFE = """
import json, os, signal, sys
from veen.pipeline.spark import failures, session
from veen.pipeline.spark.processes import Descendants

def below():
    return [pid for pid in Descendants(os.getpid())._held if pid != os.getpid()]

handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
told = []
for memory in ("600m", "700m"):
    conf = {"spark.sql.shuffle.partitions": "3", "spark.driver.extraJavaOptions": "-Dveen.mine=1"}
    with session.running(master="local[1,3]", conf=conf, driver_memory=memory, oneshot=True) as spark:
        spark.range(10).createOrReplaceTempView("numbers")
        spark.sql("select sum(id) from numbers").collect()
        spark.range(10).write.saveAsTable("kept")
        total = spark.sparkContext.parallelize(range(10), 2).sum()
        system = spark.sparkContext._jvm.java.lang.System
        runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()
        told.append([total, system.getProperty("veen.mine"), runtime.maxMemory() >> 20, len(below())])
        try:
            spark.sparkContext.parallelize([0], 1).map(lambda number: 1 // number).collect()
        except Exception as error:
            told[-1].append(failures.reason_of(error))
    told.append([below(), os.listdir(os.environ["TMPDIR"]), os.listdir(".")])
same = handlers == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
print(json.dumps([told, same]))
"""


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_session_leaves_nothing_behind_and_another_can_follow(tmp_path: Path) -> None:
    """No processes, no files where it worked or kept scratch, and not a word on the terminal."""
    place = tmp_path / "with blank"
    place.mkdir()
    (first, left, second, left_again), same = json.loads(
        python(LIFE, TMPDIR=str(place), PYSPARK_GATEWAY_PORT="1", PYSPARK_PYTHON="/bin/false")
    )
    assert first[:2] == second[:2] == [45, "1"]
    assert 550 < first[2] < second[2] < 700
    assert first[3] >= 2
    assert second[3] >= 2
    assert first[4] == "ZeroDivisionError: integer division or modulo by zero"
    assert left == left_again == [[], [], []]
    assert same


BUSY = """
import threading
from veen.pipeline.spark import session

with session.running(master="local[1,3]", oneshot=True) as spark:
    def block(number):
        with open("ready", "w") as file:
            file.write("ready")
        threading.Event().wait(600)

    spark.sparkContext.parallelize([1], 1).foreach(block)
"""


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_a_run_ends_all_its_processes(tmp_path: Path, number: signal.Signals) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    with subprocess.Popen(
        [sys.executable, "-c", BUSY],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert ready.read_text() == "ready"  # a task has begun
        below = Descendants(process.pid)
        process.send_signal(number)
        left = below.wait(PATIENCE_SEC)
        below.end(0.0)
        _, told = process.communicate()
    assert left == ()
    assert told == "" or (number is signal.SIGINT and told.rstrip().endswith("\nKeyboardInterrupt"))
    assert "ERROR" not in told
    assert process.returncode == (143 if number is signal.SIGTERM else -number)
    scratch = [path for path in tmp_path.iterdir() if path.name.startswith("veen-spark-")]
    assert not scratch or number is signal.SIGKILL


LOST = """
import os, signal, sys
from veen.pipeline.spark import session

ended = []
for number in (signal.SIGINT, signal.SIGTERM):
    try:
        with session.running(master="local[1,3]", oneshot=True):
            try:
                os.kill(os.getpid(), number)
            finally:
                raise OSError("what a library says whose connection was broken")
    except BaseException as error:
        ended.append(type(error).__name__)
print(*ended)
"""


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_signal_counts_more_than_what_came_of_it(tmp_path: Path) -> None:
    """py4j answers a call after an interrupt with errors of its own, which would hide it."""
    assert python(LOST, TMPDIR=str(tmp_path)).split() == ["KeyboardInterrupt", "SystemExit"]


# --- as it runs ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_settings_hold_and_those_of_the_user_win(spark: SparkSession) -> None:
    expected = {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
    }
    assert {name: spark.conf.get(name) for name in expected} == expected
    fixed = {
        "spark.driver.host": "127.0.0.1",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.enabled": "false",
    }
    assert {name: spark.sparkContext.getConf().get(name) for name in fixed} == fixed


@pytest.mark.slow
def test_a_session_that_runs_is_used_and_left_running(spark: SparkSession) -> None:
    with session.running(app="another") as found:
        assert found is spark
    assert spark.range(3).count() == 3


@pytest.mark.slow
def test_workers_begin_with_what_they_need(spark: SparkSession) -> None:
    """Imports are set aside from collection, and Spark comes from where it is compiled."""

    def look(_items: object) -> list[tuple[int, str]]:
        return [(gc.get_freeze_count(), pyspark.__file__)]

    for frozen, place in spark.sparkContext.parallelize(range(2), 2).mapPartitions(look).collect():
        assert frozen > 10_000
        assert "pyspark.zip" not in place
