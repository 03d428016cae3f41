"""A data directory as a whole: creating one, recognising one, and who it belongs to."""

from collections.abc import Callable
from dataclasses import fields

from veen.core import labels, layout
from veen.core.datadir import NO_COMPRESSION, Registry, StoreRecord
from veen.core.errors import ProtocolError
from veen.core.layout import Domain
from veen.core.limits import Limits
from veen.core.types import HubId, Label
from veen.storage.durable import read_file, replace_file
from veen.storage.errors import BusyError, DamagedError, NotAStoreError
from veen.storage.fs import Filesystem, Held, Write
from veen.storage.index import Index, Meta


def create_store(
    fs: Filesystem,
    hub_id: HubId,
    limits: Limits,
    *,
    epoch_secs: tuple[int, ...] = (0,),
    compression: str = NO_COMPRESSION,
) -> StoreRecord:
    """Make a data directory. store.cbor comes last: without it there is none, and this can be done again."""
    if fs.size(layout.STORE) is not None:
        raise NotAStoreError("there is a data directory here already; choose another place")
    fs.make_dir("")
    for name in (*Domain, layout.STATE_DIR, layout.ANCHORS_DIR):
        fs.make_dir(name)
    fs.make_dir(layout.INDEX)
    fs.remove_index(layout.INDEX)  # of an attempt that failed; and so that its names are made anew
    index = Index.create(fs)
    try:
        with index.change() as changes:
            changes.put_meta(Meta())
    finally:
        index.close()
    registry = Registry.of(limits, compression=compression)
    store = StoreRecord(hub_id=hub_id, registries=(registry,), epoch_secs=epoch_secs)
    make_certain(fs, store)
    return store


def make_certain(fs: Filesystem, store: StoreRecord) -> None:
    """Write store.cbor, and the derived files beside it if they are missing; all names are durable then.

    Whoever is going to acknowledge entries does this first. That the files can be seen does not mean that
    they will stay: their writer may have ended before the last sync, or that sync may have failed.
    """
    missing = [path for path in (layout.RECEIPTS, layout.CHECKPOINTS) if fs.size(path) is None]
    fs.write_all([Write(path, 0, b"") for path in missing])
    replace_file(fs, layout.STORE, store.encode())


def open_store(fs: Filesystem) -> StoreRecord:
    """Read store.cbor."""
    stored = read_file(fs, layout.STORE)
    if stored is None:
        raise NotAStoreError(f"not a data directory: it has no {layout.STORE}")
    try:
        return StoreRecord.decode(stored)
    except ProtocolError as error:
        raise DamagedError(layout.STORE, 0, str(error)) from error


def reading_limits(store: StoreRecord) -> Limits:
    """Return limits that everything in the directory was within: of each, the highest it has had."""
    regimes = [item.limits for item in store.registries]
    return Limits(
        **{field.name: max(getattr(item, field.name) for item in regimes) for field in fields(Limits)}
    )


def domains_of(hub_id: HubId) -> Callable[[Label], Domain]:
    """Return which directory a label's chunks are in: all but two labels are for messages."""
    reserved = {label: domain for domain, label in reserved_labels(hub_id).items()}
    return lambda label: reserved.get(label, Domain.DATA)


def reserved_labels(hub_id: HubId) -> dict[Domain, Label]:
    """Return the labels of the reserved logs (C-53, C-107)."""
    return {
        Domain.AUTHORIZE: labels.authorize_label(hub_id),
        Domain.CONTROL: labels.control_label(hub_id),
    }


def take_lock(fs: Filesystem, owner: str) -> Held:
    """Become the one writer; ``owner`` tells others who it is."""
    try:
        return fs.lock(layout.LOCK, owner.encode())
    except BlockingIOError:
        holder = fs.read(layout.LOCK).decode(errors="replace").strip() or "another process"
        raise BusyError(f"the data directory is in use by {holder}; stop that process first") from None
