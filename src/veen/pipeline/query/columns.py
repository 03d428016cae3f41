"""Events in columns: those that a query needs, and the conversion to rows in canonical JSON.

All functions take and return Arrow batches, and run in tasks as well as without Spark.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any, Final

import pyarrow as pa

from veen.core.crypto.hash import sha256
from veen.core.encoding.canonical_json import quote
from veen.core.objects.receipt import Receipt
from veen.query.descriptor import COUNT, EARLIEST, LATEST, Aggregate, Descriptor, Mode
from veen.query.fields import Encoder, Event, path_of
from veen.query.timestamps import LAST_TIME, format_time

# All columns that a query may need: contents and origin of an event first, then its position here.
EVENTS: Final = pa.schema(
    [
        pa.field("stream", pa.string()),
        pa.field("epoch", pa.int64()),
        pa.field("seq", pa.int64()),
        pa.field("hub_ts", pa.int64()),
        pa.field("subject_id", pa.string()),
        pa.field("principal_id", pa.string()),
        pa.field("event_type", pa.string()),
        pa.field("event_time", pa.int64()),
        pa.field("origin", pa.string()),
        pa.field("payload", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("receipt_id", pa.binary()),
        pa.field("label", pa.binary()),
        pa.field("at", pa.int64()),
        pa.field("msg_id", pa.binary()),
        pa.field("client_id", pa.binary()),
        pa.field("taken_at", pa.int64()),
        pa.field("own_receipt_id", pa.binary()),
        pa.field("origin_receipt", pa.binary()),
        pa.field("origin_hub_id", pa.binary()),
    ]
)
# The order of rows (QRY-030); the last one only separates hubs that claim the same position.
ORDER: Final = ("stream", "epoch", "seq", "receipt_id")
# For evidence: an event's position, and what the tables state about the entry there.
PLACES: Final = pa.schema([EVENTS.field(name) for name in (*ORDER, *EVENTS.names[12:])])
# Ordered rows of an answer.
ROWS: Final = pa.schema([pa.field("row", pa.binary())])
# Rows before they are ordered.
KEYED: Final = pa.schema([pa.field("key", pa.binary()), pa.field("row", pa.binary())])
# The columns of a group beside its keys; numbers.
_MEASURES: Final = {COUNT: "count", EARLIEST: "earliest", LATEST: "latest"}

_COLUMN_OF: Final[Mapping[str, str]] = {"hub_commit_seq": "seq", "hub_commit_time": "hub_ts"}


def column_of(name: str) -> str:
    """Return the column with the value of a field."""
    path = path_of(name)
    return path[0] if path else _COLUMN_OF.get(name, name)


@dataclass(frozen=True)
class Needs:
    """The columns and computations that a query needs."""

    descriptor: Descriptor

    @property
    def aggregate(self) -> Aggregate | None:
        """The query's groups, if any."""
        return self.descriptor.aggregate

    @property
    def has_evidence(self) -> bool:
        """Whether events are verified."""
        return self.descriptor.evidence.mode is not Mode.NONE

    @cached_property
    def columns(self) -> list[str]:
        """The columns from which rows are built, in the order of ``EVENTS``."""
        if self.aggregate is not None:
            return self.columns_of(["event_time"])
        return self.columns_of(PLACES.names if self.has_evidence else ORDER)

    def columns_of(self, others: Iterable[str]) -> list[str]:
        """Return the columns of fields, and ``others``, in the order of ``EVENTS``."""
        fields = self.descriptor.projection if self.aggregate is None else self.aggregate.group_by
        needed = {*others, *(column_of(name) for name in fields)}
        return [name for name in EVENTS.names if name in needed]

    @property
    def keys(self) -> list[str]:
        """The columns of the fields of an aggregate's groups, in order."""
        return [] if self.aggregate is None else [f"key{nth}" for nth in range(len(self.aggregate.group_by))]


# --- copies from other zones --------------------------------------------------------------------------------


# Columns of copies that come from the receipt of the original.
_OF_RECEIPT: Final = ("hub_ts", "receipt_id")


