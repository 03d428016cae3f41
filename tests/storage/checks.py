"""What tests of the engine share: opening and closing, faults on demand, and what a receipt entitles to."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests import rawcbor
from tests.expect import refused
from tests.paths import ROOT
from tests.storage.stores import A, B, C, Store, open_writer
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.errors import Code, Detail, ProtocolError
from veen.core.objects.entry import Entry
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
from veen.core.types import Label
from veen.storage.fs import AppendFile, Filesystem, RealFilesystem, Write
from veen.storage.read.reader import Reader

# --- opening ------------------------------------------------------------------------------------------------


@contextmanager
def writing(fs: Filesystem, segment_bytes: int = 1 << 20, *, clock: int = 1_000) -> Iterator[Store]:
    """Open the writer of an existing store; at the end it is abandoned, if the test has not closed it."""
    store = Store(open_writer(fs, segment_bytes), clock=clock)
    try:
        yield store
    finally:
        store.writer.abandon()


@contextmanager
def reading(fs: Filesystem) -> Iterator[Reader]:
    """Open a reader that has no writer in this process."""
    reader = Reader.open(fs)
    try:
        yield reader
    finally:
        reader.close()


def in_another_process(script: str, *arguments: str | Path) -> str:
    """Run a script with the modules of the tests at hand; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        check=False,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def mixed(store: Store) -> None:
    """Leave entries of A in sealed chunks, the open one and the journal; B in chunks, C in the journal."""
    for _ in range(6):
        store.append(A)
        store.append(B)
        store.tick()
    store.writer.flush()
    for _ in range(3):
        store.append(A)
        store.append(C)
        store.tick()


# --- faults -------------------------------------------------------------------------------------------------


class Faulty(RealFilesystem):
    """The real file system, with an error for chosen calls: ``faults`` maps a call to its error or None."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.fault: Callable[[str, str], int | None] = lambda _call, _path: None

    def fail(self, call: str, part: str, code: int) -> None:
        """From now on, refuse calls of this name for paths that contain ``part``."""
        self.fault = lambda name, path: code if name == call and part in path else None

    def heal(self) -> None:
        """Fail no more."""
        self.fault = lambda _call, _path: None

    def meet(self, call: str, path: str) -> None:
        """Fail, if this call is to fail."""
        code = self.fault(call, path)
        if code is not None:
            raise OSError(code, os.strerror(code), path)

    def write_all(self, writes: Sequence[Write]) -> None:
        for write in writes:
            self.meet("write_all", write.path)
        super().write_all(writes)

    def rename(self, old: str, new: str) -> None:
        self.meet("rename", new)
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self.meet("unlink", path)
        super().unlink(path)

    def sync_dir(self, directory: str) -> None:
        self.meet("sync_dir", directory)
        super().sync_dir(directory)

    def make_dir(self, path: str) -> None:
        self.meet("make_dir", path)
        super().make_dir(path)

    def open_append(self, path: str) -> AppendFile:
        self.meet("open_append", path)
        return _FaultyAppend(self, path, super().open_append(path))


class _FaultyAppend:
    """The journal; a write that fails leaves a part of its bytes behind."""

    def __init__(self, fs: Faulty, path: str, inner: AppendFile) -> None:
        self._fs = fs
        self._path = path
        self._inner = inner

    def write(self, data: bytes) -> None:
        try:
            self._fs.meet("append", self._path)
        except OSError:
            self._inner.write(data[: len(data) // 2])
            raise
        self._inner.write(data)

    def sync(self) -> None:
        self._fs.meet("sync", self._path)
        self._inner.sync()

    def truncate(self, size: int) -> None:
        self._fs.meet("truncate", self._path)
        self._inner.truncate(size)

    def close(self) -> None:
        self._inner.close()


# --- what must hold -----------------------------------------------------------------------------------------


def check_receipts(reader: Reader, receipts: Iterable[Receipt]) -> None:
    """Check all that a receipt entitles its holder to: entry, place, time, and proofs that verify."""
    for receipt in receipts:
        label, seq = receipt.label, receipt.stream_seq
        entry = reader.entry(label, seq)
        assert entry.receipt.encode() == receipt.encode()
        if reader.domain_of(label) is Domain.DATA:
            assert Msg.decode(entry.msg_bytes).leaf_hash == receipt.leaf_hash
        assert reader.find(receipt.leaf_hash) == (label, seq)
        found = reader.entry(label, reader.seq_at(label, receipt.hub_ts)).receipt
        assert found.stream_seq <= seq
        assert found.hub_ts == receipt.hub_ts
        reader.prove(label, seq).verify(receipt.mmr_root, receipt.leaf_hash, stream_seq=seq)


def entries(reader: Reader, label: Label) -> list[Entry]:
    """Return all entries of a label that can be read."""
    manifest = reader.manifest(label)
    return [place.entry for place in reader.entries(label, manifest.first_seq, manifest.head.seq)]


def contents(fs: RealFilesystem, *, derived: bool = True) -> dict[str, bytes]:
    """Return every file but the index and the lock; without ``derived``, only the log and the journal."""
    found = {
        path.relative_to(fs.root).as_posix(): path.read_bytes()
        for path in sorted(fs.root.rglob("*"))
        if path.is_file()
    }
    return {
        path: data
        for path, data in found.items()
        if not path.startswith(paths.INDEX)
        and path != paths.LOCK
        and (derived or path.endswith((".log", ".bz2", ".wal")))
    }


def unordered(files: dict[str, bytes]) -> dict[str, object]:
    """Return files with receipts and checkpoints in any order: a repair puts them down label by label."""
    found: dict[str, object] = dict(files)
    for path in (paths.RECEIPTS, paths.CHECKPOINTS):
        data, at, items = files.get(path, b""), 0, []
        while at < len(data):
            end = rawcbor.skip(data, at)
            items.append(data[at:end])
            at = end
        found[path] = sorted(items)
    return found


def chunk_ranges(fs: Filesystem, label: Label, domain: Domain = Domain.DATA) -> list[tuple[int, int | None]]:
    """Return the ranges of a label's chunk files; None as the end of the one that still grows."""
    parsed = filter(None, map(paths.parse, fs.names(domain)))
    kinds = (paths.FileKind.CHUNK, paths.FileKind.OPEN_CHUNK)
    return [
        (name.start_seq or 0, name.end_seq) for name in parsed if name.label == label and name.kind in kinds
    ]


def not_found(field: str) -> AbstractContextManager[pytest.ExceptionInfo[ProtocolError]]:
    """Expect E.NOT_FOUND for this reason."""
    return refused(Detail.VALUE, field=field, code=Code.NOT_FOUND)
