"""Handmade messages: valid ones, and ones with a single fault that no client would send."""

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from veen.client.body import DEFAULT_SCHEMA
from veen.client.effects import Submit
from veen.client.errors import rejection_of
from veen.client.home.pins import HubFacts
from veen.client.transport.http import HttpHub
from veen.core.crypto.ed25519 import SigningKey
from veen.core.crypto.hpke import public_key
from veen.core.objects import labels
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.msg import Msg, MsgContext, PayloadHeader
from veen.core.objects.receipt import Receipt
from veen.core.objects.sealed_payload import seal
from veen.core.profile import Profile
from veen.core.types import Label, ReaderSecretKey, VerifyKey

if TYPE_CHECKING:
    from veen.core.api.data_plane import SubmitResponse

_SCHEMA: Final = labels.schema_id(DEFAULT_SCHEMA)


def _key() -> SigningKey:
    return SigningKey.from_seed(os.urandom(32))


@dataclass(slots=True)
class Author:
    """Writes to one stream with its own key, and counts its messages."""

    hub: HttpHub
    facts: HubFacts
    stream: str
    epoch: int = 0
    key: SigningKey = field(default_factory=_key)
    client_seq: int = 0
    prev_ack: int = 0

    @property
    def profile(self) -> Profile:
        """The profile that clients write with."""
        return self.facts.profiles[0]

    @property
    def client_id(self) -> VerifyKey:
        """The public key."""
        return self.key.public_key

    def label(self, epoch: int | None = None) -> Label:
        """Return the label of the stream."""
        at = self.epoch if epoch is None else epoch
        return labels.label(self.facts.identity.routing_key, labels.stream_id(self.stream), at)

    def context(self) -> MsgContext:
        """Return the context of the next message; a step may change one of its fields."""
        return MsgContext(
            profile_id=self.profile.profile_id,
            label=self.label(),
            client_id=self.client_id,
            client_seq=self.client_seq + 1,
            prev_ack=self.prev_ack,
            auth_ref=None,
        )

    def msg(self, context: MsgContext | None = None, body: bytes = b"\x60") -> Msg:
        """Seal and sign a message that nobody can open."""
        bound = context or self.context()
        sealed = seal(
            bound,
            recipient=public_key(ReaderSecretKey(os.urandom(32))),
            header=PayloadHeader(schema=_SCHEMA),
            body=body,
            pad_block=self.profile.pad_block,
            random=os.urandom,
        )
        return Msg.sign(self.key, bound, sealed.ciphertext)

    def with_(self, **changes: object) -> Msg:
        """Return the next message with some of its fields changed, and a valid signature."""
        return self.msg(replace(self.context(), **changes))  # type: ignore[arg-type] # names of its fields

    def write(self, body: bytes = b"\x60") -> tuple[Msg, Receipt]:
        """Write the next message; return it and its receipt, which is checked."""
        msg = self.msg(body=body)
        receipt = submit(self.hub, msg.encode())
        self.facts.identity.verify_receipt(receipt)
        receipt.verify_msg(msg)
        self.client_seq += 1
        self.prev_ack = receipt.stream_seq
        return msg, receipt


def submit(hub: HttpHub, msg: bytes) -> Receipt:
    """Submit the bytes of one message."""
    answer: SubmitResponse | ErrorEnvelope = hub.answer(Submit((msg,)))[0]
    if isinstance(answer, ErrorEnvelope):
        raise rejection_of(answer)
    return answer.receipt
