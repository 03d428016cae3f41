"""A data directory as a hub's home: made at the first start, opened at every other (C-51, C-89)."""

import json
from dataclasses import dataclass, replace

from veen.core import hpke
from veen.core.ed25519 import SEED_BYTES, SIGNATURE_BYTES, SigningKey
from veen.core.errors import ProtocolError
from veen.core.identity import HubIdentity
from veen.core.limits import Limits
from veen.core.types import RandomBytes, ReaderSecretKey, RoutingKey
from veen.core.wire import W
from veen.hub import files
from veen.hub.files import EarlierRule, HubSecrets, HubSettings
from veen.hub.keyring import KeyRing, new_identity
from veen.storage import DamagedError, Filesystem, NotAStoreError, StoppedError, create_store, open_store
from veen.storage.durable import read_file, replace_file


@dataclass(frozen=True, slots=True)
class Home:
    """What a hub is, apart from its log."""

    ring: KeyRing
    secrets: HubSecrets
    settings: HubSettings

    @property
    def identity(self) -> HubIdentity:
        """Who the hub is."""
        return self.ring.identity


def has_home(fs: Filesystem) -> bool:
    """Tell whether a hub lives here; False for a place where one can be made."""
    try:
        open_store(fs)
    except NotAStoreError:
        return False
    return True


def create_home(
    fs: Filesystem,
    settings: HubSettings,
    limits: Limits,
    random: RandomBytes,
    *,
    routing: RoutingKey | None = None,
) -> Home:
    """Make a hub in an empty place. A start that was cut short is continued, with the same keys."""
    fs.make_dir("")
    secrets = _read(fs, files.SECRETS, HubSecrets)
    if secrets is None:
        secrets = HubSecrets(
            seeds=(random(SEED_BYTES),), control_sk=random(SEED_BYTES), pow_key=random(SEED_BYTES)
        )
        replace_file(fs, files.SECRETS, secrets.encode())
    first = SigningKey.from_seed(secrets.seeds[0])
    control_pk = hpke.public_key(ReaderSecretKey(secrets.control_sk))
    ring = KeyRing.of(new_identity(first, control_pk, routing), secrets.seeds)
    write_identity(fs, ring)
    replace_file(fs, files.SETTINGS, settings.encode())
    # Last: with it the place is a data directory, and everything else is there.
    create_store(fs, ring.identity.hub_id, limits, epoch_secs=(settings.epoch_sec,))
    return Home(ring, secrets, settings)


def open_home(fs: Filesystem, *, locked: bool = True) -> Home:
    """Open the hub that lives here. Whoever holds its lock finishes a change of keys that was cut short."""
    identity, settings = read_public(fs)
    pending = read_file(fs, files.PENDING) if locked else None
    if pending is not None:
        _publish(fs, identity, pending[:SIGNATURE_BYTES])
    secrets = _read(fs, files.SECRETS, HubSecrets)
    if secrets is None:
        raise NotAStoreError(
            f"this is a copy: {files.SECRETS} is not here, so it can be read and checked, but not written; "
            "to replace the hub that it was copied from, stop that one for good and bring the file from "
            "there; to go on as another hub, fork it"
        )
    ring = KeyRing.of(identity, secrets.seeds)
    missing = [key for key in identity.hub_keys if key.valid_until is None and key.hub_pk not in ring.keys]
    if missing:
        raise DamagedError(files.SECRETS, None, "it has not the hub's current key", "bring the right file")
    return Home(ring, secrets, settings)


def read_public(fs: Filesystem) -> tuple[HubIdentity, HubSettings]:
    """Read what is not secret: who the hub is, and what was decided at its first start."""
    store = open_store(fs)
    identity = _read_identity(fs)
    settings = _read(fs, files.SETTINGS, HubSettings)
    if identity is None or identity.hub_id != store.hub_id or settings is None:
        raise NotAStoreError("the log is here, but not the identity and settings of its hub")
    return identity, settings


