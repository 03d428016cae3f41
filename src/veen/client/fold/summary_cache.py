"""Cached summaries: LMDB files in the client directory, one for each overlay of a stream.

Readers have snapshots; there is one writer at a time, and no process waits for another. Everything in the
files can be rebuilt from the log, so damaged data is discarded.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary, finalize

import lmdb

from veen.client.errors import ClientStateError, DamagedClientFileError, SummaryCacheError
from veen.client.home.lmdb_file import open_environment, remove_environment, settle
from veen.client.keys.row_vault import Vault
from veen.overlays.errors import DamagedTreeError
from veen.stdx.file_lock import lock

OVERLAYS_DIR: Final = "overlays"
_MAP_BYTES: Final = 1 << 38


def _damaged(error: Exception) -> DamagedTreeError:
    return DamagedTreeError(f"the cached summaries are damaged: {error}")


class _Environment:
    """LMDB allows a process to open a file only once: all users share this, and the last one closes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lmdb = open_environment(path, _MAP_BYTES)
        finalize(self, self.lmdb.close)


class SealedRows:
    """The rows of a file as a transaction sees them, sealed in the file."""

    def __init__(self, env: _Environment, vault: Vault, *, write: bool = False) -> None:
        self._env = env
        self.txn = env.lmdb.begin(write=write)
        self._vault = vault
        self.name = vault.name

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a row."""
        try:
            sealed = self.txn.get(key)
            return None if sealed is None else self._vault.open(key, bytes(sealed))
        except (ClientStateError, lmdb.Error) as error:
            raise _damaged(error) from None

    def put(self, key: bytes, value: bytes) -> None:
        """Write a row."""
        self.txn.put(key, self._vault.seal(key, value))

    def seek(self, key: bytes) -> bytes | None:
        """Return the key of the first row at or after a key."""
        try:
            with self.txn.cursor() as cursor:
                return bytes(cursor.key()) if cursor.set_range(key) else None
        except lmdb.Error as error:
            raise _damaged(error) from None

    def seek_back(self, key: bytes) -> bytes | None:
        """Return the key of the last row at or before a key."""
        try:
            with self.txn.cursor() as cursor:
                if cursor.set_range(key):
                    return key if cursor.key() == key else bytes(cursor.key()) if cursor.prev() else None
                return bytes(cursor.key()) if cursor.last() else None
        except lmdb.Error as error:
            raise _damaged(error) from None


_open: WeakValueDictionary[str, _Environment] = WeakValueDictionary()
_guard = threading.Lock()


def _environment(path: Path) -> _Environment:
    """Open or create a file; a damaged one is replaced by an empty one."""
    with _guard:
        environment = _open.get(str(path))
        if environment is None:
            try:
                environment = _Environment(path)
            except DamagedClientFileError:
                environment = _recreate(path)
            _open[str(path)] = environment
        return environment


def _recreate(path: Path) -> _Environment:
    """Replace a damaged file by an empty one, unless another process is writing to it."""
    with _locked(path) as alone:
        if not alone:
            raise SummaryCacheError("another process is writing them")
        try:
            return _Environment(path)
        except DamagedClientFileError:
            remove_environment(path)
            return _Environment(path)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Acquire the writer lock without waiting; False if another writer holds it."""
    with _as_cache_error():
        fd = lock(path, wait=False)
    try:
        yield fd is not None
    finally:
        if fd is not None:
            os.close(fd)


class SummaryFile:
    """The file of one overlay of one stream."""

    def __init__(self, root: Path, vault: Vault) -> None:
        """``root`` is the client directory; SummaryCacheError if nothing can be cached there."""
        self._vault = vault
        self.name = vault.name
        directory = root / OVERLAYS_DIR
        self.path = (directory / vault.name(b"file").hex()).with_suffix(".lmdb")
        with _as_cache_error():
            directory.mkdir(mode=0o700, exist_ok=True)
            self._env = _environment(self.path)

    def snapshot(self) -> SealedRows:
        """Return a snapshot of the rows: later writes do not show in it."""
        with _as_cache_error():
            return SealedRows(self._env, self._vault)

    def alone(self) -> contextlib.AbstractContextManager[bool]:
        """Acquire the writer lock without waiting; False if another writer holds it."""
        return _locked(self.path)

    @contextlib.contextmanager
    def writing(self) -> Iterator["CacheWriter"]:
        """Write rows, and commit at the end; earlier commits persist if the block fails."""
        try:
            writing = CacheWriter(self._env, self._vault)
            try:
                yield writing
                writing.commit()
            finally:
                writing.end()
        except lmdb.Error as error:
            raise SummaryCacheError(_why(error)) from None

    def clear(self) -> None:
        """Remove all rows; replace the file if LMDB cannot use it."""
        try:
            with self._env.lmdb.begin(write=True) as txn:
                txn.drop(self._env.lmdb.open_db(txn=txn), delete=False)
        except lmdb.Error:
            with _guard:
                _open.pop(str(self.path), None)
            remove_environment(self.path)
            with _as_cache_error():
                self._env = _environment(self.path)
        with _as_cache_error():
            settle(self._env.lmdb, self.path)


class CacheWriter:
    """Rows to write, in one transaction after the other."""

    def __init__(self, env: _Environment, vault: Vault) -> None:
        self._env = env
        self.rows = SealedRows(env, vault, write=True)

    def commit(self) -> None:
        """Commit the rows written so far, and begin the next transaction."""
        self.rows.txn.commit()
        with _as_cache_error():
            settle(self._env.lmdb, self._env.path)
        self.rows.txn = self._env.lmdb.begin(write=True)

    def end(self) -> None:
        """Abort the transaction."""
        self.rows.txn.abort()


@contextlib.contextmanager
def _as_cache_error() -> Iterator[None]:
    """Convert errors of the file to SummaryCacheError."""
    try:
        yield
    except (OSError, ClientStateError, lmdb.Error) as error:
        raise SummaryCacheError(_why(error)) from None


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or OVERLAYS_DIR}: {error.strerror}"
    return str(error)
