"""Restore a hub's data directory from a lake: the same chunks, byte for byte.

Rows of the bronze table become entries of the log; chunks end by the limits of the directory, as the hub's
did. All derived files are rebuilt by the code that repairs a directory, which checks every entry.
"""

import shutil
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import pyarrow as pa

from veen.core.data_dir import paths as directory
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import StoreRecord
from veen.core.encoding import cbor
from veen.core.encoding.wire_object import decode_sequence
from veen.core.errors import ProtocolError
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.entry import Entry, EntryHeader, entry_hash
from veen.core.types import Label
from veen.pipeline.errors import DamagedLakeError, LakeError
from veen.pipeline.lake import hub_files, layout
from veen.pipeline.lake.commits import FileFact, State
from veen.pipeline.lake.committed_files import open_committed
from veen.pipeline.lake.lake import load
from veen.pipeline.lake_jobs.ingest_plan import left_out
from veen.pipeline.log.entry_columns import Frames
from veen.stdx.atomic_file import rename
from veen.storage import RealFilesystem
from veen.storage.atomic_file import replace_file
from veen.storage.directory import LimitsAt, limits_by_time
from veen.storage.errors import DamagedStoreError
from veen.storage.fs import Write
from veen.storage.maintain.repair import Progress, no_progress, rebuild

_HEADER: Final = struct.Struct(">BB32sQII32s")
_HEAD_32: Final = b"\x58\x20"
_HEAD_64: Final = b"\x58\x40"
_MSG: Final = b"\x8a\x01" + _HEAD_32
_RECEIPT: Final = b"\x87\x01" + _HEAD_32
_NULL: Final = b"\xf6"


