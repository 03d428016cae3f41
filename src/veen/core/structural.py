"""The structural stage of admission, rows 3 to 7, in their order (001 section 8.2; C-11, C-68).

    1   size of the request                         SIZE_PREFILTER   MSG.decode, before parsing
    3   canonical CBOR of the right shape           CBOR_INVALID     MSG.decode
    4   lengths and limits                          FIELD_SIZE       MSG.decode
    5   ver                                         VERSION          MSG.decode
    6   profile is one of the hub's                 PROFILE
    6a  padding                                     CT_PADDING
    7   ct_hash                                     CT_HASH

Row 8, att_root, is for holders of the plaintext (C-10). Pure: the same bytes and the same configuration
give the same verdict.
"""

from collections.abc import Mapping

from veen.core.errors import Detail, ProtocolError
from veen.core.limits import Limits
from veen.core.msg import Msg
from veen.core.profile import Profile
from veen.core.sealing import Envelope
from veen.core.types import ProfileId


def check_structure(data: bytes, profiles: Mapping[ProfileId, Profile], limits: Limits) -> Msg:
    """Decode a MSG and check all that can be checked without keys and without state."""
    msg = Msg.decode(data, limits)
    verify_structure(msg, profiles, limits)
    return msg


def verify_structure(msg: Msg, profiles: Mapping[ProfileId, Profile], limits: Limits) -> None:
    """Check rows 6 to 7 of a decoded message."""
    profile = profiles.get(msg.profile_id)
    if profile is None:
        raise ProtocolError(
            Detail.PROFILE,
            "profile_id is not one that is served here",
            field="profile_id",
            actual=msg.profile_id,
        )
    Envelope.parse(msg.ciphertext, limits).verify_padding(profile.pad_block)
    msg.verify_ct_hash()
