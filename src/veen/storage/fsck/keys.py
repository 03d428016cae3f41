"""Whose signatures count: the hub's keys, those of a fork's parent, and keys given by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from veen.core import ed25519, labels, layout
from veen.core.checkpoint import Checkpoint
from veen.core.datadir import ForkRecord
from veen.core.errors import Detail, ProtocolError
from veen.core.identity import HubIdentity
from veen.core.receipt import Receipt
from veen.core.types import HubId, Label, RoutingKey, VerifyKey
from veen.storage.fsck.report import Finding, Findings, FoundError, Level, Reason, refused, wrong
from veen.storage.fsck.source import Source

IDENTITY: Final = "hub-identity.cbor"
IDENTITY_SIG: Final = "hub-identity.sig"
#: Where a fork keeps the identity of its parent.
ARCHIVE: Final = "archive/"


class Signers:
    """Keys under which a receipt or checkpoint may be signed."""

    def __init__(self, identity: HubIdentity | None, keys: Sequence[VerifyKey] = ()) -> None:
        self._identity = identity
        self._keys = keys

    def verify(self, signed: Receipt | Checkpoint) -> None:
        """Check a signature; which profile a label has is not known, so a checkpoint may have any key."""
        if self._identity is None:
            _verify_any(self._keys, signed)
        elif isinstance(signed, Receipt):
            self._identity.verify_receipt(signed)
        else:
            self._identity.verify_checkpoint(signed, epoch_sec=0, max_skew_sec=0)


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
    """The signers of every part of the log."""

    own: Signers | None = None
    parent: Signers | None = None
    #: Labels copied from the parent, and the checkpoint up to which they are its.
    copied: Mapping[Label, Checkpoint] = field(default_factory=dict)
    routing: RoutingKey | None = None
    parent_id: HubId | None = None

    def verify_receipt(self, receipt: Receipt) -> None:
        """Check the hub's signature, if the hub's keys are known."""
        signers = self.of(receipt.label, receipt.stream_seq)
        if signers is not None:
            signers.verify(receipt)

    def verify_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Check the hub's signature, if the hub's keys are known."""
        signers = self.of(checkpoint.label_curr, checkpoint.upto_seq)
        if signers is not None:
            signers.verify(checkpoint)

    def of(self, label: Label, seq: int) -> Signers | None:
        """Return who signs at this place; None if that is not known."""
        end = self.copied.get(label)
        return self.parent if end is not None and seq <= end.upto_seq else self.own

    @property
    def unknown(self) -> str:
        """Why signatures can not be checked; empty if they can."""
        if self.own is None:
            return "no hub identity"
        return "no identity of the parent hub" if self.copied and self.parent is None else ""


def load_keys(
    source: Source, hub_id: HubId, given: Sequence[VerifyKey], level: Level, found: Findings
) -> Keys:
    """Read the identity files of a data directory; keys given by hand take their place."""
    keys = Keys()
    own = _identity(source, "", given, level, found)
    if own is not None:
        keys.own = Signers(own)
        keys.routing = own.routing_key
        if own.hub_id != hub_id:
            found.add(
                Finding(layout.STORE, None, Reason.HUB_ID, "hub_id is not the one of hub-identity.cbor")
            )
    fork = _fork(source, found)
    if fork is not None:
        keys.copied = {item.label_curr: item for item in fork.checkpoints}
        keys.parent_id = fork.parent_hub_id
        parent = _identity(source, ARCHIVE, given, level, found)
        if parent is not None:
            keys.parent = Signers(parent)
            if parent.hub_id != fork.parent_hub_id:
                text = "parent_hub_id is not the one of archive/hub-identity.cbor"
                found.add(Finding(layout.FORK, None, Reason.HUB_ID, text))
    if given:
        keys.own = keys.parent = Signers(None, given)
    if level == Level.FULL:
        _verify_copied(keys, found)
    return keys


def _verify_copied(keys: Keys, found: Findings) -> None:
    for checkpoint in keys.copied.values():
        try:
            keys.verify_checkpoint(checkpoint)
        except ProtocolError as error:
            found.add(refused(layout.FORK, 0, error).finding)


def reserved_labels(hub_ids: Sequence[HubId]) -> dict[Label, layout.Domain]:
    """Return the labels that are not of messages, and where their logs are."""
    made: dict[Label, layout.Domain] = {}
    for hub_id in hub_ids:
        made[labels.authorize_label(hub_id)] = layout.Domain.AUTHORIZE
        made[labels.control_label(hub_id)] = layout.Domain.CONTROL
    return made


def _fork(source: Source, found: Findings) -> ForkRecord | None:
    try:
        data = source.read_if_there(layout.FORK)
        return None if data is None else ForkRecord.decode(data)
    except ProtocolError as error:
        found.add(refused(layout.FORK, 0, error).finding)
    except FoundError as error:
        found.add(error.finding)
    return None


def _identity(
    source: Source, where: str, given: Sequence[VerifyKey], level: Level, found: Findings
) -> HubIdentity | None:
    """Read an identity and check that one of its own keys, or a given one, has signed it."""
    path, sig_path = where + IDENTITY, where + IDENTITY_SIG
    try:
        data = source.read_if_there(path)
        if data is None:
            return None
        identity = HubIdentity.decode(data)
    except ProtocolError as error:
        found.add(refused(path, 0, error).finding)
        return None
    except FoundError as error:
        found.add(error.finding)
        return None
    if level == Level.FULL:
        try:
            _verify_identity(
                source, sig_path, identity, [key.hub_pk for key in identity.hub_keys] + list(given)
            )
        except FoundError as error:
            found.add(error.finding)
            return None
    return identity


def _verify_identity(source: Source, path: str, identity: HubIdentity, signers: Sequence[VerifyKey]) -> None:
    sig = source.read_if_there(path)
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
