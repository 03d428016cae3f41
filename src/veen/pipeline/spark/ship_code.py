"""Getting this code to the workers of a cluster, and finding out whether they can run it.

The package travels as a zip, so that the workers run the same code as the driver, whatever they have. What it
needs from others is compiled for a machine, and has to be installed there.

Workers import this module first of all: it needs the standard library only.
"""

import importlib
import importlib.util
import marshal
import platform
import socket
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from veen import version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Worker", "check_workers", "pack", "ship"]

#: What tasks import, and what to install for it.
NEEDED: Final = {
    "cryptography": "cryptography",
    "httpx": "httpx",
    "lmdb": "lmdb",
    "nacl": "pynacl",
    "numpy": "numpy",
    "pyarrow": "pyarrow",
}
_MOMENT_SEC: Final = 0.2


@dataclass(frozen=True, slots=True, order=True)
class Worker:
    """What a worker has."""

    host: str
    python: str
    version: str
    missing: tuple[str, ...]


def pack(target: Path) -> Path:
    """Write the installed package as a zip from which Python can import, sources and compiled modules."""
    package = Path(version.__file__).parent
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(package.rglob("*")):
            name = path.relative_to(package.parent)
            if path.suffix == ".py" and path.is_file():
                source = path.read_bytes()
                packed.writestr(str(name), source)
                packed.writestr(str(name.with_suffix(".pyc")), _compiled(source, str(name)))
    return target


def _compiled(source: bytes, name: str) -> bytes:
    """Compile a module in the form that is not compared with its source again (PEP 552)."""
    code = compile(source, name, "exec", dont_inherit=True)
    unchecked_hash = (0b01).to_bytes(4, "little") + importlib.util.source_hash(source)
    return importlib.util.MAGIC_NUMBER + unchecked_hash + marshal.dumps(code)


def ship(spark: "SparkSession", directory: Path) -> None:
    """Send the package to all workers, now and to come."""
    spark.sparkContext.addPyFile(str(pack(directory / f"veen-{version.__version__}.zip")))


def check_workers(spark: "SparkSession", patience: float = 120.0) -> Sequence[Worker]:
    """Ask workers what they have; refuse those that lack something, or have another version of this code.

    A cluster that gives no executor at all, in as many seconds, is refused as well: Spark would wait forever.
    """
    # Not at the top: workers import this module before it is known which packages they have.
    from veen.pipeline.errors import SparkWorkerError

    deadline = time.monotonic() + patience
    tracker = spark.sparkContext.statusTracker()
    with ThreadPoolExecutor(1) as pool:
        # Asked at once: a cluster may give executors only when there are tasks for them.
        asked = pool.submit(_ask, spark)
        while not wait([asked], _MOMENT_SEC).done:
            alone = len(tracker.getExecutorInfos()) < 2  # the driver is one of them
            if alone and time.monotonic() > deadline:
                spark.sparkContext.cancelAllJobs()
                raise SparkWorkerError(
                    f"it gave no executor in {patience:.0f} s; check that it has free cores and memory"
                    " as requested (--conf veen.wait=SECONDS waits longer)"
                )
    problems = [problem for worker in asked.result() for problem in _problems(worker)]
    if problems:
        raise SparkWorkerError("; ".join(problems))
    return asked.result()


def _ask(spark: "SparkSession") -> list[Worker]:
    count = max(2, 2 * spark.sparkContext.defaultParallelism)
    tasks = spark.sparkContext.parallelize(range(count), count)
    return sorted(tasks.mapPartitions(look_around).distinct().collect())


def look_around(_items: object) -> Iterator[Worker]:
    """Tell what there is where this runs."""
    missing = tuple(sorted(needed for name, needed in NEEDED.items() if not _can_import(name)))
    yield Worker(socket.gethostname(), platform.python_version(), version.__version__, missing)


def _can_import(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def _problems(worker: Worker) -> Iterator[str]:
    if worker.missing:
        yield f"on {worker.host}, Python {worker.python} has no {', '.join(worker.missing)}"
    if worker.version != version.__version__:
        yield f"on {worker.host} there is veen {worker.version}, not {version.__version__}"
    if worker.python.split(".")[:2] != platform.python_version().split(".")[:2]:
        here = ".".join(map(str, sys.version_info[:2]))
        yield f"on {worker.host} there is Python {worker.python}, not {here}"
