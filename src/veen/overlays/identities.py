"""Who speaks in a message: the identity whose key has signed it, or one that the key acts for."""

from collections.abc import Mapping

from veen.core.hashing import HASH_BYTES

#: Keys of clients and the identity that each acts for: devices of the identity layer.
Devices = Mapping[bytes, bytes]


def speaks_for(client_id: bytes, identity: bytes, devices: Devices) -> bool:
    """Tell whether a message of this client counts as said by an identity (AGR-011, REC-011)."""
    return identity in (client_id, devices.get(client_id))


def parse_id(text: str) -> bytes:
    """Return 32 bytes that are written in hex; a ValueError if they are not."""
    data = bytes.fromhex(text)
    if len(data) != HASH_BYTES:
        raise ValueError(f"an id has {HASH_BYTES} bytes, not {len(data)}")
    return data
