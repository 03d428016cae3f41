"""The only interface to the disk: all file operations of this package go through ``Filesystem``.

Paths are relative to the data directory and use ``/``. The rules that the rest of the package relies on:

* ``write_all`` and ``truncate`` return when contents and size are durable; *names* are durable only after
  ``sync_dir`` of their directory. A rename is atomic, but not durable before that either.
* An error of a sync is final. The kernel may have dropped the pages, and a later sync may claim success:
  the caller must stop and restart from what is on disk.
* ``OSError`` with ``errno.ENOSPC`` from a *write* means that a prefix may have been written.

Files are created with mode 0600, directories with 0700.
"""

import errno
import fcntl
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, get_ident
from typing import Final, NamedTuple, Protocol

import lmdb

FILE_MODE: Final = 0o600
DIR_MODE: Final = 0o700

# Files that are read at many offsets, and whose paths never get other content.
_KEPT_OPEN: Final = (".log", ".mmr")
# Maximum of descriptors cached for reading, independent of the number of labels.
_OPEN_FILES: Final = 128
# Concurrent syncs: a journaling file system merges them (measured: 3 times faster with 4).
_PARALLEL_SYNCS: Final = 4
# Address space of the index, not memory or disk: the file grows with its content.
_INDEX_MAP_BYTES: Final = 1 << 38
# LMDB's files: the pages, and the reader table.
_INDEX_FILES: Final = ("data.mdb", "lock.mdb")


class Write(NamedTuple):
    """Bytes to append to a file, and the length that it must have before."""

    path: str
    offset: int
    data: bytes


class AppendFile(Protocol):
    """A file that is open for appending: the journal."""

    def write(self, data: bytes) -> None:
        """Append all of ``data``; not durable yet."""

    def sync(self) -> None:
        """Make all writes durable."""

    def truncate(self, size: int) -> None:
        """Drop what was written beyond ``size``; not durable yet."""

    def close(self) -> None: ...


class FileLock(Protocol):
    """A lock that is held."""

    def release(self) -> None: ...


class Filesystem(Protocol):
    """Operations on the files of a data directory."""

    def make_dir(self, path: str) -> None:
        """Create a directory durably, if it does not exist; ``""`` is the data directory itself."""

    def names(self, directory: str) -> list[str]:
        """Return the names of the files in a directory, sorted; none if it does not exist."""

    def size(self, path: str) -> int | None:
        """Return the size of a file, or None if there is no such file."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return up to ``length`` bytes; FileNotFoundError if there is no such file."""

    def read_each(self, path: str, offsets: Sequence[int], length: int) -> list[bytes]:
        """Return up to ``length`` bytes of a file at each of several offsets."""

    def write_all(self, writes: Sequence[Write]) -> None:
        """Append to files that are exactly ``offset`` long (0: may be absent); sync each, in any order."""

    def truncate(self, path: str, size: int) -> None:
        """Shorten a file durably."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing any other; durable after ``sync_dir``."""

    def unlink(self, path: str) -> None:
        """Remove a file; durable after ``sync_dir``."""

    def sync_dir(self, directory: str) -> None:
        """Make the names in a directory durable; ``""`` is the data directory itself."""

    def open_append(self, path: str) -> AppendFile:
        """Open an existing file for appending."""

    def lock(self, path: str, owner: bytes) -> FileLock:
        """Take an exclusive lock and write its owner to the file; BlockingIOError if it is taken."""

    def open_index(self, path: str, *, readonly: bool, create: bool = False) -> lmdb.Environment:
        """Open the LMDB index in an existing directory; lmdb.Error if there is none."""

    def remove_index(self, path: str) -> None:
        """Delete the index durably, but not its directory."""

    def commit(self, txn: lmdb.Transaction) -> None:
        """Commit a transaction of the index, atomically and durably."""


