"""Signed messages for the load generators, made before anything is measured."""

import os
import struct
from collections.abc import Sequence

from veen.core.crypto.ed25519 import SigningKey
from veen.core.objects import labels
from veen.core.objects.msg import Msg, MsgContext
from veen.core.profile import Profile
from veen.core.types import HubId, Label, RoutingKey

PROFILE = Profile(epoch_sec=0, pad_block=256)
#: A body of 200 bytes and its header, sealed, with 16 bytes of tag each, padded: what a chat message takes.
_HDR, _BODY = 60, 216


def ciphertext() -> bytes:
    """Return bytes that look like a sealed message; a hub can not tell."""
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
        made = []
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
            made.append(Msg.sign(self._key, context, sealed).encode())
            self._next += 1
        return made


def routing_of(hub_id: str) -> RoutingKey:
    """Return the salt of a hub's labels."""
    return labels.routing_key(HubId(bytes.fromhex(hub_id)))
