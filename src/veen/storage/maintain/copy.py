"""Clone and fork: a log taken elsewhere (decision C-95).

A **clone** has the same identity and is for replacement: of original and clone, exactly one may ever be
written to again. A **fork** is cut at checkpoints and gets a new identity, so new labels; the copied
prefix is frozen, and stays verifiable under the old identity, which is archived with it.

The original may be written to meanwhile. The journal is read first, then the index says how much of each
file counts, then files are copied: what was acknowledged before the call is in one of the two. The copy
gets its own index, made from the copied log, which so is checked on the way.
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

# Files of the hub's identity (001 section 8.4): they go with the log, its secret key does not.
IDENTITY_FILES: Final = (
    "hub-identity.cbor",
    "hub-identity.json",
    "hub-identity.sig",
    "hub-key-map.cbor",
    "hub-settings.cbor",
    "checkpoint-binding.cbor",
)
ARCHIVE_DIR: Final = "archive"
# Is there until a copy is complete: what stands beside it may be deleted by the next attempt.
_COPYING: Final = "state/copying"
# Segments and chunks change their names while they are read; looking again finds them.
_ATTEMPTS: Final = 10


def clone(source: Reader, target: Filesystem) -> Repaired:
    """Copy a directory to an empty place, with everything acknowledged before the call."""
    _prepare(target)
    for path in (*IDENTITY_FILES, paths.FORK):
        _copy_file(source.fs, path, target, path)
    _copy_directory(source.fs, paths.ANCHORS_DIR, target, paths.ANCHORS_DIR)
    copy_attachments(source.fs, target)
    _copy_archive(source.fs, ARCHIVE_DIR, target, ARCHIVE_DIR)
    segments = _read_journal(source.fs)
    released, labels = _take(source)
    for number, data in segments.items():
        if number >= released:  # of the others all is in chunks, and more than what was read just now
            replace_file(target, paths.journal(number), data)
    for taken in labels:
        _copy_label(source, target, taken, "")
    done = rebuild(target, source.store)
    _finish(target, source.store)
    return done


@dataclass(frozen=True, slots=True)
class Forked:
    """What a fork took along."""

    record: ForkRecord
    # Labels without a checkpoint: nothing that is signed says where they could be cut.
    left_out: tuple[Label, ...]


def fork(
    source: Reader, target: Filesystem, hub_id: HubId, cuts: Mapping[Label, int] | None = None
) -> Forked:
    """Cut labels at checkpoints (their last ones, unless ``cuts`` names others), for a hub with a new id."""
    if hub_id == source.store.hub_id:
        raise NotAStoreError("a fork needs an identity of its own; to replace a hub, clone it")
    taken = {item.state.label: item for item in _take(source)[1]}
    kept, left_out = _choose(source, taken, cuts)
    _prepare(target)
    target.make_dir(ARCHIVE_DIR)
    for domain in (Domain.AUTHORIZE, Domain.CONTROL):
        target.make_dir(f"{ARCHIVE_DIR}/{domain}")
    for path in (*IDENTITY_FILES, paths.STORE, paths.FORK):
        _copy_file(source.fs, path, target, f"{ARCHIVE_DIR}/{path}")
    target.sync_dir(ARCHIVE_DIR)
    _copy_archive(source.fs, ARCHIVE_DIR, target, f"{ARCHIVE_DIR}/{ARCHIVE_DIR}")
    for item in taken.values():
        if item.state.domain is not Domain.DATA:
            _copy_label(source, target, item, f"{ARCHIVE_DIR}/")
    for checkpoint in kept:
        _copy_label(source, target, taken[checkpoint.label_curr].cut(checkpoint.upto_seq), "")
    record = ForkRecord(parent_hub_id=source.store.hub_id, checkpoints=tuple(kept))
    replace_file(target, paths.FORK, record.encode())
    store = replace(source.store, hub_id=hub_id)
    rebuild(target, store)
    _finish(target, store)
    return Forked(record, left_out)


@dataclass(frozen=True, slots=True)
class _Taken:
    """A label as the index had it at one moment."""

    state: LabelState
    rows: tuple[ChunkRow, ...]
    checkpoints: tuple[CheckpointRow, ...]
    upto: int

    def cut(self, upto: int) -> "_Taken":
        return replace(self, upto=upto)


def _take(source: Reader) -> tuple[int, list[_Taken]]:
    """Return all labels, and which journal segment is the first that is not in chunks."""
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
    source: Reader, taken: Mapping[Label, _Taken], cuts: Mapping[Label, int] | None
) -> tuple[list[Checkpoint], tuple[Label, ...]]:
    kept, left_out = [], []
    for label in sorted(taken if cuts is None else cuts):
        item = taken.get(label)
        if item is not None and item.state.domain is not Domain.DATA:
            continue  # tokens and control records are the old hub's: they go to its archive
        stored = [] if item is None else [row.upto_seq for row in item.checkpoints]
        wanted = max(stored, default=0) if cuts is None else cuts[label]
        if item is not None and 0 < wanted < item.state.pruned_upto:
            raise PrunedEntryError(f"label {label.hex()} is pruned beyond {wanted}")
        if wanted in stored:
            found = source.checkpoint(label, wanted)
            assert found is not None
            kept.append(found)
        elif cuts is None:
            left_out.append(label)
        else:
            raise not_found("upto_seq", f"label {label.hex()} has no checkpoint at {wanted} in its chunks")
    return kept, tuple(left_out)


def _prepare(target: Filesystem) -> None:
    if target.size(paths.STORE) is not None:
        raise NotAStoreError("there is a data directory already; choose another path")
    target.make_dir("")
    directories = (paths.STATE_DIR, *Domain, paths.ANCHORS_DIR)
    for name in directories:
        target.make_dir(name)
    found = [
        f"{name}/{text}"
        for name in directories
        for text in target.names(name)
        if paths.parse(text) is not None or paths.parse_journal(text) is not None
    ]
    if found and target.size(_COPYING) is None:
        raise NotAStoreError(f"there are files of a log already ({found[0]}); choose another path")
    if target.size(_COPYING) is None:
        replace_file(target, _COPYING, b"")
    for path in found:
        target.unlink(path)


def _finish(target: Filesystem, store: StoreRecord) -> None:
    replace_file(target, paths.STORE, store.encode())  # only now it is a data directory
    target.unlink(_COPYING)
    target.sync_dir(paths.STATE_DIR)


def _read_journal(fs: Filesystem) -> dict[int, bytes]:
    """Return the journal as it was at one moment."""
    for _ in range(_ATTEMPTS):
        numbers = journal.segments(fs)
        try:
            # Newest first: a segment is ended before anything is written to the next.
            data = {number: fs.read(paths.journal(number)) for number in reversed(numbers)}
        except FileNotFoundError:
            continue
        if journal.segments(fs) == numbers:
            return data
    raise DamagedStoreError(
        paths.STATE_DIR, None, "journal segments change while they are read; try again", "try again"
    )


def _copy_label(source: Reader, target: Filesystem, taken: _Taken, into: str) -> None:
    state = taken.state
    for row in taken.rows:
        if row.start_seq > taken.upto:
            break
        if row.pruned:
            _copy_pruned(source.fs, target, state, row, into)
        else:
            _copy_chunk(source, target, taken, row, into)
    pruned = [row.end_seq for row in taken.rows if row.pruned]
    if pruned:
        path = paths.nodes(state.domain, state.label)
        _copy_bytes(source.fs.read(path, 0, node_count(max(pruned)) * 32), target, into + path)
    for checkpoint in taken.checkpoints:
        if checkpoint.upto_seq <= taken.upto:
            path = paths.checkpoint(state.domain, state.label, checkpoint.upto_seq)
            _copy_file(source.fs, path, target, into + path)
    target.sync_dir(into + state.domain)


def _copy_pruned(fs: Filesystem, target: Filesystem, state: LabelState, row: ChunkRow, into: str) -> None:
    for name in (paths.tombstone, paths.summary):
        path = name(state.domain, state.label, row.start_seq, row.end_seq)
        _copy_file(fs, path, target, into + path)


def _copy_chunk(source: Reader, target: Filesystem, taken: _Taken, row: ChunkRow, into: str) -> None:
    state = taken.state
    limits = source.store.registry_at(row.last_ts).limits
    full = row.end_seq - row.start_seq + 1 >= limits.max_checkpoint_interval
    if row.end_seq and (row.end_seq < taken.upto or (row.end_seq == taken.upto and full)):
        # A chunk that was sealed because the next entry did not fit is open again without that entry.
        name, length = paths.chunk(state.domain, state.label, row.start_seq, row.end_seq), row.total_bytes
    else:
        name = paths.open_chunk(state.domain, state.label, row.start_seq)
        with source.snapshot() as view:
            length = _length_upto(view, state, taken.upto)
    for _ in range(_ATTEMPTS):
        with source.snapshot() as view:
            now = view.chunk_at(state.number, row.start_seq)
        if now is None or now.pruned:
            raise PrunedEntryError(f"entry {row.start_seq} was pruned while it was copied; copy again")
        try:
            data = _read_chunk(source.fs, _path_now(source.fs, state, now), length)
        except FileNotFoundError:
            continue  # compressed since: the next look has its new name
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
    if target.size(to) is not None:  # of a copy that did not get to its end
        target.unlink(to)
    target.write_all([Write(to, 0, data)])


def _copy_archive(fs: Filesystem, path: str, target: Filesystem, to: str) -> None:
    """Copy the archive of a fork, and what its parent had archived in turn."""
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
