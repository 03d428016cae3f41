"""The columns of the source: types, and how each is built from entries. Only selected ones are built."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from veen.core.types import StreamId
from veen.pipeline.log.entry_columns import Entries, binary

# The last second for which Spark's timestamps are defined: the end of the year 9999.
_LAST_SECOND: Final = 253_402_300_799


@dataclass(frozen=True, slots=True)
class EntryRange:
    """Entries ``low`` to ``high`` (exclusive) of a part, and what is known about them."""

    entries: Entries
    low: int
    high: int
    stream_id: StreamId | None = None
    epoch: int | None = None
    checked: str = "none"
    # By stream_seq.
    faults: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.high - self.low


class Column(NamedTuple):
    """A column, with its description for readers of the schema."""

    kind: pa.DataType
    make: Callable[[EntryRange], pa.Array]
    meaning: str
    nullable: bool = False


def _number(name: str, meaning: str) -> Column:
    return Column(
        pa.int64(), lambda rows: pa.array(getattr(rows.entries, name)[rows.low : rows.high]), meaning
    )


def _bytes(name: str, meaning: str) -> Column:
    return Column(
        pa.binary(), lambda rows: binary(getattr(rows.entries, name)[rows.low : rows.high]), meaning
    )


def _constant(
    kind: pa.DataType, value: Callable[[EntryRange], object], meaning: str, *, nullable: bool
) -> Column:
    def make(rows: EntryRange) -> pa.Array:
        return pa.repeat(pa.scalar(value(rows), kind), len(rows))

    return Column(kind, make, meaning, nullable)


def _offset(rows: EntryRange) -> pa.Array:
    first = rows.entries.frames.offset
    if first is None:
        return pa.nulls(len(rows), pa.int64())
    return pa.array(rows.entries.starts[rows.low : rows.high] + first)


def _auth_ref(rows: EntryRange) -> pa.Array:
    part = slice(rows.low, rows.high)
    return binary(rows.entries.auth_ref[part], rows.entries.has_auth_ref[part])


def _ciphertext(rows: EntryRange) -> pa.Array:
    entries = rows.entries
    starts, ends = entries.ct_start[rows.low : rows.high], entries.ct_end[rows.low : rows.high]
    data = entries.frames.data
    joined = b"".join([data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)])
    offsets = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum(ends - starts, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(joined)])


def _hub_time(rows: EntryRange) -> pa.Array:
    seconds = rows.entries.hub_ts[rows.low : rows.high]
    beyond = seconds > _LAST_SECOND
    micros = np.where(beyond, 0, seconds) * 1_000_000
    return pa.array(micros, mask=beyond).cast(pa.timestamp("us", tz="UTC"))


def _fault(rows: EntryRange) -> pa.Array:
    if not rows.faults:
        return pa.nulls(len(rows), pa.string())
    seqs = rows.entries.stream_seq[rows.low : rows.high].tolist()
    return pa.array([rows.faults.get(seq) for seq in seqs], pa.string())


# In the order of ``select *``.
COLUMNS: Final[Mapping[str, Column]] = {
    "label": _constant(pa.binary(), lambda rows: rows.entries.label, "the log that it is in", nullable=False),
    "stream_seq": _number("stream_seq", "its number in that log, from 1"),
    "stream_id": _constant(
        pa.binary(), lambda rows: rows.stream_id, "the stream, if the log names it", nullable=True
    ),
    "epoch": _constant(
        pa.int64(), lambda rows: rows.epoch, "the epoch of the stream, if the log names it", nullable=True
    ),
    "hub_ts": _number("hub_ts", "RECEIPT: when the hub accepted it, in Unix seconds"),
    "hub_time": Column(
        pa.timestamp("us", tz="UTC"),
        _hub_time,
        "hub_ts as a timestamp; null after the year 9999",
        nullable=True,
    ),
    "profile_id": _bytes("profile_id", "MSG: the profile that it was written with"),
    "client_id": _bytes("client_id", "MSG: the key of the client"),
    "client_seq": _number("client_seq", "MSG: the client's number for it"),
    "prev_ack": _number("prev_ack", "MSG: the last entry that the client had seen"),
    "auth_ref": Column(pa.binary(), _auth_ref, "MSG: the capability that it was sent under", nullable=True),
    "ct_hash": _bytes("ct_hash", "MSG: the hash of the ciphertext"),
    "ciphertext": Column(pa.binary(), _ciphertext, "MSG: header and body, sealed"),
    "sig": _bytes("sig", "MSG: the client's signature"),
    "leaf_hash": _bytes("leaf_hash", "RECEIPT: the leaf, which is the id of the message"),
    "mmr_root": _bytes("mmr_root", "RECEIPT: the root over all entries up to this one"),
    "hub_sig": _bytes("hub_sig", "RECEIPT: the hub's signature"),
    "entry_hash": _bytes("entry_hash", "the hash over message and receipt, as stored"),
    "file": _constant(
        pa.string(), lambda rows: rows.entries.file, "the file or address it was read from", nullable=False
    ),
    "offset": Column(pa.int64(), _offset, "its byte offset in the file; null if it has none", nullable=True),
    "checked": _constant(
        pa.string(),
        lambda rows: rows.checked,
        "how much was checked: none, frames, roots or full",
        nullable=False,
    ),
    "fault": Column(pa.string(), _fault, "what is wrong with it; null if nothing is", nullable=True),
}


def batch(rows: EntryRange, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as a batch with the columns of a schema."""
    return pa.RecordBatch.from_arrays([COLUMNS[name].make(rows) for name in schema.names], schema=schema)
