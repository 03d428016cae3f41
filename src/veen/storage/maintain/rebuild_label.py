"""Rebuilds one label from its files; every entry and its position are checked.

``survey`` lists the files of the chunk directories by label, from names alone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from veen.core.crypto.hash import HASH_BYTES
from veen.core.data_dir import paths
from veen.core.data_dir.chunk_artifacts import PeakSnapshot
from veen.core.data_dir.paths import Domain, FileKind, FileName
from veen.core.data_dir.store_records import NO_COMPRESSION, AuthRecord, ClientCursor, StoreRecord, Tombstone
from veen.core.errors import ProtocolError
from veen.core.merkle.mmr import Peaks, leaf_position, read_peaks
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.entry import Entry
from veen.core.types import Label, LeafHash
from veen.storage import chunk_lookup
from veen.storage.atomic_file import OutFile, read_file, replace_files
from veen.storage.chunk_lookup import node_reader
from veen.storage.directory import limits_by_time, reading_limits
from veen.storage.errors import DamagedStoreError
from veen.storage.fs import Filesystem
from veen.storage.index.index import Index
from veen.storage.index.label_state import Head, LabelState
from veen.storage.index.rows import COMPRESSED, PRUNED, CheckpointRow, ChunkRow
from veen.storage.journal.tail import Staged, Tail, new_entry_of, stage
from veen.storage.write.chunk_plan import Seal, grow
from veen.storage.write.flush import record_entries


@dataclass(slots=True)
class LabelChunks:
    """The files of one label."""

    domain: Domain
    label: Label
    # Chunk files by first entry; of a chunk in both forms, the uncompressed file.
    chunks: dict[int, FileName] = field(default_factory=dict)
    tombstones: dict[int, FileName] = field(default_factory=dict)
    checkpoints: list[int] = field(default_factory=list)
    has_nodes: bool = False

    def pruned(self) -> list[FileName]:
        """Return the pruned chunks, in order: those whose files were deleted."""
        first = min(self.chunks, default=None)
        return [name for start, name in sorted(self.tombstones.items()) if first is None or start < first]

    def path(self, name: FileName) -> str:
        """Return the path of a chunk file."""
        assert name.start_seq is not None
        if name.kind is FileKind.OPEN_CHUNK:
            return paths.open_chunk(self.domain, self.label, name.start_seq)
        assert name.end_seq is not None
        path = paths.chunk(self.domain, self.label, name.start_seq, name.end_seq)
        return path + paths.COMPRESSED if name.compressed else path


def survey(fs: Filesystem, domains: Iterable[Domain] = tuple(Domain)) -> list[LabelChunks]:
    """Return the files of every label, in order of domain and label."""
    by_label: dict[tuple[Domain, Label], LabelChunks] = {}
    for domain in domains:
        for text in fs.names(domain):
            name = paths.parse(text)
            if name is not None:
                item = by_label.setdefault((domain, name.label), LabelChunks(domain, name.label))
                _add(item, name)
    return [by_label[key] for key in sorted(by_label)]


def _add(chunks: LabelChunks, name: FileName) -> None:
    start, end = name.start_seq, name.end_seq
    if name.kind in (FileKind.CHUNK, FileKind.OPEN_CHUNK):
        assert start is not None
        known = chunks.chunks.get(start)
        if known is not None and (known.end_seq != end or known.compressed == name.compressed):
            raise DamagedStoreError(chunks.path(name), None, f"two chunks start with entry {start}")
        if known is None or known.compressed:
            chunks.chunks[start] = name
    elif name.kind is FileKind.TOMBSTONE:
        assert start is not None
        chunks.tombstones[start] = name
    elif name.kind is FileKind.CHECKPOINT:
        assert end is not None
        chunks.checkpoints.append(end)
    elif name.kind is FileKind.NODES:
        chunks.has_nodes = True


# Entries per transaction: bounds memory for a log of any size.
_PORTION_ENTRIES = 8_192


class Relabel:
    """Rebuilds what is derived from one label's chunks, up to where the journal begins."""

    def __init__(
        self, fs: Filesystem, index: Index, store: StoreRecord, chunks: LabelChunks, state: LabelState
    ) -> None:
        self._fs = fs
        self._index = index
        self._found = chunks
        self._limits_at = limits_by_time(store)
        self._limits = reading_limits(store)
        self._compress = store.registries[-1].compression != NO_COMPRESSION
        self.state = state
        self.first_ts: int | None = None
        self._nodes = OutFile(fs, paths.nodes(chunks.domain, chunks.label))
        self._tail = Tail(0)
        self._pending: list[Staged] = []
        self._seals: list[Seal] = []
        self._starts: list[int] = []

    @property
    def _head(self) -> Head:
        return self._pending[-1].head if self._pending else self.state.head

    # --- entries --------------------------------------------------------------------------------------------

    def read_chunks(self, journal_start: int | None) -> Iterator[Staged]:
        """Read the chunks up to where the journal begins, and yield the entries."""
        for name in self._found.pruned():
            self._add_pruned(name)
        whole = []
        for start, name in sorted(self._found.chunks.items()):
            if journal_start is not None and start >= journal_start:
                break
            path = self._found.path(name)
            if start != self._head.seq + 1:
                reason = f"chunk starts with entry {start} instead of {self._head.seq + 1}"
                raise DamagedStoreError(path, None, reason)
            yield from self._read_chunk(path, name, journal_start)
            if name.end_seq is not None and self._head.seq == name.end_seq:
                whole.append((path, start, name.end_seq))
        self._write_portion()
        self._check_boundaries(whole, journal_start)
        if self.state.head.seq:
            self._nodes.finish()
        else:
            self._nodes.discard()

    def _read_chunk(self, path: str, name: FileName, journal_start: int | None) -> Iterator[Staged]:
        data = chunk_lookup.unpacked(self._fs, path) if name.compressed else self._fs.read(path)
        at = 0
        while at < len(data) and (journal_start is None or self._head.seq + 1 < journal_start):
            try:
                entry, after = Entry.decode(data, at)
                staged = self._add(entry, data[at:after])
            except ProtocolError as error:
                raise DamagedStoreError(path, at, str(error)) from error
            at = after
            yield staged
        if at == len(data) and name.end_seq not in (None, self._head.seq):
            raise DamagedStoreError(path, at, f"chunk ends with entry {self._head.seq}, not {name.end_seq}")

    def _add(self, entry: Entry, frame: bytes) -> Staged:
        record = new_entry_of(self._found.domain, entry, self._limits)
        staged = stage(record, self._head, lambda _seq, _root: entry.receipt, frame)
        if self.first_ts is None:
            self.first_ts = staged.head.hub_ts
        self._pending.append(staged)
        self._tail.add(staged)
        if len(self._pending) >= _PORTION_ENTRIES:
            self._write_portion()
        return staged

    def _write_portion(self) -> None:
        growth = grow(self.state, self._pending, self._limits_at)
        for node in growth.nodes:
            self._nodes.add(node)
        growth.chunks = [self._flagged(row) for row in growth.chunks]
        self._seals += growth.seals
        self._starts += [row.start_seq for row in growth.chunks]
        self._index.add_leaves(growth.leaves)
        with self._index.change() as changes:
            record_entries(changes, [growth], self._tail)
            for row in growth.chunks if self._compress else ():
                if row.end_seq and not row.compressed:
                    changes.put_unpacked(self._found.label, row.start_seq)
        self.state = growth.state
        self._tail, self._pending = Tail(0), []

    def _flagged(self, row: ChunkRow) -> ChunkRow:
        name = self._found.chunks.get(row.start_seq)
        packed = name is not None and name.compressed and row.end_seq
        return row._replace(flags=COMPRESSED) if packed else row

    def _check_boundaries(self, whole: list[tuple[str, int, int]], journal_start: int | None) -> None:
        """Raise if chunks do not end where the rule says; the journal may determine the last end."""
        ruled = [(seal.summary.start_seq, seal.summary.end_seq) for seal in self._seals]
        named = [(start, end) for _, start, end in whole]
        if named == ruled or (journal_start is not None and named[:-1] == ruled):
            return
        path = next((path for path, *ends in whole if tuple(ends) not in ruled), paths.INDEX)
        if not set(ruled) <= set(named):
            path = paths.open_chunk(self._found.domain, self._found.label, max(self._found.chunks))
        raise DamagedStoreError(path, None, "chunk does not end where the limits of this directory require")

    # --- pruned chunks --------------------------------------------------------------------------------------

    def _add_pruned(self, name: FileName) -> None:
        """Add a pruned chunk: its leaves are read from the node store, which is never pruned."""
        domain, label = self._found.domain, self._found.label
        assert name.start_seq is not None
        assert name.end_seq is not None
        path = paths.tombstone(domain, label, name.start_seq, name.end_seq)
        try:
            tombstone = Tombstone.decode(self._fs.read(path))
        except ProtocolError as error:
            raise DamagedStoreError(path, 0, str(error)) from error
        named = (label, name.start_seq, name.end_seq)
        if named != (tombstone.label, self._head.seq + 1, tombstone.end_seq):
            raise DamagedStoreError(path, 0, f"tombstone does not continue entry {self._head.seq}")
        head = self._read_leaves(tombstone)
        if head.root != tombstone.mmr_root_end:
            nodes = paths.nodes(domain, label)
            raise DamagedStoreError(nodes, None, "the nodes of a pruned chunk do not lead to its root")
        self._record_pruned(tombstone, head)

    def _read_leaves(self, tombstone: Tombstone) -> Head:
        peaks, leaf = self.state.head.peaks, self.state.head.leaf_hash
        path = paths.nodes(self._found.domain, self._found.label)
        rows = []
        for seq in range(tombstone.start_seq, tombstone.end_seq + 1):
            leaf = LeafHash(self._fs.read(path, leaf_position(seq) * HASH_BYTES, HASH_BYTES))
            peaks, completed = peaks.grow(leaf)
            for node in completed:
                self._nodes.add(node)
            rows.append((leaf, self.state.number, seq))
        self._index.add_leaves(rows)
        return Head(seq=tombstone.end_seq, hub_ts=tombstone.last_ts, leaf_hash=leaf, peaks=peaks)

    def _record_pruned(self, tombstone: Tombstone, head: Head) -> None:
        start, end = tombstone.start_seq, tombstone.end_seq
        self.first_ts = tombstone.first_ts if self.first_ts is None else self.first_ts
        self._starts.append(start)
        self.state = replace(self.state, head=head, chunk_start=end + 1, pruned_upto=end)
        number = self.state.number
        row = ChunkRow(start, end, tombstone.total_bytes, tombstone.first_ts, tombstone.last_ts, PRUNED)
        with self._index.change() as changes:
            changes.put_label(self.state)
            changes.put_chunk(number, row)
            for client in tombstone.clients:
                cursor = ClientCursor(client.client_seq, client.prev_ack)
                changes.put_client(number, client.client_id, cursor)
                # Its first message is in the first chunk with this client: at this time at the earliest.
                changes.put_client_since(client.client_id, tombstone.first_ts)
            for use in tombstone.first_uses:
                changes.put_auth(use.auth_ref, AuthRecord(use.hub_ts, 0))

    # --- files beside the chunks ----------------------------------------------------------------------------

    def write_sidecars(self) -> None:
        """Rewrite missing or damaged summaries and peaks, which follow from the log."""
        domain, label = self._found.domain, self._found.label
        sidecars = {}
        for seal in self._seals:
            summary = seal.summary
            sidecars[paths.summary(domain, label, summary.start_seq, summary.end_seq)] = summary.encode()
            sidecars[paths.peaks(domain, label, summary.end_seq)] = PeakSnapshot(seal.peaks.hashes).encode()
        replace_files(
            self._fs, {path: data for path, data in sidecars.items() if read_file(self._fs, path) != data}
        )

    def read_checkpoints(self) -> Iterator[Checkpoint]:
        """Read the stored checkpoints, check them against the log, and yield them."""
        domain, label, number = self._found.domain, self._found.label, self.state.number
        read = node_reader(self._fs, domain, label)
        rows = []
        for upto in sorted(self._found.checkpoints):
            if upto > self.state.head.seq:
                continue  # by an interrupted flush
            path = paths.checkpoint(domain, label, upto)
            peaks = read_peaks(read, upto)
            try:
                checkpoint = Checkpoint.decode(self._fs.read(path))
                checkpoint.verify_prefix(peaks)
            except ProtocolError as error:
                raise DamagedStoreError(path, 0, str(error)) from error
            self._write_peaks(upto, peaks)
            start = max(start for start in self._starts if start <= upto)
            rows.append(CheckpointRow(upto, peaks.root, start))
            yield checkpoint
        if rows:
            self.state = replace(self.state, last_checkpoint=rows[-1].upto_seq)
        with self._index.change() as changes:
            changes.put_label(self.state)
            for row in rows:
                changes.put_checkpoint(number, row)
                changes.put_stale(label)

    def _write_peaks(self, upto: int, peaks: Peaks) -> None:
        path = paths.peaks(self._found.domain, self._found.label, upto)
        data = PeakSnapshot(peaks.hashes).encode()
        if read_file(self._fs, path) != data:
            replace_files(self._fs, {path: data})
