"""kill -9 of a streaming query at any moment, and a new one on its checkpoint: every entry, each once."""

import os
import random
import select
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.paths import ROOT
from tests.pipeline.log_builder import Hub
from veen.pipeline.spark.processes import Descendants

#: More for the long run.
ROUNDS = int(os.environ.get("VEEN_PIPELINE_KILLS", "1"))
TIMEOUT = 240.0
STREAMS = ("alpha", "beta", "gamma")


class Victim:
    """A query in a process group of its own."""

    def __init__(self, log: Path, place: Path) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.pipeline.datasource.query_victim",
            str(log),
            str(place / "out"),
        ]
        with (place / "victim.log").open("ab") as log_file:
            self._process = subprocess.Popen(
                [*command, str(place / "checkpoint")],
                stdout=subprocess.PIPE,
                stderr=log_file,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._output = self._process.stdout

    def says(self, seconds: float) -> bytes:
        """Return what it says next; empty if it says nothing for so long, or has ended."""
        ready, _, _ = select.select([self._output], [], [], seconds)
        return os.read(self._output.fileno(), 4096) if ready else b""

    def wait_for(self, words: bytes) -> bytes:
        said = b""
        while words not in said:
            more = self.says(TIMEOUT)
            assert more, f"it has ended, or says nothing: {said!r}"
            said += more
        return said

    def kill(self) -> None:
        """End it and all that it has started, at once."""
        below = Descendants(self._process.pid)
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._output.close()
        below.end(0.0)


def entries_in(out: Path) -> Counter[tuple[bytes, int, bytes]]:
    """Return what is in the files, however they came there, and how often."""
    found: Counter[tuple[bytes, int, bytes]] = Counter()
    for file in sorted(out.rglob("*.parquet")):
        table = pq.read_table(file, columns=["label", "stream_seq", "leaf_hash"], partitioning=None)
        found.update(zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True))
    return found


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(TIMEOUT * (ROUNDS + 1))
def test_every_entry_arrives_once_whenever_the_query_is_killed(tmp_path: Path) -> None:
    chance = random.Random(ROUNDS)
    with Hub(tmp_path / "data") as hub:
        for number in range(ROUNDS):
            for stream in STREAMS:
                hub.write(stream, *[f"{number}".encode()] * 40)
            victim = Victim(hub.root, tmp_path)
            try:
                victim.wait_for(b"begins")
                for _ in range(chance.randrange(3)):
                    victim.says(TIMEOUT)
                hub.write(chance.choice(STREAMS), b"meanwhile")
                if number % 2:
                    hub.writer.flush()
                select.select([], [], [], chance.random())
            finally:
                victim.kill()
        last = Victim(hub.root, tmp_path)
        try:
            last.wait_for(b"done")
        finally:
            last.kill()
        expected = {(item.label, item.stream_seq, item.leaf_hash): 1 for item in hub.receipts}
    assert entries_in(tmp_path / "out") == expected
