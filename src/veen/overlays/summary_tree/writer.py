"""Adding records to a summary tree.

For each key the tree has a node for every chunk in which the key changed, and a node where two others join:
the nodes over its chunks are a compressed binary trie. Nodes are joined when the key changes in a later
chunk, so a record costs at most log n rows for each of its keys, and the work per record does not depend on
the length of the log (OVR-007). The content of a row depends on the log alone, not on the batches in which it
was added (OVR-005).
"""

from collections.abc import Iterator
from typing import Any, Final

from veen.core.encoding import cbor
from veen.core.types import StreamId
from veen.overlays import monoid
from veen.overlays.engine import Annotated, Annotator, index_kinds, table_kinds
from veen.overlays.errors import FoldOrderError
from veen.overlays.event import Record
from veen.overlays.monoid import Monoid
from veen.overlays.overlay import Key, Overlay, sorted_items
from veen.overlays.summary_tree import rows as layout
from veen.overlays.summary_tree.rows import CHUNK, Chunk, LabelRow, Leaf, Rows, Tally, number, there

# Keys that stay cached after a flush; if there are more, the cache is cleared, and they are read on demand.
_MAX_CACHED: Final = 200_000

# A summary up to this many bytes is repeated in each chunk: reading the state at a position takes one row.
_MAX_REPEATED_BYTES: Final = 512

_CODES: Final = {outcome: nth for nth, outcome in enumerate(layout.OUTCOMES)}


def table_numbers(overlay: Overlay) -> dict[str, int]:
    """Return the number of each table in the names of rows."""
    return {table: nth for nth, table in enumerate(sorted({**table_kinds(overlay), **index_kinds(overlay)}))}


class Meta:
    """The end of a tree."""

    def __init__(self, epoch: int = 0, seq: int = 0, tally: Tally | None = None) -> None:
        self.epoch = epoch
        self.seq = seq
        self.tally = tally or Tally()

    def encode(self) -> bytes:
        """Return the value of the row."""
        return cbor.encode([layout.FORMAT, self.epoch, self.seq, self.tally.pack()])

    @classmethod
    def load(cls, rows: Rows) -> "Meta | None":
        """Return the stored value; None if there is no tree, or one of another format."""
        data = rows.get(layout.META)
        if data is None:
            return None
        version, *rest = layout.decoded(data)
        if version != layout.FORMAT:
            return None
        epoch, seq, tally = rest
        return cls(epoch, seq, Tally.unpack(tally))


class _Entry:
    """The cached state of a key."""

    __slots__ = (
        "before",
        "cells",
        "changed",
        "epoch",
        "joined",
        "key",
        "kind",
        "large",
        "name",
        "spine",
        "summary",
    )

    def __init__(self, key: Key, kind: Monoid, name: bytes) -> None:
        self.key = key
        self.kind = kind
        self.name = name
        self.summary: Any = None
        self.epoch = 0
        # Nodes of the epoch that are not joined yet, from left to right; the last is the current chunk.
        self.spine: list[tuple[int, int]] = []
        # Summaries of these nodes; None where not loaded.
        self.joined: list[Any] = []
        # Cells of the last chunk; None if not loaded.
        self.cells: list[tuple[int, Any]] | None = None
        # The encoded summary of all before the last chunk; None if it is too large.
        self.before: bytes | None = b""
        self.large = False
        self.changed = False


