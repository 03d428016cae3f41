"""Identifiers of hubs, streams, schemas and labels; epochs (001 sections 2 and 12; C-30 to C-33)."""

from typing import Final

from veen.core.crypto.hash import HASH_BYTES, sha256, tagged_hash, u64be
from veen.core.encoding.hexadecimal import is_hex32, parse_hex32
from veen.core.errors import Detail, ProtocolError
from veen.core.types import HubId, Label, RealmId, RoutingKey, SchemaId, StreamId, VerifyKey
from veen.stdx.grammar import counted

# The realm of deployments without named realms.
DEFAULT_REALM: Final = "default"

# Families of schemas that hash the bare name, and one name that a published vector uses; all others hash
# it under a prefix, the operation profiles among them (OVR-028).
_BARE_FAMILIES: Final = ("id.", "wallet.", "rpc.", "crdt.", "disc.", "veen.")
_BARE_NAMES: Final = frozenset({"chat.v1"})


def sized(value: bytes, name: str) -> bytes:
    """Return a 32-byte identifier; reject one of another length."""
    if len(value) != HASH_BYTES:
        raise ProtocolError(
            Detail.FIELD_SIZE,
            f"{name} of {counted(len(value), 'byte')} instead of {HASH_BYTES}",
            field=name,
            expected=HASH_BYTES,
            actual=len(value),
        )
    return value


def _utf8(name: str) -> bytes:
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise ProtocolError(Detail.VALUE, "a name must have a UTF-8 form", field="name") from None


def hub_id(first_key: VerifyKey) -> HubId:
    """Return the id of a hub: that of its first key, also after rotations (C-30)."""
    return HubId(tagged_hash("veen/hub-id", sized(first_key, "hub_pk")))


def routing_key(hub: HubId) -> RoutingKey:
    """Return the public salt of a hub's labels."""
    return RoutingKey(tagged_hash("veen/routing_key", sized(hub, "hub_id")))


def stream_id(name: str) -> StreamId:
    """Return the id of a stream name; a name of 64 hex digits is the id itself."""
    if is_hex32(name):
        return StreamId(parse_hex32(name))
    return StreamId(sha256(_utf8(name)))


def schema_id(name: str) -> SchemaId:
    """Return the id of a schema name."""
    bare = name in _BARE_NAMES or name.startswith(_BARE_FAMILIES)
    prefix = "" if bare else "veen/schema:"
    return SchemaId(sha256(_utf8(prefix + name)))


def realm_id(name: str = DEFAULT_REALM) -> RealmId:
    """Return the id of a realm name; a name of 64 hex digits is the id itself (NAM-016)."""
    if is_hex32(name):
        return RealmId(parse_hex32(name))
    return RealmId(tagged_hash("id/realm", _utf8(name)))


def revocation_stream(realm: RealmId) -> StreamId:
    """Return the stream on which the admins of a realm revoke clients and tokens (FED1-001)."""
    return StreamId(tagged_hash("veen/revocation", sized(realm, "realm_id")))


def label_class_stream(realm: RealmId) -> StreamId:
    """Return the stream on which the admins of a realm classify labels (CTL-007)."""
    return StreamId(tagged_hash("veen/label-class", sized(realm, "realm_id")))


def label(routing: RoutingKey, stream: StreamId, epoch: int) -> Label:
    """Return the label of a stream in an epoch; the hub orders messages per label."""
    preimage = sized(routing, "routing_key") + sized(stream, "stream_id") + u64be(epoch)
    return Label(tagged_hash("veen/label", preimage))


def authorize_label(hub: HubId) -> Label:
    """Return the reserved label of the log of authorized tokens (C-53)."""
    return Label(tagged_hash("veen/authorize", sized(hub, "hub_id")))


def control_label(hub: HubId) -> Label:
    """Return the reserved label of the log of control records (C-107)."""
    return Label(tagged_hash("veen/control", sized(hub, "hub_id")))


def epoch_at(unix_sec: int, epoch_sec: int) -> int:
    """Return the epoch of a time; without rotation there is only epoch 0."""
    return unix_sec // epoch_sec if epoch_sec else 0


def epoch_window(epoch: int, epoch_sec: int, max_skew_sec: int) -> range:
    """Return the epochs that are valid while ``epoch`` is the current one (C-33)."""
    if epoch_sec == 0:
        return range(1)
    tolerance = max_skew_sec // epoch_sec
    return range(max(0, epoch - tolerance), epoch + tolerance + 1)
