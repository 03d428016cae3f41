"""Folding a log: each record is annotated once, in order; summaries of ranges then merge in any grouping.

``Annotator`` is the sequential part: it decides which records are events, which are copies, and what each
contributes given the state before it (its cells). ``Summary`` is the monoid: the merged contributions of a
contiguous range of records. Merging asserts that ranges are adjacent, since it is associative but not
commutative.

The bytes of a state are deterministic CBOR with two additions: byte strings as map keys, and negative numbers
(SNP-003, SNP-004). Numbers beyond 64 bits have no encoding (C-112).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from veen.core.crypto.hash import U64_MAX, sha256, tagged_hash
from veen.core.encoding import cbor
from veen.core.types import JsonValue, StreamId
from veen.overlays import monoid
from veen.overlays.errors import FoldOrderError, InvalidBodyError, OverlayError
from veen.overlays.event import Decoder, Event, Outcome, Record, Report
from veen.overlays.monoid import MIN, Monoid
from veen.overlays.overlay import Cell, Key, Overlay, Tables, sorted_items


def encode_state(value: Any) -> bytes:
    """Return the canonical encoding of a state; maps are sorted by their encoded keys."""
    match value:
        case bool() | None | str() | bytes():
            return cbor.encode(value)
        case int():
            if not -U64_MAX - 1 <= value <= U64_MAX:
                raise InvalidBodyError("STATE.OVERFLOW", "a number exceeds 64 bits and cannot be encoded")
            return cbor.write_int(value)
        case Mapping():
            pairs = sorted((encode_state(key), encode_state(item)) for key, item in value.items())
            return cbor.head(cbor.MAJOR_MAP, len(pairs)) + b"".join(key + item for key, item in pairs)
        case list() | tuple():
            return cbor.head(cbor.MAJOR_ARRAY, len(value)) + b"".join(map(encode_state, value))
    kind = type(value).__name__
    raise OverlayError(f"a state cannot hold {kind}; it may hold null, bool, int, str, bytes, lists and maps")


def state_hash(state_class: str, value: Any) -> bytes:
    """Return the hash of a state of a class."""
    return tagged_hash(f"veen/state-{state_class}", encode_state(value))


# Indexes of the framework: the first position of each event, and the original of each copy.
FIRSTS, ORIGINS = "veen.first", "veen.origin"

# Epoch, first and last number of a contiguous run within a label.
Run = tuple[int, int, int]


class Head(Tables, Protocol):
    """The tables at the end of the folded range; the annotator reads them and adds to them."""

    def add(self, table: str, key: Key, summary: Any) -> None:
        """Merge a summary into that of a key."""


class MemoryTables:
    """Tables in memory."""

    def __init__(self, kinds: dict[str, Monoid]) -> None:
        self.kinds = kinds
        self.tables: dict[str, dict[Key, Any]] = {name: {} for name in kinds}
        self._merges: dict[str, Callable[[Any, Any], Any]] = {
            name: kind.merge for name, kind in kinds.items()
        }

    def get(self, table: str, key: Key) -> Any:
        """Return the summary of a key."""
        return self.tables[table].get(key)

    def items(self, table: str) -> Iterator[tuple[Key, Any]]:
        """Yield keys and summaries, sorted."""
        return sorted_items(self.tables[table])

    def add(self, table: str, key: Key, summary: Any) -> None:
        """Merge a summary into that of a key."""
        rows = self.tables[table]
        known = rows.get(key)
        rows[key] = summary if known is None else self._merges[table](known, summary)


def table_kinds(overlay: Overlay) -> dict[str, Monoid]:
    """Return the tables of an overlay's state."""
    return dict(overlay.tables)


def index_kinds(overlay: Overlay) -> dict[str, Monoid]:
    """Return the indexes that verdicts need, including those of the framework."""
    return {FIRSTS: MIN, ORIGINS: MIN, **overlay.indexes}


class Annotated(NamedTuple):
    """A record with its outcome, cells and reports."""

    epoch: int
    stream_seq: int
    outcome: Outcome
    cells: Sequence[Cell] = ()
    reports: Sequence[Report] = ()