class _RealAppend:
    """An append-only descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, data: bytes) -> None:
        _write_fully(self._fd, data)

    def sync(self) -> None:
        _sync(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class _RealLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)  # releases the lock; the file stays, since others may have opened it to lock it


class RealFilesystem:
    """The operating system's files below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._reading: OrderedDict[str, int] = OrderedDict()
        self._renames = 0
        self._mutex = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._impatient = 0

    def close(self) -> None:
        """Close the descriptors cached for reading."""
        with self._mutex:
            self._renames += 1
            while self._reading:
                os.close(self._reading.popitem()[1])
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def make_dir(self, path: str) -> None:
        """Create a directory; its name is durable when this returns."""
        target = self.root / path
        try:
            target.mkdir(mode=DIR_MODE)
        except FileExistsError:
            if not target.is_dir():
                raise
        _sync_directory(target.parent)

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """In this block and thread, read only from memory; BlockingIOError if the data is not there.

        Long reads (whole files, directories) always raise it. Only one thread at a time may use this.
        """
        self._impatient = get_ident()
        try:
            yield
        finally:
            self._impatient = 0

    def _waits(self) -> bool:
        return self._impatient != get_ident()

    def names(self, directory: str) -> list[str]:
        """Return the names of files, sorted."""
        if not self._waits():
            raise BlockingIOError(errno.EAGAIN, "a directory is a long read", directory)
        try:
            with os.scandir(self.root / directory) as items:
                return sorted(item.name for item in items if item.is_file(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def size(self, path: str) -> int | None:
        """Return the size of a file."""
        try:
            return (self.root / path).stat().st_size
        except FileNotFoundError:
            return None

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        fd, renamed = self._take(path)
        try:
            if length is None:
                if not self._waits():
                    raise BlockingIOError(errno.EAGAIN, "a whole file is a long read", path)
                length = max(os.fstat(fd).st_size - offset, 0)
            return self._read_fully(fd, offset, length)
        finally:
            self._put_back(path, fd, renamed)

    def read_each(self, path: str, offsets: Sequence[int], length: int) -> list[bytes]:
        fd, renamed = self._take(path)
        try:
            return [self._read_fully(fd, offset, length) for offset in offsets]
        finally:
            self._put_back(path, fd, renamed)

    def _take(self, path: str) -> tuple[int, int]:
        """Return a descriptor, removed from the cache while in use, so that no other thread closes it."""
        with self._mutex:
            fd = self._reading.pop(path, None)
            renamed = self._renames
        if fd is None:
            fd = os.open(self.root / path, os.O_RDONLY | os.O_CLOEXEC)
        return fd, renamed

    def _read_fully(self, fd: int, offset: int, length: int) -> bytes:
        pread = os.pread if self._waits() else _read_cached
        data = pread(fd, length, offset)
        while 0 < len(data) < length:  # interrupted by a signal, or longer than one call returns
            more = pread(fd, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def _put_back(self, path: str, fd: int, renamed: int) -> None:
        surplus = [fd]
        with self._mutex:
            # Do not cache paths that get other content, or any descriptor opened before a rename.
            if path.endswith(_KEPT_OPEN) and renamed == self._renames and path not in self._reading:
                self._reading[path] = surplus.pop()
                if len(self._reading) > _OPEN_FILES:
                    surplus.append(self._reading.popitem(last=False)[1])
        for old in surplus:
            os.close(old)

    def _forget(self, path: str) -> None:
        with self._mutex:
            self._renames += 1
            fd = self._reading.pop(path, None)
        if fd is not None:
            os.close(fd)

    def write_all(self, writes: Sequence[Write]) -> None:
        """Write and sync each file, several concurrently."""
        if len(writes) < 2 * _PARALLEL_SYNCS:
            for write in writes:
                self._write(write)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_PARALLEL_SYNCS, thread_name_prefix="veen-sync")
        # Wait for all of them; of several errors, raise a final one rather than a full disk.
        attempts = [self._pool.submit(self._write, write) for write in writes]
        errors = [error for attempt in attempts if (error := attempt.exception())]
        if errors:
            raise min(errors, key=lambda error: getattr(error, "errno", None) == errno.ENOSPC)

    def _write(self, write: Write) -> None:
        # One descriptor for write and fdatasync: errors of a sync are reported on the one that wrote.
        fd = os.open(self.root / write.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            actual = os.fstat(fd).st_size
            if actual != write.offset:
                raise OSError(errno.EIO, f"{actual} bytes long instead of {write.offset}", write.path)
            os.lseek(fd, write.offset, os.SEEK_SET)
            _write_fully(fd, write.data)
            _sync(fd)
        finally:
            os.close(fd)

    def truncate(self, path: str, size: int) -> None:
        fd = os.open(self.root / path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            _sync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        (self.root / old).replace(self.root / new)
        self._forget(old)
        self._forget(new)

    def unlink(self, path: str) -> None:
        (self.root / path).unlink()
        self._forget(path)

    def sync_dir(self, directory: str) -> None:
        _sync_directory(self.root / directory)

    def open_append(self, path: str) -> AppendFile:
        """Open a file for appending."""
        return _RealAppend(os.open(self.root / path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))

    def lock(self, path: str, owner: bytes) -> FileLock:
        """Take an flock: the kernel releases it when the process ends, for whatever reason."""
        fd = os.open(self.root / path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            _write_fully(fd, owner)
        except BaseException:
            os.close(fd)
            raise
        return _RealLock(fd)

    def open_index(self, path: str, *, readonly: bool, create: bool = False) -> lmdb.Environment:
        """Open LMDB; without write permission, a reader does not use its reader table."""
        where = self.root / path
        if not create and not (where / _INDEX_FILES[0]).exists():
            raise lmdb.Error("there is none")
        locking = not readonly or os.access(where / _INDEX_FILES[1], os.W_OK)
        return lmdb.open(
            str(where),
            map_size=_INDEX_MAP_BYTES,
            readonly=readonly,
            lock=locking,
            max_dbs=16,
            max_readers=512,
            mode=FILE_MODE,
            readahead=False,
            create=not readonly,
        )

    def remove_index(self, path: str) -> None:
        """Delete LMDB's files."""
        for name in _INDEX_FILES:
            (self.root / path / name).unlink(missing_ok=True)
        self.sync_dir(path)

    def commit(self, txn: lmdb.Transaction) -> None:
        """Commit: LMDB writes the pages, syncs, then writes the meta page."""
        txn.commit()


def _read_cached(fd: int, length: int, offset: int) -> bytes:
    buffer = bytearray(length)
    try:
        size = os.preadv(fd, (buffer,), offset, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:  # not supported by the file system
            raise
        raise BlockingIOError(
            errno.EAGAIN, "the file system does not report whether pages are in memory"
        ) from error
    return bytes(buffer[:size])


def _write_fully(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        raise _sync_failed(error) from error
    finally:
        os.close(fd)


def _sync(fd: int) -> None:
    try:
        os.fdatasync(fd)  # includes the size: metadata that is needed to read the data back is synced too
    except OSError as error:
        raise _sync_failed(error) from error


def _sync_failed(error: OSError) -> OSError:
    # Never ENOSPC: unlike a failed write, a failed sync cannot be rolled back.
    return OSError(errno.EIO, f"sync failed: {error.strerror}")
