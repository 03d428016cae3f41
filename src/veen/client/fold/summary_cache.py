"""Cached summaries: LMDB files in the client's directory, one for each overlay of a stream.

Whoever reads has a snapshot; one at a time writes, and nobody waits for another. Everything in them can be
made again from the log, so whatever is not as it was written is thrown away.
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
    """LMDB wants a file opened once in a process: those who use it share this, and the last closes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lmdb = open_environment(path, _MAP_BYTES)
        finalize(self, self.lmdb.close)


class SealedRows:
    """Rows of a file, as a transaction sees them."""

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
        """Return the key of the first row at a key or behind it."""
        try:
            with self.txn.cursor() as cursor:
                return bytes(cursor.key()) if cursor.set_range(key) else None
        except lmdb.Error as error:
            raise _damaged(error) from None

    def seek_back(self, key: bytes) -> bytes | None:
        """Return the key of the last row at a key or before it."""
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
    """Open a file, or make it; one that is damaged is rebuilt."""
    with _guard:
        found = _open.get(str(path))
        if found is None:
            try:
                found = _Environment(path)
            except DamagedClientFileError:
                found = _renewed(path)
            _open[str(path)] = found
        return found


def _renewed(path: Path) -> _Environment:
    """Remove a damaged file and make a new one, unless another process is writing just now."""
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
    """Keep other writers away; False if there is one."""
    with _keeping():
        fd = lock(path, wait=False)
    try:
        yield fd is not None
    finally:
        if fd is not None:
            os.close(fd)


class SummaryFile:
    """The file of one overlay of one stream."""

    def __init__(self, root: Path, vault: Vault) -> None:
        """``root`` is the directory of the client; SummaryCacheError if nothing can be cached there."""
        self._vault = vault
        self.name = vault.name
        place = root / OVERLAYS_DIR
        self.path = (place / vault.name(b"file").hex()).with_suffix(".lmdb")
        with _keeping():
            place.mkdir(mode=0o700, exist_ok=True)
            self._env = _environment(self.path)

    def snapshot(self) -> SealedRows:
        """Return the rows as they are now; they stay so, whatever is written."""
        with _keeping():
            return SealedRows(self._env, self._vault)

    def alone(self) -> contextlib.AbstractContextManager[bool]:
        """Keep other writers away; False if there is one."""
        return _locked(self.path)

    @contextlib.contextmanager
    def writing(self) -> Iterator["CacheWriter"]:
        """Write rows: all that was committed is kept, whatever happens."""
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
        """Remove all rows; the file itself, if it is no longer one."""
        try:
            with self._env.lmdb.begin(write=True) as txn:
                txn.drop(self._env.lmdb.open_db(txn=txn), delete=False)
        except lmdb.Error:
            with _guard:
                _open.pop(str(self.path), None)
            remove_environment(self.path)
            with _keeping():
                self._env = _environment(self.path)
        with _keeping():
            settle(self._env.lmdb, self.path)


class CacheWriter:
    """Rows that are being written, in one transaction after the other."""

    def __init__(self, env: _Environment, vault: Vault) -> None:
        self._env = env
        self.rows = SealedRows(env, vault, write=True)

    def commit(self) -> None:
        """Keep what was written so far."""
        self.rows.txn.commit()
        with _keeping():
            settle(self._env.lmdb, self._env.path)
        self.rows.txn = self._env.lmdb.begin(write=True)

    def end(self) -> None:
        """Forget what was not committed."""
        self.rows.txn.abort()


@contextlib.contextmanager
def _keeping() -> Iterator[None]:
    """Say of what can go wrong with the file itself that nothing is kept."""
    try:
        yield
    except (OSError, ClientStateError, lmdb.Error) as error:
        raise SummaryCacheError(_why(error)) from None


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or OVERLAYS_DIR}: {error.strerror}"
    return str(error)
