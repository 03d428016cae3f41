"""Rows 3 to 9: checks of a message by itself (C-11, C-68). Stateless, so messages are checked in parallel."""

from collections.abc import Mapping
from dataclasses import dataclass

from veen.admission.stages import Authentic, Sized, WellFormed
from veen.core.api.data_plane import SubmitRequest
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import Limits
from veen.core.objects.msg import Msg
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.sealed_payload import verify_padding
from veen.core.types import ProfileId


@dataclass(frozen=True, slots=True)
class MessageRules:
    """The part of the configuration that these rows depend on."""

    limits: Limits
    # The padding of each profile that the hub serves (C-39).
    pad_blocks: Mapping[ProfileId, int]


def read_request(sized: Sized, rules: MessageRules) -> WellFormed:
    """Read a submit request: {1: ver, 2: msg}."""
    return check_structure(SubmitRequest.decode_msg(sized, rules.limits), rules)


def read_msg(sized: Sized, rules: MessageRules) -> WellFormed:
    """Read a bare message, as in bulk requests (C-70)."""
    return check_structure(Msg.decode(sized, rules.limits), rules)


def check_structure(msg: Msg, rules: MessageRules) -> WellFormed:
    """Make the checks of a decoded message that need no keys."""
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
    # 8 ATT_ROOT is checked by holders of the plaintext (C-10).
    return WellFormed(msg)


def authenticate(msg: WellFormed) -> Authentic:
    """Check the client's signature."""
    # 9 SIG_INVALID
    msg.verify_signature()
    return Authentic(NewEntry.of_msg(msg))
