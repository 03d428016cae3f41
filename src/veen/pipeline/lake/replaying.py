"""Writing a hub's data directory again, from a lake: the same chunks, byte by byte.

Frames are made of the bronze table; chunks end where the limits of the directory say, as the hub's did. All
that is derived is made anew by the same code that repairs a directory, which checks every entry on its way.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from veen.core import layout as directory
from veen.core.checkpoint import Checkpoint
from veen.core.datadir import StoreRecord
from veen.core.entry import Entry, EntryHeader
from veen.core.layout import Domain
from veen.core.types import Label
from veen.core.wire import decode_sequence
from veen.pipeline.lake import hub, layout
from veen.pipeline.lake.commits import FileFact, State
from veen.pipeline.lake.errors import LakeError
from veen.pipeline.lake.frames import framed
from veen.pipeline.lake.holding import load
from veen.storage import RealFilesystem
from veen.storage.durable import replace_file
from veen.storage.fs import Write
from veen.storage.repair import Progress, rebuild
from veen.storage.shaping import LimitsAt, limits_by_time


class Replayed(NamedTuple):
    """What was written."""

    labels: int
    entries: int
    chunks: int


def replay(root: Path, into: Path, progress: Progress = lambda _: None) -> Replayed:
    """Write the directory; it is one when this returns, and not before."""
    state = load(root)
    store = _store(root, state)
    _refuse_gaps(state)
    if into.exists() and any(into.iterdir()):
        raise LakeError(f"{into} is not empty; choose another directory")
    into.mkdir(parents=True, exist_ok=True)
    with closing(RealFilesystem(into)) as target:
        for place in (directory.STATE_DIR, *Domain, directory.ANCHORS_DIR):
            target.make_dir(place)
        _write_files(root, state, target)
        writer = _Chunks(target, limits_by_time(store))
        for label in sorted(state.labels):
            writer.write(Domain.DATA, Label(bytes.fromhex(label)), _data_frames(root, state, label, progress))
        for (domain, label), spans in sorted(_reserved(state).items()):
            writer.write(domain, Label(bytes.fromhex(label)), _reserved_frames(root, state, spans))
        _write_checkpoints(root, state, target)
        rebuild(target, store)
        replace_file(target, directory.STORE, store.encode())
    return Replayed(len(state.labels), writer.entries, writer.chunks)


def _store(root: Path, state: State) -> StoreRecord:
    blob = state.hub.get(f"{hub.FILES}/{directory.STORE}")
    if blob is None:
        text = "was not taken from a hub's data directory: it does not have the hub's own logs and settings"
        raise LakeError(f"the lake {root} {text}")
    return StoreRecord.decode(hub.read_blob(root, blob))


def _refuse_gaps(state: State) -> None:
    for fact in state.labels.values():
        for item in fact.missing:
            span = f"entries {item.first} to {item.last} of {fact.label}"
            text = "were pruned before the lake took them in: the directory can not be written again"
            raise LakeError(f"{span} {text}")


def _write_files(root: Path, state: State, target: RealFilesystem) -> None:
    for name, blob in sorted(state.hub.items()):
        kind, _, path = name.partition("/")
        if kind == hub.FILES and path != directory.STORE:
            _make_directories(target, path)
            replace_file(target, path, hub.read_blob(root, blob))


def _make_directories(target: RealFilesystem, path: str) -> None:
    parts = path.split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        target.make_dir("/".join(parts[:depth]))


def _data_frames(root: Path, state: State, label: str, progress: Progress) -> Iterator[bytes]:
    for fact in state.of_table(layout.ENTRIES):
        if fact.label == label:
            yield from _file_frames(root, fact)
            progress(fact.rows)


def _file_frames(root: Path, fact: FileFact) -> Iterator[bytes]:
    with pq.ParquetFile(root / fact.path) as file:
        for batch in file.iter_batches(batch_size=layout.GROUP_ROWS):
            yield from framed(batch)


def _reserved(state: State) -> Mapping[tuple[Domain, str], list[str]]:
    found: dict[tuple[Domain, str], list[str]] = {}
    for name in sorted(state.hub, key=lambda name: (name.rpartition("/")[0], name)):
        kind, _, rest = name.partition("/")
        if kind == hub.RESERVED:
            domain, label, _ = rest.split("/")
            found.setdefault((Domain(domain), label), []).append(name)
    return found


def _reserved_frames(root: Path, state: State, names: Iterable[str]) -> Iterator[bytes]:
    for name in names:
        data, at = hub.read_blob(root, state.hub[name]), 0
        while at < len(data):
            end = at + EntryHeader.decode(data, at).entry_len
            yield data[at:end]
            at = end


def _write_checkpoints(root: Path, state: State, target: RealFilesystem) -> None:
    for name, blob in sorted(state.hub.items()):
        if not name.startswith(f"{hub.CHECKPOINTS}/"):
            continue
        for item in decode_sequence(hub.read_blob(root, blob), Checkpoint):
            known = state.labels.get(item.label_curr.hex())
            if known is not None and item.upto_seq <= known.upto_seq:
                path = directory.checkpoint(Domain.DATA, item.label_curr, item.upto_seq)
                replace_file(target, path, item.encode())


class _Chunks:
    """Chunk files, ended by the rule of the hub (C-81)."""

    def __init__(self, target: RealFilesystem, limits_at: LimitsAt) -> None:
        self._target = target
        self._limits_at = limits_at
        self.entries = self.chunks = 0

    def write(self, domain: Domain, label: Label, frames: Iterable[bytes]) -> None:
        """Write the chunks of a label."""
        kept: list[bytes] = []
        size = start = seq = 0
        for frame in frames:
            entry, _ = Entry.decode(frame)
            limits = self._limits_at(entry.receipt.hub_ts)
            if kept and size + len(frame) > limits.max_chunk_bytes:
                self._seal(directory.chunk(domain, label, start, seq), kept)
                kept, size = [], 0
            seq = entry.receipt.stream_seq
            start = start if kept else seq
            kept.append(frame)
            size += len(frame)
            self.entries += 1
            if len(kept) >= limits.max_checkpoint_interval:
                self._seal(directory.chunk(domain, label, start, seq), kept)
                kept, size = [], 0
        if kept:
            self._seal(directory.open_chunk(domain, label, start), kept)
        self._target.sync_dir(domain)

    def _seal(self, path: str, frames: list[bytes]) -> None:
        self._target.write_all([Write(path, 0, b"".join(frames))])
        self.chunks += 1
