"""Checks the right edge of a label: whether its files end where the index says, with the same root.

Done when a writer first uses a label, so that the cost of a start is independent of the number of labels.
"""

from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.errors import ProtocolError
from veen.core.objects.entry import Entry
from veen.core.types import HubId, Label
from veen.storage import chunk_lookup
from veen.storage.directory import reserved_labels
from veen.storage.errors import DamagedStoreError, StaleIndexError
from veen.storage.fs import Filesystem
from veen.storage.index.index import Meta, Snapshot
from veen.storage.index.label_state import LabelState


def check_absent(fs: Filesystem, domain: Domain, label: Label) -> None:
    """Raise if a label that is not in the index has files: then the index has lost it."""
    for path in (paths.nodes(domain, label), paths.open_chunk(domain, label, 1)):
        if fs.size(path) is not None:
            raise StaleIndexError(path, None, "the index does not know this label")


def check_label(fs: Filesystem, view: Snapshot, domain: Domain, label: Label) -> LabelState | None:
    """Return the state of a label after checking its files."""
    state = view.label(label)
    if state is None:
        check_absent(fs, domain, label)
    else:
        check_edge(fs, view, state)
    return state


def check_edge(fs: Filesystem, view: Snapshot, state: LabelState) -> None:
    """Raise if the files of a label are shorter or longer than the index says, or end in another root."""
    if not state.head.seq:
        check_absent(fs, state.domain, state.label)
        return
    if state.chunk_entries:
        _check_size(fs, paths.open_chunk(state.domain, state.label, state.chunk_start), state.chunk_bytes)
    elif fs.size(paths.open_chunk(state.domain, state.label, state.chunk_start)) is not None:
        raise StaleIndexError(
            paths.open_chunk(state.domain, state.label, state.chunk_start),
            None,
            "the index does not know this chunk",
        )
    nodes = paths.nodes(state.domain, state.label)
    if fs.size(nodes) != state.node_bytes:
        raise StaleIndexError(nodes, None, f"node store does not have the {state.node_bytes} bytes known")
    _check_last(fs, view, state)


def _check_size(fs: Filesystem, path: str, expected: int) -> None:
    actual = fs.size(path)
    if actual is None:
        raise DamagedStoreError(path, None, "file is missing")
    if actual < expected:
        raise DamagedStoreError(path, actual, f"file is shorter than the {expected} bytes known")
    if actual > expected:
        raise StaleIndexError(path, expected, "file is longer than the index records")


def _check_last(fs: Filesystem, view: Snapshot, state: LabelState) -> None:
    head = state.head
    chunk = view.chunk_at(state.number, head.seq)
    if chunk is None:
        raise StaleIndexError(paths.INDEX, None, f"no chunk holds entry {head.seq}")
    if chunk.pruned or chunk.compressed:
        return  # sealed: its summary and checkpoint have the root too, and fsck compares them
    span = view.position(state.number, head.seq)
    path = chunk_lookup.path_of(state.ref, chunk)
    if span is None:
        raise StaleIndexError(paths.INDEX, None, f"entry {head.seq} has no position")
    try:
        entry, _ = Entry.decode(fs.read(path, span.offset, span.length))
    except FileNotFoundError:
        raise DamagedStoreError(path, None, "file is missing") from None
    except ProtocolError as error:
        raise DamagedStoreError(path, span.offset, str(error)) from error
    receipt = entry.receipt
    if (receipt.stream_seq, receipt.leaf_hash, receipt.mmr_root) != (head.seq, head.leaf_hash, head.root):
        raise StaleIndexError(path, span.offset, "the last entry is not the one in the index")


def check_moment(fs: Filesystem, view: Snapshot, hub_id: HubId) -> None:
    """Raise if the index is older or newer than the log, judged by the few files that grow with any label."""
    _check_derived(fs, view.meta())
    for domain, label in reserved_labels(hub_id).items():
        check_label(fs, view, domain, label)


def _check_derived(fs: Filesystem, meta: Meta) -> None:
    for path, expected in (
        (paths.RECEIPTS, meta.receipts_bytes),
        (paths.CHECKPOINTS, meta.checkpoints_bytes),
    ):
        actual = fs.size(path) or 0
        if actual != expected:
            raise StaleIndexError(
                path, min(actual, expected), f"{actual} bytes long, but {expected} by the index"
            )