class TreeWriter:
    """A tree that grows; it is the head for the verdicts (``engine.Head``)."""

    def __init__(
        self, rows: Rows, overlay: Overlay, stream_id: StreamId, bridges: frozenset[bytes] = frozenset()
    ) -> None:
        self._rows = rows
        self._kinds: dict[str, Monoid] = {**table_kinds(overlay), **index_kinds(overlay)}
        self._indexes = frozenset(index_kinds(overlay))
        self._numbers = table_numbers(overlay)
        self._annotator = Annotator(overlay, self, stream_id, bridges)
        self._held: dict[tuple[str, Key], _Entry] = {}
        self._changed: list[_Entry] = []
        self._meta = Meta.load(rows) or Meta()
        self._chunk: Chunk | None = None
        self._chunk_key = b""
        self._number = 0
        self._place = 0
        self._label: LabelRow | None = None
        if self._meta.seq % CHUNK:
            self._number = self._meta.seq // CHUNK
            self._chunk_key = layout.chunk_key(self._meta.epoch, self._number)
            self._chunk = Chunk.decode(there(rows.get(self._chunk_key)))

    @property
    def position(self) -> tuple[int, int]:
        """The epoch and number of the last record."""
        return self._meta.epoch, self._meta.seq

    # --- records --------------------------------------------------------------------------------------------

    def append(self, record: Record, label: bytes = b"", root: bytes = bytes(32)) -> Annotated:
        """Add the next record of a label, with the root after it."""
        meta, seq = self._meta, record.stream_seq
        if (record.epoch, seq) != (meta.epoch, meta.seq + 1):
            if seq != 1 or (record.epoch <= meta.epoch and meta.seq):
                raise FoldOrderError(f"{(record.epoch, seq)} does not follow {(meta.epoch, meta.seq)}")
            self._end_label()
        number_of, self._place = divmod(seq - 1, CHUNK)
        chunk = self._chunk
        if self._place == 0 or chunk is None:
            self._end_chunk()
            self._number = number_of
            self._chunk_key = layout.chunk_key(record.epoch, number_of)
            chunk = self._chunk = Chunk(Tally(meta.tally.counts, meta.tally.reports))
        meta.epoch, meta.seq = record.epoch, seq
        item = self._annotator.annotate(record)
        chunk.outcomes.append(_CODES[item.outcome])
        chunk.roots += root
        meta.tally.counts[item.outcome] += 1
        for report in item.reports:
            self._rows.put(layout.REPORT + number(meta.tally.reports), layout.encode_report(report))
            meta.tally.reports += 1
        self._label = LabelRow(record.epoch, label, seq, root)
        return item

    def _end_chunk(self) -> None:
        if self._chunk is not None:
            self._rows.put(self._chunk_key, self._chunk.encode())

    def _end_label(self) -> None:
        if self._label is not None:
            self._rows.put(layout.LABEL + number(self._label.epoch), self._label.encode())

    def flush(self) -> None:
        """Write all pending rows: afterwards they cover the log up to here."""
        self._flush_keys()
        self._end_chunk()
        self._end_label()
        self._rows.put(layout.META, self._meta.encode())
        if len(self._held) > _MAX_CACHED:
            self._held.clear()

    def _flush_keys(self) -> None:
        for entry in self._changed:
            self._put_leaf(entry)
            head = layout.KeyHead(entry.key, entry.summary, entry.epoch, entry.spine, entry.large)
            self._rows.put(layout.HEAD + entry.name, head.encode(entry.kind))
            entry.changed = False
        self._changed.clear()

    # --- the head -------------------------------------------------------------------------------------------

    def get(self, table: str, key: Key) -> Any:
        """Return the summary of a key."""
        return self._entry(table, key).summary

    def items(self, table: str) -> Iterator[tuple[Key, Any]]:
        """Yield keys and summaries, sorted."""
        self._flush_keys()
        kind = self._kinds[table]
        prefix = layout.HEAD + self._numbers[table].to_bytes(2, "big")
        heads = (layout.KeyHead.decode(data, kind) for _, data in layout.scan(self._rows, prefix))
        return sorted_items({head.key: head.summary for head in heads})

    def add(self, table: str, key: Key, summary: Any) -> None:
        """Merge a summary into that of a key."""
        entry = self._entry(table, key)
        if not entry.changed:
            entry.changed = True
            self._changed.append(entry)
        merge = entry.kind.merge
        if table not in self._indexes:
            if entry.epoch != self._meta.epoch:
                self._begin_epoch(entry)
            if not entry.spine or entry.spine[-1][0] != self._number:
                self._begin_leaf(entry)
            cells = self._cells(entry)
            if cells and cells[-1][0] == self._place:
                cells[-1] = (self._place, merge(cells[-1][1], summary))
            else:
                cells.append((self._place, summary))
            known = entry.joined[-1]
            entry.joined[-1] = summary if known is None else merge(known, summary)
        entry.summary = summary if entry.summary is None else merge(entry.summary, summary)

    def _entry(self, table: str, key: Key) -> _Entry:
        entry = self._held.get((table, key))
        if entry is None:
            kind = self._kinds[table]
            entry = _Entry(key, kind, layout.name_of(self._rows, self._numbers[table], key))
            data = self._rows.get(layout.HEAD + entry.name)
            if data is not None:
                head = layout.KeyHead.decode(data, kind)
                entry.summary, entry.epoch, entry.spine = head.summary, head.epoch, head.spine
                entry.joined, entry.large = [None] * len(head.spine), head.large
            self._held[table, key] = entry
        return entry

    def _begin_epoch(self, entry: _Entry) -> None:
        """Store the summary of a key at the end of the epoch of its last change."""
        if entry.summary is not None:
            self._put_leaf(entry)
            past = monoid.encode(entry.kind, entry.summary)
            self._rows.put(layout.past_key(entry.name, entry.epoch), past)
        entry.epoch, entry.spine, entry.joined, entry.cells = self._meta.epoch, [], [], None

    def _begin_leaf(self, entry: _Entry) -> None:
        """Begin the leaf of the current chunk; join the nodes that end before it: they are complete."""
        if entry.spine:
            self._put_leaf(entry)
            self._join(entry, (entry.spine[-1][0] ^ self._number).bit_length())
        entry.spine.append((self._number, 0))
        entry.joined.append(None)
        entry.cells = []
        entry.before = b""
        if entry.summary is not None and not entry.large:
            entry.before = monoid.encode(entry.kind, entry.summary)
            entry.large = len(entry.before) > _MAX_REPEATED_BYTES
        if entry.large:
            entry.before = None

    def _join(self, entry: _Entry, below: int) -> None:
        spine, joined = entry.spine, entry.joined
        while len(spine) > 1:
            level = (spine[-2][0] ^ spine[-1][0]).bit_length()
            if level > below:
                break
            right, left = self._pop(entry), self._pop(entry)
            start = left[0] >> level << level
            summary = entry.kind.merge(left[1], right[1])
            spine.append((start, level))
            joined.append(summary)
            node = layout.node_key(entry.name, entry.epoch, start, level)
            self._rows.put(node, monoid.encode(entry.kind, summary))

    def _pop(self, entry: _Entry) -> tuple[int, Any]:
        """Remove the last node of the spine; return its start and its summary."""
        start, level = entry.spine.pop()
        summary = entry.joined.pop()
        if summary is None:
            data = there(self._rows.get(layout.node_key(entry.name, entry.epoch, start, level)))
            summary = layout.node_summary(data, level, entry.kind)
        return start, summary

    def _cells(self, entry: _Entry) -> list[tuple[int, Any]]:
        if entry.cells is None:
            start, level = entry.spine[-1]
            data = there(self._rows.get(layout.node_key(entry.name, entry.epoch, start, level)))
            leaf = Leaf(data, entry.kind)
            entry.joined[-1], entry.cells, entry.before = leaf.summary(), leaf.cells(), leaf.before_bytes()
        return entry.cells

    def _put_leaf(self, entry: _Entry) -> None:
        if entry.cells and entry.spine:
            leaf = Leaf.encode(entry.kind, entry.joined[-1], entry.cells, entry.before)
            self._rows.put(layout.node_key(entry.name, entry.epoch, entry.spine[-1][0], 0), leaf)
