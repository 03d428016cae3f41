"""Locks that one thread acquires and another releases."""

from pathlib import Path

from veen.stdx.file_lock import Hold, lock, unlock


def test_a_lock_has_one_owner(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    fd = lock(path, wait=True)
    assert fd is not None
    assert lock(path, wait=False) is None
    hold = Hold(path)
    assert not hold.take()
    unlock(fd)
    assert hold.take()
    assert lock(path, wait=False) is None
    hold.close()
    assert not hold.take(), "closed for good"
    again = lock(path, wait=False)
    assert again is not None
    unlock(again)
