"""Whether files are those that a lake has committed, by their hashes: many bytes are read by tasks."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from veen.pipeline.lake.committed_files import Committed, damaged_by, differing

if TYPE_CHECKING:
    from pyspark import SparkContext

#: So little that tasks would take longer to start than it takes here.
_SMALL: Final = 64 << 20


def require_committed(
    context: "SparkContext", root: Path, files: Sequence[Committed], *, small: int = _SMALL
) -> None:
    """Raise if a file is not the one of its commit, by its hash; many bytes are read by tasks."""
    place, given = root.resolve(), [(item.path, item.sha256) for item in files]
    if sum(item.bytes or 0 for item in files) <= small:
        found = list(differing(place, given))
    else:
        tasks = context.parallelize(given, min(len(given), 4 * context.defaultParallelism))
        found = tasks.mapPartitions(lambda some: differing(place, some)).collect()
    if found:
        raise damaged_by(root, found)
