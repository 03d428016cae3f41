"""Deliberate mistakes in the engine, and proof that the sweeps notice each of them.

A test that can not fail proves nothing. Every defect here is one that a storage engine has had somewhere; the
same sweeps without a defect are the control.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.storage.simulation.oracle import Oracle, swept
from tests.storage.simulation.promises import Promises, Session, open_writer, prepared
from tests.storage.simulation.sim_loss import LOSE_ALL
from tests.storage.simulation.sim_plan import Fault, Op
from tests.storage.simulation.simdisk import SimDisk, SimFilesystem
from tests.storage.stores import A, B
from veen.core.data_dir import paths
from veen.storage.errors import DamagedStoreError
from veen.storage.fs import Filesystem, Write
from veen.storage.index.index import Changes
from veen.storage.journal import journal
from veen.storage.journal.journal import Kind, Segment
from veen.storage.journal.tail import Tail
from veen.storage.write import flush, writer
from veen.storage.write.flush import Flush, _Plan

pytestmark = pytest.mark.sweep

Patch = pytest.MonkeyPatch
Defect = Callable[[Patch], None]

#: What is enough to catch all of them: a full matrix is run on the engine as it should be.
FAULTS: Final = (Fault.CRASH_AFTER, Fault.CRASH_INSIDE, Fault.EIO, Fault.ENOSPC, Fault.SHORT)
AFTERMATHS: Final = (None, 0, 2, 3, 4, 5)


def half_full(session: Session) -> None:
    for _ in range(3):
        session.append(A)
    session.close()


def work(fs: SimFilesystem, kept: Promises) -> None:
    session = Session(fs, kept)
    session.append(A, B, size=700)
    session.append(B)
    session.flush()
    session.append(A)
    session.writer.abandon()


def run_sweep(scratch: Path) -> None:
    start, kept = prepared(scratch, half_full)
    swept(scratch, start, work, FAULTS, Oracle(), witness=kept.copy, aftermaths=AFTERMATHS)
    # Of files only: what a failed sync of a directory does to names is swept, and forgiven, elsewhere.
    swept(
        scratch,
        start,
        work,
        (Fault.FAILED_SYNC,),
        Oracle(),
        witness=kept.copy,
        aftermaths=AFTERMATHS,
        where=lambda operation: operation.op is Op.SYNC,
    )


def run_recovery_sweep(scratch: Path) -> None:
    start, kept = prepared(scratch, half_full)
    swept(
        scratch,
        start,
        work,
        (Fault.CRASH_BEFORE, Fault.EIO_AFTER),
        Oracle(),
        witness=kept.copy,
        where=lambda operation: operation.path.endswith(".wal") and operation.op is Op.SYNC,
        aftermaths=(None, LOSE_ALL),
        recover=lambda fs: open_writer(fs).close(),
        recovery_faults=(Fault.CRASH_BEFORE,),
    )


# --- the defects --------------------------------------------------------------------------------------------


def acknowledges_before_the_sync(patch: Patch) -> None:
    def commit(self: Segment, kind: Kind, payload: bytes, bindings: int = 0) -> None:
        self._write(self._record(kind, payload, bindings))
        self._write(self._record(Kind.COMMITTED, b"", 0))

    patch.setattr(Segment, "_commit", commit)


def ignores_an_error_of_the_sync(patch: Patch) -> None:
    def commit(self: Segment, kind: Kind, payload: bytes, bindings: int = 0) -> None:
        self._write(self._record(kind, payload, bindings))
        with contextlib.suppress(OSError):
            self._file.sync()
        self._write(self._record(Kind.COMMITTED, b"", 0))

    patch.setattr(Segment, "_commit", commit)


def goes_on_behind_a_failed_write(patch: Patch) -> None:
    def write(self: Segment, record: bytes) -> None:
        try:
            self._file.write(record)
        except OSError as error:
            raise journal._full() from error
        self.position += len(record)

    patch.setattr(Segment, "_write", write)


def _forgets_to_sync(patch: Patch, directory: str) -> None:
    sync = SimFilesystem.sync_dir
    patch.setattr(
        SimFilesystem, "sync_dir", lambda self, path: None if path == directory else sync(self, path)
    )


def forgets_the_names_of_chunks(patch: Patch) -> None:
    _forgets_to_sync(patch, "log")


def forgets_the_names_of_segments(patch: Patch) -> None:
    _forgets_to_sync(patch, "state")


def writes_checkpoints_in_place(patch: Patch) -> None:
    def replace_files(fs: Filesystem, files: dict[str, bytes]) -> None:
        fs.write_all([Write(path, 0, data) for path, data in files.items()])

    patch.setattr(flush, "replace_files", replace_files)


def renames_what_is_not_synced(patch: Patch) -> None:
    sync = SimFilesystem.sync_step

    def sync_step(self: SimFilesystem, inode: object, path: str) -> None:
        if not path.endswith(".tmp"):
            sync(self, inode, path)  # type: ignore[arg-type]

    patch.setattr(SimFilesystem, "sync_step", sync_step)


def believes_any_record(patch: Patch) -> None:
    def crc(nonce: bytes, head: bytes, payload: bytes) -> bytes:  # noqa: ARG001 - that is the defect
        return bytes(4)

    patch.setattr(journal, "_crc", crc)


def releases_the_journal_too_early(patch: Patch) -> None:
    def run(self: Flush, tail: Tail, *, redo: bool, clean: bool | None = None) -> None:
        with self._index.view() as view:
            meta = view.meta()
            plan = self._plan(tail, view, meta, _Plan(redo))
        self._fs.unlink(paths.journal(tail.segment))
        self._fs.sync_dir(paths.STATE_DIR)
        self._carry_out(plan, tail, meta, clean=clean)

    patch.setattr(Flush, "run", run)


def does_not_take_back(patch: Patch) -> None:
    patch.setattr(Flush, "_take_back", lambda _self, _plan: None)


def forgets_when_clients_came(patch: Patch) -> None:
    patch.setattr(Changes, "put_client_since", lambda _self, _client_id, _hub_ts: None)


DEFECTS: Final[list[Defect]] = [
    acknowledges_before_the_sync,
    ignores_an_error_of_the_sync,
    goes_on_behind_a_failed_write,
    forgets_the_names_of_chunks,
    forgets_the_names_of_segments,
    writes_checkpoints_in_place,
    renames_what_is_not_synced,
    believes_any_record,
    releases_the_journal_too_early,
    does_not_take_back,
    forgets_when_clients_came,
]


def test_the_engine_raises_no_alarm(tmp_path: Path) -> None:
    run_sweep(tmp_path)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_sweep_catches_a_writer_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defect: Defect
) -> None:
    defect(monkeypatch)
    with pytest.raises(Exception) as alarm:  # noqa: PT011 - by whatever check: each notices something else
        run_sweep(tmp_path)
    assert alarm.value.__notes__, "the sweep says at which fault it was"


def test_a_recovery_that_moves_what_may_not_be_durable_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_recovery_sweep(tmp_path)
    monkeypatch.setattr(writer, "settle", lambda _fs, _read: None)
    with pytest.raises(Exception) as alarm:  # noqa: PT011
        run_recovery_sweep(tmp_path)
    assert alarm.value.__notes__


def two_batches(session: Session) -> None:
    session.append(A)
    session.append(A, B)


def flips_of_the_journal(scratch: Path) -> None:
    """Flip a bit in each byte of an acknowledged journal: everything is there, or the start is refused."""
    start, kept = prepared(scratch, two_batches)
    path = paths.journal(1)
    with SimDisk.from_snapshot(start) as disk:
        size = len(disk.files()[path])
    for byte in range(size):
        with SimDisk.from_snapshot(start) as disk:
            disk.flip(path, byte, byte % 8)
            try:
                opened = open_writer(disk.filesystem())
            except DamagedStoreError as refusal:
                assert refusal.path == path  # noqa: PT017
                continue
            kept.check_reads(opened.reader)
            opened.abandon()


def test_rot_that_would_cut_the_log_short_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flips_of_the_journal(tmp_path)
    monkeypatch.setattr(journal, "_refuse_if_damaged", lambda *_: None)
    with pytest.raises(Exception, match="there is no entry"):
        flips_of_the_journal(tmp_path)
