"""Signed messages for the load generators, created before anything is measured."""

import os
import struct
from collections.abc import Sequence

from veen.core.crypto.ed25519 import SigningKey
from veen.core.objects import labels
from veen.core.objects.msg import Msg, MsgContext
from veen.core.profile import Profile
from veen.core.types import HubId, Label, RoutingKey

PROFILE = Profile(epoch_sec=0, pad_block=256)
# A sealed body of 200 bytes and its header, each with a tag of 16 bytes, padded: the size of a chat message.
_HDR, _BODY = 60, 216


def ciphertext() -> bytes:
    """Return bytes that a hub cannot distinguish from a sealed message."""
    sealed = os.urandom(32) + struct.pack(">II", _HDR, _BODY) + os.urandom(_HDR + _BODY)
    return sealed + bytes(-len(sealed) % PROFILE.pad_block)


class Author:
    """One client that writes to one label."""

    def __init__(self, routing: RoutingKey, name: str) -> None:
        self._key = SigningKey.from_seed(os.urandom(32))
        self.label: Label = labels.label(routing, labels.stream_id(name), 0)
        self._next = 1

    def write(self, count: int) -> Sequence[bytes]:
        """Return the next messages."""
        messages = []
        sealed = ciphertext()
        for _ in range(count):
            context = MsgContext(
                profile_id=PROFILE.profile_id,
                label=self.label,
                client_id=self._key.public_key,
                client_seq=self._next,
                prev_ack=0,
                auth_ref=None,
            )
            messages.append(Msg.sign(self._key, context, sealed).encode())
            self._next += 1
        return messages


def routing_of(hub_id: str) -> RoutingKey:
    """Return the routing key of a hub, which its labels are derived from."""
    return labels.routing_key(HubId(bytes.fromhex(hub_id)))
