"""The real file system: what only it has, and what only it can get wrong."""

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from veen.storage import fs as fs_module
from veen.storage.fs import RealFilesystem, Write


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealFilesystem]:
    fs = RealFilesystem(tmp_path / "data")
    fs.make_dir("")
    yield fs
    fs.close()


def put(fs: RealFilesystem, path: str, data: bytes) -> None:
    fs.write_all([Write(path, 0, data)])


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_may_read_it(real: RealFilesystem) -> None:
    before = os.umask(0)
    try:
        real.make_dir("state")
        real.make_dir("state/index")
        put(real, "file", b"")
        real.lock("state/lock", b"me").release()
        real.open_index("state/index", readonly=False, create=True).close()
    finally:
        os.umask(before)
    for path in (real.root / "state", real.root / "state/index"):
        assert mode(path) == 0o700
    for name in ("file", "state/lock", "state/index/data.mdb", "state/index/lock.mdb"):
        assert mode(real.root / name) == 0o600


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_open_files_are_bounded(real: RealFilesystem) -> None:
    count = 3 * fs_module._OPEN_FILES
    real.write_all([Write(f"{number}.log", 0, b"%d" % number) for number in range(count)])
    before = open_files()
    for _ in range(2):
        for number in range(count):
            assert real.read(f"{number}.log") == b"%d" % number
            assert open_files() <= before + fs_module._OPEN_FILES + 1
    real.close()
    assert open_files() <= before


def test_failures_leave_no_file_open(real: RealFilesystem) -> None:
    put(real, "a", b"one")
    held = real.lock("lock", b"me")
    before = open_files()
    for _ in range(5):
        for call in (
            lambda: real.read("missing"),
            lambda: real.write_all([Write("a", 1, b"")]),
            lambda: real.truncate("a", -1),
            lambda: real.lock("lock", b"other"),
            lambda: real.sync_dir("missing"),
        ):
            with pytest.raises(OSError, match=r"."):
                call()
    assert open_files() == before
    held.release()


def test_writes_run_at_the_same_time(real: RealFilesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = threading.Barrier(2, timeout=30)
    sync = os.fdatasync

    def together(fd: int) -> None:
        meeting.wait()  # breaks, and fails the test, if only one gets here
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", together)
    real.write_all([Write(f"{number}", 0, b"x") for number in range(16)])
    assert len(real.names("")) == 16


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_the_error_of_a_sync_is_never_that_of_a_full_disk(
    real: RealFilesystem, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    put(real, "a", b"one")
    journal = real.open_append("a")

    def fail(_: int) -> None:
        raise OSError(code, os.strerror(code))

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, fail)
    for call in (
        journal.sync,
        lambda: real.write_all([Write("a", 3, b"two")]),
        lambda: real.truncate("a", 1),
        lambda: real.sync_dir(""),
        lambda: real.make_dir("sub"),
    ):
        with pytest.raises(OSError, match=r".") as caught:
            call()
        assert caught.value.errno == errno.EIO
    journal.close()


def test_short_writes_and_reads_go_on(real: RealFilesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    write, pread = os.write, os.pread
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:3])))
    put(real, "a", b"0123456789")
    journal = real.open_append("a")
    journal.write(b"abcdefg")
    journal.close()
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: pread(fd, min(length, 4), offset))
    assert real.read("a") == b"0123456789abcdefg"
    assert real.read("a", 1, 9) == b"123456789"
    assert real.read("a", 15, 9) == b"fg"


