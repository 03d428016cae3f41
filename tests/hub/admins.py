"""Admins: clients that write to a hub itself, sealed to its control key."""

from dataclasses import dataclass, field
from typing import Any

from tests import builders
from veen.core.objects import labels
from veen.core.objects.control_record import REVOCATION_SCHEMA, REVOCATION_STREAM, RevocationBody, Target
from veen.core.objects.hub_identity import HubIdentity
from veen.core.objects.msg import Msg, PayloadHeader
from veen.core.objects.sealed_payload import seal
from veen.core.types import AuthRef, Label, ReaderPublicKey, SchemaId

ADMIN = builders.verify_key("admin").hex()
ISSUER = builders.verify_key("issuer").hex()
VICTIM = builders.verify_key("victim")


@dataclass
class Admin:
    """A client that seals orders to a hub's control key."""

    identity: HubIdentity
    name: str = "admin"
    epoch_sec: int = 0
    auth_ref: AuthRef | None = None
    sent: dict[Label, int] = field(default_factory=dict)

    def revoke(self, kind: Target, target: bytes, *, ts: int = 1, at: int = 0, **more: Any) -> Msg:
        """Make a revocation; ``at`` is when it will be sent."""
        return self.order(RevocationBody(kind=kind.value, target=target, ts=ts, **more).encode(), at=at)

    def order(
        self,
        body: bytes,
        *,
        at: int = 0,
        schema: SchemaId = REVOCATION_SCHEMA,
        recipient: ReaderPublicKey | None = None,
    ) -> Msg:
        """Make the next message on the stream."""
        assert self.identity.control_pk is not None
        epoch = labels.epoch_at(at, self.epoch_sec)
        label = labels.label(self.identity.routing_key, REVOCATION_STREAM, epoch)
        self.sent[label] = self.sent.get(label, 0) + 1
        context = builders.context(
            profile_id=builders.profile(epoch_sec=self.epoch_sec).profile_id,
            label=label,
            client=self.name,
            client_seq=self.sent[label],
            auth_ref=self.auth_ref,
        )
        sealed = seal(
            context,
            recipient=recipient or self.identity.control_pk,
            header=PayloadHeader(schema=schema),
            body=body,
            pad_block=256,
            random=builders.counted_random(f"{self.name} {epoch} {self.sent[label]}"),
        )
        return Msg.sign(builders.signing_key(self.name), context, sealed.ciphertext)
