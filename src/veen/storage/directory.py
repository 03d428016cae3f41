"""A data directory as a whole: creating one, recognising one, and who it belongs to."""

from collections.abc import Callable

from veen.core import labels, layout
from veen.core.datadir import NO_COMPRESSION, Registry, StoreRecord
from veen.core.errors import ProtocolError
from veen.core.layout import Domain
from veen.core.limits import Limits
from veen.core.types import HubId, Label
from veen.storage.durable import read_file, replace_file
from veen.storage.errors import DamagedError, NotAStoreError
from veen.storage.fs import Filesystem
from veen.storage.index import Index


def create_store(
    fs: Filesystem, hub_id: HubId, limits: Limits, *, compression: str = NO_COMPRESSION
) -> StoreRecord:
    """Make a data directory. store.cbor comes last: without it there is none, and this can be done again."""
    if fs.size(layout.STORE) is not None:
        raise NotAStoreError("there is a data directory here already; choose another place")
    fs.make_dir("")
    for name in (*Domain, layout.STATE_DIR, layout.ANCHORS_DIR):
        fs.make_dir(name)
    Index.create(fs).close()
    store = StoreRecord(hub_id=hub_id, registries=(Registry.of(limits, compression=compression),))
    replace_file(fs, layout.STORE, store.encode())
    return store


def open_store(fs: Filesystem) -> StoreRecord:
    """Read store.cbor."""
    stored = read_file(fs, layout.STORE)
    if stored is None:
        raise NotAStoreError(f"not a data directory: it has no {layout.STORE}")
    try:
        return StoreRecord.decode(stored)
    except ProtocolError as error:
        raise DamagedError(layout.STORE, 0, str(error)) from error


def domains_of(hub_id: HubId) -> Callable[[Label], Domain]:
    """Return which directory a label's chunks are in: all but two labels are for messages."""
    reserved = {
        labels.authorize_label(hub_id): Domain.AUTHORIZE,
        labels.control_label(hub_id): Domain.CONTROL,
    }
    return lambda label: reserved.get(label, Domain.DATA)
