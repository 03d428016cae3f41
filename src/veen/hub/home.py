"""A data directory as a hub's home: created at the first start, opened at later ones (C-51, C-89).

Beside the log it holds the hub's secrets, which backups leave out, and checkpoint-binding.cbor: which key
signed which checkpoint (C-83). A fork gets its own identity, which names the log that it continues (C-95).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from veen.core.crypto import hpke
from veen.core.crypto.ed25519 import SEED_BYTES, SIGNATURE_BYTES, SigningKey
from veen.core.data_dir import hub_settings, paths
from veen.core.data_dir.hub_settings import EarlierRule, HubSettings
from veen.core.encoding.field_types import B32, VER, ListOf
from veen.core.encoding.shape import Field, MapShape
from veen.core.encoding.wire_object import Wire, decode_sequence
from veen.core.errors import ProtocolError
from veen.core.limits import Limits
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.hub_identity import BoundCheckpoint, CheckpointBinding, ForkParent, HubIdentity
from veen.core.objects.labels import hub_id
from veen.core.types import Label, RandomBytes, ReaderSecretKey, RoutingKey
from veen.hub.keyring import KeyRing, new_identity
from veen.stdx.grammar import counted
from veen.storage import (
    DamagedStoreError,
    Filesystem,
    Forked,
    NotAStoreError,
    Reader,
    WriterStoppedError,
    create_store,
    fork,
    open_store,
)
from veen.storage.atomic_file import read_file, replace_file
from veen.storage.directory import read_object, read_public

SECRETS: Final = hub_settings.SECRETS


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSecrets(Wire):
    """hub-secrets.cbor. Readable by the hub's user only; never copied, logged or sent."""

    SHAPE: ClassVar = MapShape(
        "hub_secrets",
        Field("ver", VER, key=1),
        Field("seeds", ListOf(B32, may_be_empty=False), key=2),
        Field("control_sk", B32, key=3),
        Field("pow_key", B32, key=4),
    )

    # Of the signing keys, oldest first; none is removed, so that checkpoints of old epochs can be signed.
    seeds: tuple[bytes, ...]
    # X25519 key that admin messages are sealed to (C-107).
    control_sk: bytes
    # Authenticates proof-of-work challenges (C-65).
    pow_key: bytes

    def __repr__(self) -> str:
        """Omit the secrets: a repr may end up in a log."""
        return f"HubSecrets({counted(len(self.seeds), 'key')})"


@dataclass(frozen=True, slots=True)
class Home:
    """A hub's identity, secrets and settings: everything apart from its log."""

    ring: KeyRing
    secrets: HubSecrets
    settings: HubSettings

    @property
    def identity(self) -> HubIdentity:
        return self.ring.identity


def has_home(fs: Filesystem) -> bool:
    """Return whether the directory belongs to a hub; False if one can be created in it."""
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
    """Create a hub in an empty directory. An interrupted first start is completed, with the same keys."""
    fs.make_dir("")
    secrets = read_object(fs, SECRETS, HubSecrets)
    if secrets is None:
        secrets = HubSecrets(
            seeds=(random(SEED_BYTES),), control_sk=random(SEED_BYTES), pow_key=random(SEED_BYTES)
        )
        replace_file(fs, SECRETS, secrets.encode())
    first = SigningKey.from_seed(secrets.seeds[0])
    control_pk = hpke.public_key(ReaderSecretKey(secrets.control_sk))
    ring = KeyRing.of(new_identity(first, control_pk, routing), secrets.seeds)
    write_identity(fs, ring)
    replace_file(fs, hub_settings.SETTINGS, settings.encode())
    # Last, because it makes the directory a data directory: everything else must exist by then.
    create_store(fs, ring.identity.hub_id, limits, epoch_secs=(settings.epoch_sec,))
    return Home(ring, secrets, settings)


def open_home(fs: Filesystem, *, locked: bool = True) -> Home:
    """Open the hub of a directory. ``locked``: the caller holds its lock; finish an interrupted rotation."""
    identity, settings = read_public(fs)
    pending = read_file(fs, hub_settings.PENDING) if locked else None
    if pending is not None:
        _publish(fs, identity, pending[:SIGNATURE_BYTES])
    secrets = read_object(fs, SECRETS, HubSecrets)
    if secrets is None:
        raise NotAStoreError(
            f"this is a copy without {SECRETS}: it can be read and verified, but not written; "
            "to replace the hub that it was copied from, stop that hub permanently and copy the file from "
            "there; to continue as another hub, fork it"
        )
    ring = KeyRing.of(identity, secrets.seeds)
    missing = [key for key in identity.hub_keys if key.valid_until is None and key.hub_pk not in ring.keys]
    if missing:
        raise DamagedStoreError(
            SECRETS, None, "the hub's current key is missing", "restore the file that belongs to this hub"
        )
    return Home(ring, secrets, settings)


