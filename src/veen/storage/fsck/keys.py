"""Whose signatures count: the hub's keys, those of a fork's parent, and keys given by hand."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from veen.core.crypto import ed25519
from veen.core.crypto.ed25519 import SIGNATURE_BYTES
from veen.core.data_dir import paths
from veen.core.data_dir.store_records import ForkRecord
from veen.core.encoding.wire_object import W
from veen.core.errors import Detail, ProtocolError
from veen.core.objects import labels
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.finding import Level
from veen.core.objects.hub_identity import ForkParent, HubIdentity
from veen.core.objects.receipt import Receipt
from veen.core.types import HubId, Label, RoutingKey, VerifyKey
from veen.storage.errors import FindingError
from veen.storage.fsck.report import Findings, Reason, damage, refused, wrong
from veen.storage.fsck.source import Source

IDENTITY: Final = "hub-identity.cbor"
IDENTITY_SIG: Final = "hub-identity.sig"
# Signature and identity in one, of a change that was cut short: it counts, and the next start finishes it.
PENDING: Final = "hub-identity.next"
# Where a fork keeps the identity of its parent.
ARCHIVE: Final = "archive/"


class Signers:
    """Keys under which a receipt or checkpoint may be signed."""

    def __init__(self, identity: HubIdentity | None, keys: Sequence[VerifyKey] = ()) -> None:
        self.identity = identity
        self._keys = keys

    def verify(self, signed: Receipt | Checkpoint) -> None:
        """Check a signature; which profile a label has is not known, so a checkpoint may have any key."""
        if self.identity is None:
            _verify_any(self._keys, signed)
        elif isinstance(signed, Receipt):
            self.identity.verify_receipt(signed)
        else:
            self.identity.verify_checkpoint(signed, epoch_sec=0, max_skew_sec=0)


def _verify_any(keys: Sequence[VerifyKey], signed: Receipt | Checkpoint) -> None:
    digest, sig = signed.signing_digest(), signed.hub_sig
    for key in keys:
        try:
            ed25519.verify(key, digest, sig)
        except ProtocolError:
            continue
        return
    raise ProtocolError(Detail.SIG_INVALID, "signature does not verify under any of the given keys")


@dataclass(slots=True)
class Keys:
    """The keys of a hub, and of those that its log was copied from."""

    hub_id: HubId
    # Where its identity is: a fork archives that of its parent.
    where: str = ""
    signers: Signers | None = None
    routing: RoutingKey | None = None
    # Labels copied from the parent, and the checkpoints at which the copy ends.
    copied: Mapping[Label, Checkpoint] = field(default_factory=dict)
    parent: "Keys | None" = None

    def verify_receipt(self, receipt: Receipt) -> None:
        """Check the hub's signature, if the hub's keys are known."""
        signers = self.signers_of(receipt.label)
        if signers is not None:
            signers.verify(receipt)

    def verify_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Check the hub's signature, if the hub's keys are known; a fork may sign for its parent's labels."""
        signers = self.signers_of(checkpoint.label_curr)
        if signers is None:
            return
        try:
            signers.verify(checkpoint)
        except ProtocolError:
            if checkpoint.label_curr not in self.copied or self.signers is None:
                raise
            self.signers.verify(checkpoint)

    def signers_of(self, label: Label) -> Signers | None:
        """Return who signs receipts of a label; None if that is not known."""
        if label in self.copied:
            return None if self.parent is None else self.parent.signers_of(label)
        return self.signers

    def lineage(self) -> "Iterator[Keys]":
        """Yield this hub and those before it."""
        yield self
        if self.parent is not None:
            yield from self.parent.lineage()

    @property
    def unknown(self) -> str:
        """Why signatures cannot be checked; empty if they can."""
        if self.signers is None:
            return "no hub identity"
        return (
            ""
            if all(keys.signers is not None for keys in self.lineage())
            else "no identity of the parent hub"
        )