def framed(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield entries as they are stored. Encodings are canonical: fields have one."""
    columns = {name: batch.column(name).to_pylist() for name in _FIELDS}
    number = cbor.write_uint
    for row in zip(*columns.values(), strict=True):
        label, seq, profile, client, client_seq, ack, auth, ct_hash, sealed, sig, leaf, root, ts, hub_sig = (
            row
        )
        msg = b"".join(
            (
                _MSG,
                profile,
                _HEAD_32,
                label,
                _HEAD_32,
                client,
                number(client_seq),
                number(ack),
                _NULL if auth is None else _HEAD_32 + auth,
                _HEAD_32,
                ct_hash,
                cbor.write_bytes(sealed),
                _HEAD_64,
                sig,
            )
        )
        said = (_RECEIPT, label, number(seq), _HEAD_32, leaf, _HEAD_32, root, number(ts), _HEAD_64, hub_sig)
        receipt = b"".join(said)
        header = _HEADER.pack(1, 0, label, seq, len(msg), len(receipt), entry_hash(msg, receipt))
        yield header + msg + receipt


_FIELDS: Final = (
    "label",
    "stream_seq",
    "profile_id",
    "client_id",
    "client_seq",
    "prev_ack",
    "auth_ref",
    "ct_hash",
    "ciphertext",
    "sig",
    "leaf_hash",
    "mmr_root",
    "hub_ts",
    "hub_sig",
)


def frames_of(label: Label, batch: pa.RecordBatch, file: str) -> Frames:
    """Return consecutive rows of a label as framed entries."""
    return Frames(label, batch.column("stream_seq")[0].as_py(), b"".join(framed(batch)), file, None)


class Replayed(NamedTuple):
    """The result: what was written, and what is missing of the hub's data."""

    labels: int
    entries: int
    chunks: int
    missing: list[str]


def replay(root: Path, into: Path, progress: Progress = no_progress, *, partial: bool = False) -> Replayed:
    """Write the directory: complete when this returns, and removed if this fails.

    A lake without all of its hub's entries is rejected; with ``partial``, labels that are not complete from
    the first entry are omitted, and the result lists what is missing.
    """
    state = load(root)
    store = _store(root, state)
    missing = find_missing(root, state)
    if missing and not partial:
        raise LakeError(_refusal(missing))
    if into.exists() and any(into.iterdir()):
        raise LakeError(f"{into} is not empty; choose another directory")
    chosen = sorted(label for label, fact in state.labels.items() if not fact.missing)
    with _whole(into) as place, _telling_damage(), closing(RealFilesystem(place)) as target:
        for name in (directory.STATE_DIR, *Domain, directory.ANCHORS_DIR):
            target.make_dir(name)
        _write_files(root, state, target)
        writer = _Chunks(target, limits_by_time(store))
        for label in chosen:
            writer.write(Domain.DATA, Label(bytes.fromhex(label)), _data_frames(root, state, label, progress))
        for (domain, label), spans in sorted(_reserved(state).items()):
            writer.write(domain, Label(bytes.fromhex(label)), _reserved_frames(root, state, spans))
        _write_checkpoints(root, state, target)
        rebuild(target, store)
        replace_file(target, directory.STORE, store.encode())
    return Replayed(len(chosen), writer.entries, writer.chunks, missing)


@contextmanager
def _whole(into: Path) -> Iterator[Path]:
    """Provide a directory that is renamed to its place when complete, and removed after a failure."""
    place = into if into.exists() else into.with_name(f"{layout.UNFINISHED}{into.name}-{uuid4().hex}")
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        yield place
        if place != into:
            rename(place, into)
    except BaseException:
        for path in place.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        if place != into:
            place.rmdir()
        raise


@contextmanager
def _telling_damage() -> Iterator[None]:
    """Report an invalid log as damage of the lake: its files match the commit, so the commit was wrong."""
    try:
        yield
    except (ProtocolError, DamagedStoreError) as error:
        raise DamagedLakeError(f"the lake does not contain a valid log: {error}") from None


def find_missing(root: Path, state: State) -> list[str]:
    """Return what is known to be missing of the hub's data: pruned before ingest, or not ingested.

    A run limited to some streams records what it omits; checkpoints show later entries.
    """
    missing = []
    for fact in state.labels.values():
        for item in fact.missing:
            span = f"entries {item.first} to {item.last} of {fact.label}"
            missing.append(f"{span} were pruned before the lake ingested them")
    ends = {item.label: item.last for item in left_out(root, state)}
    for checkpoint in _checkpoints(root, state):
        label = checkpoint.label_curr.hex()
        ends[label] = max(ends.get(label, 0), checkpoint.upto_seq)
    for label, last in sorted(ends.items()):
        known = state.labels.get(label)
        first = 1 if known is None else known.upto_seq + 1
        if first <= last:
            missing.append(f"entries {first} to {last} of {label} were not ingested")
    return missing


def _refusal(missing: Sequence[str]) -> str:
    more = f", and {len(missing) - 1} more like this" if len(missing) > 1 else ""
    return (
        f"{missing[0]}{more}: the data directory cannot be restored completely; ingest the rest of all "
        "streams with veen pipeline ingest, or restore what the lake contains with --partial"
    )


def _store(root: Path, state: State) -> StoreRecord:
    blob = state.hub.get(f"{hub_files.FILES}/{directory.STORE}")
    if blob is None:
        text = "was not taken from a hub's data directory: it does not have the hub's own logs and settings"
        raise LakeError(f"the lake {root} {text}")
    return StoreRecord.decode(hub_files.read_blob(root, blob))


def _write_files(root: Path, state: State, target: RealFilesystem) -> None:
    for name, blob in sorted(state.hub.items()):
        kind, _, path = name.partition("/")
        if kind == hub_files.FILES and path != directory.STORE:
            _make_directories(target, path)
            replace_file(target, path, hub_files.read_blob(root, blob))


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
    with open_committed(root, fact) as file:
        for batch in file.iter_batches(batch_size=layout.GROUP_ROWS):
            yield from framed(batch)


def _reserved(state: State) -> Mapping[tuple[Domain, str], list[str]]:
    missing: dict[tuple[Domain, str], list[str]] = {}
    for name in sorted(state.hub, key=lambda name: (name.rpartition("/")[0], name)):
        kind, _, rest = name.partition("/")
        if kind == hub_files.RESERVED:
            domain, label, _ = rest.split("/")
            missing.setdefault((Domain(domain), label), []).append(name)
    return missing


def _reserved_frames(root: Path, state: State, names: Iterable[str]) -> Iterator[bytes]:
    for name in names:
        data, at = hub_files.read_blob(root, state.hub[name]), 0
        while at < len(data):
            end = at + EntryHeader.decode(data, at).entry_len
            yield data[at:end]
            at = end


def _checkpoints(root: Path, state: State) -> Iterator[Checkpoint]:
    for name, blob in sorted(state.hub.items()):
        if name.startswith(f"{hub_files.CHECKPOINTS}/"):
            yield from decode_sequence(hub_files.read_blob(root, blob), Checkpoint)


def _write_checkpoints(root: Path, state: State, target: RealFilesystem) -> None:
    for item in _checkpoints(root, state):
        known = state.labels.get(item.label_curr.hex())
        if known is not None and not known.missing and item.upto_seq <= known.upto_seq:
            path = directory.checkpoint(Domain.DATA, item.label_curr, item.upto_seq)
            replace_file(target, path, item.encode())


class _Chunks:
    """Chunk files, with the hub's rule for their ends (C-81)."""

    def __init__(self, target: RealFilesystem, limits_at: LimitsAt) -> None:
        self._target = target
        self._limits_at = limits_at
        self.entries = self.chunks = 0

    def write(self, domain: Domain, label: Label, frames: Iterable[bytes]) -> None:
        chunk: list[bytes] = []
        size = start = seq = 0
        for frame in frames:
            entry, _ = Entry.decode(frame)
            limits = self._limits_at(entry.receipt.hub_ts)
            if chunk and size + len(frame) > limits.max_chunk_bytes:
                self._seal(directory.chunk(domain, label, start, seq), chunk)
                chunk, size = [], 0
            seq = entry.receipt.stream_seq
            start = start if chunk else seq
            chunk.append(frame)
            size += len(frame)
            self.entries += 1
            if len(chunk) >= limits.max_checkpoint_interval:
                self._seal(directory.chunk(domain, label, start, seq), chunk)
                chunk, size = [], 0
        if chunk:
            self._seal(directory.open_chunk(domain, label, start), chunk)
        self._target.sync_dir(domain)

    def _seal(self, path: str, frames: list[bytes]) -> None:
        self._target.write_all([Write(path, 0, b"".join(frames))])
        self.chunks += 1
