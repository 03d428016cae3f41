"""The index on a simulated disk: a real LMDB environment that is atomic, and durable with each commit.

Each opened environment has a directory of its own in the scratch directory, because LMDB must not open one
file twice in a process, and because what a crashed process had open must not meet what the next one opens.
"""

import shutil
from itertools import count
from pathlib import Path
from typing import Final

import lmdb

_MAP_BYTES: Final = 1 << 26
_NUMBERS: Final = count()
DATA: Final = "data.mdb"
LOCK: Final = "lock.mdb"


def is_open(environment: lmdb.Environment) -> bool:
    try:
        environment.path()
    except lmdb.Error:
        return False
    return True


class IndexFile:
    """The data file of an index: bytes, or the file of the environment that writes to it."""

    def __init__(self, image: bytes) -> None:
        self._image = image
        self.writer: OpenIndex | None = None

    def content(self) -> bytes:
        # Between commits the file is whole: LMDB writes pages that nothing refers to, then one that does.
        return self._image if self.writer is None else self.writer.data()

    def replace(self, image: bytes) -> None:
        assert self.writer is None or not is_open(self.writer.environment), "close the index first"
        self.settle()
        self._image = image

    def attach(self, writer: "OpenIndex") -> None:
        self.settle()
        self.writer = writer

    def settle(self) -> None:
        """Take the bytes as they are now: nothing that the environment does later counts."""
        self._image = self.content()
        self.writer = None


class OpenIndex:
    """An environment and its directory. A read-only one is a copy, as of when it was opened."""

    def __init__(self, scratch: Path, file: IndexFile, *, readonly: bool) -> None:
        self._where = scratch / f"index-{next(_NUMBERS)}"
        self._file = file
        if file.writer is not None and not readonly:
            assert not is_open(file.writer.environment), "two processes write to the index"
        self._where.mkdir()
        try:
            (self._where / DATA).write_bytes(file.content())
            self.environment: lmdb.Environment = lmdb.open(
                str(self._where),
                map_size=_MAP_BYTES,
                readonly=readonly,
                lock=not readonly,
                max_dbs=16,
                readahead=False,
                create=not readonly,
                sync=False,
                metasync=False,
            )
        except BaseException:
            shutil.rmtree(self._where)
            raise
        if not readonly:
            file.attach(self)

    def data(self) -> bytes:
        return (self._where / DATA).read_bytes()

    def uses(self, file: IndexFile) -> bool:
        return self._file is file and is_open(self.environment)

    def settle(self) -> None:
        """Let the index be what it is now, if it is still this environment that writes to it."""
        if self._file.writer is self:
            self._file.settle()

    def discard(self) -> None:
        """Close it; transactions that are open vanish."""
        self.settle()
        self.environment.close()
        shutil.rmtree(self._where)
