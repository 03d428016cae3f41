"""Rows 3 to 9: what a message shows by itself. Stateless, so messages are checked side by side."""

from collections.abc import Mapping
from dataclasses import dataclass

from veen.core.api import SubmitRequest
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import Limits
from veen.core.msg import Msg
from veen.core.sealing import verify_padding
from veen.core.types import ProfileId
from veen.hub.admission.stages import Authentic, Sized, WellFormed
from veen.storage import Record


@dataclass(frozen=True, slots=True)
class MessageRules:
    """The part of the configuration that these rows depend on."""

    limits: Limits
    #: The padding of each profile that the hub serves (C-39).
    pad_blocks: Mapping[ProfileId, int]


def read_request(sized: Sized, rules: MessageRules) -> WellFormed:
    """Read a submit request: {1: ver, 2: msg}."""
    return _well_formed(SubmitRequest.decode_msg(sized.body, rules.limits), rules)


def read_msg(sized: Sized, rules: MessageRules) -> WellFormed:
    """Read a bare message, as bulk requests hold them (C-70)."""
    return _well_formed(Msg.decode(sized.body, rules.limits), rules)


def _well_formed(msg: Msg, rules: MessageRules) -> WellFormed:
    # Decoding was rows 3 (CBOR_INVALID), 4 (FIELD_SIZE) and 5 (VERSION), each over the whole object.
    # 6 PROFILE
    pad_block = rules.pad_blocks.get(msg.profile_id)
    if pad_block is None:
        raise ProtocolError(
            Detail.PROFILE,
            "this hub does not serve the profile of the message; see profiles in /tooling/status",
            field="profile_id",
            actual=msg.profile_id,
        )
    # 6a CT_PADDING
    verify_padding(msg.ciphertext, pad_block)
    # 7 CT_HASH
    msg.verify_ct_hash()
    # 8 ATT_ROOT is for those who hold the plaintext (C-10).
    return WellFormed(msg)


def authenticate(well_formed: WellFormed) -> Authentic:
    """Check the client's signature."""
    # 9 SIG_INVALID
    well_formed.msg.verify_signature()
    return Authentic(Record.of_msg(well_formed.msg))
