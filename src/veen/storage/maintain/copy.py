"""Clone and fork: copies of a log (decision C-95).

A **clone** has the same identity and is a replacement: only one of original and clone may ever be written to
again. A **fork** is cut at checkpoints and gets a new identity, and so new labels; the copied prefix is
frozen, and remains verifiable under the old identity, which is archived with it.

The original may be written to meanwhile. The journal is read first, then the committed length of each file
from the index, then the files are copied: all entries acknowledged before the call are in the journal or the
files. The copy gets its own index, rebuilt from the copied log, which is thereby checked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import ForkRecord, StoreRecord
from veen.core.errors import not_found
from veen.core.merkle.mmr import node_count
from veen.core.objects.checkpoint import Checkpoint
from veen.core.types import HubId, Label
from veen.storage import chunk_lookup
from veen.storage.atomic_file import replace_file
from veen.storage.attachments import copy_attachments
from veen.storage.errors import DamagedStoreError, NotAStoreError, PrunedEntryError
from veen.storage.fs import Filesystem, Write
from veen.storage.index.index import Snapshot
from veen.storage.index.label_state import LabelState
from veen.storage.index.rows import CheckpointRow, ChunkRow
from veen.storage.journal import journal
from veen.storage.maintain.repair import Repaired, rebuild
from veen.storage.read.reader import Reader

# Files of the hub's identity (001 section 8.4): copied with the log, unlike its secret keys.
IDENTITY_FILES: Final = (
    "hub-identity.cbor",
    "hub-identity.json",
    "hub-identity.sig",
    "hub-key-map.cbor",
    "hub-settings.cbor",
    "checkpoint-binding.cbor",
)
ARCHIVE_DIR: Final = "archive"
# Exists until a copy is complete: the next attempt may delete the files of this one.
_COPYING: Final = "state/copying"
# Segments and chunks may be renamed or deleted while they are read; a retry finds them.
_ATTEMPTS: Final = 10


def clone(source: Reader, target: Filesystem) -> Repaired:
    """Copy a directory to an empty one, with all entries acknowledged before the call."""
    _prepare(target)
    for path in (*IDENTITY_FILES, paths.FORK):
        _copy_file(source.fs, path, target, path)
    _copy_directory(source.fs, paths.ANCHORS_DIR, target, paths.ANCHORS_DIR)
    copy_attachments(source.fs, target)
    _copy_archive(source.fs, ARCHIVE_DIR, target, ARCHIVE_DIR)
    segments = _read_journal(source.fs)
    released, labels = _take(source)
    for number, data in segments.items():
        if number >= released:  # the others are completely in chunks
            replace_file(target, paths.journal(number), data)
    for label_copy in labels:
        _copy_label(source, target, label_copy, "")
    repaired = rebuild(target, source.store)
    _finish(target, source.store)
    return repaired


@dataclass(frozen=True, slots=True)
class Forked:
    """The outcome of a fork."""

    record: ForkRecord
    # Labels without a checkpoint, and so without a signed position to cut at.
    left_out: tuple[Label, ...]


def fork(
    source: Reader, target: Filesystem, hub_id: HubId, cuts: Mapping[Label, int] | None = None
) -> Forked:
    """Cut labels at checkpoints (by default their last), for a hub with a new id."""
    if hub_id == source.store.hub_id:
        raise NotAStoreError("a fork needs an identity of its own; to replace a hub, clone it")
    by_label = {item.state.label: item for item in _take(source)[1]}
    checkpoints, left_out = _choose(source, by_label, cuts)
    _prepare(target)
    target.make_dir(ARCHIVE_DIR)
    for domain in (Domain.AUTHORIZE, Domain.CONTROL):
        target.make_dir(f"{ARCHIVE_DIR}/{domain}")
    for path in (*IDENTITY_FILES, paths.STORE, paths.FORK):
        _copy_file(source.fs, path, target, f"{ARCHIVE_DIR}/{path}")
    target.sync_dir(ARCHIVE_DIR)
    _copy_archive(source.fs, ARCHIVE_DIR, target, f"{ARCHIVE_DIR}/{ARCHIVE_DIR}")
    for item in by_label.values():
        if item.state.domain is not Domain.DATA:
            _copy_label(source, target, item, f"{ARCHIVE_DIR}/")
    for checkpoint in checkpoints:
        _copy_label(source, target, by_label[checkpoint.label_curr].cut(checkpoint.upto_seq), "")
    record = ForkRecord(parent_hub_id=source.store.hub_id, checkpoints=tuple(checkpoints))
    replace_file(target, paths.FORK, record.encode())
    store = replace(source.store, hub_id=hub_id)
    rebuild(target, store)
    _finish(target, store)
    return Forked(record, left_out)


@dataclass(frozen=True, slots=True)
class _Taken:
    """A label in one snapshot of the index."""

    state: LabelState
    rows: tuple[ChunkRow, ...]
    checkpoints: tuple[CheckpointRow, ...]
    upto: int

    def cut(self, upto: int) -> "_Taken":
        return replace(self, upto=upto)


def _take(source: Reader) -> tuple[int, list[_Taken]]:
    """Return the first journal segment that is not flushed, and all labels."""
    with source.snapshot() as view:
        return view.meta().journal, [
            _Taken(
                state,
                tuple(view.chunks(state.number)),
                tuple(view.checkpoints(state.number)),
                state.head.seq,
            )
            for state in view.labels()
        ]


def _choose(
    source: Reader, by_label: Mapping[Label, _Taken], cuts: Mapping[Label, int] | None
) -> tuple[list[Checkpoint], tuple[Label, ...]]:
    checkpoints, left_out = [], []
    for label in sorted(by_label if cuts is None else cuts):
        item = by_label.get(label)
        if item is not None and item.state.domain is not Domain.DATA:
            continue  # tokens and control records belong to the old hub: copied to its archive
        stored = [] if item is None else [row.upto_seq for row in item.checkpoints]
        upto = max(stored, default=0) if cuts is None else cuts[label]
        if item is not None and 0 < upto < item.state.pruned_upto:
            raise PrunedEntryError(f"label {label.hex()} is pruned beyond {upto}")
        if upto in stored:
            checkpoint = source.checkpoint(label, upto)
            assert checkpoint is not None
            checkpoints.append(checkpoint)
        elif cuts is None:
            left_out.append(label)
        else:
            raise not_found("upto_seq", f"label {label.hex()} has no checkpoint at {upto} in its chunks")
    return checkpoints, tuple(left_out)


def _prepare(target: Filesystem) -> None:
    if target.size(paths.STORE) is not None:
        raise NotAStoreError("there is a data directory already; choose another path")
    target.make_dir("")
    directories = (paths.STATE_DIR, *Domain, paths.ANCHORS_DIR)
    for name in directories:
        target.make_dir(name)
    leftovers = [
        f"{name}/{text}"
        for name in directories
        for text in target.names(name)
        if paths.parse(text) is not None or paths.parse_journal(text) is not None
    ]
    if leftovers and target.size(_COPYING) is None:
        raise NotAStoreError(f"there are files of a log already ({leftovers[0]}); choose another path")
    if target.size(_COPYING) is None:
        replace_file(target, _COPYING, b"")
    for path in leftovers:
        target.unlink(path)


def _finish(target: Filesystem, store: StoreRecord) -> None:
    replace_file(target, paths.STORE, store.encode())  # last: this makes it a data directory
    target.unlink(_COPYING)
    target.sync_dir(paths.STATE_DIR)


def _read_journal(fs: Filesystem) -> dict[int, bytes]:
    """Return a consistent copy of the journal."""
    for _ in range(_ATTEMPTS):
        numbers = journal.segments(fs)
        try:
            # Newest first: a segment is ended before the next one is written to.
            data = {number: fs.read(paths.journal(number)) for number in reversed(numbers)}
        except FileNotFoundError:
            continue
        if journal.segments(fs) == numbers:
            return data
    raise DamagedStoreError(
        paths.STATE_DIR, None, "journal segments change while they are read; try again", "try again"
    )


def _copy_label(source: Reader, target: Filesystem, label_copy: _Taken, into: str) -> None:
    state = label_copy.state
    for row in label_copy.rows:
        if row.start_seq > label_copy.upto:
            break
        if row.pruned:
            _copy_pruned(source.fs, target, state, row, into)
        else:
            _copy_chunk(source, target, label_copy, row, into)
    pruned = [row.end_seq for row in label_copy.rows if row.pruned]
    if pruned:
        path = paths.nodes(state.domain, state.label)
        _copy_bytes(source.fs.read(path, 0, node_count(max(pruned)) * 32), target, into + path)
    for checkpoint in label_copy.checkpoints:
        if checkpoint.upto_seq <= label_copy.upto:
            path = paths.checkpoint(state.domain, state.label, checkpoint.upto_seq)
            _copy_file(source.fs, path, target, into + path)
    target.sync_dir(into + state.domain)


def _copy_pruned(fs: Filesystem, target: Filesystem, state: LabelState, row: ChunkRow, into: str) -> None:
    for name in (paths.tombstone, paths.summary):
        path = name(state.domain, state.label, row.start_seq, row.end_seq)
        _copy_file(fs, path, target, into + path)


def _copy_chunk(source: Reader, target: Filesystem, label_copy: _Taken, row: ChunkRow, into: str) -> None:
    state = label_copy.state
    limits = source.store.registry_at(row.last_ts).limits
    full = row.end_seq - row.start_seq + 1 >= limits.max_checkpoint_interval
    if row.end_seq and (row.end_seq < label_copy.upto or (row.end_seq == label_copy.upto and full)):
        # A chunk that was sealed because the next entry did not fit is open in a copy without that entry.
        name, length = paths.chunk(state.domain, state.label, row.start_seq, row.end_seq), row.total_bytes
    else:
        name = paths.open_chunk(state.domain, state.label, row.start_seq)
        with source.snapshot() as view:
            length = _length_upto(view, state, label_copy.upto)
    for _ in range(_ATTEMPTS):
        with source.snapshot() as view:
            now = view.chunk_at(state.number, row.start_seq)
        if now is None or now.pruned:
            raise PrunedEntryError(f"entry {row.start_seq} was pruned while it was copied; copy again")
        try:
            data = _read_chunk(source.fs, _path_now(source.fs, state, now), length)
        except FileNotFoundError:
            continue  # compressed meanwhile: retry with its new name
        _copy_bytes(data, target, into + name)
        return
    raise DamagedStoreError(chunk_lookup.path_of(state.ref, row), None, "file is missing")


def _path_now(fs: Filesystem, state: LabelState, row: ChunkRow) -> str:
    path = chunk_lookup.path_of(state.ref, row)
    if row.end_seq or fs.size(path) is not None:
        return path
    return chunk_lookup.sealed_path(fs, state.domain, state.label, row.start_seq)


def _read_chunk(fs: Filesystem, path: str, length: int) -> bytes:
    data = chunk_lookup.unpacked(fs, path) if path.endswith(paths.COMPRESSED) else fs.read(path, 0, length)
    if len(data) < length:
        raise DamagedStoreError(path, len(data), f"file is shorter than the {length} bytes known")
    return data[:length]


def _length_upto(view: Snapshot, state: LabelState, upto: int) -> int:
    span = view.position(state.number, upto)
    if span is None:
        raise DamagedStoreError(
            paths.INDEX, None, f"entry {upto} has no position", "run: veen repair DATA_DIR"
        )
    return span.offset + span.length


def _copy_file(fs: Filesystem, path: str, target: Filesystem, to: str) -> None:
    if fs.size(path) is not None:
        _copy_bytes(fs.read(path), target, to)


def _copy_bytes(data: bytes, target: Filesystem, to: str) -> None:
    if target.size(to) is not None:  # left by an interrupted copy
        target.unlink(to)
    target.write_all([Write(to, 0, data)])


def _copy_archive(fs: Filesystem, path: str, target: Filesystem, to: str) -> None:
    """Copy the archive of a fork, and recursively that of its parent."""
    if not fs.names(path):
        return
    for part in ("", f"/{Domain.AUTHORIZE}", f"/{Domain.CONTROL}"):
        _copy_directory(fs, path + part, target, to + part)
    _copy_archive(fs, f"{path}/{ARCHIVE_DIR}", target, f"{to}/{ARCHIVE_DIR}")


def _copy_directory(fs: Filesystem, path: str, target: Filesystem, to: str) -> None:
    target.make_dir(to)
    for name in fs.names(path):
        _copy_file(fs, f"{path}/{name}", target, f"{to}/{name}")
    target.sync_dir(to)
