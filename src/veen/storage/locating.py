"""Finding entries that are in chunk files: one look into the index each."""

from typing import NamedTuple

from veen.core import layout
from veen.core.captoken import CapToken
from veen.core.datadir import StoreRecord
from veen.core.errors import ProtocolError
from veen.core.labels import authorize_label
from veen.core.types import AuthRef, Label
from veen.storage import chunks
from veen.storage.directory import reading_limits
from veen.storage.errors import DamagedError, StaleIndexError, not_found
from veen.storage.fs import Filesystem
from veen.storage.index import Snapshot
from veen.storage.rows import ChunkRow
from veen.storage.state import LabelRef


class Location(NamedTuple):
    """The chunk of an entry, where in it the entry begins, and how long it is."""

    ref: LabelRef
    row: ChunkRow
    offset: int
    length: int


def locate(view: Snapshot, label: Label, seq: int) -> Location | None:
    """Return where an entry is; None if it is not in chunk files."""
    ref = view.ref(label)
    if ref is None or not 1 <= seq <= ref.seq:
        return None
    row = view.chunk_at(ref.number, seq)
    if row is None:
        raise StaleIndexError(layout.INDEX, None, f"no chunk holds entry {seq}")
    if row.pruned:
        raise not_found("pruned", f"entry {seq} was pruned; {row.end_seq + 1} is the next one kept")
    span = view.position(ref.number, seq)
    if span is None or span.chunk_start != row.start_seq:
        raise StaleIndexError(layout.INDEX, None, f"entry {seq} has no position")
    return Location(ref, row, span.offset, span.length)


def stored_token(fs: Filesystem, view: Snapshot, store: StoreRecord, auth_ref: AuthRef) -> CapToken | None:
    """Return a token from the authorize log."""
    record = view.auth(auth_ref)
    if record is None or not record.authorize_seq:
        return None
    found = locate(view, authorize_label(store.hub_id), record.authorize_seq)
    if found is None:
        return None  # it is in the journal
    seqs = range(record.authorize_seq, record.authorize_seq + 1)
    try:
        place = next(chunks.read(fs, found.ref, found.row, seqs=seqs, offset=found.offset))
    except FileNotFoundError as error:
        raise DamagedError(chunks.path_of(found.ref, found.row), None, "file is missing") from error
    return decode_token(place, store)


def decode_token(place: chunks.Place, store: StoreRecord) -> CapToken:
    """Return the token in an entry of the authorize log."""
    try:
        return CapToken.decode(place.entry.msg_bytes, reading_limits(store))
    except ProtocolError as error:
        raise DamagedError(place.path, place.offset, str(error)) from error
