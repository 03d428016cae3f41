"""Keys reach the tasks, and nothing else: no file, argument, variable, log, and nothing that Spark notes."""

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.pipeline.lake import lake_builder
from tests.pipeline.lake.lake_builder import STREAMS, put
from tests.pipeline.log_builder import Hub
from veen.client.home.directory import ClientHome
from veen.client.keys.keystore import Secrets
from veen.pipeline.lake import layout
from veen.pipeline.lake.lake import load


def forms(secret: bytes) -> list[bytes]:
    """Return a secret in the forms in which it could lie about."""
    plain = [secret, secret.hex().encode(), secret.hex().upper().encode(), base64.b64encode(secret)]
    return [
        *plain,
        base64.urlsafe_b64encode(secret),
        base64.b64encode(secret)[:40],
        repr(secret)[2:-1].encode(),
    ]


def below(pid: int) -> Iterator[Path]:
    """Yield what the system shows of a process and all below it."""
    children: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(place.name))
    todo = [pid]
    while todo:
        one = todo.pop()
        yield Path(f"/proc/{one}")
        todo += children.get(one, [])


class Seen:
    """All bytes that were to be seen while a program ran."""

    def __init__(self, secrets: list[bytes]) -> None:
        self._wanted = [form for secret in secrets for form in forms(secret)]
        self.leaks: set[str] = set()
        self.processes: set[str] = set()
        self.files: set[str] = set()

    def look(self, data: bytes, where: str) -> None:
        if any(form in data for form in self._wanted):
            self.leaks.add(where)

    def look_at(self, path: Path) -> None:
        with suppress(OSError):
            self.look(path.read_bytes(), str(path))

    def look_at_processes(self, pid: int) -> None:
        for place in below(pid):
            self.processes.add(place.name)
            for name in ("cmdline", "environ"):
                self.look_at(place / name)

    def look_at_files(self, *places: Path) -> None:
        for place in places:
            for folder, _, names in os.walk(place):  # which does not mind directories that go away meanwhile
                for name in names:
                    path = Path(folder, name)
                    self.files.add(str(path))
                    self.look_at(path)


def all_secrets(secrets: Secrets) -> list[bytes]:
    keys = [secrets.id_sign, secrets.id_dh, *(key.seed for key in secrets.clients)]
    keys += [key.secret for key in secrets.prekeys]
    return [*keys, *(key.secret for key in secrets.streams)]


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_keys_are_nowhere_to_be_found_during_and_after_a_run(tmp_path: Path) -> None:
    with Hub(tmp_path / "hub") as hub:
        for nth in range(12):
            hub.send(STREAMS[nth % 3], [put(f"key {nth}", number) for number in range(30)])
    secrets = lake_builder.secrets()
    ClientHome.create(tmp_path / "me", secrets, now=1_000)
    scratch, events, lake = tmp_path / "scratch", tmp_path / "events", tmp_path / "lake"
    scratch.mkdir()
    events.mkdir()
    seen = Seen(all_secrets(secrets))
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
        "spark.eventLog.logStageExecutorMetrics": "true",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
    }
    words = ["pipeline", "ingest", hub.root, "--lake", lake, "--keyring", tmp_path / "me" / "keystore.enc"]
    words += ["--verbose-spark", "--master", "local[2,3]"]
    words += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    with (
        (tmp_path / "out").open("wb") as out,
        (tmp_path / "err").open("wb") as err,
        subprocess.Popen(
            [str(Path(sys.executable).with_name("veen")), *map(str, words)],
            stdout=out,
            stderr=err,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(scratch)},
        ) as process,
    ):
        while process.poll() is None:
            seen.look_at_processes(process.pid)
            seen.look_at_files(scratch, events)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
    assert process.returncode == 0, (tmp_path / "err").read_text()
    for name in ("out", "err"):
        seen.look_at(tmp_path / name)
    seen.look_at_files(scratch, events, lake)
    assert seen.leaks == set()
    # There was something to be seen, and the keys were used.
    assert len(seen.processes) > 2
    assert any("broadcast" in path or "spark-" in path for path in seen.files)
    assert any(path.startswith(str(events)) for path in seen.files)
    assert "silver/crdt.lww.v1" in load(lake).tables()
    assert layout.RECORDS in load(lake).tables()
