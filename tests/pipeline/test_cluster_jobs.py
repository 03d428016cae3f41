"""The jobs on a real cluster, with speculation on: verdict, tables and state are the same as here."""

import hashlib
import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests import builders
from tests.pipeline.cluster import Cluster
from tests.pipeline.commands import veen
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


def _both(cluster: Cluster, *words: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a command on the cluster, and here."""
    there = _answer(cluster.run("pipeline", *words, "--json", conf=SPECULATION))
    return there, _answer(veen("pipeline", *words, "--json"))


@pytest.mark.slow
def test_a_cluster_gives_the_same_verdict(cluster: Cluster, world: Path) -> None:
    there, here = _both(cluster, "verify", world / "hub", "--partitions", "16")
    assert there == here
    assert (there["ok"], there["entries"]) == (True, 300)


@pytest.mark.slow
def test_a_cluster_writes_the_same_tables(cluster: Cluster, world: Path) -> None:
    for name, run in (("there", cluster.run), ("here", None)):
        words = ("pipeline", "ingest", world / "hub", "--lake", world / name, "--keyring", world / "client")
        done = veen(*words, "--json") if run is None else run(*words, "--json", conf=SPECULATION)
        assert _answer(done)["entries"] == 300
    assert _content(world / "there") == _content(world / "here")


def _content(lake: Path) -> dict[str, str]:
    """Return the hash of each file of a lake."""
    return {
        str(path.relative_to(lake)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(lake.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
def test_a_cluster_folds_to_the_same_state(cluster: Cluster, world: Path) -> None:
    words = ("fold", "crdt.lww", world / "hub", "--stream", "registers", "--keyring", world / "client")
    there, here = _both(cluster, *words)
    assert there == here
    at = ("--hub", world / "hub", "--client", world / "client", "--stream", "registers", "--json")
    plain = _answer(veen("interpret", "crdt.lww", *at))
    assert (there["state"], there["state_hash"]) == (plain["state"], plain["state_hash"])
