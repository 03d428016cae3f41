"""The right edge of a label: files that do not end where the index says are refused, not added to."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import builders
from tests.storage.checks import writing
from tests.storage.stores import AUTHORIZE, A, B, Store, make, new_store, open_writer
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import BZIP2
from veen.storage.errors import DamagedStoreError, StaleIndexError
from veen.storage.fs import RealFilesystem
from veen.storage.index.index import Index
from veen.storage.maintain.repair import repair

OPEN = paths.open_chunk(Domain.DATA, A, 5)
NODES = paths.nodes(Domain.DATA, A)


@pytest.fixture
def stopped(fs: RealFilesystem) -> RealFilesystem:
    """A label with a sealed chunk and two more entries, cleanly stopped."""
    store = new_store(fs)
    for _ in range(6):
        store.append(A)
    store.writer.close()
    return fs


def appended(fs: RealFilesystem) -> int:
    fresh = RealFilesystem(fs.root)  # without descriptors of files that are gone by now
    try:
        with writing(fresh, clock=2_000) as store:
            return store.append(A)[0].stream_seq
    finally:
        fresh.close()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_files_that_agree_are_added_to(stopped: RealFilesystem) -> None:
    assert appended(stopped) == 7


@pytest.mark.parametrize("path", [OPEN, NODES])
@pytest.mark.parametrize("change", [cut, lengthen, Path.unlink])
def test_a_file_of_another_length_is_refused_by_name(
    stopped: RealFilesystem, path: str, change: Callable[[Path], None]
) -> None:
    change(stopped.root / path)
    with pytest.raises(DamagedStoreError) as caught:
        appended(stopped)
    assert caught.value.path == path


def test_a_derived_file_that_is_gone_is_a_case_for_repair(stopped: RealFilesystem) -> None:
    for path in (NODES, paths.RECEIPTS, paths.CHECKPOINTS):
        stopped.unlink(path)
        with pytest.raises(StaleIndexError, match="veen repair"):
            appended(stopped)
        repair(stopped, owner="a test")
    assert appended(stopped) == 7


def test_a_damaged_last_entry_is_refused(stopped: RealFilesystem) -> None:
    flip(stopped.root / OPEN)
    with pytest.raises(DamagedStoreError) as caught:
        appended(stopped)
    assert caught.value.path == OPEN
    assert caught.value.offset == len(stopped.read(OPEN)) // 2


def test_an_older_damaged_entry_does_not_stop_the_label(stopped: RealFilesystem) -> None:
    """It is for fsck to find: a start that read everything would take as long as the log is."""
    path = stopped.root / OPEN
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert appended(stopped) == 7


def test_another_log_of_the_same_length_is_refused(stopped: RealFilesystem, target: RealFilesystem) -> None:
    other = new_store(target)
    for _ in range(6):
        other.append(A, client="another")
    other.writer.close()
    (stopped.root / OPEN).write_bytes(target.read(OPEN))
    with pytest.raises(StaleIndexError, match="not the one in the index"):
        appended(stopped)


def test_a_label_that_ends_at_a_boundary_is_checked_in_its_sealed_chunk(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for _ in range(4):
        store.append(A)
    store.writer.close()
    sealed = fs.root / paths.chunk(Domain.DATA, A, 1, 4)
    flip(sealed)
    with pytest.raises(DamagedStoreError):
        appended(fs)
    flip(sealed)
    content = sealed.read_bytes()
    sealed.unlink()
    with pytest.raises(DamagedStoreError, match="missing"):
        appended(fs)
    sealed.write_bytes(content)
    (fs.root / OPEN).write_bytes(b"")  # a chunk that nobody has begun
    with pytest.raises(StaleIndexError, match="does not know this chunk"):
        appended(fs)
    fs.unlink(OPEN)
    assert appended(fs) == 5


@pytest.mark.parametrize("path", [paths.open_chunk(Domain.DATA, B, 1), paths.nodes(Domain.DATA, B)])
def test_a_label_that_the_index_does_not_know_has_no_files(stopped: RealFilesystem, path: str) -> None:
    (stopped.root / path).write_bytes(b"")
    with writing(stopped, clock=2_000) as store:
        with pytest.raises(StaleIndexError, match="does not know this label"):
            store.append(B)
        store.append(A)  # others are not concerned


def test_reserved_logs_are_checked_at_once(fs: RealFilesystem) -> None:
    store = new_store(fs)
    store.authorize(builders.cap_token())
    store.writer.close()
    cut(fs.root / paths.open_chunk(Domain.AUTHORIZE, AUTHORIZE, 1))
    with pytest.raises(DamagedStoreError, match="shorter"):
        open_writer(fs)


@pytest.mark.parametrize("pruned", [False, True])
def test_sealed_chunks_that_are_compressed_or_pruned_are_not_opened(
    fs: RealFilesystem, *, pruned: bool
) -> None:
    make(fs, compression=BZIP2)
    store = Store(open_writer(fs))
    for _ in range(4):
        store.append(A)
    store.writer.flush()
    if pruned:
        store.writer.prune(A, 4)
    store.writer.close()
    assert appended(fs) == 5


@pytest.mark.parametrize("table", ["chunks", "positions"])
def test_an_index_with_a_hole_is_a_case_for_repair(stopped: RealFilesystem, table: str) -> None:
    index = Index.open(stopped)
    with index.change() as changes:
        changes.txn.drop(changes._tables[table], delete=False)
    index.close()
    with pytest.raises(StaleIndexError, match="veen repair"):
        appended(stopped)
    repair(stopped, owner="a test")
    assert appended(stopped) == 7
