"""A data directory as a whole: creating and opening it, its hub's public identity (C-89), its limits.

Chunk boundaries follow from the limits, so a directory retains every registry it has had (C-86). A new one is
effective from a time later than all entries; since hub_ts never decreases, every entry has exactly one.
"""

from collections.abc import Callable
from dataclasses import fields, replace

from veen.core.crypto.ed25519 import SIGNATURE_BYTES
from veen.core.data_dir import hub_settings, paths
from veen.core.data_dir.hub_settings import HubSettings
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import NO_COMPRESSION, Registry, StoreRecord
from veen.core.encoding.wire_object import W
from veen.core.errors import ProtocolError
from veen.core.limits import Limits
from veen.core.objects import labels
from veen.core.objects.hub_identity import HubIdentity
from veen.core.types import HubId, Label, Signature
from veen.storage.atomic_file import read_file, replace_file
from veen.storage.errors import DamagedStoreError, NotAStoreError, StoreBusyError
from veen.storage.fs import FileLock, Filesystem, Write
from veen.storage.index.index import Index, Meta

# Returns the limits of an entry by its hub_ts.
LimitsAt = Callable[[int], Limits]


def limits_by_time(store: StoreRecord) -> LimitsAt:
    """Return a function from hub_ts to limits; nearly always there is a single set of limits."""
    regimes = [(item.effective_from, item.limits) for item in reversed(store.registries)]
    if len(regimes) == 1:
        only = regimes[0][1]
        return lambda _: only
    return lambda hub_ts: next(limits for start, limits in regimes if start <= hub_ts)


def create_store(
    fs: Filesystem,
    hub_id: HubId,
    limits: Limits,
    *,
    epoch_secs: tuple[int, ...] = (0,),
    compression: str = NO_COMPRESSION,
) -> StoreRecord:
    """Create a data directory. store.cbor comes last, so an interrupted call can be repeated."""
    if fs.size(paths.STORE) is not None:
        raise NotAStoreError("there is a data directory already; choose another path")
    fs.make_dir("")
    for name in (*Domain, paths.STATE_DIR, paths.ANCHORS_DIR):
        fs.make_dir(name)
    fs.make_dir(paths.INDEX)
    fs.remove_index(paths.INDEX)  # left by a failed attempt; also makes its names new
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
    """Write store.cbor, and the derived files beside it if they are missing; their names are durable then.

    A writer calls this before it acknowledges entries. That the files are visible does not mean that they are
    durable: the process that wrote them may have ended before its last sync, or the sync may have failed.
    """
    missing = [path for path in (paths.RECEIPTS, paths.CHECKPOINTS) if fs.size(path) is None]
    fs.write_all([Write(path, 0, b"") for path in missing])
    replace_file(fs, paths.STORE, store.encode())


def open_store(fs: Filesystem) -> StoreRecord:
    """Read store.cbor."""
    stored = read_file(fs, paths.STORE)
    if stored is None:
        raise NotAStoreError(f"not a data directory: it has no {paths.STORE}")
    try:
        return StoreRecord.decode(stored)
    except ProtocolError as error:
        raise DamagedStoreError(paths.STORE, 0, str(error)) from error


def reading_limits(store: StoreRecord) -> Limits:
    """Return the maximum of each limit over all registries, which no entry of the directory exceeds."""
    regimes = [item.limits for item in store.registries]
    return Limits(
        **{field.name: max(getattr(item, field.name) for item in regimes) for field in fields(Limits)}
    )


def domains_of(hub_id: HubId) -> Callable[[Label], Domain]:
    """Return a function from label to the directory of its chunks; all but two labels are for messages."""
    reserved = {label: domain for domain, label in reserved_labels(hub_id).items()}
    return lambda label: reserved.get(label, Domain.DATA)


def reserved_labels(hub_id: HubId) -> dict[Domain, Label]:
    """Return the labels of the reserved logs (C-53, C-107)."""
    return {
        Domain.AUTHORIZE: labels.authorize_label(hub_id),
        Domain.CONTROL: labels.control_label(hub_id),
    }


