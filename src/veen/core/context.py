"""What a message is bound to before it is sealed: aad and nonces (001 section 4.2; decision C-08)."""

import struct
from dataclasses import dataclass
from typing import Final

from veen.core.hashing import ZERO_32, h, tag_prefix, trunc_24, u64be
from veen.core.kinds import B32, UINT
from veen.core.labels import sized
from veen.core.types import AuthRef, Label, ProfileId, VerifyKey

_AAD_TAG: Final = tag_prefix("veen/aad")
_NONCE_TAG: Final = tag_prefix("veen/nonce")
_ATT_NONCE_TAG: Final = tag_prefix("veen/att-nonce")
_SEQ: Final = struct.Struct(">Q")
_SEQS: Final = struct.Struct(">QQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class MsgContext:
    """The plaintext fields of a message that its ciphertext is bound to.

    Changing any of them means sealing anew (MSG-014).
    """

    profile_id: ProfileId
    label: Label
    client_id: VerifyKey
    client_seq: int
    prev_ack: int
    auth_ref: AuthRef | None

    def __post_init__(self) -> None:
        """Refuse other lengths: the fields are hashed side by side, and must not run into each other."""
        for name in ("profile_id", "label", "client_id", "auth_ref"):
            value = getattr(self, name)
            if value is None and name == "auth_ref":
                continue
            sized(B32.lower(value), name)
        UINT.lower(self.client_seq)
        UINT.lower(self.prev_ack)

    def aad(self) -> bytes:
        """Return the associated data of header and body."""
        return h(
            _AAD_TAG
            + self.profile_id
            + self.label
            + self.client_id
            + _SEQS.pack(self.client_seq, self.prev_ack)
            + (ZERO_32 if self.auth_ref is None else self.auth_ref)
        )

    def body_nonce(self) -> bytes:
        """Return the nonce of the body."""
        prev_ack, client_seq = _SEQ.pack(self.prev_ack), _SEQ.pack(self.client_seq)
        return trunc_24(h(_NONCE_TAG + self.label + prev_ack + self.client_id + client_seq))


def attachment_nonce(aad: bytes, index: int) -> bytes:
    """Return the nonce of attachment ``index``.

    The text has msg_id here, which depends on the attachments themselves; the aad has the same size,
    is known to both sides before sealing, and separates messages just as well (C-08).
    """
    return trunc_24(h(_ATT_NONCE_TAG + aad + u64be(index)))
