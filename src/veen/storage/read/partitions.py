"""Partitions of a log for parallel readers: serializable descriptors, and the entries in them (C-122).

A parallel reader gets partitions from ``plan`` and passes them to ``read_partition``, in any process; it does
not depend on paths and formats.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.errors import ProtocolError, not_found
from veen.core.objects.entry import Frame
from veen.core.types import Label
from veen.storage import chunk_lookup
from veen.storage.chunk_lookup import StoredEntry
from veen.storage.directory import domains_of
from veen.storage.errors import DamagedStoreError, PrunedEntryError
from veen.storage.fs import Filesystem, RealFilesystem
from veen.storage.index.index import Snapshot
from veen.storage.index.label_state import LabelState
from veen.storage.index.rows import Block, ChunkRow
from veen.storage.read.reader import Reader

DEFAULT_TARGET_BYTES: Final = 8 * 1024 * 1024
# A chunk is renamed at most twice: when it is sealed and when it is compressed.
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Partition:
    """Consecutive entries of one label. ``frames`` has them if they are in no chunk file yet."""

    domain: Domain
    label: Label
    start_seq: int
    end_seq: int
    path: str
    offset: int
    length: int
    frames: bytes | None = None
    # Uncompressed length of the complete chunk; None while it is open.
    chunk_bytes: int | None = None


def plan(
    reader: Reader,
    labels: Iterable[Label] | None = None,
    *,
    start_seq: int = 1,
    end_seq: int | None = None,
    target_bytes: int = DEFAULT_TARGET_BYTES,
) -> list[Partition]:
    """Return partitions with the entries of these labels, in order, each exactly once.

    A partition ends at the end of a chunk, or when it has ``target_bytes``. Pruned entries are skipped;
    ``Reader.manifest`` says which these are.
    """
    if target_bytes < 1:
        raise ValueError("target_bytes must be positive")
    domain_of = domains_of(reader.store.hub_id)
    chosen = reader.labels() if labels is None else labels
    partitions: list[Partition] = []
    for label in chosen:
        head = reader.head(label)
        if head is None:
            raise not_found("label", f"there is no label {label.hex()}")
        last = head.seq if end_seq is None else min(end_seq, head.seq)
        with reader.snapshot() as view:
            state = view.label(label)
            stored = [] if state is None else list(_stored(view, state, start_seq, last, target_bytes))
            flushed = 0 if state is None else state.head.seq
        partitions += stored
        if last > flushed:
            unflushed = max(start_seq, flushed + 1), last
            partitions += _unflushed(reader, domain_of(label), label, unflushed, target_bytes)
    return [item for item in partitions if item.start_seq <= item.end_seq]


def _unflushed(
    reader: Reader, domain: Domain, label: Label, bounds: tuple[int, int], target_bytes: int
) -> Iterator[Partition]:
    start, end = bounds
    frames = [place.entry.encode() for place in reader.entries(label, start, end)] if start <= end else []
    while frames:
        count, size = _fitting([len(frame) for frame in frames], target_bytes)
        data = b"".join(frames[:count])
        yield Partition(domain, label, start, start + count - 1, paths.STATE_DIR, 0, size, data)
        frames, start = frames[count:], start + count


def _stored(
    view: Snapshot, state: LabelState, start: int, end: int, target_bytes: int
) -> Iterator[Partition]:
    row = view.chunk_at(state.number, max(start, 1))
    if row is None:
        return
    for chunk in view.chunks(state.number, row.start_seq):
        if chunk.start_seq > end:
            return
        if not chunk.pruned:
            yield from _split(view, state, chunk, (start, end), target_bytes)


def _split(
    view: Snapshot, state: LabelState, chunk: ChunkRow, bounds: tuple[int, int], target_bytes: int
) -> Iterator[Partition]:
    first = max(bounds[0], chunk.start_seq)
    last = min(bounds[1], chunk.end_seq or state.head.seq)
    path = chunk_lookup.path_of(state.ref, chunk)
    while first <= last:
        begin = _span_start(view, state, first)
        seq, size = first, 0
        while seq <= last and size < target_bytes:
            block = _block(view, state, seq)
            upto = min(block.first_seq + len(block.lengths) - 1, last)
            lengths = block.lengths[seq - block.first_seq : upto - block.first_seq + 1]
            count, fitting_bytes = _fitting(lengths, target_bytes - size)
            seq, size = seq + count, size + fitting_bytes
        whole = chunk.total_bytes if chunk.end_seq else None
        yield Partition(state.domain, state.label, first, seq - 1, path, begin, size, None, whole)
        first = seq


def _fitting(lengths: Sequence[int], room: int) -> tuple[int, int]:
    """Return the number of entries that fill ``room`` bytes, and their total length."""
    size = sum(lengths)
    if size <= room:
        return len(lengths), size
    size = 0
    for count, length in enumerate(lengths, 1):
        size += length
        if size >= room:
            return count, size
    raise AssertionError


def _block(view: Snapshot, state: LabelState, seq: int) -> Block:
    block = view.block(state.number, seq)
    if block is None or block.find(seq) is None:
        raise DamagedStoreError(
            paths.INDEX, None, f"entry {seq} has no position", "run: veen repair DATA_DIR"
        )
    return block


def _span_start(view: Snapshot, state: LabelState, seq: int) -> int:
    span = _block(view, state, seq).find(seq)
    assert span is not None
    return span.offset


def read_partition(root: Path, partition: Partition) -> Iterator[StoredEntry]:
    """Return the entries of a partition of the data directory at ``root``; raise if any is damaged."""
    fs = RealFilesystem(root)
    try:
        yield from read_from(fs, partition)
    finally:
        fs.close()


def read_frames(root: Path, partition: Partition) -> tuple[str, bytes]:
    """Return the stored bytes of a partition, and the path of their file now.

    The caller must check them: they are not checked here, and fewer if the file is too short.
    """
    if partition.frames is not None:
        return partition.path, partition.frames
    fs = RealFilesystem(root)
    try:
        for _ in range(_ATTEMPTS):
            path = partition.path if fs.size(partition.path) is not None else _renamed(fs, partition)
            try:
                span = partition.offset, partition.length
                return path, chunk_lookup.read_raw(fs, path, span, partition.chunk_bytes)
            except FileNotFoundError:
                continue  # sealed or compressed since
    finally:
        fs.close()
    raise DamagedStoreError(partition.path, None, "file is missing")


def read_from(fs: Filesystem, partition: Partition) -> Iterator[StoredEntry]:
    """Return the entries of a partition."""
    if partition.frames is not None:
        yield from _read_frames(partition, partition.frames)
        return
    offset, limit = partition.offset, partition.offset + partition.length
    seqs = range(partition.start_seq, partition.end_seq + 1)
    for _ in range(_ATTEMPTS):
        path = partition.path if fs.size(partition.path) is not None else _renamed(fs, partition)
        try:
            for place in chunk_lookup.read_span(fs, path, partition.label, seqs=seqs, span=(offset, limit)):
                yield place
                seqs = seqs[1:]
                offset += place.frame.frame_len
        except FileNotFoundError:
            continue  # sealed or compressed since
        return
    raise DamagedStoreError(partition.path, None, "file is missing")


def _read_frames(partition: Partition, frames: bytes) -> Iterator[StoredEntry]:
    at = 0
    while at < len(frames):
        try:
            frame, at = Frame.read(frames, at)
        except ProtocolError as error:
            raise DamagedStoreError(partition.path, None, str(error)) from error
        yield StoredEntry(partition.path, None, frame)


def _renamed(fs: Filesystem, partition: Partition) -> str:
    """Return the path of a chunk that was sealed or compressed since the plan; raise if it was pruned."""
    for name in fs.names(partition.domain):
        parsed = paths.parse(name)
        if parsed is None or parsed.label != partition.label or parsed.start_seq is None:
            continue
        if not parsed.start_seq <= partition.start_seq <= (parsed.end_seq or 0):
            continue
        if parsed.kind is paths.FileKind.CHUNK:
            return f"{partition.domain}/{name}"
        if parsed.kind is paths.FileKind.TOMBSTONE:
            raise PrunedEntryError(f"entry {partition.start_seq} was pruned since the plan was made")
    raise DamagedStoreError(partition.path, None, "file is missing")
