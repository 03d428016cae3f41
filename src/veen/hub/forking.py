"""A fork gets an identity of its own, which names the log that it continues (decision C-95)."""

from collections.abc import Mapping
from dataclasses import replace

from veen.core import hpke, hubfiles
from veen.core.ed25519 import SEED_BYTES, SigningKey
from veen.core.identity import ForkParent, HubIdentity
from veen.core.labels import hub_id
from veen.core.types import Label, RandomBytes, ReaderSecretKey
from veen.hub import files
from veen.hub.files import HubSecrets
from veen.hub.home import write_identity
from veen.hub.keyring import KeyRing, new_identity
from veen.storage import Filesystem, Forked, Reader, fork
from veen.storage.durable import replace_file
from veen.storage.public import read_public


def fork_home(
    source: Reader, target: Filesystem, random: RandomBytes, cuts: Mapping[Label, int] | None = None
) -> tuple[HubIdentity, Forked]:
    """Cut a log at checkpoints, and make a hub of the copy: new keys and labels, old entries as they were."""
    _, settings = read_public(source.fs)
    secrets = HubSecrets(
        seeds=(random(SEED_BYTES),), control_sk=random(SEED_BYTES), pow_key=random(SEED_BYTES)
    )
    first = SigningKey.from_seed(secrets.seeds[0])
    done = fork(source, target, hub_id(first.public_key), cuts)
    control_pk = hpke.public_key(ReaderSecretKey(secrets.control_sk))
    parent = ForkParent(hub_id=source.store.hub_id, fork_hash=done.record.fork_hash)
    identity = replace(new_identity(first, control_pk, None), parent=parent)
    # The secret is on disk before anybody is told of the key; the identity makes the place a hub.
    replace_file(target, files.SECRETS, secrets.encode())
    replace_file(target, hubfiles.SETTINGS, settings.encode())
    write_identity(target, KeyRing.of(identity, secrets.seeds))
    return identity, done