def test_readers_in_many_threads(real: RealFilesystem) -> None:
    count = fs_module._OPEN_FILES + 40
    real.write_all([Write(f"{number}.log", 0, b"%d" % number * 50) for number in range(count)])
    wrong: list[object] = []

    def reader(step: int) -> None:
        for turn in range(1000):
            number = turn * step % count
            try:
                if real.read(f"{number}.log") != b"%d" % number * 50:
                    wrong.append(number)
            except OSError as error:
                wrong.append(error)

    before = open_files()
    threads = [threading.Thread(target=reader, args=(step,)) for step in (1, 3, 7, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert open_files() <= before + fs_module._OPEN_FILES


# --- reading without waiting --------------------------------------------------------------------------------


def test_who_is_impatient_reads_what_is_in_memory_or_is_told_so(real: RealFilesystem) -> None:
    put(real, "a.log", b"0123456789" * 1000)
    assert real.read("a.log", 9_995, 9) == b"56789"
    for drop in (False, True):
        if drop:
            fd = os.open(real.root / "a.log", os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
        with real.impatient():
            try:  # not every file system can tell, and none must forget because it was asked to
                read = [real.read("a.log", 9_995, 9), *real.read_each("a.log", [0, 9_998], 4)]
            except BlockingIOError:
                continue
        assert read == [b"56789", b"0123", b"89"]
    assert real.read("a.log", 0, 4) == b"0123"


def test_who_is_impatient_does_not_wait(real: RealFilesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    put(real, "a.log", b"0123456789")

    def failing(code: int) -> Callable[..., int]:
        def read(*_: object) -> int:
            raise OSError(code, os.strerror(code))

        return read

    for code in (errno.EAGAIN, errno.EOPNOTSUPP):
        monkeypatch.setattr(os, "preadv", failing(code))
        with real.impatient():
            for call in (
                lambda: real.read("a.log", 0, 4),
                lambda: real.read_each("a.log", [0, 4], 4),
                lambda: real.read("a.log"),
                lambda: real.names(""),
            ):
                with pytest.raises(BlockingIOError):
                    call()
    monkeypatch.setattr(os, "preadv", failing(errno.EIO))
    with real.impatient(), pytest.raises(OSError, match="rror") as caught:
        real.read("a.log", 0, 4)
    assert caught.value.errno == errno.EIO
    assert real.read("a.log") == b"0123456789"


def test_one_who_is_impatient_hurries_nobody_else(real: RealFilesystem) -> None:
    put(real, "a.log", b"0123456789")
    with real.impatient(), ThreadPoolExecutor(1) as other:
        assert other.submit(real.read, "a.log").result() == b"0123456789"
        assert other.submit(real.names, "").result() == ["a.log"]


# --- files that change under a reader -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.log", "a.cbor"])
def test_a_reader_sees_what_another_process_put_in_place(real: RealFilesystem, name: str) -> None:
    """Chunks and nodes are never replaced, so their descriptors may be old; of all others they must not."""
    writer = RealFilesystem(real.root)
    put(writer, name, b"old")
    assert real.read(name) == b"old"
    put(writer, "new", b"newer")
    writer.rename("new", name)
    assert real.read(name) == (b"old" if name == "a.log" else b"newer")
    writer.close()


@pytest.mark.parametrize("name", ["a.log", "a.cbor"])
@pytest.mark.parametrize("change", ["rename", "unlink", "close"])
def test_a_reader_that_was_busy_meanwhile_keeps_nothing(
    real: RealFilesystem, monkeypatch: pytest.MonkeyPatch, name: str, change: str
) -> None:
    put(real, name, b"old")
    put(real, "new", b"newer")
    before, pread = open_files(), os.pread

    def changing(fd: int, length: int, offset: int) -> bytes:
        monkeypatch.undo()
        if change == "rename":
            real.rename("new", name)
        elif change == "unlink":
            real.unlink(name)
        else:
            real.close()
        return pread(fd, length, offset)

    monkeypatch.setattr(os, "pread", changing)
    assert real.read(name) == b"old"
    assert open_files() == before
    if change == "unlink":
        with pytest.raises(FileNotFoundError):
            real.read(name)
    else:
        assert real.read(name) == (b"newer" if change == "rename" else b"old")


# --- many writes at once ------------------------------------------------------------------------------------


def test_all_writes_have_ended_when_one_has_failed(
    real: RealFilesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, submit = os.write, ThreadPoolExecutor.submit
    attempts: list[Future[None]] = []
    too_late = threading.Event()

    def slow(fd: int, data: bytes) -> int:
        too_late.wait(0.1)  # never set before write_all is over: a write that goes on after it is seen below
        return write(fd, data)

    def noted(pool: ThreadPoolExecutor, step: Callable[[Write], None], item: Write) -> Future[None]:
        attempts.append(submit(pool, step, item))
        return attempts[-1]

    monkeypatch.setattr(os, "write", slow)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", noted)
    with pytest.raises(OSError, match="0 bytes long instead of 1"):
        real.write_all([Write("0", 1, b"x"), *(Write(f"{number}", 0, b"xx") for number in range(1, 9))])
    ended = [attempt.done() for attempt in attempts]
    too_late.set()
    assert ended == [True] * 9


@pytest.mark.parametrize("first", [True, False])
def test_of_many_errors_the_one_that_is_final_counts(
    real: RealFilesystem, monkeypatch: pytest.MonkeyPatch, *, first: bool
) -> None:
    """A full disk can be survived, a sync that failed can not: it must not hide behind it."""
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if bytes(data) == b"full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data)

    def broken(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setattr(os, "fdatasync", broken)
    writes = [Write("a", 0, b"full" if first else b"sync")]
    writes += [Write(f"{number}", 0, b"sync" if first else b"full") for number in range(10)]
    with pytest.raises(OSError, match="sync failed") as caught:
        real.write_all(writes)
    assert caught.value.errno == errno.EIO
