"""Whether the files that a fold reads are those that a lake has committed."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from veen.pipeline.lake.commits import FileFact
from veen.pipeline.lake.errors import DamagedLakeError

#: So little that tasks would take longer to start than it takes here.
_SMALL: Final = 64 << 20


def require_committed(
    context: SparkContext, root: Path, files: Sequence[FileFact], *, small: int = _SMALL
) -> None:
    """Raise if a file is not the one of its commit; many bytes are read by tasks."""
    given = [(str(root.resolve() / fact.path), fact.sha256) for fact in files]
    if sum(fact.bytes for fact in files) <= small:
        found = list(_others(given))
    else:
        found = (
            context.parallelize(given, min(len(given), 4 * context.defaultParallelism))
            .mapPartitions(_others)
            .collect()
        )
    if found:
        raise DamagedLakeError(min(found))


def _others(given: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield what is wrong with files."""
    for path, digest in given:
        try:
            with Path(path).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    yield f"{path} is not the file that was committed: its hash differs"
        except FileNotFoundError:
            yield f"{path} was committed, and is not there"
