"""Every fault at every operation of clone and fork: whole or made again, and no source is harmed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests import builders
from tests.storage.simulation.oracle import Oracle, swept
from tests.storage.simulation.promises import BOUND, Promises, Session, prepared
from tests.storage.simulation.sim_loss import KEEP_ALL
from tests.storage.simulation.sim_plan import CRASHES, ERRORS, Fault, Op
from tests.storage.simulation.sim_sweep import Case
from tests.storage.simulation.simdisk import SimDisk, SimFilesystem, Snapshot
from tests.storage.stores import AUTHORIZE, CONTROL, A, B
from veen.core.data_dir.store_records import BZIP2
from veen.storage.directory import open_store
from veen.storage.errors import NotAStoreError, StorageError
from veen.storage.fs import Filesystem, Write
from veen.storage.maintain.copy import clone, fork
from veen.storage.read.reader import Reader

pytestmark = pytest.mark.sweep

Copy = Callable[[Reader, Filesystem], object]

ALL: Final = (*CRASHES, *ERRORS)
#: Files that have a meaning for others only.
KEY_MAP: Final = "hub-key-map.cbor"
ANCHOR: Final = "anchors/first.cbor"
OTHER_HUB: Final = builders.hub_id("another hub")


def nothing(_: SimFilesystem) -> None:
    """Begin with an empty disk."""


def work(session: Session) -> None:
    """Leave entries in all logs: pruned, compressed, open, and in the journal only."""
    session.authorize()
    session.append(A, A, A, A, A, BOUND)
    session.checkpoint(BOUND, 2)
    session.flush()
    session.prune(A, 4)
    session.append(A, B)
    session.fs.write_all([Write(path, 0, path.encode()) for path in (KEY_MAP, ANCHOR)])


def identical(fs: SimFilesystem, where: str, *paths: str) -> None:
    """Check files that go along and that no other check reads."""
    for path in paths:
        assert fs.read(where + path) == path.encode(), "a file of the identity is not the same"


def forked(source: Reader, target: Filesystem) -> object:
    return fork(source, target, OTHER_HUB)


class _Source:
    """A log that is copied; it must be the same afterwards, however that went."""

    def __init__(self, snapshot: Snapshot) -> None:
        with SimDisk.from_snapshot(snapshot) as disk:
            disk.power_loss(KEEP_ALL)
            self.snapshot = disk.snapshot()

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        with SimDisk.from_snapshot(self.snapshot) as disk:
            before = disk.files()
            reader = Reader.open(disk.filesystem())
            try:
                yield reader
            finally:
                reader.close()
                assert disk.files() == disk.durable_files() == before, "the source has changed"


class _Copies(Oracle):
    """A copy is there as a whole, or there is none and it can be made again in the same place."""

    def __init__(self, source: _Source, copy: Copy) -> None:
        super().__init__()
        self._source = source
        self._copy = copy
        self.again = 0

    def judge(self, case: Case[Promises]) -> None:
        assert (case.error is not None) == case.injected, "an error was passed over"

    def start(self, fs: SimFilesystem, kept: Promises, case: Case[Promises]) -> Session:
        try:
            open_store(fs)
        except NotAStoreError:
            assert (case.round, case.injected) == (1, True), "a copy is gone"
            self.again += 1
            with self._source.reader() as reader:
                self._copy(reader, fs)
        self.check_beside(fs)
        return super().start(fs, kept, case)

    def check_beside(self, fs: SimFilesystem) -> None:
        identical(fs, "", KEY_MAP, ANCHOR)


class _Forks(_Copies):
    labels = (builders.some_label("of the fork"),)

    def check_beside(self, fs: SimFilesystem) -> None:
        identical(fs, "archive/", KEY_MAP)
        with self._source.reader() as reader:
            assert fs.read("archive/store.cbor") == reader.store.encode()


def cut(kept: Promises, uptos: dict[bytes, int]) -> Promises:
    """Return what a fork has promised: the labels up to their checkpoints, and no reserved logs."""
    made = kept.copy()
    made.acked = {key: frame for key, frame in kept.acked.items() if key[1] <= uptos.get(key[0], 0)}
    made.checkpoints = {
        key: stored for key, stored in kept.checkpoints.items() if key[1] <= uptos.get(key[0], 0)
    }
    made.bindings.clear()
    return made


@pytest.mark.parametrize("faults", [CRASHES, ERRORS])
def test_a_clone_is_whole_or_can_be_made_again(tmp_path: Path, faults: tuple[Fault, ...]) -> None:
    start, kept = prepared(tmp_path, work, compression=BZIP2)
    source = _Source(start)
    oracle = _Copies(source, clone)

    def copy(fs: SimFilesystem, _: Promises) -> None:
        with source.reader() as reader:
            clone(reader, fs)

    report = swept(tmp_path, nothing, copy, faults, oracle, witness=kept.copy)
    if faults is CRASHES:
        assert report.hit_each(Op.RENAME, Fault.CRASH_AFTER)
    assert oracle.again > report.runs // 2


@pytest.mark.parametrize("faults", [CRASHES, ERRORS])
def test_a_fork_is_whole_or_can_be_made_again(tmp_path: Path, faults: tuple[Fault, ...]) -> None:
    start, kept = prepared(tmp_path, work)
    source = _Source(start)
    oracle = _Forks(source, forked)
    taken = cut(kept, {A: 4, BOUND: 2})
    assert {label for label, _ in taken.acked} == {A, BOUND}
    assert not {AUTHORIZE, CONTROL} & {label for label, _ in taken.acked}

    def copy(fs: SimFilesystem, _: Promises) -> None:
        with source.reader() as reader:
            forked(reader, fs)

    report = swept(tmp_path, nothing, copy, faults, oracle, witness=taken.copy)
    if faults is CRASHES:
        assert report.hit_each(Op.RENAME, Fault.CRASH_AFTER)
    assert oracle.again > report.runs // 2


@pytest.mark.parametrize("copy", [clone, forked])
def test_a_source_that_can_not_be_read_is_an_error_and_no_copy(tmp_path: Path, copy: Copy) -> None:
    """Break the reads of the source; the copy that was begun must not be taken for one."""
    start, kept = prepared(tmp_path, work)
    source = _Source(start)
    failures = 0

    def attempt(fs: SimFilesystem, _: Promises) -> None:
        nonlocal failures
        with SimDisk(tmp_path) as disk:
            target = disk.filesystem()
            try:
                reader = Reader.open(fs)
                try:
                    copy(reader, target)
                finally:
                    reader.close()
            except (OSError, StorageError):
                failures += 1
                assert target.size("store.cbor") is None
                with source.reader() as reader:
                    copy(reader, target)
            open_store(target)

    report = swept(
        tmp_path, source.snapshot, attempt, (Fault.READ_EIO,), _Reads(), witness=kept.copy, aftermaths=(0,)
    )
    assert failures == report.runs - 1


class _Reads(Oracle):
    def judge(self, case: Case[Promises]) -> None:
        assert case.error is None