def take_lock(fs: Filesystem, owner: str) -> FileLock:
    """Take the writer's lock; ``owner`` names the process in the errors of others."""
    try:
        return fs.lock(paths.LOCK, owner.encode())
    except BlockingIOError:
        holder = fs.read(paths.LOCK).decode(errors="replace").strip() or "another process"
        raise StoreBusyError(f"the data directory is in use by {holder}; stop that process first") from None


def require_limits(store: StoreRecord, limits: Limits) -> None:
    """Reject limits other than those in force: they would move chunk boundaries without a record of it."""
    current = store.registries[-1]
    if current.limits != limits:
        requested = Registry.of(limits)
        changed = sorted({item.name for item in set(requested.values) ^ set(current.values)})
        raise NotAStoreError(
            f"the data directory has other limits ({', '.join(changed)}); "
            "use those, or change the directory's with change_registry"
        )


def change_registry(fs: Filesystem, limits: Limits, compression: str, *, owner: str) -> Registry:
    """Change the limits of all later entries; the hub must have been stopped cleanly."""
    lock = take_lock(fs, owner)
    try:
        store = open_store(fs)
        last_ts = _last_ts(fs)
        current = store.registries[-1]
        changed = Registry.of(limits, effective_from=last_ts + 1, compression=compression)
        if replace(changed, effective_from=current.effective_from) == current:
            return current
        earlier = [item for item in store.registries if item.effective_from <= last_ts]
        replace_file(fs, paths.STORE, replace(store, registries=(*earlier, changed)).encode())
        return changed
    finally:
        lock.release()


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


def read_public(fs: Filesystem) -> tuple[HubIdentity, HubSettings]:
    """Read what is not secret: the hub's identity, and the settings of its first start."""
    store = open_store(fs)
    signed_identity = read_identity(fs)
    settings = read_object(fs, hub_settings.SETTINGS, HubSettings)
    if signed_identity is None or signed_identity[0].hub_id != store.hub_id or settings is None:
        raise NotAStoreError("identity and settings of the hub are missing beside its log")
    return signed_identity[0], settings


def read_identity(fs: Filesystem) -> tuple[HubIdentity, Signature] | None:
    """Read and verify the identity and its signature; of an interrupted rotation, the pending ones."""
    pending = read_file(fs, hub_settings.PENDING)
    if pending is not None:
        identity, sig = (
            _decode(hub_settings.PENDING, pending[SIGNATURE_BYTES:], HubIdentity),
            pending[:SIGNATURE_BYTES],
        )
    else:
        stored = read_object(fs, hub_settings.IDENTITY, HubIdentity)
        if stored is None:
            return None
        identity, sig = stored, read_file(fs, hub_settings.IDENTITY_SIG) or b""
    try:
        identity.verify_signature(identity.hub_keys[0].hub_pk, sig)
    except ProtocolError as error:
        if pending is not None:
            raise DamagedStoreError(
                hub_settings.PENDING,
                0,
                f"a key rotation was interrupted, and its signature is wrong: {error}",
                f"restore {hub_settings.IDENTITY}, {hub_settings.IDENTITY_SIG} and {hub_settings.SECRETS}"
                " from a backup and remove this file",
            ) from error
        raise DamagedStoreError(
            hub_settings.IDENTITY_SIG, 0, str(error), "restore both files from a backup"
        ) from error
    return identity, Signature(sig)


def read_object(fs: Filesystem, path: str, cls: type[W]) -> W | None:
    """Read a file that contains one object; None if it does not exist."""
    data = read_file(fs, path)
    return None if data is None else _decode(path, data, cls)


def _decode(path: str, data: bytes, cls: type[W]) -> W:
    try:
        return cls.decode(data)
    except ProtocolError as error:
        raise DamagedStoreError(path, 0, str(error), "restore the file from a backup") from error