class Annotator:
    """Annotates records in order; all state from earlier records is in ``head``."""

    def __init__(
        self, overlay: Overlay, head: Head, stream_id: StreamId, bridges: frozenset[bytes] = frozenset()
    ) -> None:
        """``bridges`` are keys whose messages with a parent are copies of that parent (OVR-014 b)."""
        self.overlay = overlay
        self._head = head
        self._stream_id = stream_id
        self._bridges = bridges
        self._decoder = Decoder(overlay.schemas)
        self._by_parent = frozenset(schema.schema_id for schema in overlay.copies_by_parent)
        # Without copies every record is an original: no lookup is needed.
        self._looks_for_copies = bool(overlay.copies_by_parent or bridges)
        self._indexes = overlay.indexes

    def annotate(self, record: Record) -> Annotated:
        """Return the effect of a record, and apply it to the head."""
        schema = self._decoder.schema_of(record)
        if schema is None:
            outcome = Outcome.UNREADABLE if record.schema is None else Outcome.UNKNOWN
            return Annotated(record.epoch, record.stream_seq, outcome)
        canonical_id = record.msg_id
        if self._looks_for_copies:
            canonical_id, rejected = self._canonical(record)
            if rejected is not None:
                return rejected
        try:
            body = self._decoder.decode(record, schema)
        except InvalidBodyError as error:
            return _reported(record, Outcome.REJECTED, canonical_id, error.code, str(error))
        return self.enter(Event(record, schema, body, canonical_id, self._stream_id))

    def enter(self, event: Event) -> Annotated:
        """Return the effect of a decoded event that is not a copy, and apply it to the head."""
        record = event.record
        cells, reports = self.overlay.lower(event, self._head)
        add = self._head.add
        for table, key, summary in cells:
            add(table, key, summary)
        if self._indexes:
            indexes = self._indexes
            cells = [cell for cell in cells if cell[0] not in indexes]
        listed: tuple[Report, ...] = ()
        if reports:
            where = (record.epoch, record.stream_seq, event.canonical_id)
            listed = tuple(Report(*where, code, text) for code, text in reports)
        return Annotated(record.epoch, record.stream_seq, Outcome.EVENT, cells, listed)

    def _canonical(self, record: Record) -> tuple[bytes, Annotated | None]:
        """Return the original of a record (or itself), and its annotation unless it is an event."""
        head, msg_id, parent = self._head, record.msg_id, record.parent_id
        is_copy = parent is not None and (
            record.schema in self._by_parent or record.client_id in self._bridges
        )
        canonical_id = msg_id
        if is_copy and parent is not None:
            origin = head.get(ORIGINS, parent)
            canonical_id = parent if origin is None else origin[1]
            # Also for a copy that does not count: a copy of a copy is a copy of the original (WAL-072).
            head.add(ORIGINS, msg_id, ((record.epoch, record.stream_seq, msg_id), canonical_id))
        content = sha256((record.schema or b"") + record.body)
        known = head.get(FIRSTS, canonical_id)
        if known is not None:
            if known[1] == content:
                return canonical_id, Annotated(record.epoch, record.stream_seq, Outcome.DUPLICATE)
            text = "the copy differs from its original"
            return canonical_id, _reported(record, Outcome.REJECTED, canonical_id, "COPY.DIFFERS", text)
        if is_copy and self._bridges and record.client_id not in self._bridges:
            text = "a copy of an event that is not in the log, from a key that is not a bridge"
            return canonical_id, _reported(record, Outcome.REJECTED, canonical_id, "COPY.NOT_A_BRIDGE", text)
        head.add(FIRSTS, canonical_id, ((record.epoch, record.stream_seq, msg_id), content))
        return canonical_id, None


def _reported(record: Record, outcome: Outcome, canonical_id: bytes, code: str, text: str) -> Annotated:
    report = Report(record.epoch, record.stream_seq, canonical_id, code, text)
    return Annotated(record.epoch, record.stream_seq, outcome, (), (report,))


@dataclass(slots=True)
class Summary:
    """The merged effect of a contiguous range of a stream."""

    runs: list[Run] = field(default_factory=list)
    counts: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    tables: dict[str, dict[Key, Any]] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)


