"""Reading who the hub of a data directory is; nothing of it is secret (C-89)."""

from veen.core import hubfiles
from veen.core.ed25519 import SIGNATURE_BYTES
from veen.core.errors import ProtocolError
from veen.core.hubfiles import HubSettings
from veen.core.identity import HubIdentity
from veen.core.types import Signature
from veen.core.wire import W
from veen.storage.directory import open_store
from veen.storage.durable import read_file
from veen.storage.errors import DamagedError, NotAStoreError
from veen.storage.fs import Filesystem


def read_public(fs: Filesystem) -> tuple[HubIdentity, HubSettings]:
    """Read what is not secret: who the hub is, and what was decided at its first start."""
    store = open_store(fs)
    found = read_identity(fs)
    settings = read_object(fs, hubfiles.SETTINGS, HubSettings)
    if found is None or found[0].hub_id != store.hub_id or settings is None:
        raise NotAStoreError("the log is here, but not the identity and settings of its hub")
    return found[0], settings


def read_identity(fs: Filesystem) -> tuple[HubIdentity, Signature] | None:
    """Read the identity, as it will be if a change is under way; the key that hub_id names has signed it."""
    pending = read_file(fs, hubfiles.PENDING)
    if pending is not None:
        identity, sig = (
            _decode(hubfiles.PENDING, pending[SIGNATURE_BYTES:], HubIdentity),
            pending[:SIGNATURE_BYTES],
        )
    else:
        stored = read_object(fs, hubfiles.IDENTITY, HubIdentity)
        if stored is None:
            return None
        identity, sig = stored, read_file(fs, hubfiles.IDENTITY_SIG) or b""
    try:
        identity.verify_signature(identity.hub_keys[0].hub_pk, sig)
    except ProtocolError as error:
        if pending is not None:
            raise DamagedError(
                hubfiles.PENDING,
                0,
                f"a change of keys was cut short, and its signature is wrong: {error}",
                f"restore {hubfiles.IDENTITY}, {hubfiles.IDENTITY_SIG} and {hubfiles.SECRETS} from a backup "
                "and remove this file",
            ) from error
        raise DamagedError(
            hubfiles.IDENTITY_SIG, 0, str(error), "restore both files from a backup"
        ) from error
    return identity, Signature(sig)


def read_object(fs: Filesystem, path: str, cls: type[W]) -> W | None:
    """Read a file that is one object; None if it is not there."""
    data = read_file(fs, path)
    return None if data is None else _decode(path, data, cls)


def _decode(path: str, data: bytes, cls: type[W]) -> W:
    try:
        return cls.decode(data)
    except ProtocolError as error:
        raise DamagedError(path, 0, str(error), "restore the file from a backup") from error
