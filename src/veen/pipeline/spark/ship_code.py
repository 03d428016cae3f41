"""Send this code to the workers of a cluster, and check whether they can run it.

The package is sent as a zip, so that workers run the same code as the driver, whatever they have installed.
Its dependencies are compiled for a platform, and must be installed on the workers.

Workers import this module first: it may only need the standard library.
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

# Modules that tasks import, and the distributions that contain them.
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
    """The environment of a worker."""

    host: str
    python: str
    version: str
    missing: tuple[str, ...]


def pack(target: Path) -> Path:
    """Write the installed package as an importable zip, with sources and compiled modules."""
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
    """Compile a module to the form that is not checked against its source when imported (PEP 552)."""
    code = compile(source, name, "exec", dont_inherit=True)
    unchecked_hash = (0b01).to_bytes(4, "little") + importlib.util.source_hash(source)
    return importlib.util.MAGIC_NUMBER + unchecked_hash + marshal.dumps(code)


def ship(spark: "SparkSession", directory: Path) -> None:
    """Send the package to all current and future workers."""
    spark.sparkContext.addPyFile(str(pack(directory / f"veen-{version.__version__}.zip")))


def check_workers(spark: "SparkSession", patience: float = 120.0) -> Sequence[Worker]:
    """Query the environments of workers; reject missing modules and other versions of this code.

    A cluster that provides no executor within ``patience`` seconds is rejected too: Spark would wait forever.
    """
    # Imported here, because workers import this module before their packages are checked.
    from veen.pipeline.errors import SparkWorkerError

    deadline = time.monotonic() + patience
    tracker = spark.sparkContext.statusTracker()
    with ThreadPoolExecutor(1) as pool:
        # Submitted at once: a cluster may provide executors only when there are tasks for them.
        query = pool.submit(_ask, spark)
        while not wait([query], _MOMENT_SEC).done:
            alone = len(tracker.getExecutorInfos()) < 2  # the driver counts as one
            if alone and time.monotonic() > deadline:
                spark.sparkContext.cancelAllJobs()
                raise SparkWorkerError(
                    f"it gave no executor in {patience:.0f} s; check that it has free cores and memory"
                    " as requested (--conf veen.wait=SECONDS waits longer)"
                )
    problems = [problem for worker in query.result() for problem in _problems(worker)]
    if problems:
        raise SparkWorkerError("; ".join(problems))
    return query.result()


def _ask(spark: "SparkSession") -> list[Worker]:
    count = max(2, 2 * spark.sparkContext.defaultParallelism)
    tasks = spark.sparkContext.parallelize(range(count), count)
    return sorted(tasks.mapPartitions(look_around).distinct().collect())


def look_around(_items: object) -> Iterator[Worker]:
    """Yield the environment of this worker."""
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
