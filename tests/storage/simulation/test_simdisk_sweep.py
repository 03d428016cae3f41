"""The sweep finds what it is made to find: a small journal that is right, and ways to get it wrong.

The journal is one file of lines, each with its checksum. A line is promised when its sync has returned.
"""

import contextlib
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.storage.simulation.sim_plan import CRASHES, ERRORS, Fault, Op
from tests.storage.simulation.sim_sweep import Case, Report, sweep
from tests.storage.simulation.simdisk import SimDisk, SimFilesystem
from veen.storage.fs import Write

pytestmark = pytest.mark.sweep

PATH, TMP = "state/journal", "state/journal.tmp"
LINES = [b"first", b"second" * 100, b"third"]


def framed(line: bytes) -> bytes:
    return line + b" %08x\n" % zlib.crc32(line)


def parsed(data: bytes) -> list[bytes]:
    """Return the lines up to the first that is torn."""
    lines = []
    for part in data.split(b"\n")[:-1]:
        line, _, check = part.rpartition(b" ")
        if check != b"%08x" % zlib.crc32(line):
            break
        lines.append(line)
    return lines


def prepare(fs: SimFilesystem) -> None:
    fs.make_dir("")
    fs.make_dir("state")
    rewrite(fs, [])


def rewrite(fs: SimFilesystem, lines: list[bytes]) -> None:
    """Put a new journal in the place of the old one."""
    if fs.size(TMP) is not None:
        fs.unlink(TMP)
    fs.write_all([Write(TMP, 0, b"".join(map(framed, lines)))])
    fs.rename(TMP, PATH)
    fs.sync_dir("state")


def recover(fs: SimFilesystem) -> None:
    """Write what is there again: of what only the page cache has, no sync makes anything durable."""
    rewrite(fs, parsed(fs.read(PATH)))


def append(fs: SimFilesystem, promised: list[bytes]) -> None:
    file = fs.open_append(PATH)
    for line in LINES:
        file.write(framed(line))
        file.sync()
        promised.append(line)
    file.close()


def check(fs: SimFilesystem, case: Case[list[bytes]], *, recovery: Callable[[SimFilesystem], None]) -> None:
    recovery(fs)
    lines = parsed(fs.read(PATH))
    assert lines == LINES[: len(lines)], "lines that nobody wrote"
    assert lines[: len(case.witness)] == case.witness, "a promised line is gone"
    assert lines[: len(case.seen)] == case.seen, "a line that was shown is gone"
    case.seen[:] = lines


def swept(
    scratch: Path,
    action: Callable[[SimFilesystem, list[bytes]], None] = append,
    faults: tuple[Fault, ...] = (*CRASHES, *ERRORS),
    recovery: Callable[[SimFilesystem], None] = recover,
    recovery_faults: tuple[Fault, ...] = (*CRASHES, Fault.EIO, Fault.FAILED_SYNC),
    *,
    recovery_points: int | None = None,
    persistent: bool = False,
) -> Report:
    return sweep(
        prepare,
        action,
        faults,
        partial(check, recovery=recovery),
        witness=list,
        scratch=scratch,
        recover=recovery,
        recovery_faults=recovery_faults,
        recovery_points=recovery_points,
        persistent=persistent,
    )


# --- what is right passes -----------------------------------------------------------------------------------


def test_a_right_program_survives_everything(tmp_path: Path) -> None:
    report = swept(tmp_path)
    writes_and_syncs = 2 * len(LINES)
    for fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.EIO, Fault.EIO_AFTER):
        assert report.hit(fault, Op.WRITE) + report.hit(fault, Op.SYNC) == writes_and_syncs
    assert report.hit(Fault.FAILED_SYNC, Op.SYNC) == len(LINES)
    assert report.hit(Fault.SHORT, Op.WRITE) == len(LINES)
    assert report.hit(Fault.READ_EIO, Op.OPEN) == 1
    # The runs that hit something, and for each fault one more, in which the sweep sees that it is done.
    assert report.runs == sum(report.injected.values()) + len(CRASHES) + len(ERRORS)
    assert report.recoveries > 20 * report.runs
    assert report.checks == 2 * (6 * report.runs + report.recoveries)


def test_some_points_of_the_recovery(tmp_path: Path) -> None:
    few = swept(tmp_path, faults=CRASHES, recovery_points=2)
    assert few.recoveries <= 6 * few.runs * 5 * 2
    assert few.recoveries < swept(tmp_path, faults=CRASHES).recoveries


def test_a_full_disk_that_stays_full_for_a_while(tmp_path: Path) -> None:
    def patient(fs: SimFilesystem, promised: list[bytes]) -> None:
        file = fs.open_append(PATH)
        for line in LINES:
            before = fs.size(PATH)
            assert before is not None
            try:
                file.write(framed(line))
            except OSError:
                file.truncate(before)
                return
            file.sync()
            promised.append(line)

    report = swept(tmp_path, patient, faults=(Fault.ENOSPC, Fault.SHORT), persistent=True, recovery_points=1)
    assert report.hit(Fault.ENOSPC, Op.WRITE) == report.hit(Fault.SHORT, Op.WRITE) == len(LINES)


def test_a_sweep_is_the_same_each_time(tmp_path: Path) -> None:
    assert swept(tmp_path, recovery_points=1) == swept(tmp_path, recovery_points=1)


# --- what is wrong is found ---------------------------------------------------------------------------------