def load_keys(
    source: Source,
    hub_id: HubId,
    given: Sequence[VerifyKey],
    level: Level,
    found: Findings,
    *,
    where: str = "",
) -> Keys:
    """Read the identity files of a hub and of those before it; keys given by hand take their place."""
    keys = Keys(hub_id, where)
    identity = _identity(source, where, given, level, found)
    if identity is not None:
        keys.signers = Signers(identity)
        keys.routing = identity.routing_key
        if identity.hub_id != hub_id:
            path = where.removesuffix(ARCHIVE) + paths.FORK if where else paths.STORE
            detail = f"hub_id is not the one of {where}{IDENTITY}"
            found.add(damage(path, None, Reason.HUB_ID, detail))
    if given:
        keys.signers = Signers(None, given)
    fork = _fork(source, where, None if identity is None else identity.parent, found)
    if fork is not None:
        keys.copied = {item.label_curr: item for item in fork.checkpoints}
        keys.parent = load_keys(source, fork.parent_hub_id, given, level, found, where=where + ARCHIVE)
        if level == Level.FULL:
            _verify_copied(keys, found)
    return keys


def _verify_copied(keys: Keys, found: Findings) -> None:
    for checkpoint in keys.copied.values():
        try:
            keys.verify_checkpoint(checkpoint)
        except ProtocolError as error:
            found.add(refused(keys.where + paths.FORK, 0, error).finding)


def _fork(source: Source, where: str, named: ForkParent | None, found: Findings) -> ForkRecord | None:
    """Read what a hub was forked from; it must be what the hub's identity names, if that names any."""
    path = where + paths.FORK
    try:
        fork = _read(source, path, ForkRecord)
        if fork is None and named is not None:
            raise wrong(path, None, Reason.MISSING, f"{where}{IDENTITY} names it")
    except FindingError as error:
        found.add(error.finding)
        return None
    if fork is None or named is None:
        return fork
    if (named.hub_id, named.fork_hash) != (fork.parent_hub_id, fork.fork_hash):
        found.add(damage(path, 0, Reason.HUB_ID, f"not the fork that {where}{IDENTITY} names"))
    return fork


def _read(source: Source, path: str, cls: type[W]) -> W | None:
    """Read a file that may be absent."""
    data = source.read_if_there(path)
    try:
        return None if data is None else cls.decode(data)
    except ProtocolError as error:
        raise refused(path, 0, error) from error


def reserved_labels(hub_id: HubId) -> dict[Label, paths.Domain]:
    """Return the labels that are not of messages, and where their logs are."""
    return {
        labels.authorize_label(hub_id): paths.Domain.AUTHORIZE,
        labels.control_label(hub_id): paths.Domain.CONTROL,
    }


def _identity(
    source: Source, where: str, given: Sequence[VerifyKey], level: Level, found: Findings
) -> HubIdentity | None:
    """Read an identity and check that one of its own keys, or a given one, has signed it."""
    path, sig_path = where + IDENTITY, where + IDENTITY_SIG
    try:
        pending = source.read_if_there(where + PENDING)
        if pending is None:
            identity, sig = _read(source, path, HubIdentity), source.read_if_there(sig_path)
        else:
            path = sig_path = where + PENDING
            identity, sig = _decode(path, pending[SIGNATURE_BYTES:]), pending[:SIGNATURE_BYTES]
        if identity is not None and level == Level.FULL:
            _verify_identity(sig_path, identity, sig, [key.hub_pk for key in identity.hub_keys] + list(given))
    except FindingError as error:
        found.add(error.finding)
        return None
    return identity


def _decode(path: str, data: bytes) -> HubIdentity:
    try:
        return HubIdentity.decode(data)
    except ProtocolError as error:
        raise refused(path, 0, error) from error


def _verify_identity(
    path: str, identity: HubIdentity, sig: bytes | None, signers: Sequence[VerifyKey]
) -> None:
    if sig is None:
        raise wrong(path, None, Reason.MISSING, "the identity has no signature")
    refusal: ProtocolError | None = None
    for signer in signers:
        try:
            identity.verify_signature(signer, sig)
        except ProtocolError as error:
            refusal = error
        else:
            return
    assert refusal is not None, "an identity has at least one key"
    raise wrong(path, 0, refusal.detail, "not a signature of the identity by any of its keys")
