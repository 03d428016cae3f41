"""Plans how entries extend a label's files: chunk boundaries, and all rows and bytes that follow. Pure.

The rule of 001 section 4.8.2 as decided in C-81: a chunk is sealed before an entry that would make it too
long, and after the entry that makes it full. Nothing else seals one, so boundaries follow from the log
and its limits alone; flushing in other portions, or rebuilding, results in the same files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from veen.core.data_dir.chunk_artifacts import ChunkSummary
from veen.core.merkle.mmr import Peaks
from veen.core.types import LeafHash
from veen.storage.directory import LimitsAt
from veen.storage.index.label_state import LabelState
from veen.storage.index.rows import BLOCK_ENTRIES, Block, ChunkRow
from veen.storage.journal.tail import Staged


@dataclass(frozen=True, slots=True)
class Seal:
    """The end of a chunk: its summary, and the peaks of the label at that entry."""

    summary: ChunkSummary
    peaks: Peaks


@dataclass(slots=True)
class Slice:
    """Bytes to append to one chunk file."""

    chunk_start: int
    offset: int
    frames: list[bytes] = field(default_factory=list)
    seal: Seal | None = None


@dataclass(slots=True)
class Growth:
    """Everything that entries add to a label."""

    before: LabelState
    state: LabelState
    slices: list[Slice] = field(default_factory=list)
    nodes: list[bytes] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    leaves: list[tuple[LeafHash, int, int]] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    chunks: list[ChunkRow] = field(default_factory=list)

    @property
    def seals(self) -> list[Seal]:
        """The ends of chunks among the slices."""
        return [item.seal for item in self.slices if item.seal is not None]


def grow(state: LabelState, entries: Sequence[Staged], limits_at: LimitsAt) -> Growth:
    """Plan the addition of consecutive entries that continue the label's head."""
    shaper = _Shaper(state)
    for staged in entries:
        limits = limits_at(staged.head.hub_ts)
        if shaper.entries and shaper.size + len(staged.frame) > limits.max_chunk_bytes:
            shaper.seal()
        shaper.add(staged)
        if shaper.entries >= limits.max_checkpoint_interval:
            shaper.seal()
    return shaper.finish()


class _Shaper:
    """The open chunk of a label while entries are added to it."""

    def __init__(self, state: LabelState) -> None:
        self._growth = Growth(state, state)
        self._head = state.head
        self._start = state.chunk_start
        self._first_ts = state.chunk_first_ts
        self._hashes = state.chunk_hashes
        self._slice: Slice | None = None
        self._lengths: list[int] = []
        self.size = state.chunk_bytes

    @property
    def entries(self) -> int:
        return self._hashes.size

    def add(self, staged: Staged) -> None:
        growth, head = self._growth, staged.head
        if not self.entries:
            self._first_ts = head.hub_ts
        if self._slice is None:
            self._slice = Slice(self._start, self.size)
            growth.slices.append(self._slice)
        # A second's row has its first entry that is not pruned.
        if head.hub_ts != self._head.hub_ts or self._head.seq == growth.before.pruned_upto:
            growth.times.append((head.hub_ts, head.seq))
        growth.nodes += staged.nodes
        growth.leaves.append((staged.record.leaf_hash, growth.before.number, head.seq))
        self._slice.frames.append(staged.frame)
        self._hashes = self._hashes.append(staged.entry_hash)
        self.size += len(staged.frame)
        self._head = head
        self._lengths.append(len(staged.frame))
        if len(self._lengths) == BLOCK_ENTRIES:
            self._close_block()

    def _close_block(self) -> None:
        if self._lengths:
            first = self._head.seq + 1 - len(self._lengths)
            offset = self.size - sum(self._lengths)
            self._growth.blocks.append(Block(first, self._start, offset, tuple(self._lengths)))
            self._lengths = []

    def _row(self, end_seq: int) -> ChunkRow:
        return ChunkRow(self._start, end_seq, self.size, self._first_ts, self._head.hub_ts)

    def seal(self) -> None:
        self._close_block()
        if self._slice is None:  # the first entry did not fit, so the slice is only the end of the chunk
            self._slice = Slice(self._start, self.size)
            self._growth.slices.append(self._slice)
        summary = ChunkSummary(
            label=self._growth.before.label,
            start_seq=self._start,
            end_seq=self._head.seq,
            mmr_root_end=self._head.root,
            entry_count=self.entries,
            total_bytes=self.size,
            entry_hashes_root=self._hashes.root,
        )
        self._slice.seal = Seal(summary, self._head.peaks)
        self._growth.chunks.append(self._row(self._head.seq))
        self._start = self._head.seq + 1
        self._slice = None
        self._hashes = Peaks.empty()
        self.size = self._first_ts = 0

    def finish(self) -> Growth:
        self._close_block()
        if self.entries:
            self._growth.chunks.append(self._row(0))
        self._growth.state = replace(
            self._growth.before,
            head=self._head,
            chunk_start=self._start,
            chunk_bytes=self.size,
            chunk_first_ts=self._first_ts,
            chunk_hashes=self._hashes,
        )
        return self._growth
