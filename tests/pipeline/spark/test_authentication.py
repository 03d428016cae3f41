"""Spark's ports give nothing to strangers, and keys go into no session whose ports do."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.core.rdd import _prepare_for_python_RDD
from pyspark.sql import SparkSession

from tests import builders
from tests.pipeline.lake import lake_builder
from veen.core.types import StreamId
from veen.pipeline.shared_keys import sharing
from veen.pipeline.spark import authentication

THIEF = Path(__file__).with_name("thief.py")
#: A user that has nothing to do with the tests. Only root can become another one, and ports do not mind who
#: asks.
NOBODY = 65534 if os.getuid() == 0 else os.getuid()
STRANGER_SEC = 60.0


def listening(pid: int) -> list[int]:
    """Return the ports that a process listens on, as the system shows them."""
    held = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            held.add(str(path.readlink()))
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in held:
                found.append(int(local.rpartition(":")[2], 16))
    return found


def steal(places: Iterable[int], first: int, count: int = 3) -> str:
    """Return what a stranger gets who asks ports for broadcasts; hex, a line each."""
    blocks = [f"broadcast_{number}_piece0" for number in range(first, first + count)]
    done = subprocess.run(
        [sys.executable, THIEF, str(NOBODY), *map(str, places), "--", *blocks],
        capture_output=True,
        text=True,
        timeout=STRANGER_SEC,
        check=True,
    )
    return done.stdout


# --- a session that is open, in a process of its own --------------------------------------------------------

OPEN = """
import json, os, sys
from tests.pipeline.lake import lake_builder
from typer.testing import CliRunner
from veen.cli.main import app
from veen.pipeline.errors import SparkSessionError
from veen.pipeline.spark import session
from veen.pipeline.shared_keys import sharing

