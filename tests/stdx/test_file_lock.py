"""Locks of files, which one thread acquires and another may release."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from veen.stdx.file_lock import FileLock, is_locked, lock, locked, unlock


def test_a_lock_has_one_owner(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    fd = lock(path, wait=True)
    assert fd is not None
    assert lock(path, wait=False) is None
    file_lock = FileLock(path)
    assert not file_lock.acquire()
    unlock(fd)
    assert file_lock.acquire()
    assert file_lock.acquire(), "we have it"
    assert lock(path, wait=False) is None
    file_lock.close()
    assert not file_lock.acquire(), "closed"
    again = lock(path, wait=False)
    assert again is not None
    unlock(again)


def test_a_lock_is_released_although_another_process_has_its_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    fd = lock(path, wait=True)
    assert fd is not None
    copy = os.dup(fd)  # of the same open file, as a forked child has it
    unlock(fd)
    assert not is_locked(path)
    os.close(copy)


def test_a_block_holds_a_lock_and_releases_it_also_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with suppress(KeyboardInterrupt), locked(path):
        assert lock(path, wait=False) is None
        raise KeyboardInterrupt
    assert not is_locked(path)


def test_a_lock_is_looked_at_without_creating_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    with pytest.raises(FileNotFoundError):
        lock(path, wait=False, create=False)
    assert not path.exists()
    with locked(path):
        assert is_locked(path)
    assert not is_locked(path)
