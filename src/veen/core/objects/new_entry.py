"""An entry that has no position yet: admission creates it, storage appends it."""

from typing import NamedTuple

from veen.core.objects.capability import Bucket, CapToken
from veen.core.objects.control_record import control_leaf
from veen.core.objects.msg import Msg
from veen.core.types import AuthRef, Label, LeafHash, VerifyKey


class NewEntry(NamedTuple):
    """The bytes to append (a message, a token or a control record), and what admission has read in them."""

    label: Label
    content: bytes
    leaf_hash: LeafHash
    client_id: VerifyKey | None = None
    client_seq: int = 0
    prev_ack: int = 0
    auth_ref: AuthRef | None = None
    # The token's bucket after this message, if it is known (C-52).
    bucket: Bucket | None = None

    @classmethod
    def of_msg(cls, msg: Msg) -> "NewEntry":
        """Return the entry of a message."""
        return cls(
            msg.label, msg.encode(), msg.leaf_hash, msg.client_id, msg.client_seq, msg.prev_ack, msg.auth_ref
        )

    @classmethod
    def of_token(cls, label: Label, token: CapToken) -> "NewEntry":
        """Return the entry of a token in the authorize log (C-53)."""
        auth_ref = token.auth_ref
        return cls(label, token.encode(), LeafHash(auth_ref), auth_ref=auth_ref)

    @classmethod
    def of_control(cls, label: Label, record: bytes) -> "NewEntry":
        """Return the entry of a record of the control log (C-107)."""
        return cls(label, record, control_leaf(record))
