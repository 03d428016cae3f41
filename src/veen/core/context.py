"""What a message is bound to before it is sealed: aad and nonces (001 section 4.2; decision C-08)."""

from dataclasses import dataclass
from typing import Final

from veen.core.errors import ProtocolError
from veen.core.hashing import ZERO_32, h, tag_prefix, trunc_24, u64be
from veen.core.kinds import B32, B32_OR_NULL, UINT, Kind
from veen.core.types import AuthRef, Label, ProfileId, VerifyKey

_AAD_TAG: Final = tag_prefix("veen/aad")
_NONCE_TAG: Final = tag_prefix("veen/nonce")
_ATT_NONCE_TAG: Final = tag_prefix("veen/att-nonce")
_FIELDS: Final[tuple[tuple[str, Kind], ...]] = (
    ("profile_id", B32),
    ("label", B32),
    ("client_id", B32),
    ("client_seq", UINT),
    ("prev_ack", UINT),
    ("auth_ref", B32_OR_NULL),
)


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
        for name, kind in _FIELDS:
            value = kind.lower(getattr(self, name))
            try:
                kind.check(value, None)
            except ProtocolError as error:
                error.within(name)
                raise

    def aad(self) -> bytes:
        """Return the associated data of header and body."""
        return h(
            _AAD_TAG
            + self.profile_id
            + self.label
            + self.client_id
            + u64be(self.client_seq)
            + u64be(self.prev_ack)
            + (ZERO_32 if self.auth_ref is None else self.auth_ref)
        )

    def body_nonce(self) -> bytes:
        """Return the nonce of the body."""
        return trunc_24(
            h(_NONCE_TAG + self.label + u64be(self.prev_ack) + self.client_id + u64be(self.client_seq))
        )


def attachment_nonce(aad: bytes, index: int) -> bytes:
    """Return the nonce of attachment ``index``.

    The text has msg_id here, which depends on the attachments themselves; the aad has the same size,
    is known to both sides before sealing, and separates messages just as well (C-08).
    """
    return trunc_24(h(_ATT_NONCE_TAG + aad + u64be(index)))
