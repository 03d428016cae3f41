"""A real cluster on this machine: a master and two workers of Spark, each a process of its own.

A process can have one session of Spark, so what uses the cluster runs in another one: ``script`` and ``run``.
"""

import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

from veen.pipeline.spark.java import find_java, wheel_java_home
from veen.pipeline.spark.processes import Descendants

HOME: Final = Path(pyspark.__file__).parent
JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Far more than a start needs; for machines that do other things as well.
START_SEC: Final = 120.0
RUN_SEC: Final = 240.0
#: Small executors, and everything on the loopback address.
SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JVM,
    "spark.driver.memory": "512m",
}
#: In spark-defaults.conf of all processes: where they answer only those that know the secret.
GUARD: Final = """\
spark.authenticate                         true
spark.authenticate.secret                  {secret}
spark.network.crypto.enabled               true
spark.network.crypto.authEngineVersion     2
spark.network.crypto.cipher                AES/GCM/NoPadding
"""


class Cluster:
    """Where the master is, and how to use it."""

    def __init__(self, place: Path, java_home: Path) -> None:
        self.place = place
        self.processes: list[subprocess.Popen[bytes]] = []
        self.secret = secrets.token_hex()
        self.conf = place / "conf"
        self.conf.mkdir()
        (self.conf / "spark-defaults.conf").write_text(GUARD.format(secret=self.secret))
        self.environment = {
            **{name: value for name, value in os.environ.items() if "SPARK" not in name},
            "JAVA_HOME": str(java_home),
            "SPARK_CONF_DIR": str(self.conf),
            "SPARK_HOME": str(HOME),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JVM,
            "SPARK_LAUNCHER_OPTS": JVM,
        }
        self.url = ""

    def start(self) -> None:
        """Start the master, then the workers, and wait until they know each other."""
        log = self._start("master", "127.0.0.1", "org.apache.spark.deploy.master.Master")
        self.url = self._await(log, r"Starting Spark master at (spark://\S+)")
        limits = ("--cores", "1", "--memory", "1g")
        logs = [
            self._start(
                name,
                host,
                "org.apache.spark.deploy.worker.Worker",
                *limits,
                *("--work-dir", str(self.place / f"{name}-work")),
                self.url,
            )
            # Two hosts, as far as Spark can tell: it runs no task a second time on the host where it runs.
            for name, host in (("worker-1", "127.0.0.1"), ("worker-2", "127.0.0.2"))
        ]
        for log in logs:
            self._await(log, r"(Successfully registered with master)")

    def _start(self, name: str, host: str, program: str, *arguments: str) -> Path:
        log = self.place / f"{name}.log"
        address = ("--host", host, "--port", "0", "--webui-port", "0")
        local = {"SPARK_LOCAL_IP": host, "SPARK_LOCAL_DIRS": str(self.place / f"{name}-local")}
        with log.open("wb") as file:
            self.processes.append(
                subprocess.Popen(
                    [HOME / "bin" / "spark-class", program, *address, *arguments],
                    cwd=self.place,
                    env={**self.environment, **local},
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                )
            )
        return log

    def _await(self, log: Path, said: str) -> str:
        """Wait until a process has said something."""
        deadline = time.monotonic() + START_SEC
        pause = threading.Event()
        while time.monotonic() < deadline:
            if found := re.search(said, log.read_text(errors="replace")):
                return found[1]
            assert all(process.poll() is None for process in self.processes), log.read_text()
            pause.wait(0.05)
        raise AssertionError(log.read_text())

    def stop(self) -> None:
        """End all processes, and those that they have started."""
        for process in reversed(self.processes):
            below = Descendants(process.pid)
            process.terminate()
            below.end(10.0)
            process.wait()

    def options(self, conf: Mapping[str, str] | None = None) -> list[str]:
        """Return the options with which a command runs here."""
        settings = {**SETTINGS, **(conf or {})}
        return [
            *("--master", self.url),
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        ]

    def run(
        self,
        *arguments: str | Path,
        conf: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a ``veen`` command that takes ``--master`` on the cluster."""
        command = [Path(sys.executable).parent / "veen", *arguments, *self.options(conf)]
        return self._run(command, environment or {})

    def script(
        self, text: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program; ``sys.argv[1]`` is the address of the master."""
        return self._run([sys.executable, "-c", text, self.url, *arguments], environment or {})

    def _run(
        self, command: list[str | Path], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in self.environment.items() if not name.startswith("SPARK_")}
        ours = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(self.conf)}
        return subprocess.run(
            command,
            cwd=self.place,
            env={**kept, **ours, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_SEC,
            check=False,
        )


@contextmanager
def running_cluster(place: Path) -> Iterator[Cluster]:
    """Have a cluster for a while."""
    java = find_java(os.environ, shim_dir=place / "shims", wheel_home=wheel_java_home())
    cluster = Cluster(place, java.home)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
