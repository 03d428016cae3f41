"""A data directory as a hub's home: made at the first start, opened at every other (C-51, C-89)."""

import json
from dataclasses import dataclass, replace

from veen.core import hpke, hubfiles
from veen.core.ed25519 import SEED_BYTES, SIGNATURE_BYTES, SigningKey
from veen.core.hubfiles import EarlierRule, HubSettings
from veen.core.identity import HubIdentity
from veen.core.limits import Limits
from veen.core.types import RandomBytes, ReaderSecretKey, RoutingKey
from veen.hub import files
from veen.hub.files import HubSecrets
from veen.hub.keyring import KeyRing, new_identity
from veen.storage import DamagedError, Filesystem, NotAStoreError, StoppedError, create_store, open_store
from veen.storage.durable import read_file, replace_file
from veen.storage.public import read_object, read_public


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
    secrets = read_object(fs, files.SECRETS, HubSecrets)
    if secrets is None:
        secrets = HubSecrets(
            seeds=(random(SEED_BYTES),), control_sk=random(SEED_BYTES), pow_key=random(SEED_BYTES)
        )
        replace_file(fs, files.SECRETS, secrets.encode())
    first = SigningKey.from_seed(secrets.seeds[0])
    control_pk = hpke.public_key(ReaderSecretKey(secrets.control_sk))
    ring = KeyRing.of(new_identity(first, control_pk, routing), secrets.seeds)
    write_identity(fs, ring)
    replace_file(fs, hubfiles.SETTINGS, settings.encode())
    # Last: with it the place is a data directory, and everything else is there.
    create_store(fs, ring.identity.hub_id, limits, epoch_secs=(settings.epoch_sec,))
    return Home(ring, secrets, settings)


def open_home(fs: Filesystem, *, locked: bool = True) -> Home:
    """Open the hub that lives here. Whoever holds its lock finishes a change of keys that was cut short."""
    identity, settings = read_public(fs)
    pending = read_file(fs, hubfiles.PENDING) if locked else None
    if pending is not None:
        _publish(fs, identity, pending[:SIGNATURE_BYTES])
    secrets = read_object(fs, files.SECRETS, HubSecrets)
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


def write_identity(fs: Filesystem, ring: KeyRing) -> None:
    """Write the files that bind the hub's keys to its log; signed by the first key, which hub_id names.

    Identity and signature are two files, and must never be seen to disagree after a crash: both are first
    written as one, and a start finishes what it finds there.
    """
    identity = ring.identity
    sig = identity.sign(ring.keys[identity.hub_keys[0].hub_pk])
    replace_file(fs, hubfiles.PENDING, sig + identity.encode())
    _publish(fs, identity, sig)


def _publish(fs: Filesystem, identity: HubIdentity, sig: bytes) -> None:
    replace_file(fs, hubfiles.IDENTITY, identity.encode())
    replace_file(fs, hubfiles.IDENTITY_SIG, sig)
    replace_file(fs, hubfiles.IDENTITY_JSON, json.dumps(identity.to_json(), indent=2).encode() + b"\n")
    replace_file(fs, hubfiles.KEY_MAP, identity.key_map().encode())
    fs.unlink(hubfiles.PENDING)
    fs.sync_dir("")


def rotate(fs: Filesystem, home: Home, random: RandomBytes, *, at: int, overlap_sec: int) -> Home:
    """Give the hub a new signing key. The secret is on disk before anybody is told of the key.

    Once it is, an error leaves open whether the key has changed: the hub must stop, and the next start finds
    out. A seed of an attempt that failed is kept, since nobody can be sure that it is not in use.
    """
    stored = read_object(fs, files.SECRETS, HubSecrets) or home.secrets
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
    replace_file(fs, hubfiles.SETTINGS, settings.encode())
    return Home(home.ring, home.secrets, settings)
