"""The process from which Spark forks its Python workers, on this machine (``spark.python.daemon.module``).

It differs from Spark's own in what it has done before it forks: what every task imports is there already, and
is set aside from garbage collection, which Spark runs after each task.
"""

import gc
import importlib
from typing import Final

#: These start no threads: a process with threads must not fork. (pyarrow starts one.)
PRELOADED: Final = (
    "pyspark.worker",
    "numpy",
    "veen.core",
    "veen.storage",
)


def main() -> None:
    """Import, set aside, and do as Spark's own daemon does."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    daemon = importlib.import_module("pyspark.daemon")
    daemon.manager()


if __name__ == "__main__":
    main()
