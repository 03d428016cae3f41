"""The jobs on a real cluster, with speculation on: verdict, tables and state are the same as here."""

import hashlib
import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests import builders
from tests.cli.running import User
from tests.pipeline.cluster import Cluster
from tests.pipeline.making import START, Hub, Sent
from veen.client.home import ClientHome
from veen.client.keystore import Secrets, StreamKey
from veen.core import labels
from veen.overlays.crdt import LWW

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
}


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


def _answer(done: CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _both(cluster: Cluster, here: User, *words: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a command on the cluster, and here."""
    there = _answer(cluster.run("pipeline", *words, "--json", conf=SPECULATION))
    return there, here.ok("pipeline", *words)


@pytest.fixture
def here(spark: SparkSession, tmp_path: Path) -> User:
    """Somebody who uses the Spark of the tests."""
    assert spark.sparkContext.defaultParallelism == 2
    return User(tmp_path)


@pytest.mark.slow
def test_a_cluster_gives_the_same_verdict(cluster: Cluster, here: User, world: Path) -> None:
    there, mine = _both(cluster, here, "verify", world / "hub", "--partitions", "16")
    assert there == mine
    assert (there["ok"], there["entries"]) == (True, 300)


@pytest.mark.slow
def test_a_cluster_writes_the_same_tables(cluster: Cluster, here: User, world: Path) -> None:
    words = ("pipeline", "ingest", world / "hub", "--keyring", world / "client", "--lake")
    there = _answer(cluster.run(*words, world / "there", "--json", conf=SPECULATION))
    mine = here.ok(*words, world / "here")
    assert (there["entries"], mine["entries"]) == (300, 300)
    assert _content(world / "there") == _content(world / "here")


def _content(lake: Path) -> dict[str, str]:
    """Return the hash of each file of a lake."""
    return {
        str(path.relative_to(lake)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(lake.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
def test_a_cluster_folds_to_the_same_state(cluster: Cluster, here: User, world: Path) -> None:
    words = ("fold", "crdt.lww", world / "hub", "--stream", "registers", "--keyring", world / "client")
    there, mine = _both(cluster, here, *words)
    assert there == mine
    at = ("--hub", world / "hub", "--client", world / "client", "--stream", "registers")
    plain = here.ok("interpret", "crdt.lww", *at)
    assert (there["state"], there["state_hash"]) == (plain["state"], plain["state_hash"])
