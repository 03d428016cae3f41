"""Names for the byte strings of the protocol, so that mypy distinguishes a label from a leaf hash.

All are plain ``bytes`` at run time; their lengths are checked where they enter an object.
"""

from collections.abc import Callable
from typing import NewType

Label = NewType("Label", bytes)
StreamId = NewType("StreamId", bytes)
ProfileId = NewType("ProfileId", bytes)
HubId = NewType("HubId", bytes)
RoutingKey = NewType("RoutingKey", bytes)
SchemaId = NewType("SchemaId", bytes)
RealmId = NewType("RealmId", bytes)
LeafHash = NewType("LeafHash", bytes)
AuthRef = NewType("AuthRef", bytes)
KeyId = NewType("KeyId", bytes)
Coid = NewType("Coid", bytes)

# An inner node, peak or root of a Merkle Mountain Range.
NodeHash = NewType("NodeHash", bytes)

# An Ed25519 public key (a client, hub, issuer or witness).
VerifyKey = NewType("VerifyKey", bytes)
Signature = NewType("Signature", bytes)

# X25519 keys of a reader: what messages are sealed to.
ReaderPublicKey = NewType("ReaderPublicKey", bytes)
ReaderSecretKey = NewType("ReaderSecretKey", bytes)

# A source of random bytes, ``os.urandom`` in production: the core itself never draws randomness.
RandomBytes = Callable[[int], bytes]

# The JSON form of a wire object, or of a part of it (bytes are lowercase hex).
JsonValue = None | bool | int | str | list["JsonValue"] | dict[str, "JsonValue"]
