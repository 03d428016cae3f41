"""The rows of an answer on disk: Parquet files, each named by the index of its first row."""

import pickle
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from veen.pipeline.lake import layout
from veen.pipeline.lake.table_files import TableFile, make_directory, remove_all
from veen.query.digest import ResultDigest, RowsHasher
from veen.query.errors import QueryError
from veen.stdx.atomic_file import sync_dir

# Holds files until the index of their first row is known.
_UNPLACED: Final = f"{layout.UNFINISHED}part-"
# What a task reports about the files that it wrote.
PARTS: Final = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("first", pa.binary()),
        pa.field("last", pa.binary()),
    ]
)


class ResultPart(NamedTuple):
    """Consecutive rows written by one task."""

    name: str
    rows: int
    # The sort keys of the first and the last row.
    first: Any
    last: Any


@dataclass(frozen=True, slots=True)
class PartWriter:
    """Writes ordered rows of one partition; runs in a task."""

    out: str
    schemas: tuple[tuple[str, pa.Schema], ...]
    # The columns that determine the order.
    order: tuple[str, ...]
    # Converts a batch to one for each of ``schemas``.
    make: Callable[[pa.RecordBatch], Sequence[pa.RecordBatch]]

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all batches; yield a report if there were rows."""
        name = f"{_UNPLACED}{uuid4().hex}"
        files = [TableFile(Path(self.out), name + suffix, schema) for suffix, schema in self.schemas]
        first = last = None
        count = 0
        try:
            for batch in batches:
                if not len(batch):
                    continue
                if first is None:
                    first = self._place(batch, 0)
                last = self._place(batch, len(batch) - 1)
                count += len(batch)
                for file, (_, schema), made in zip(files, self.schemas, self.make(batch), strict=True):
                    file.add(pa.RecordBatch.from_arrays(made.columns, schema=schema))
            if count:
                for file in files:
                    file.finish()
        finally:
            for file in files:
                file.discard()
        if count:
            yield pa.RecordBatch.from_pylist(
                [{"name": name, "rows": count, "first": pickle.dumps(first), "last": pickle.dumps(last)}],
                schema=PARTS,
            )

    def _place(self, batch: pa.RecordBatch, nth: int) -> tuple[Any, ...]:
        values = (batch.column(name)[nth].as_py() for name in self.order)
        return tuple(value.encode() if isinstance(value, str) else value for value in values)


def placed(
    out: Path, written: Iterable[tuple[str, int, bytes, bytes]], suffixes: Sequence[str]
) -> list[ResultPart]:
    """Name the files of tasks by the index of their first row, durably, and remove all others.

    The order of partitions is not relied on: it follows from the sort keys, and is checked.
    """
    make_directory(out)
    for suffix in suffixes:  # of an earlier attempt, which may have divided the rows differently
        remove_all([path for path in out.glob(f"*{suffix}") if path.stem.isdigit()])
    parts = [
        ResultPart(name, rows, pickle.loads(first), pickle.loads(last))  # noqa: S301 - our own tasks made them
        for name, rows, first, last in written
    ]
    parts.sort(key=lambda part: part.first)
    done, at = [], 0
    for nth, part in enumerate(parts):
        assert nth == 0 or parts[nth - 1].last < part.first, "partitions overlap"
        name = layout.number(at)
        for suffix in suffixes:
            (out / f"{part.name}{suffix}").replace(out / f"{name}{suffix}")
        done.append(part._replace(name=name))
        at += part.rows
    remove_all(out.glob(f"{layout.UNFINISHED}*"))
    make_directory(out)
    sync_dir(out)
    return done


class ResultRows:
    """The rows of an answer, in order, read page by page."""

    SUFFIX: Final = ".parquet"

    def __init__(self, out: Path) -> None:
        files = sorted(path for path in out.glob(f"*{self.SUFFIX}") if path.stem.isdigit())
        self._files = files
        self._starts = [int(path.stem) for path in files]
        self.count = 0
        for path, start in zip(files, self._starts, strict=True):
            if start != self.count:
                raise QueryError("execution_failed", f"rows {self.count} to {start - 1} are gone")
            self.count += self._metadata(path).num_rows

    @staticmethod
    def _metadata(path: Path) -> pq.FileMetaData:
        try:
            return pq.read_metadata(path)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(path, error) from None

    def page(self, offset: int, limit: int, most_bytes: int | None = None) -> list[bytes]:
        """Return a page of rows, each in canonical JSON.

        A page ends before the row that would make it longer than ``most_bytes``, unless it is the first one.
        """
        rows: list[bytes] = []
        size = 0
        for row in islice(self._from(offset), limit):
            size += len(row) + 1
            if most_bytes is not None and size > most_bytes and rows:
                break
            rows.append(row)
        return rows

    def iterate(self) -> Iterator[bytes]:
        return self._from(0)

    def _from(self, offset: int) -> Iterator[bytes]:
        """Yield rows from an index on; one row group of a file is in memory at a time."""
        first = max(bisect_right(self._starts, offset) - 1, 0)
        for path, start in zip(self._files[first:], self._starts[first:], strict=True):
            with _opened(path) as file:
                at = start
                for nth in range(file.num_row_groups):
                    before, at = at, at + file.metadata.row_group(nth).num_rows
                    if at > offset:
                        column = _read(path, partial(file.read_row_group, nth)).column("row")
                        yield from column.slice(max(offset - before, 0)).to_pylist()

    def rows_hash(self) -> str:
        """Return the hash of the array of all rows (QRY-032)."""
        hasher = RowsHasher()
        hasher.extend(self.iterate())
        return hasher.rows_hash

    def require(self, digest: ResultDigest) -> None:
        """Reject rows that do not match a digest."""
        if self.count != digest.row_count or self.rows_hash() != digest.rows_hash:
            raise QueryError(
                "execution_failed",
                f"the rows of {digest.result_id} are not those of its digest: they were removed or changed;"
                " submit the query again, with another query_id",
            )


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from None


def _read(path: Path, read: Callable[[], pa.Table]) -> pa.Table:
    try:
        return read()
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> QueryError:
    text = str(error).splitlines()[0].replace(f"{path.parent}/", "")
    return QueryError("execution_failed", f"{path.name} of the rows is damaged: {text}")
