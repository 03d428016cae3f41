"""Derived files for readers of the directory that do not read the index (C-83, C-88)."""

from typing import Final

from veen.core.data_dir import paths
from veen.core.data_dir.chunk_artifacts import CheckpointIndex, ChunkRange, IndexedCheckpoint
from veen.core.errors import ProtocolError
from veen.core.objects.receipt import Receipt
from veen.core.types import Label
from veen.storage.atomic_file import replace_files
from veen.storage.fs import Filesystem
from veen.storage.index.index import Index, Snapshot
from veen.storage.index.label_state import LabelState

# The first bytes of a receipt; and enough bytes from the end of the file to contain a complete one.
_RECEIPT_START: Final = bytes.fromhex("87015820")
_LAST_BYTES: Final = 4096


def checkpoint_index(view: Snapshot, state: LabelState) -> CheckpointIndex:
    """Return the checkpoint index of a label."""
    return CheckpointIndex(
        {
            row.upto_seq: IndexedCheckpoint(
                mmr_root=row.mmr_root,
                chunk_range=ChunkRange(start_seq=row.chunk_start, end_seq=row.upto_seq),
                peaks_ref=paths.peaks(state.domain, state.label, row.upto_seq).rpartition("/")[2],
            )
            for row in view.checkpoints(state.number)
        }
    )


def write_checkpoint_indexes(fs: Filesystem, index: Index) -> None:
    """Write the checkpoint index of every label whose file is out of date, durably."""
    with index.change() as changes:
        stale = changes.stale()
        domains = set()
        for label in stale:
            state = changes.label(label)
            if state is None:
                continue
            path = paths.checkpoint_index(state.domain, label)
            replace_files(fs, {path: checkpoint_index(changes, state).encode()})
            domains.add(state.domain)
            changes.clear_stale(label)
        for domain in sorted(domains):
            fs.sync_dir(domain)


def newest_label(fs: Filesystem) -> Label | None:
    """Return a label of the most recently flushed messages, from the copies of their receipts."""
    size = fs.size(paths.RECEIPTS) or 0
    data = fs.read(paths.RECEIPTS, max(0, size - _LAST_BYTES)) if size else b""
    at = len(data)
    while (at := data.rfind(_RECEIPT_START, 0, at)) >= 0:
        try:
            return Receipt.decode(data[at:]).label
        except ProtocolError:
            continue  # these bytes were inside a hash
    return None
