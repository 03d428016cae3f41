"""Changing the limits of a directory, on purpose and on the record (decision C-86).

Chunk boundaries follow from the limits, so a directory keeps every registry it has had. A new one holds
from a time that no entry has reached yet; hub_ts never goes back, so it is clear which one an entry obeys.
"""

from dataclasses import replace

from veen.core import layout
from veen.core.datadir import Registry, StoreRecord
from veen.core.limits import Limits
from veen.storage.directory import open_store, take_lock
from veen.storage.durable import replace_file
from veen.storage.errors import NotAStoreError
from veen.storage.fs import Filesystem
from veen.storage.index import Index


def require_limits(store: StoreRecord, limits: Limits) -> None:
    """Refuse limits other than those in force: they would move chunk boundaries without a trace."""
    current = store.registries[-1]
    if current.limits != limits:
        wanted = Registry.of(limits)
        changed = sorted({item.name for item in set(wanted.values) ^ set(current.values)})
        raise NotAStoreError(
            f"the data directory has other limits ({', '.join(changed)}); "
            "use those, or change the directory's with change_registry"
        )


def change_registry(fs: Filesystem, limits: Limits, compression: str, *, owner: str) -> Registry:
    """Put other limits into force for all entries from now on; the hub must have been stopped cleanly."""
    held = take_lock(fs, owner)
    try:
        store = open_store(fs)
        last_ts = _last_ts(fs)
        current = store.registries[-1]
        changed = Registry.of(limits, effective_from=last_ts + 1, compression=compression)
        if replace(changed, effective_from=current.effective_from) == current:
            return current
        earlier = [item for item in store.registries if item.effective_from <= last_ts]
        replace_file(fs, layout.STORE, replace(store, registries=(*earlier, changed)).encode())
        return changed
    finally:
        held.release()


def _last_ts(fs: Filesystem) -> int:
    index = Index.open(fs, readonly=True)
    try:
        with index.view() as view:
            meta = view.meta()
    finally:
        index.close()
    if not meta.clean:
        raise NotAStoreError("the hub was not stopped cleanly; start it, stop it, then change the limits")
    return meta.last_ts
