"""Write a table's file: its bytes follow from its rows, independent of batches and repetition.

A file is written under a temporary name, made durable, and then renamed: a task that runs twice, or is
killed, leaves the same file or none. It contains plaintext, so only its owner has access.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from veen.pipeline.lake import layout
from veen.stdx import atomic_file
from veen.stdx.atomic_file import PRIVATE, rename, sync_dir

_ZSTD_LEVEL: Final = 3
# Long or random columns: statistics would be useless, and cost space in every footer.
_NO_STATISTICS: Final = frozenset(
    {
        "ciphertext",
        "sig",
        "hub_sig",
        "body",
        "ct_hash",
        "mmr_root",
        "value",
        "payload",
        "metadata",
        "origin_receipt",
        "row",
    }
)
# Random and unique columns.
_NO_DICTIONARY: Final = _NO_STATISTICS | {"leaf_hash", "msg_id", "receipt_id"}
# All other columns are searched by value, with matches all over a file: they get Bloom filters.
_NO_FILTER: Final = _NO_STATISTICS | {"label", "stream_id", "profile_id", "schema", "detail"}
_WRONG: Final = 0.05
_DIRECTORY: Final = 0o700


class Written(NamedTuple):
    """A file that is complete and durable."""

    path: str
    rows: int
    size: int
    sha256: str


def options(schema: pa.Schema) -> Mapping[str, Any]:
    """Return the Parquet options of a table: fixed, because bytes must follow from rows."""
    plain = [field.name for field in schema if not pa.types.is_nested(field.type)]
    texts = [
        name
        for name in plain
        if name not in _NO_FILTER
        and (pa.types.is_binary(schema.field(name).type) or pa.types.is_string(schema.field(name).type))
    ]
    return {
        "version": "2.6",
        "compression": "zstd",
        "compression_level": _ZSTD_LEVEL,
        "use_dictionary": [name for name in plain if name not in _NO_DICTIONARY],
        "write_statistics": [name for name in plain if name not in _NO_STATISTICS],
        "write_page_checksum": True,
        "data_page_version": "1.0",
        "bloom_filter_options": {name: {"ndv": layout.GROUP_ROWS, "fpp": _WRONG} for name in texts},
        "sorting_columns": [
            pq.SortingColumn(nth) for nth, name in enumerate(schema.names) if name == "stream_seq"
        ],
    }


class TableFile:
    """Writes a file of a table; rows are added in order, in batches of any size."""

    def __init__(self, root: Path, path: str, schema: pa.Schema) -> None:
        self._target = root / path
        self._path = path
        self._schema = schema
        make_directory(self._target.parent)
        self._name = self._target.parent / f"{layout.UNFINISHED}{uuid4().hex}"
        create_file(self._name).close()
        self._out = pq.ParquetWriter(self._name, schema, **options(schema))
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; the ends of row groups depend only on the number and sizes of rows."""
        sums: npt.NDArray[np.int64] = np.cumsum(_sizes(batch))
        start = base = 0
        while start < len(batch):
            full = int(np.searchsorted(sums, base + layout.GROUP_BYTES - self._pending_bytes)) + 1
            end = min(start + layout.GROUP_ROWS - self._pending_rows, full, len(batch))
            self._pending.append(batch.slice(start, end - start))
            self._pending_rows += end - start
            self._pending_bytes += int(sums[end - 1]) - base
            start, base = end, int(sums[end - 1])
            if self._pending_rows >= layout.GROUP_ROWS or self._pending_bytes >= layout.GROUP_BYTES:
                self._write_group()
        self.rows += len(batch)

    def _write_group(self) -> None:
        # In one piece: otherwise the ends of pages would depend on the batches.
        table = pa.Table.from_batches(self._pending, self._schema).combine_chunks()
        self._out.write_table(table, row_group_size=max(len(table), 1))
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0

    def finish(self) -> Written:
        """Complete the file, and rename it durably."""
        if self._pending:
            self._write_group()
        self._out.close()
        with self._name.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        rename(self._name, self._target)
        return Written(self._path, self.rows, size, digest)

    def discard(self) -> None:
        """Remove the unfinished file."""
        with suppress(Exception):  # closed already, or closing fails: the file is removed in any case
            self._out.close()
        self._name.unlink(missing_ok=True)


def _sizes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Estimate the size of each row, from the row alone, so that files do not depend on batches."""
    found = np.full(len(batch), 64, dtype=np.int64)
    for column in batch.columns:
        if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            found += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return found


class SliceFiles:
    """The files of one slice of a label, one for each table with rows."""

    def __init__(self, root: Path, name: Any, columns: Mapping[str, pa.Schema]) -> None:  # noqa: ANN401
        """``name`` gives the path of a table's file."""
        self._root = root
        self._name = name
        self._columns = columns
        self._open: dict[str, TableFile] = {}

    def add(self, table: str, batch: pa.RecordBatch) -> None:
        """Add rows to a table."""
        found = self._open.get(table)
        if found is None:
            found = self._open[table] = TableFile(self._root, self._name(table), self._columns[table])
        found.add(batch)

    def finish(self) -> dict[str, Written]:
        return {table: file.finish() for table, file in sorted(self._open.items())}

    def discard(self) -> None:
        """Remove unfinished files."""
        for file in self._open.values():
            file.discard()


def make_directory(path: Path) -> None:
    """Create a directory and its parents, durably, accessible to their owner only; see ``create_file``."""
    if path.is_dir():
        return
    make_directory(path.parent)
    make_private_directory(path)
    shared = _shared(path.parent)
    if shared:
        path.chmod(stat.S_ISGID | _DIRECTORY | shared)


def make_private_directory(path: Path) -> None:
    """Create a directory accessible to its owner only, durably, whatever the modes of its parents."""
    path.mkdir(mode=_DIRECTORY, exist_ok=True)
    sync_dir(path.parent)


def create_file(path: Path) -> BinaryIO:
    """Create a file accessible to its owner only, whatever the umask is.

    In a directory shared with a group on purpose (chmod g+s), the group has access too.
    """
    file = atomic_file.create_file(path)
    shared = _shared(path.parent) & (stat.S_IRGRP | stat.S_IWGRP)
    if shared:
        os.fchmod(file.fileno(), PRIVATE | shared)
    return file


def _shared(directory: Path) -> int:
    """Return the permissions of a group in a directory that is shared with it."""
    mode = directory.stat().st_mode
    return mode & stat.S_IRWXG if mode & stat.S_ISGID else 0


def write_durably(path: Path, data: bytes, *, once: bool = False) -> None:
    """Write a small file atomically; with ``once``, fail if it exists."""
    make_directory(path.parent)
    name = path.parent / f"{layout.UNFINISHED}{uuid4().hex}"
    try:
        with create_file(name) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if once:
            path.hardlink_to(name)
            sync_dir(path.parent)
        else:
            rename(name, path)
    finally:
        name.unlink(missing_ok=True)


def remove_all(paths: Iterable[Path]) -> int:
    """Remove files, and the directories that become empty."""
    count = 0
    for path in paths:
        path.unlink(missing_ok=True)
        count += 1
        with suppress(OSError):
            path.parent.rmdir()
    return count
