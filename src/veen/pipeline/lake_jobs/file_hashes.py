"""Compare files with a lake's commits by hash; large amounts are read by tasks."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from veen.pipeline.lake.committed_files import Committed, damaged_by, differing

if TYPE_CHECKING:
    from pyspark import SparkContext

# Up to this size, tasks would take longer to start than hashing takes here.
_SMALL: Final = 64 << 20


def require_committed(
    context: "SparkContext", root: Path, files: Sequence[Committed], *, small: int = _SMALL
) -> None:
    """Raise if a file does not have the hash in its commit; large amounts are read by tasks."""
    place, digests = root.resolve(), [(item.path, item.sha256) for item in files]
    if sum(item.bytes or 0 for item in files) <= small:
        differences = list(differing(place, digests))
    else:
        tasks = context.parallelize(digests, min(len(digests), 4 * context.defaultParallelism))
        differences = tasks.mapPartitions(lambda some: differing(place, some)).collect()
    if differences:
        raise damaged_by(root, differences)
