"""The keys that signatures are checked with: the hub's, those of a fork's parent, or the caller's."""

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
# Signature and identity of an interrupted rotation: takes precedence, and the next start completes it.
PENDING: Final = "hub-identity.next"
# Where a fork has the identity of its parent.
ARCHIVE: Final = "archive/"


class Signers:
    """Keys under which a receipt or checkpoint may be signed."""

    def __init__(self, identity: HubIdentity | None, keys: Sequence[VerifyKey] = ()) -> None:
        self.identity = identity
        self._keys = keys

    def verify(self, signed: Receipt | Checkpoint) -> None:
        """Check a signature; the profile of a label is not known, so a checkpoint may have any key."""
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
    """The keys of a hub, and of the hubs that it was forked from."""

    hub_id: HubId
    # The directory of its identity: a fork archives that of its parent.
    where: str = ""
    signers: Signers | None = None
    routing: RoutingKey | None = None
    # Labels copied from the parent, with the checkpoints at which the copies end.
    copied: Mapping[Label, Checkpoint] = field(default_factory=dict)
    parent: "Keys | None" = None

    def verify_receipt(self, receipt: Receipt) -> None:
        """Check the hub's signature, if the hub's keys are known."""
        signers = self.signers_of(receipt.label)
        if signers is not None:
            signers.verify(receipt)

    def verify_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Check the hub's signature, if its keys are known; a fork may sign for its parent's labels."""
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
        """Return the signers of receipts of a label; None if not known."""
        if label in self.copied:
            return None if self.parent is None else self.parent.signers_of(label)
        return self.signers

    def lineage(self) -> "Iterator[Keys]":
        """Yield this hub and its ancestors."""
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
    hub_keys: Sequence[VerifyKey],
    level: Level,
    findings: Findings,
    *,
    where: str = "",
) -> Keys:
    """Read the identity files of a hub and its ancestors; ``hub_keys`` replace their keys."""
    keys = Keys(hub_id, where)
    identity = _identity(source, where, hub_keys, level, findings)
    if identity is not None:
        keys.signers = Signers(identity)
        keys.routing = identity.routing_key
        if identity.hub_id != hub_id:
            path = where.removesuffix(ARCHIVE) + paths.FORK if where else paths.STORE
            detail = f"hub_id is not the one of {where}{IDENTITY}"
            findings.add(damage(path, None, Reason.HUB_ID, detail))
    if hub_keys:
        keys.signers = Signers(None, hub_keys)
    fork = _fork(source, where, None if identity is None else identity.parent, findings)
    if fork is not None:
        keys.copied = {item.label_curr: item for item in fork.checkpoints}
        keys.parent = load_keys(source, fork.parent_hub_id, hub_keys, level, findings, where=where + ARCHIVE)
        if level == Level.FULL:
            _verify_copied(keys, findings)
    return keys


def _verify_copied(keys: Keys, findings: Findings) -> None:
    for checkpoint in keys.copied.values():
        try:
            keys.verify_checkpoint(checkpoint)
        except ProtocolError as error:
            findings.add(refused(keys.where + paths.FORK, 0, error).finding)


def _fork(source: Source, where: str, named: ForkParent | None, findings: Findings) -> ForkRecord | None:
    """Read the fork record; it must be the one that the hub's identity names, if it names one."""
    path = where + paths.FORK
    try:
        fork = _read(source, path, ForkRecord)
        if fork is None and named is not None:
            raise wrong(path, None, Reason.MISSING, f"{where}{IDENTITY} names it")
    except FindingError as error:
        findings.add(error.finding)
        return None
    if fork is None or named is None:
        return fork
    if (named.hub_id, named.fork_hash) != (fork.parent_hub_id, fork.fork_hash):
        findings.add(damage(path, 0, Reason.HUB_ID, f"not the fork that {where}{IDENTITY} names"))
    return fork


def _read(source: Source, path: str, cls: type[W]) -> W | None:
    """Read a file that may be absent."""
    data = source.read_if_there(path)
    try:
        return None if data is None else cls.decode(data)
    except ProtocolError as error:
        raise refused(path, 0, error) from error


def reserved_labels(hub_id: HubId) -> dict[Label, paths.Domain]:
    """Return the labels that are not for messages, with the directories of their logs."""
    return {
        labels.authorize_label(hub_id): paths.Domain.AUTHORIZE,
        labels.control_label(hub_id): paths.Domain.CONTROL,
    }


def _identity(
    source: Source, where: str, hub_keys: Sequence[VerifyKey], level: Level, findings: Findings
) -> HubIdentity | None:
    """Read an identity and check that it is signed by one of its own keys or of ``hub_keys``."""
    path, sig_path = where + IDENTITY, where + IDENTITY_SIG
    try:
        pending = source.read_if_there(where + PENDING)
        if pending is None:
            identity, sig = _read(source, path, HubIdentity), source.read_if_there(sig_path)
        else:
            path = sig_path = where + PENDING
            identity, sig = _decode(path, pending[SIGNATURE_BYTES:]), pending[:SIGNATURE_BYTES]
        if identity is not None and level == Level.FULL:
            _verify_identity(
                sig_path, identity, sig, [key.hub_pk for key in identity.hub_keys] + list(hub_keys)
            )
    except FindingError as error:
        findings.add(error.finding)
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
    rejection: ProtocolError | None = None
    for signer in signers:
        try:
            identity.verify_signature(signer, sig)
        except ProtocolError as error:
            rejection = error
        else:
            return
    assert rejection is not None, "an identity has at least one key"
    raise wrong(path, 0, rejection.detail, "not a signature of the identity by any of its keys")
