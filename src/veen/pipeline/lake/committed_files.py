"""Compare files with a lake's commits: by name and size, or by hash.

Names and sizes need one stat per file, and show which files were lost, truncated, extended or replaced by
one of another size. Other changes show only in the hash, which needs reading the whole file. Tables are read
only from files that match their commits.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from veen.pipeline.errors import DamagedLakeError
from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import FileFact, State
from veen.stdx.grammar import by_count, counted

__all__ = [
    "Committed",
    "CommittedFile",
    "damaged_by",
    "differing",
    "kept_in",
    "open_committed",
    "require_sizes",
    "states_in",
]


@contextmanager
def open_committed(root: Path, fact: FileFact) -> Iterator[pq.ParquetFile]:
    """Open a file; raise unless hash and number of rows are those in its commit.

    The same open file is compared and read, so that a rename in between does no harm.
    """
    try:
        with (root / fact.path).open("rb") as raw:
            if hashlib.file_digest(raw, "sha256").hexdigest() != fact.sha256:
                raise DamagedLakeError(f"{fact.path} is not the file that was committed: its hash differs")
            raw.seek(0)
            with pq.ParquetFile(raw) as file:
                if file.metadata.num_rows != fact.rows:
                    raise DamagedLakeError(
                        f"{fact.path} has {counted(file.metadata.num_rows, 'row')}, not {fact.rows}"
                    )
                yield file
    except FileNotFoundError as error:
        raise DamagedLakeError(f"{fact.path} cannot be read: {error.strerror}") from None
    except pa.ArrowException as error:
        raise DamagedLakeError(f"{fact.path} cannot be read: {str(error).splitlines()[0]}") from None


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


class CommittedFile(NamedTuple):
    """Any file that a commit names."""

    path: str
    bytes: int | None
    sha256: str


def kept_in(state: State) -> list[Committed]:
    """Return all files of a lake but those of states, which are rebuilt if lost."""
    blobs = (
        CommittedFile(f"{layout.HUB}/{blob.sha256}", blob.bytes, blob.sha256) for blob in state.hub.values()
    )
    return [*state.files.values(), *blobs]


def states_in(root: Path, state: State) -> list[Committed]:
    """Return the existing files of states."""
    files = (pair for item in state.gold.values() for pair in item["files"].items())
    return [CommittedFile(path, None, digest) for path, digest in files if (root / path).exists()]


def require_sizes(root: Path, files: Iterable[Committed]) -> None:
    """Raise if a file is missing or has another size; without a committed size, the hash is compared."""
    place = str(root)
    found = [text for text in (_other(place, item) for item in files) if text is not None]
    if found:
        raise damaged_by(root, found)


def damaged_by(root: Path, found: list[str]) -> DamagedLakeError:
    """Return the error for files that differ from their commits."""
    more = (
        f" ({len(found) - 1} more {by_count(len(found) - 1, 'differs', 'differ')})" if len(found) > 1 else ""
    )
    return DamagedLakeError(f"{min(found)}{more}; check all of it: veen pipeline check --lake {root}")


def _other(root: str, item: Committed) -> str | None:
    """Return what a stat shows to be wrong with a file."""
    try:
        found = os.stat(f"{root}/{item.path}")  # noqa: PTH116 - a third of the time, of thousands of files
    except OSError as error:
        return _lost(item.path, error)
    if item.bytes is None or not stat.S_ISREG(found.st_mode):  # compared by hash instead
        return next(differing(Path(root), [(item.path, item.sha256)]), None)
    if found.st_size != item.bytes:
        size = counted(found.st_size, "byte")
        return f"{item.path} is not the file that was committed: {size}, not {item.bytes}"
    return None


def differing(root: Path, given: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield files whose hashes differ, with what is wrong."""
    for path, digest in given:
        try:
            if not stat.S_ISREG((root / path).stat().st_mode):  # reading a pipe, for example, might never end
                yield f"{path} was committed, but is not a file"
                continue
            with (root / path).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    yield f"{path} is not the file that was committed: its hash differs"
        except OSError as error:
            yield _lost(path, error)


def _lost(path: str, error: OSError) -> str:
    what = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
    return f"{path} was committed, and {what}"