def write_identity(fs: Filesystem, ring: KeyRing) -> None:
    """Write the files that bind the hub's keys to its log; signed by the first key, which hub_id names.

    Identity and signature are two files, and must never be seen to disagree after a crash: both are first
    written as one, and a start finishes what it finds there.
    """
    identity = ring.identity
    sig = identity.sign(ring.keys[identity.hub_keys[0].hub_pk])
    replace_file(fs, files.PENDING, sig + identity.encode())
    _publish(fs, identity, sig)


def _publish(fs: Filesystem, identity: HubIdentity, sig: bytes) -> None:
    replace_file(fs, files.IDENTITY, identity.encode())
    replace_file(fs, files.IDENTITY_SIG, sig)
    replace_file(fs, files.IDENTITY_JSON, json.dumps(identity.to_json(), indent=2).encode() + b"\n")
    replace_file(fs, files.KEY_MAP, identity.key_map().encode())
    fs.unlink(files.PENDING)
    fs.sync_dir("")


def _read_identity(fs: Filesystem) -> HubIdentity | None:
    """Read the identity, as it will be if a change is under way; the key that hub_id names has signed it."""
    pending = read_file(fs, files.PENDING)
    if pending is not None:
        identity, sig = (
            _decode(files.PENDING, pending[SIGNATURE_BYTES:], HubIdentity),
            pending[:SIGNATURE_BYTES],
        )
    else:
        stored = _read(fs, files.IDENTITY, HubIdentity)
        if stored is None:
            return None
        identity, sig = stored, read_file(fs, files.IDENTITY_SIG) or b""
    try:
        identity.verify_signature(identity.hub_keys[0].hub_pk, sig)
    except ProtocolError as error:
        if pending is not None:
            raise DamagedError(
                files.PENDING,
                0,
                f"a change of keys was cut short, and its signature is wrong: {error}",
                f"restore {files.IDENTITY}, {files.IDENTITY_SIG} and {files.SECRETS} from a backup and "
                "remove this file",
            ) from error
        raise DamagedError(files.IDENTITY_SIG, 0, str(error), "restore both files from a backup") from error
    return identity


def rotate(fs: Filesystem, home: Home, random: RandomBytes, *, at: int, overlap_sec: int) -> Home:
    """Give the hub a new signing key. The secret is on disk before anybody is told of the key.

    Once it is, an error leaves open whether the key has changed: the hub must stop, and the next start finds
    out. A seed of an attempt that failed is kept, since nobody can be sure that it is not in use.
    """
    stored = _read(fs, files.SECRETS, HubSecrets) or home.secrets
    seed = random(SEED_BYTES)
    secrets = replace(stored, seeds=(*stored.seeds, seed))
    replace_file(fs, files.SECRETS, secrets.encode())
    ring = home.ring.rotated(seed, at, overlap_sec)
    try:
        write_identity(fs, ring)
    except OSError as error:
        raise StoppedError(f"the new key could not be published: {error}; start the hub again") from error
    return Home(ring, secrets, home.settings)


def write_settings(fs: Filesystem, home: Home, *, require_cap: bool, now: int) -> Home:
    """Change what an operator may change, because it was asked for by name; what held before is kept."""
    before = EarlierRule(until=now, require_cap=home.settings.require_cap)
    earlier = (*(home.settings.earlier or ()), before)
    settings = replace(home.settings, require_cap=require_cap, earlier=earlier)
    replace_file(fs, files.SETTINGS, settings.encode())
    return Home(home.ring, home.secrets, settings)


def _read(fs: Filesystem, path: str, cls: type[W]) -> W | None:
    data = read_file(fs, path)
    return None if data is None else _decode(path, data, cls)


def _decode(path: str, data: bytes, cls: type[W]) -> W:
    try:
        return cls.decode(data)
    except ProtocolError as error:
        raise DamagedError(path, 0, str(error), "restore the file from a backup") from error
