"""Files that appear whole or not at all."""

import errno
from pathlib import Path

import pytest

from tests.storage.checks import Faulty
from veen.storage.atomic_file import read_file, replace_file, replace_files
from veen.storage.fs import RealFilesystem


@pytest.fixture
def faulty(tmp_path: Path) -> Faulty:
    fs = Faulty(tmp_path / "data")
    for path in ("", "log"):
        fs.make_dir(path)
    return fs


def test_a_file_gets_its_content(faulty: Faulty) -> None:
    assert read_file(faulty, "log/x") is None
    for data in (b"one", b"", b"three" * 1_000):
        replace_file(faulty, "log/x", data)
        assert read_file(faulty, "log/x") == data
    assert faulty.names("log") == ["x"]
    replace_file(faulty, "y", b"at the top")
    assert read_file(faulty, "y") == b"at the top"


def test_many_files_at_once(faulty: Faulty) -> None:
    files = {f"log/{number}": bytes([number]) * number for number in range(30)}
    replace_files(faulty, files)
    assert {path: read_file(faulty, path) for path in files} == files
    assert len(faulty.names("log")) == 30
    replace_files(faulty, {})


def test_what_an_earlier_attempt_left_does_not_matter(faulty: Faulty) -> None:
    (faulty.root / "log/x.tmp").write_bytes(b"longer than what comes now")
    replace_file(faulty, "log/x", b"new")
    assert (read_file(faulty, "log/x"), faulty.names("log")) == (b"new", ["x"])


@pytest.mark.parametrize("call", ["write_all", "rename"])
def test_an_interrupted_replacement_leaves_the_old_content(faulty: Faulty, call: str) -> None:
    replace_file(faulty, "log/x", b"old")
    faulty.fail(call, "log/x", errno.EIO)
    with pytest.raises(OSError, match="Errno 5"):
        replace_file(faulty, "log/x", b"new")
    assert read_file(faulty, "log/x") == b"old"
    faulty.heal()
    replace_file(faulty, "log/x", b"new")
    assert (read_file(faulty, "log/x"), faulty.names("log")) == (b"new", ["x"])


def test_a_file_is_not_durable_before_its_name_is(faulty: Faulty) -> None:
    faulty.fail("sync_dir", "log", errno.EIO)
    with pytest.raises(OSError, match="Errno 5"):
        replace_file(faulty, "log/x", b"new")


def test_a_reader_keeps_no_old_content(faulty: Faulty) -> None:
    """Some descriptors are kept open; a name that is given to another file must not lead to the old one."""
    other = RealFilesystem(faulty.root)
    replace_file(faulty, "log/x", b"old")
    assert other.read("log/x") == b"old"
    replace_file(faulty, "log/x", b"new")
    assert other.read("log/x") == b"new"
    other.close()
