"""Pruning: deletes old chunks while all later entries stay provable (decision C-85).

Only on request. Only complete sealed chunks are pruned, from the beginning of a label. Retained permanently:
summary, peaks, checkpoint, nodes, and a tombstone with the cursors of clients and the first uses of tokens.
The tombstone is durable before the index marks the chunk as pruned, and that before the chunk is deleted.
"""

from dataclasses import replace

from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import ClientPosition, FirstUse, Tombstone
from veen.core.errors import Code, Detail, ProtocolError, not_found
from veen.core.limits import Limits
from veen.core.objects.new_entry import NewEntry
from veen.core.types import AuthRef, Label, NodeHash, VerifyKey
from veen.storage import chunk_lookup
from veen.storage.atomic_file import read_file, replace_file
from veen.storage.errors import DamagedStoreError
from veen.storage.fs import Filesystem
from veen.storage.index.index import Index
from veen.storage.index.label_state import LabelState
from veen.storage.index.rows import PRUNED, ChunkRow
from veen.storage.journal.tail import new_entry_of


def prune(fs: Filesystem, index: Index, limits: Limits, label: Label, upto_seq: int) -> list[ChunkRow]:
    """Prune the sealed chunks of a label that end at or before an entry; return them."""
    with index.view() as view:
        state = view.label(label)
        rows = [] if state is None else list(view.chunks(state.number))
    if state is None:
        raise not_found("label", "there is no such label")
    if state.domain is not Domain.DATA:
        raise ProtocolError(
            Detail.VALUE, "tokens and control records are never pruned", code=Code.FORBIDDEN, field="label"
        )
    _finish_last(fs, state, rows)
    pruned = []
    for row in rows:
        if row.pruned:
            continue
        if not row.end_seq or row.end_seq > upto_seq:
            break
        _prune_chunk(fs, index, state, row, limits)
        pruned.append(row)
    return pruned


def _finish_last(fs: Filesystem, state: LabelState, rows: list[ChunkRow]) -> None:
    """Delete the last chunk that an interrupted run marked as pruned, if it still exists."""
    pruned = [row for row in rows if row.pruned]
    if pruned:
        _delete(fs, state, pruned[-1])


def _delete(fs: Filesystem, state: LabelState, row: ChunkRow) -> None:
    plain = paths.chunk(state.domain, state.label, row.start_seq, row.end_seq)
    for path in (plain, plain + paths.COMPRESSED):  # both exist if compression was interrupted
        if fs.size(path) is not None:
            fs.unlink(path)
    fs.sync_dir(state.domain)


def _prune_chunk(fs: Filesystem, index: Index, state: LabelState, row: ChunkRow, limits: Limits) -> None:
    _require_sidecars(fs, state, row)
    tombstone = make_tombstone(fs, state, row, limits)
    path = paths.tombstone(state.domain, state.label, row.start_seq, row.end_seq)
    stored = read_file(fs, path)
    if stored is None:
        replace_file(fs, path, tombstone.encode())
    elif stored != tombstone.encode():
        raise DamagedStoreError(path, 0, "the existing tombstone has other content")
    with index.change() as changes:
        changes.put_chunk(state.number, row._replace(flags=row.flags | PRUNED))
        current = changes.label(state.label)
        assert current is not None
        changes.put_label(replace(current, pruned_upto=row.end_seq))
        changes.clear_unpacked(state.label, row.start_seq)
    _delete(fs, state, row)


def _require_sidecars(fs: Filesystem, state: LabelState, row: ChunkRow) -> None:
    """Raise if a chunk lacks a file that later proofs need."""
    domain, label, end = state.domain, state.label, row.end_seq
    for path in (
        paths.summary(domain, label, row.start_seq, end),
        paths.peaks(domain, label, end),
        paths.checkpoint(domain, label, end),
    ):
        if fs.size(path) is None:
            raise DamagedStoreError(path, None, "file is missing, so its chunk cannot be pruned")


def make_tombstone(fs: Filesystem, state: LabelState, row: ChunkRow, limits: Limits) -> Tombstone:
    """Read and check a complete chunk, and return the tombstone that replaces it."""
    clients: dict[VerifyKey, ClientPosition] = {}
    uses: dict[AuthRef, FirstUse] = {}
    root = NodeHash(b"")
    seqs = range(row.start_seq, row.end_seq + 1)
    for stored in chunk_lookup.read(fs, state.ref, row, seqs=seqs, offset=0):
        root = stored.entry.receipt.mmr_root
        _note(new_entry_of(state.domain, stored.entry, limits), stored.entry.receipt.hub_ts, clients, uses)
    return Tombstone(
        label=state.label,
        start_seq=row.start_seq,
        end_seq=row.end_seq,
        total_bytes=row.total_bytes,
        first_ts=row.first_ts,
        last_ts=row.last_ts,
        mmr_root_end=root,
        clients=tuple(clients[key] for key in sorted(clients)),
        first_uses=tuple(uses[key] for key in sorted(uses)),
    )


def _note(
    record: NewEntry, hub_ts: int, clients: dict[VerifyKey, ClientPosition], uses: dict[AuthRef, FirstUse]
) -> None:
    if record.client_id is not None:
        clients[record.client_id] = ClientPosition(
            client_id=record.client_id, client_seq=record.client_seq, prev_ack=record.prev_ack
        )
    if record.auth_ref is not None and record.auth_ref not in uses:
        uses[record.auth_ref] = FirstUse(auth_ref=record.auth_ref, hub_ts=hub_ts)
