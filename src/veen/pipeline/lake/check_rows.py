"""Tables compared, row by row, with what they are made of."""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from veen.pipeline.lake.errors import DamagedLakeError
from veen.pipeline.opening import SEALED

#: Columns of records that come from message and receipt, and what they are called in the bronze table.
PLACED: Final = {
    "stream_id": "stream_id",
    "epoch": "epoch",
    "label": "label",
    "stream_seq": "stream_seq",
    "msg_id": "leaf_hash",
    "client_id": "client_id",
    "client_seq": "client_seq",
    "hub_ts": "hub_ts",
    "receipt_id": "receipt_id",
    "auth_ref": "auth_ref",
}


class Rows:
    """The rows of a file, in portions of any size."""

    def __init__(self, path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self._path = path
        self._schema = schema
        self._batches = batches
        self._left = schema.empty_table()

    def take(self, count: int) -> pa.Table:
        """Return the next rows; raise if there are not so many."""
        found = [self._left]
        have = len(self._left)
        while have < count:
            batch = next(self._batches, None)
            if batch is None:
                raise self.wrong(
                    f"ends too early: {count - have} rows that follow from the entries are missing"
                )
            found.append(pa.Table.from_batches([batch]))
            have += len(batch)
        joined = pa.concat_tables(found)
        self._left = joined.slice(count)
        return joined.slice(0, count)

    def require(self, expected: pa.RecordBatch) -> None:
        """Require that the next rows are these."""
        made = pa.Table.from_batches([expected])
        taken = self.take(len(expected))
        if not taken.equals(made):
            raise self._differing(taken, made)

    def require_end(self) -> None:
        """Require that there are no rows left."""
        if len(self._left) or next(self._batches, None) is not None:
            raise self.wrong("has rows that do not follow from the entries")

    def wrong(self, text: str) -> DamagedLakeError:
        """Return the error."""
        return DamagedLakeError(f"{self._path} {text}")

    def _differing(self, taken: pa.Table, made: pa.Table) -> DamagedLakeError:
        for name in made.column_names:
            if not taken[name].equals(made[name]):
                return self.differs(name, taken[name], made[name], made["stream_seq"])
        return self.wrong("does not follow from the entries")

    def differs(
        self, name: str, have: pa.ChunkedArray, want: pa.ChunkedArray, seqs: pa.ChunkedArray
    ) -> DamagedLakeError:
        """Return the error for a column, with the first row that is wrong."""
        pairs = zip(have.to_pylist(), want.to_pylist(), strict=True)
        nth = next((nth for nth, (one, other) in enumerate(pairs) if one != other), 0)
        return self.wrong(f"{name} does not follow from entry {seqs[nth].as_py()}")


def require_placed(rows: Rows, records: pa.Table, entries: pa.RecordBatch) -> None:
    """Require that records say where entries stand, and who has sent them, as the entries do."""
    for name, source in PLACED.items():
        want = pa.chunked_array([entries.column(source)])
        if not records[name].equals(want):
            raise rows.differs(name, records[name], want, pa.chunked_array([entries.column("stream_seq")]))


def require_opened(rows: Rows, records: pa.Table, opened: pa.RecordBatch, names: Sequence[str]) -> int:
    """Require that records say what opening their entries gives; returns how many could not be opened.

    What is sealed for somebody else than the reader who checks can not be compared.
    """
    made = pa.Table.from_batches([opened])
    closed = pc.fill_null(pc.equal(made["reason"], SEALED), fill_value=False)
    kept = pc.invert(closed)
    have, want = records.filter(kept), made.filter(kept)
    for name in names:
        if not have[name].equals(want[name]):
            if pc.any(pc.equal(have["reason"], SEALED)).as_py():
                nth = have["reason"].to_pylist().index(SEALED)
                seq = want["stream_seq"][nth].as_py()
                text = (
                    "is sealed in the lake and opens with this keyring: taken in without the key, or changed"
                )
                raise rows.wrong(f"entry {seq} {text}")
            raise rows.differs(name, have[name], want[name], want["stream_seq"])
    return len(made) - len(want)
