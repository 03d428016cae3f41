"""Whether files are those that a lake has committed: by their names and sizes, or by their hashes.

Names and sizes cost a look at each file, and tell what was lost, cut, added to or exchanged for another.
What has the right size is told from what was committed by its hash alone, which takes reading all of it.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import State
from veen.pipeline.lake.errors import DamagedLakeError

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Committed", "Kept", "kept_in", "require_committed", "require_sizes", "states_in"]

#: So little that tasks would take longer to start than it takes here.
_SMALL: Final = 64 << 20


class Committed(Protocol):
    """A file that a commit names."""

    @property
    def path(self) -> str:
        """Where it is in the lake."""

    @property
    def bytes(self) -> int | None:
        """How long it is; None if the commit does not say."""

    @property
    def sha256(self) -> str:
        """The hash of what is in it."""


class Kept(NamedTuple):
    """A file that a commit names, of whatever it is."""

    path: str
    bytes: int | None
    sha256: str


def kept_in(state: State) -> list[Committed]:
    """Return all files of a lake but those of states, which are made again if they are lost."""
    blobs = (Kept(f"{layout.HUB}/{blob.sha256}", blob.bytes, blob.sha256) for blob in state.hub.values())
    return [*state.files.values(), *blobs]


def states_in(root: Path, state: State) -> list[Committed]:
    """Return the files of states that are there."""
    files = (pair for item in state.gold.values() for pair in item["files"].items())
    return [Kept(path, None, digest) for path, digest in files if (root / path).exists()]


def require_sizes(root: Path, files: Iterable[Committed]) -> None:
    """Raise if a file is not there, or has another size; of what has no size, the hash is compared."""
    place = str(root)
    found = [text for text in (_other(place, item) for item in files) if text is not None]
    if found:
        raise _damaged(root, found)


def require_committed(
    context: "SparkContext", root: Path, files: Sequence[Committed], *, small: int = _SMALL
) -> None:
    """Raise if a file is not the one of its commit, by its hash; many bytes are read by tasks."""
    place, given = root.resolve(), [(item.path, item.sha256) for item in files]
    if sum(item.bytes or 0 for item in files) <= small:
        found = list(_others(place, given))
    else:
        tasks = context.parallelize(given, min(len(given), 4 * context.defaultParallelism))
        found = tasks.mapPartitions(lambda some: _others(place, some)).collect()
    if found:
        raise _damaged(root, found)


def _damaged(root: Path, found: list[str]) -> DamagedLakeError:
    more = f" ({len(found) - 1} more differ)" if len(found) > 1 else ""
    return DamagedLakeError(f"{min(found)}{more}; check all of it: veen pipeline check --lake {root}")


def _other(root: str, item: Committed) -> str | None:
    """Return what is wrong with a file, by a look at it."""
    try:
        found = os.stat(f"{root}/{item.path}")  # noqa: PTH116 - a third of the time, of thousands of files
    except OSError as error:
        return _lost(item.path, error)
    if item.bytes is None or not stat.S_ISREG(found.st_mode):  # which the hash has a look at as well
        return next(_others(Path(root), [(item.path, item.sha256)]), None)
    if found.st_size != item.bytes:
        return f"{item.path} is not the file that was committed: {found.st_size} bytes, not {item.bytes}"
    return None


def _others(root: Path, given: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield what is wrong with files, by their hashes."""
    for path, digest in given:
        try:
            if not stat.S_ISREG((root / path).stat().st_mode):  # to read it might never end
                yield f"{path} was committed, and is no file"
                continue
            with (root / path).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    yield f"{path} is not the file that was committed: its hash differs"
        except OSError as error:
            yield _lost(path, error)


def _lost(path: str, error: OSError) -> str:
    what = "is not there" if isinstance(error, FileNotFoundError) else f"can not be read: {error.strerror}"
    return f"{path} was committed, and {what}"