def without_sync(fs: SimFilesystem, promised: list[bytes]) -> None:
    file = fs.open_append(PATH)
    for line in LINES:
        file.write(framed(line))
        promised.append(line)


def too_early(fs: SimFilesystem, promised: list[bytes]) -> None:
    file = fs.open_append(PATH)
    for line in LINES:
        file.write(framed(line))
        promised.append(line)
        file.sync()


def sync_again(fs: SimFilesystem, promised: list[bytes]) -> None:
    file = fs.open_append(PATH)
    for line in LINES:
        file.write(framed(line))
        try:
            file.sync()
        except OSError:
            file.sync()
        promised.append(line)


def go_on_when_full(fs: SimFilesystem, promised: list[bytes]) -> None:
    file = fs.open_append(PATH)
    for line in LINES:
        with contextlib.suppress(OSError):
            file.write(framed(line))
            file.sync()
            promised.append(line)


def rename_unsynced(fs: SimFilesystem, promised: list[bytes]) -> None:
    fs.write_all([Write(TMP, 0, b"")])
    file = fs.open_append(TMP)
    file.write(b"".join(map(framed, LINES)))
    fs.rename(TMP, PATH)
    fs.sync_dir("state")
    promised.extend(LINES)


def forget_the_directory(fs: SimFilesystem, promised: list[bytes]) -> None:
    fs.write_all([Write(TMP, 0, b"".join(map(framed, LINES)))])
    fs.rename(TMP, PATH)
    promised.extend(LINES)


@pytest.mark.parametrize(
    ("action", "faults"),
    [
        (without_sync, CRASHES),
        (too_early, CRASHES),
        (sync_again, (Fault.FAILED_SYNC,)),
        (go_on_when_full, (Fault.SHORT,)),
        (rename_unsynced, CRASHES),
        (forget_the_directory, CRASHES),
        (append, (Fault.LOST_WRITE,)),  # a right program, and a disk on which nothing is right
        (append, (Fault.MISDIRECTED,)),
    ],
)
def test_broken_promises_are_found(
    tmp_path: Path, action: Callable[[SimFilesystem, list[bytes]], None], faults: tuple[Fault, ...]
) -> None:
    with pytest.raises(AssertionError, match=r"promised line is gone|nobody wrote") as caught:
        swept(tmp_path, action, faults, recovery_faults=())
    assert any(str(faults[0])[:5] in note for note in caught.value.__notes__)
    assert list(tmp_path.iterdir()) == []


def only_read(fs: SimFilesystem) -> None:
    fs.read(PATH)


def test_a_recovery_that_shows_what_is_not_durable_is_found(tmp_path: Path) -> None:
    swept(tmp_path, faults=(Fault.FAILED_SYNC,))
    with pytest.raises(AssertionError, match="a line that was shown is gone"):
        swept(tmp_path, faults=(Fault.FAILED_SYNC,), recovery=only_read)


def in_place(fs: SimFilesystem) -> None:
    lines = parsed(fs.read(PATH))
    fs.truncate(PATH, 0)
    fs.write_all([Write(PATH, 0, b"".join(map(framed, lines)))])


def test_a_recovery_that_must_not_be_disturbed_is_found(tmp_path: Path) -> None:
    swept(tmp_path, faults=CRASHES, recovery=in_place, recovery_faults=())
    with pytest.raises(AssertionError, match="a promised line is gone") as caught:
        swept(tmp_path, faults=CRASHES, recovery=in_place, recovery_faults=CRASHES)
    assert any("recovery met crash" in note for note in caught.value.__notes__)


def test_a_swallowed_crash_is_found(tmp_path: Path) -> None:
    def deaf(fs: SimFilesystem, promised: list[bytes]) -> None:
        with contextlib.suppress(BaseException):
            append(fs, promised)

    with pytest.raises(AssertionError, match="a crash was swallowed"):
        swept(tmp_path, deaf, CRASHES)


def test_errors_of_other_kinds_are_found(tmp_path: Path) -> None:
    def confused(fs: SimFilesystem, promised: list[bytes]) -> None:
        try:
            append(fs, promised)
        except OSError as error:
            raise ValueError("what now") from error

    with pytest.raises(ValueError, match="what now"):
        swept(tmp_path, confused, (Fault.EIO,))


def test_errors_without_a_reason_are_found(tmp_path: Path) -> None:
    def broken(fs: SimFilesystem, _: list[bytes]) -> None:
        fs.read("missing")

    with pytest.raises(FileNotFoundError) as caught:
        swept(tmp_path, broken, (Fault.EIO,))
    assert caught.value.__notes__ == ["nothing was injected"]


@pytest.mark.parametrize("points", [None, 2])
def test_a_sweep_can_be_narrow(tmp_path: Path, points: int | None) -> None:
    with SimDisk(tmp_path) as disk:
        prepare(disk.filesystem())
        snapshot = disk.snapshot()
    report = sweep(
        snapshot,
        append,
        (Fault.EIO,),
        partial(check, recovery=recover),
        witness=list,
        scratch=tmp_path,
        seeds=(1, 2),
        aftermaths=(None,),
        rounds=1,
        where=lambda operation: operation.op is Op.SYNC,
        recover=recover,
        recovery_faults=(Fault.EIO,),
        recovery_points=points,
        recovery_where=lambda operation: operation.op in (Op.RENAME, Op.SYNC),
    )
    assert (report.runs, report.recoveries, report.checks) == (8, 16, 24)