told = {}
with session.running(master="local[1,3]", conf={"spark.authenticate": "false"}, oneshot=True) as spark:
    context = spark.sparkContext
    sent = context.broadcast(bytes.fromhex(sys.argv[1]))
    told["count"] = context.parallelize([1], 1).map(lambda _: len(sent.value)).collect()
    try:
        with sharing(spark, lake_builder.keyring()):
            told["refusal"] = None
    except SparkSessionError as error:
        told["refusal"] = str(error)
    done = CliRunner().invoke(app, sys.argv[2:])
    told["command"] = [done.exit_code, done.stderr]
    told["ports"], told["broadcast"] = context._gateway.proc.pid, sent._jbroadcast.id()
    print(json.dumps(told), flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_an_open_session_gives_all_to_strangers_and_gets_no_keys(tmp_path: Path) -> None:
    """So the stranger knows how to ask; and what it would get of keys is never put there."""
    content = os.urandom(32)  # which no compression changes
    client = lake_builder.client(tmp_path / "me")
    words = ["pipeline", "ingest", "nowhere", "--lake", str(tmp_path / "lake"), "--keyring", str(client)]
    with subprocess.Popen(
        [sys.executable, "-c", OPEN, content.hex(), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        got = steal(listening(told["ports"]), told["broadcast"])
        process.stdin.close()
    assert process.returncode == 0
    assert told["count"] == [32]
    assert content.hex() in got
    wanted = "spark.authenticate=true and spark.network.crypto.enabled=true"
    assert wanted in told["refusal"]
    assert "\n" not in told["refusal"]
    assert told["command"] == [1, f"veen: {told['refusal']}\n"]
    assert not (tmp_path / "lake").exists()


# --- ours ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_stranger_gets_nothing_of_a_job_with_keys(spark: SparkSession) -> None:
    context = spark.sparkContext
    stream = StreamId(builders.digest("a stream"))
    with sharing(spark, lake_builder.keyring()) as shared:
        found = context.parallelize([1, 2], 2).map(lambda _: len(shared.open().of(stream))).collect()
        assert found == [2, 2]  # the reader's own
        got = steal(listening(context._gateway.proc.pid), shared._sealed._jbroadcast.id())  # type: ignore[union-attr]
        assert isinstance(shared._wrapping, Path)
        halves = (shared._wrapping.read_bytes(), shared._sealed.value)
    told = got.splitlines()
    assert len([line for line in told if line.startswith("broadcast_")]) >= 6  # two ports speak it
    assert all("nothing at" in line for line in told), told
    assert not any(half[:16].hex() in got for half in halves)


@pytest.mark.slow
def test_what_opens_the_keys_is_in_no_task_on_this_machine(spark: SparkSession) -> None:
    with sharing(spark, lake_builder.keyring()) as shared:
        assert isinstance(shared._wrapping, Path)
        wrapping = shared._wrapping.read_bytes()
        task, *_ = _prepare_for_python_RDD(spark.sparkContext, lambda _: shared.open())
        assert len(wrapping) == 32
        assert str(shared._wrapping).rpartition("/")[2].encode() in task
        assert wrapping not in task


@pytest.mark.slow
def test_what_opens_the_keys_is_for_its_owner_and_for_as_long_as_the_job(spark: SparkSession) -> None:
    paths = []

    def fail() -> None:
        with sharing(spark, lake_builder.keyring()) as shared:
            assert isinstance(shared._wrapping, Path)
            paths.append(shared._wrapping)
            assert paths[0].stat().st_mode & 0o777 == 0o600
            assert paths[0].parent.stat().st_mode & 0o077 == 0
            assert paths[0].stat().st_nlink == 0  # in no directory, so that nothing is left of it
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not paths[0].exists()


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_can_not_read_what_opens_the_keys(spark: SparkSession) -> None:
    reading = "import os, sys; os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))"
    reading += "; print(open(sys.argv[1], 'rb').read())"
    with sharing(spark, lake_builder.keyring()) as shared:
        done = subprocess.run(
            [sys.executable, "-c", reading, str(shared._wrapping), str(NOBODY)],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stdout == ""
    assert "Permission denied" in done.stderr


# --- settings -----------------------------------------------------------------------------------------------


def test_ports_are_guarded_unless_somebody_says_otherwise() -> None:
    on = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    assert authentication.guards({}) == authentication.guards({"spark.authenticate": "TRUE"}) == on
    # With a blank Spark takes it for false in some places, and encrypts nothing.
    assert "spark.network.crypto.enabled" not in authentication.guards({"spark.authenticate": "true "})
    # Spark refuses to encrypt where it does not authenticate.
    assert "spark.network.crypto.enabled" not in authentication.guards({"spark.authenticate": "false"})


def test_a_cluster_of_this_session_alone_has_a_secret_of_its_own() -> None:
    on, off = {"spark.authenticate": "true"}, {"spark.authenticate": "false"}
    (one,), (other,) = (authentication.secret_for("local-cluster[2,1,1024]", on).values() for _ in range(2))
    assert len(one) == 64
    assert one != other
    assert authentication.secret_for("local-cluster[2,1,1024]", off) == {}
    for master in ("local", "local[2,3]", "spark://h:7077", "yarn", "k8s://h:443"):
        assert authentication.secret_for(master, on) == {}


@pytest.mark.parametrize(
    "reason",
    [
        "requirement failed: A secret key must be specified via the spark.authenticate.secret config.",
        "Cannot call methods on a stopped SparkContext.",
    ],
)
def test_what_a_cluster_lacks_is_told_with_where_to_put_it(reason: str) -> None:
    told = authentication.what_is_missing(reason)
    assert told is not None
    for word in ("spark.authenticate true", "spark.authenticate.secret", "spark.network.crypto.enabled true"):
        assert word in told
    assert "spark-defaults.conf in SPARK_CONF_DIR" in told
    assert "\n" not in told


def test_other_reasons_are_left_as_they_are() -> None:
    assert authentication.what_is_missing("there is no Java class no.Such") is None