def read_names(columns: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns with which each copy counts once, and the columns these are computed from."""
    result_names = list(dict.fromkeys([*columns, *ORDER, "label", "at"]))
    return result_names, list(
        dict.fromkeys([*(name for name in result_names if name not in _OF_RECEIPT), "origin_receipt"])
    )


@dataclass(frozen=True, slots=True)
class Copies:
    """Which copies count: of which streams, and up to which positions."""

    # The streams that a label's copies must be of; None: any.
    named: Mapping[bytes, frozenset[str] | None]
    # Labels read by the positions of the origin, with those positions.
    by_origin: frozenset[str]
    origins: Mapping[str, int]

    def events(self, batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield copies as their originals (QRY-028, QRY-036)."""
        for batch in batches:
            receipts = [Receipt.decode(data) for data in batch.column("origin_receipt").to_pylist()]
            places = zip(
                receipts,
                batch.column("label").to_pylist(),
                batch.column("stream").to_pylist(),
                strict=True,
            )
            counts = [self._takes(receipt, label, stream) for receipt, label, stream in places]
            origin_columns = {
                # Every time beyond the range of dates is shown as none.
                "hub_ts": pa.array([min(item.hub_ts, LAST_TIME + 1) for item in receipts], pa.int64()),
                "receipt_id": pa.array(
                    [sha256(data) for data in batch.column("origin_receipt").to_pylist()], pa.binary()
                ),
            }
            arrays = [
                origin_columns[name] if name in origin_columns else batch.column(name) for name in columns
            ]
            schema = pa.schema([EVENTS.field(name) for name in columns])
            yield pa.RecordBatch.from_arrays(arrays, schema=schema).filter(pa.array(counts, pa.bool_()))

    def _takes(self, receipt: Receipt, label: bytes, stream: str) -> bool:
        streams = self.named[label]
        if streams is not None and stream not in streams:
            return False
        if receipt.label in self.named:  # read here directly: otherwise two rows would have one position
            return False
        if label.hex() not in self.by_origin:
            return True
        return receipt.stream_seq <= self.origins.get(receipt.label.hex(), 0)


# --- rows ---------------------------------------------------------------------------------------------------

# Placeholders, which the encoder does not read, for columns that are not selected.
_ABSENT: Final = Event("", 0, 0, 0, "", "", "", 0, "", "null", None, b"")


def events_of(batch: pa.RecordBatch) -> Iterator[Event]:
    """Yield the events of a batch; missing columns are placeholders."""
    names = set(batch.schema.names)
    columns: list[Iterable[Any]] = [
        batch.column(name).to_pylist() if name in names else repeat(blank)
        for name, blank in zip(EVENTS.names[:12], _ABSENT, strict=True)
    ]
    return map(Event._make, zip(*columns, strict=False))


def rows_of(batch: pa.RecordBatch, fields: Sequence[str]) -> pa.RecordBatch:
    """Return the rows of events, in canonical JSON."""
    encode = Encoder(fields).encode
    return pa.RecordBatch.from_arrays(
        [pa.array([encode(event) for event in events_of(batch)], pa.binary())], schema=ROWS
    )


# --- groups -------------------------------------------------------------------------------------------------


def _time_text(value: int | None) -> str:
    return "null" if value is None or value > LAST_TIME else f'"{format_time(value)}"'


_TEXTS: Final[Mapping[str, Callable[[Any], str]]] = {
    "event_time": _time_text,
    "hub_commit_time": _time_text,
    "hub_commit_seq": str,
}


def _key_text(name: str) -> Callable[[Any], str]:
    """Return the function that writes a group column's value as JSON; a path's value is JSON already."""
    return str if path_of(name) else _TEXTS.get(name, quote)


def with_paths(batches: Iterable[pa.RecordBatch], paths: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield batches with columns of the values under paths, as JSON; the documents are dropped."""
    encoders = [(name, Encoder([path]), len(quote(path).encode()) + 2) for name, path in paths.items()]
    for batch in batches:
        events = list(events_of(batch))
        names = [name for name in batch.schema.names if name not in ("payload", "metadata")]
        columns = [
            # Of a row {"a.b":VALUE} the value.
            pa.array([encoder.encode(event)[start:-1].decode() for event in events], pa.string())
            for _, encoder, start in encoders
        ]
        yield pa.RecordBatch.from_arrays(
            [*(batch.column(name) for name in names), *columns],
            names=[*names, *(name for name, _, _ in encoders)],
        )


def keys_of(batch: pa.RecordBatch, group_by: Sequence[str]) -> list[list[str]]:
    """Return the values that each row is grouped by, as JSON."""
    columns = [
        list(map(_key_text(name), batch.column(f"key{nth}").to_pylist())) for nth, name in enumerate(group_by)
    ]
    return (
        [list(values) for values in zip(*columns, strict=True)]
        if columns
        else [[] for _ in range(len(batch))]
    )


def order_key(values: Iterable[str]) -> bytes:
    """Return the sort key of a group's row: its values as one array (QRY-030)."""
    return f"[{','.join(values)}]".encode()


def groups_of(batches: Iterable[pa.RecordBatch], aggregate: Aggregate) -> Iterator[pa.RecordBatch]:
    """Yield groups as rows in canonical JSON, each with its sort key (QRY-030)."""
    measures = [_MEASURES[name] for name in aggregate.metrics]
    names = [f"{quote(name)}:" for name in aggregate.fields]
    order = sorted(range(len(names)), key=lambda nth: aggregate.fields[nth])
    for batch in batches:
        groups = keys_of(batch, aggregate.group_by)
        keys, rows = [order_key(values) for values in groups], []
        counted = [batch.column(name).to_pylist() for name in measures]
        for nth, texts in enumerate(groups):
            for name, values in zip(aggregate.metrics, counted, strict=True):
                texts.append(str(values[nth]) if name == COUNT else _time_text(values[nth]))
            rows.append(f"{{{','.join(names[place] + texts[place] for place in order)}}}".encode())
        yield pa.RecordBatch.from_arrays(
            [pa.array(keys, pa.binary()), pa.array(rows, pa.binary())], schema=KEYED
        )
