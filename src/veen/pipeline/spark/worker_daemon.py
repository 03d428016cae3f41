"""The process from which Spark forks its Python workers in local mode (``spark.python.daemon.module``).

Unlike Spark's own, it imports what every task needs before it forks, and excludes it from garbage collection,
which Spark runs after each task.
"""

import gc
import importlib
from typing import Final

# Only modules that start no threads: a process with threads must not fork. (pyarrow starts one.)
PRELOADED: Final = (
    "pyspark.worker",
    "numpy",
    "veen.core",
    "veen.storage",
)


def main() -> None:
    """Preload modules, then run Spark's own daemon."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    daemon = importlib.import_module("pyspark.daemon")
    daemon.manager()


if __name__ == "__main__":
    main()
