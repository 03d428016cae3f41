"""Reading a summary tree: tables, counts and reports at any position, or of any range."""

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, overload

from veen.overlays.engine import table_kinds
from veen.overlays.event import Outcome, Report
from veen.overlays.monoid import Monoid
from veen.overlays.overlay import Key, Overlay, sorted_items
from veen.overlays.summary_tree import rows as layout
from veen.overlays.summary_tree.rows import CHUNK, Chunk, KeyHead, LabelRow, Leaf, Rows, Tally, number, there
from veen.overlays.summary_tree.writer import Meta, table_numbers

# Epoch and number of a record; number 0 is before the first.
Place = tuple[int, int]
# More chunks than any label has.
_NO_END = 1 << 62


class TreeReader:
    """The tree that is stored in some rows."""

    def __init__(self, rows: Rows, overlay: Overlay) -> None:
        meta = Meta.load(rows)
        self._rows = rows
        self._overlay = overlay
        # Position of the last record in the tree.
        self.end: Place = (0, 0) if meta is None else (meta.epoch, meta.seq)

    def clamp(self, place: Place | None) -> Place:
        """Return the position of the last record that is not after a position."""
        if place is None or place >= self.end:
            return self.end
        epoch, seq = place
        label = self._label(epoch)
        if label is not None:
            return epoch, min(seq, label.upto_seq)
        before = [item for item in self.labels() if item.epoch < epoch]
        return (before[-1].epoch, before[-1].upto_seq) if before else (0, 0)

    def tables(self, upto: Place, since: Place | None = None) -> "TreeTables":
        """Return the tables at a position; with ``since``, those of a range."""
        return TreeTables(self._rows, self._overlay, upto, since, self.end)

    def _label(self, epoch: int) -> LabelRow | None:
        key = layout.LABEL + number(epoch)
        data = self._rows.get(key)
        return None if data is None else LabelRow.decode(key, data)

    def labels(self, upto: Place | None = None) -> list[LabelRow]:
        """Return the extent of each label, up to a position."""
        rows = [LabelRow.decode(key, data) for key, data in layout.scan(self._rows, layout.LABEL)]
        if upto is None or not upto[1]:
            return [item for item in rows if upto is None or item.epoch < upto[0]]
        last = next(item for item in rows if item.epoch == upto[0])
        chunk, place = divmod(upto[1] - 1, CHUNK)
        root = self._chunk(upto[0], chunk).root(place)
        return [item for item in rows if item.epoch < upto[0]] + [
            LabelRow(upto[0], last.label, upto[1], root)
        ]

    def _chunk(self, epoch: int, chunk: int) -> Chunk:
        return Chunk.decode(there(self._rows.get(layout.chunk_key(epoch, chunk))))

    def tally(self, upto: Place, since: Place | None = None) -> dict[Outcome, int]:
        """Return the number of records by outcome up to a position, or of a range."""
        counts = self._tally(upto).counts
        before = self._before(upto, since).counts
        return {outcome: counts[outcome] - before[outcome] for outcome in Outcome}

    def _before(self, upto: Place, since: Place | None) -> Tally:
        """Return the tally before a range; the whole tally if the range is empty."""
        if since is None:
            return Tally()
        return self._tally(upto if since > upto else self.clamp((since[0], since[1] - 1)))

    def _tally(self, place: Place) -> Tally:
        epoch, seq = place
        if self.end == (0, 0):
            return Tally()
        if not seq:
            return self._chunk(epoch, 0).before if self._label(epoch) is not None else Tally()
        nth, at = divmod(seq - 1, CHUNK)
        chunk = self._chunk(epoch, nth)
        counts = {
            outcome: chunk.before.counts[outcome] + count for outcome, count in chunk.counts(0, at).items()
        }
        reports = chunk.before.reports
        for _, data in layout.scan(self._rows, layout.REPORT, layout.REPORT + number(reports)):
            if layout.decode_report(data)[:2] > place:
                break
            reports += 1
        return Tally(counts, reports)

    def reports(self, upto: Place, since: Place | None = None) -> "StoredReports":
        """Return the reports up to a position, or of a range."""
        return StoredReports(self._rows, self._before(upto, since).reports, self._tally(upto).reports)