def write_identity(fs: Filesystem, ring: KeyRing) -> None:
    """Write the files that bind the hub's keys to its log, signed by the first key, which hub_id names.

    Identity and signature are two files that must agree after a crash: both are first written to one pending
    file, from which the next start completes them.
    """
    identity = ring.identity
    sig = identity.sign(ring.keys[identity.hub_keys[0].hub_pk])
    replace_file(fs, hub_settings.PENDING, sig + identity.encode())
    _publish(fs, identity, sig)


def _publish(fs: Filesystem, identity: HubIdentity, sig: bytes) -> None:
    replace_file(fs, hub_settings.IDENTITY, identity.encode())
    replace_file(fs, hub_settings.IDENTITY_SIG, sig)
    replace_file(fs, hub_settings.IDENTITY_JSON, json.dumps(identity.to_json(), indent=2).encode() + b"\n")
    replace_file(fs, hub_settings.KEY_MAP, identity.key_map().encode())
    fs.unlink(hub_settings.PENDING)
    fs.sync_dir("")


def rotate(fs: Filesystem, home: Home, random: RandomBytes, *, at: int, overlap_sec: int) -> Home:
    """Give the hub a new signing key. The secret is on disk before the key is published.

    If publishing fails, the key may or may not have changed: the hub must stop, and the next start finds out.
    The seed of a failed attempt is retained, since it may be in use.
    """
    stored = read_object(fs, SECRETS, HubSecrets) or home.secrets
    seed = random(SEED_BYTES)
    secrets = replace(stored, seeds=(*stored.seeds, seed))
    replace_file(fs, SECRETS, secrets.encode())
    ring = home.ring.rotated(seed, at, overlap_sec)
    try:
        write_identity(fs, ring)
    except OSError as error:
        raise WriterStoppedError(
            f"the new key could not be published: {error}; start the hub again"
        ) from error
    return Home(ring, secrets, home.settings)


def write_settings(fs: Filesystem, home: Home, *, require_cap: bool, now: int) -> Home:
    """Change the settings that an operator may change; the previous rule is stored with its end."""
    before = EarlierRule(until=now, require_cap=home.settings.require_cap)
    earlier = (*(home.settings.earlier or ()), before)
    settings = replace(home.settings, require_cap=require_cap, earlier=earlier)
    replace_file(fs, hub_settings.SETTINGS, settings.encode())
    return Home(home.ring, home.secrets, settings)


def write_binding(fs: Filesystem, home: Home, max_skew_sec: int) -> None:
    """Add the checkpoints made since the previous call."""
    known = {item.place: item for item in _read(fs)}
    changed = False
    for checkpoint in _made(fs):
        place = checkpoint.label_curr, checkpoint.epoch, checkpoint.upto_seq
        if place in known:
            continue
        try:
            key = home.identity.verify_checkpoint(
                checkpoint, epoch_sec=home.settings.epoch_sec, max_skew_sec=max_skew_sec
            )
        except ProtocolError:
            continue  # a fork's parent: its own archived files bind these
        known[place] = BoundCheckpoint(
            label=checkpoint.label_curr,
            epoch=checkpoint.epoch,
            upto_seq=checkpoint.upto_seq,
            hub_id=home.identity.hub_id,
            key_id=key.key_id,
            mmr_root=checkpoint.mmr_root,
        )
        changed = True
    if changed or fs.size(hub_settings.BINDING) is None:
        replace_file(fs, hub_settings.BINDING, CheckpointBinding.of(known.values()).encode())


def _made(fs: Filesystem) -> list[Checkpoint]:
    try:
        return decode_sequence(read_file(fs, paths.CHECKPOINTS) or b"", Checkpoint)
    except ProtocolError:
        return []  # damaged: a repair rebuilds it, and the next stop continues from there


def _read(fs: Filesystem) -> tuple[BoundCheckpoint, ...]:
    stored = read_file(fs, hub_settings.BINDING)
    if stored is None:
        return ()
    try:
        return CheckpointBinding.decode(stored).checkpoints
    except ProtocolError:
        return ()  # damaged: rebuilt


def fork_home(
    source: Reader, target: Filesystem, random: RandomBytes, cuts: Mapping[Label, int] | None = None
) -> tuple[HubIdentity, Forked]:
    """Cut a log at checkpoints and make the copy a new hub: new keys and labels, old entries unchanged."""
    _, settings = read_public(source.fs)
    secrets = HubSecrets(
        seeds=(random(SEED_BYTES),), control_sk=random(SEED_BYTES), pow_key=random(SEED_BYTES)
    )
    first = SigningKey.from_seed(secrets.seeds[0])
    forked = fork(source, target, hub_id(first.public_key), cuts)
    control_pk = hpke.public_key(ReaderSecretKey(secrets.control_sk))
    parent = ForkParent(hub_id=source.store.hub_id, fork_hash=forked.record.fork_hash)
    identity = replace(new_identity(first, control_pk, None), parent=parent)
    # The secret is on disk before the key is published. The identity makes the directory a hub's: last.
    replace_file(target, SECRETS, secrets.encode())
    replace_file(target, hub_settings.SETTINGS, settings.encode())
    write_identity(target, KeyRing.of(identity, secrets.seeds))
    return identity, forked
