"""Files replaced as a whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from veen.stdx.atomic_file import (
    append_file,
    create_file,
    open_replacement,
    remove_file,
    rename,
    write_file,
)


def test_a_file_is_replaced_and_private(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_file(path, b"old")
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_file(path, b"old")

    def fail(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_created_appended_removed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with create_file(path) as file:
        file.write(b"a")
    with pytest.raises(FileExistsError):
        create_file(path)
    append_file(path, b"b")
    assert path.read_bytes() == b"ab"
    remove_file(path)
    remove_file(path)
    assert not path.exists()


def test_a_replacement_appears_at_the_end_of_the_block(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_file(path, b"old")
    with open_replacement(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    with suppress(KeyboardInterrupt), open_replacement(path) as file:
        file.write(b"newer")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_rename_syncs_the_directory_that_has_the_new_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    target = tmp_path / "other"
    target.mkdir()
    write_file(tmp_path / "file", b"x")
    synced.clear()
    rename(tmp_path / "file", target / "file")
    assert synced == [target.stat().st_ino]
    assert (target / "file").read_bytes() == b"x"