class StoredReports(Sequence[Report]):
    """Reports that are read lazily."""

    def __init__(self, rows: Rows, first: int, end: int) -> None:
        self._rows = rows
        self._range = range(first, end)

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, index: int) -> Report: ...
    @overload
    def __getitem__(self, index: slice) -> list[Report]: ...
    def __getitem__(self, index: int | slice) -> Report | list[Report]:
        if isinstance(index, slice):
            return [self._load(nth) for nth in self._range[index]]
        return self._load(self._range[index])

    def _load(self, nth: int) -> Report:
        return layout.decode_report(there(self._rows.get(layout.REPORT + number(nth))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(self._range)


class TreeTables:
    """Tables at a position; each key is assembled from few rows."""

    def __init__(
        self, rows: Rows, overlay: Overlay, upto: Place, since: Place | None = None, end: Place | None = None
    ) -> None:
        self._rows = rows
        self._kinds = table_kinds(overlay)
        self._numbers = table_numbers(overlay)
        self._upto = upto
        self._since = since
        # Whether the requested position is that of the head.
        self._at_end = since is None and upto == end

    def get(self, table: str, key: Key) -> Any:
        """Return the summary of a key."""
        kind = self._kinds[table]
        name = layout.name_of(self._rows, self._numbers[table], key)
        return self._head(name, kind) if self._at_end else self._at(name, kind)

    def items(self, table: str) -> Iterator[tuple[Key, Any]]:
        """Yield keys and summaries, sorted."""
        kind = self._kinds[table]
        prefix = layout.HEAD + self._numbers[table].to_bytes(2, "big")
        summaries: dict[Key, Any] = {}
        for row, data in layout.scan(self._rows, prefix):
            head = KeyHead.decode(data, kind)
            summary = head.summary if self._at_end else self._at(row[1:], kind)
            if summary is not None:
                summaries[head.key] = summary
        return sorted_items(summaries)

    def _head(self, name: bytes, kind: Monoid, before_epoch: int = _NO_END) -> Any:
        """Return the summary of a key at the end, if its last change is before an epoch."""
        data = self._rows.get(layout.HEAD + name)
        head = None if data is None else KeyHead.decode(data, kind)
        return None if head is None or head.epoch >= before_epoch else head.summary

    def _at(self, name: bytes, kind: Monoid) -> Any:
        """Return the summary of a key at the position, or over the range."""
        if self._since is not None:
            return _joined(kind, self._parts(name, kind, self._since))
        leaf = self._last_leaf(name, kind)
        if leaf is None or leaf[0].knows_before:
            return None if leaf is None else _joined(kind, [*leaf[0].before(), *leaf[0].part(0, leaf[1])])
        epoch, _ = self._upto
        parts = list(self._parts(name, kind, (epoch, 1)))
        head = self._head(name, kind, epoch) if not parts and epoch else None
        if head is not None:
            return head
        return _joined(kind, [*self._before(name, kind, epoch), *parts])

    def _last_leaf(self, name: bytes, kind: Monoid) -> tuple[Leaf, int] | None:
        """Return the last leaf of a key up to the position, and the last index in its chunk that counts."""
        epoch, seq = self._upto
        chunk, place = divmod(max(seq, 1) - 1, CHUNK)
        key = layout.node_key(name, epoch, chunk, 0 if seq else layout.TOP)
        prefix = layout.NODE + name
        row_key = self._rows.seek_back(key)
        while row_key is not None and row_key.startswith(prefix):
            in_epoch, start, level = layout.node_place(row_key)
            if level == 0:
                return Leaf(there(self._rows.get(row_key)), kind), place if row_key == key else CHUNK - 1
            row_key = self._rows.seek_back(layout.node_key(name, in_epoch, start, level + 1))
        return None

    def _before(self, name: bytes, kind: Monoid, epoch: int) -> list[Any]:
        """Return the summary of a key at the end of the epochs before one, if a later one is stored."""
        row_key = self._rows.seek(layout.past_key(name, epoch - 1)) if epoch else None
        if row_key is None or not row_key.startswith(layout.PAST + name):
            return []
        return [kind.unpack(layout.decoded(there(self._rows.get(row_key))))]

    def _parts(self, name: bytes, kind: Monoid, since: Place) -> Iterator[Any]:
        """Yield the summaries from a position on: the rest of a chunk, nodes, the beginning of a chunk."""
        if since > self._upto:
            return
        (epoch, first), (last_epoch, last) = since, self._upto
        chunk, place = divmod(first - 1, CHUNK)
        end, rest = divmod(last, CHUNK)
        if place:
            here = (epoch, chunk) == (last_epoch, end)
            yield from self._part(name, kind, (epoch, chunk), (place, rest - 1 if here else CHUNK - 1))
            if here:
                return
            chunk += 1
        yield from self._nodes(name, kind, (epoch, chunk), (last_epoch, end))
        if rest:
            yield from self._part(name, kind, (last_epoch, end), (0, rest - 1))

    def _part(self, name: bytes, kind: Monoid, chunk: Place, places: tuple[int, int]) -> list[Any]:
        data = self._rows.get(layout.node_key(name, *chunk, 0))
        return [] if data is None else Leaf(data, kind).part(*places)

    def _nodes(self, name: bytes, kind: Monoid, at: Place, end: Place) -> Iterator[Any]:
        """Yield the summaries of the largest nodes between two chunks: at most two of each level."""
        epoch, chunk = at
        prefix = layout.NODE + name
        while (epoch, chunk) < end:
            limit = end[1] if epoch == end[0] else _NO_END
            row_key = self._rows.seek(layout.node_key(name, epoch, chunk, _largest(chunk, limit)))
            if row_key is None or not row_key.startswith(prefix):
                return
            epoch, chunk, level = layout.node_place(row_key)
            if (epoch, chunk) >= end:
                return
            if chunk + (1 << level) <= (end[1] if epoch == end[0] else _NO_END):
                yield layout.node_summary(there(self._rows.get(row_key)), level, kind)
                chunk += 1 << level
            # else: it extends too far; the next seek asks for a smaller one with the same start


def _largest(chunk: int, limit: int) -> int:
    """Return the level of the largest node that starts at a chunk and ends before another."""
    aligned = (chunk & -chunk).bit_length() - 1 if chunk else _NO_END
    return min(aligned, (limit - chunk).bit_length() - 1)


def _joined(kind: Monoid, parts: Any) -> Any:
    summaries = list(parts)
    return reduce(kind.merge, summaries) if summaries else None