class Fold:
    """The operations of one overlay on summaries: empty, step, merge and view."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        self.kinds = table_kinds(overlay)

    def empty(self) -> Summary:
        """Return the summary of no records."""
        return Summary(tables={name: {} for name in self.kinds})

    def step(self, summary: Summary, item: Annotated) -> Summary:
        """Append a record to a range; the summary is changed in place and returned."""
        _extend(summary.runs, (item.epoch, item.stream_seq, item.stream_seq))
        summary.counts[item.outcome] += 1
        for table, key, value in item.cells:
            table_rows = summary.tables[table]
            known = table_rows.get(key)
            table_rows[key] = value if known is None else self.kinds[table].merge(known, value)
        if item.reports:
            summary.reports.extend(item.reports)
        return summary

    def merge(self, left: Summary, right: Summary) -> Summary:
        """Return the summary of two adjacent ranges."""
        joined = self.empty()
        for part in (left, right):
            for run in part.runs:
                _extend(joined.runs, run)
            for outcome, count in part.counts.items():
                joined.counts[outcome] += count
            joined.reports += part.reports
        for name, kind in self.kinds.items():
            table = joined.tables[name] = dict(left.tables[name])
            for key, value in right.tables[name].items():
                known = table.get(key)
                table[key] = value if known is None else kind.merge(known, value)
        return joined

    def view(self, summary: Summary, now: int | None = None) -> JsonValue:
        """Return the state of a summary that covers a stream from its beginning."""
        return self.overlay.view(self.tables_of(summary), now)

    def tables_of(self, summary: Summary) -> MemoryTables:
        """Return the tables of a summary, for reading."""
        memory = MemoryTables(self.kinds)
        memory.tables = summary.tables
        return memory

    def state_hash(self, summary: Summary) -> bytes:
        """Return the hash of the state."""
        return hash_state(self.overlay, self.tables_of(summary))

    def encode(self, summary: Summary) -> bytes:
        """Return the canonical bytes of a summary: equal summaries have equal bytes."""
        return cbor.encode(
            [
                summary.runs,
                [summary.counts[outcome] for outcome in Outcome],
                [[name, self._rows(name, summary.tables[name])] for name in sorted(self.kinds)],
                [list(report) for report in summary.reports],
            ],
            max_items=None,
        )

    def _rows(self, name: str, table: dict[Key, Any]) -> list[Any]:
        return [[key, self.kinds[name].pack(value)] for key, value in sorted_items(table)]

    def decode(self, data: bytes) -> Summary:
        """Return the summary that ``encode`` made these bytes of."""
        runs, counts, tables, reports = monoid.frozen(cbor.decode(data, max_items=None))
        return Summary(
            list(runs),
            dict(zip(Outcome, counts, strict=True)),
            {
                name: {key: self.kinds[name].unpack(_thawed(value)) for key, value in rows}
                for name, rows in tables
            },
            [Report(*report) for report in reports],
        )


def _thawed(value: Any) -> Any:
    return list(map(_thawed, value)) if isinstance(value, tuple) else value


def _extend(runs: list[Run], run: Run) -> None:
    """Append a run: it continues the last epoch, or starts a later one at number 1."""
    if runs:
        epoch, first, last = runs[-1]
        if run[0] == epoch and run[1] == last + 1:
            runs[-1] = (epoch, first, run[2])
            return
        if run[0] <= epoch or run[1] != 1:
            raise FoldOrderError(f"{run} does not follow {runs[-1]}")
    runs.append(run)


def hash_state(overlay: Overlay, tables: Tables) -> bytes:
    """Return the hash of an overlay's state."""
    return state_hash(overlay.state_class, overlay.serialized(tables))


def annotate(
    overlay: Overlay, records: Iterable[Record], stream_id: StreamId, bridges: frozenset[bytes] = frozenset()
) -> Iterator[Annotated]:
    """Annotate all records of a stream, from its beginning."""
    return map(Annotator(overlay, memory_of(overlay), stream_id, bridges).annotate, records)


def memory_of(overlay: Overlay) -> MemoryTables:
    """Return empty tables and indexes for a fold from the beginning."""
    return MemoryTables({**table_kinds(overlay), **index_kinds(overlay)})


def fold(
    overlay: Overlay, records: Iterable[Record], stream_id: StreamId, bridges: frozenset[bytes] = frozenset()
) -> Summary:
    """Fold a stream from its beginning, in memory."""
    head = memory_of(overlay)
    annotator = Annotator(overlay, head, stream_id, bridges)
    summary = Summary(tables={name: head.tables[name] for name in overlay.tables})
    for record in records:
        item = annotator.annotate(record)
        _extend(summary.runs, (item.epoch, item.stream_seq, item.stream_seq))
        summary.counts[item.outcome] += 1
        summary.reports += item.reports
    return summary
