"""The keys that sign receipts of each label, picklable: those of a hub and of its parents, with times."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from veen.core.crypto import ed25519
from veen.core.errors import Detail, ProtocolError
from veen.core.objects.hub_identity import HubIdentity, HubKey
from veen.core.types import Label


@dataclass(frozen=True, slots=True)
class HubKeys:
    """The keys of a hub; a fork has labels that its parents signed."""

    identity: HubIdentity
    # Labels copied from parents, with the parent's identity.
    copied: Mapping[Label, HubIdentity] = field(default_factory=dict)

    def identity_of(self, label: Label) -> HubIdentity:
        """Return the identity of the hub that signs a label."""
        return self.copied.get(label, self.identity)

    def active(self, label: Label, first_ts: int, last_ts: int) -> list[HubKey]:
        """Return the keys that were active for a label at any time in a range."""
        return [key for key in self.identity_of(label).hub_keys if key.meets(first_ts, last_ts + 1)]


def verify_receipt(keys: list[HubKey], hub_ts: int, digest: bytes, sig: bytes) -> None:
    """Check a receipt's signature under any key that was active at its time (HUB-008)."""
    refusal: ProtocolError | None = None
    for key in keys:
        if not key.is_active_at(hub_ts):
            continue
        try:
            ed25519.verify(key.hub_pk, digest, sig)
        except ProtocolError as error:
            refusal = error
        else:
            return
    raise refusal or ProtocolError(Detail.KEY_INACTIVE, "no key of the hub was active at that time")
